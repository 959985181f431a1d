// SPDX-License-Identifier: Apache-2.0
//! `boot`: Debian 12 under flatboot, to its login prompt.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::mem;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use flatboot_bench::{Backend, Command, HostOptions, Kvm, SessionControl, Stdin, Streams, artifact};
use rustix::process::Signal;

use crate::cli::BootArgs;
use crate::interrupts::Interrupts;

/// What agetty writes when one can log in.
const PROMPT: &[u8] = b"login: ";
/// Under emulation on a slow machine a boot takes about a minute; one that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(900);

/// Boots, and powers the guest off at its login prompt, unless it is to stay.
pub(crate) fn boot(args: &BootArgs) -> Result<u8> {
    if let Some(port) = args.ssh_port
        && let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
    {
        eprintln!("flatboot-bench: --ssh-port {port}: 127.0.0.1:{port}: {error}: must be a free port");
        return Ok(1);
    }
    let stays = args.keep || args.ssh_port.is_some();
    let flatboot = artifact::needed_flatboot(args.flatboot.as_deref())?;
    let (disk, payload) = payload(args.firmware)?;
    let backend = Backend::open(Some(&flatboot))?;
    eprintln!("==> {backend}");
    // Before signals are caught: a build that takes minutes is ended by Ctrl-C as any build is.
    let kernel_of_host = backend.host_kernel()?;
    if kernel_of_host.is_some() {
        eprintln!("==> starting the emulated KVM host (a few seconds)");
    }
    let mut command = command(args, &flatboot, &disk, payload);
    command.timeout = (!stays).then_some(LIMIT);
    if let Some(port) = args.ssh_port {
        command = command.args(["--net", &network(port, backend.kvm())]);
    }
    let ports = args.ssh_port.into_iter().collect();
    let options = HostOptions { drives: vec![disk], ports, kernel: kernel_of_host, ..HostOptions::default() };

    let interrupts = Interrupts::catch().context("cannot handle signals")?;
    let mut session = backend.start(&options)?;
    let control = session.control();
    interrupts.forward_to(control.clone(), stays);
    let way = if args.firmware { " through UEFI firmware" } else { "" };
    eprintln!("==> booting Debian 12{way}: {} vCPUs, {} of memory", args.cpus, args.memory);
    if let Some(port) = args.ssh_port {
        eprintln!("==> once it asks for a login, from another terminal: ssh -p {port} root@localhost (no password)");
    }
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let mut watched = Watch { out: io::stdout(), control, seen: 0, done: false };
    let (stdin, stdout): (Stdin, &mut (dyn Write + Send)) = match stays {
        true if io::stdin().is_terminal() => (Stdin::Terminal, &mut stdout),
        true => (Stdin::Inherit, &mut stdout),
        false => (Stdin::Null, &mut watched),
    };
    let finish = session.run_streaming(&command, Streams { stdin, stdout, stderr: &mut stderr })?;
    if !stays && !watched.done && finish.code == 0 {
        eprintln!("flatboot-bench: the guest ended before its login prompt");
        return Ok(1);
    }
    Ok(finish.code)
}

/// For a kernel that flatboot loads itself.
const CMDLINE: &str = "root=/dev/vda rw rootfstype=ext4 quiet loglevel=3";

/// The disk that is booted, and the options of what starts from it; built, or taken from the caches.
fn payload(firmware: bool) -> Result<(PathBuf, Vec<OsString>)> {
    if firmware {
        let firmware = artifact::firmware()?;
        return Ok((artifact::efi_disk()?, vec!["--firmware".into(), firmware.into()]));
    }
    // A kernel that has its drivers in modules has an initramfs.
    let (disk, initramfs) = artifact::debian_disk()?;
    let mut options = vec!["--kernel".into(), artifact::debian_kernel()?.into(), "--cmdline".into(), CMDLINE.into()];
    options.extend(initramfs.into_iter().flat_map(|file| [OsString::from("--initramfs"), file.into()]));
    Ok((disk, options))
}

fn command(args: &BootArgs, flatboot: &Path, disk: &Path, payload: Vec<OsString>) -> Command {
    let mut disk_option = OsString::from("path=");
    disk_option.push(disk);
    Command::new(flatboot)
        .args(["run", "--cpus", &format!("boot={}", args.cpus), "--memory", &format!("size={}", args.memory)])
        .args(payload)
        .arg("--disk")
        .arg(disk_option)
        .args(["--shutdown-timeout", "60", "--timeline", "/dev/null"])
}

/// A network on which `port` of this machine leads to the guest's ssh: in the emulated host, by way of that host's own address.
fn network(port: u16, kvm: Kvm) -> String {
    let address = if kvm == Kvm::Real { "" } else { "0.0.0.0/" };
    format!("passt,forward={address}{port}:22")
}

/// Passes the console on and asks the guest to power off once the login prompt has come by.
struct Watch {
    out: io::Stdout,
    control: SessionControl,
    /// Bytes of [`PROMPT`] that the last ones match.
    seen: usize,
    done: bool,
}

impl Write for Watch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        // A prompt ends no line, and a line is what standard output waits for.
        self.out.flush()?;
        for byte in &bytes[..written] {
            // The prompt's first byte occurs in it only once, so a mismatch can only begin anew with this byte.
            self.seen = if *byte == PROMPT[self.seen] { self.seen + 1 } else { usize::from(*byte == PROMPT[0]) };
            if self.seen == PROMPT.len() {
                self.seen = 0;
                if !mem::replace(&mut self.done, true) {
                    eprintln!("\n==> login prompt reached; powering off (KEEP=1 stays)");
                    self.control.signal(Signal::TERM.as_raw());
                }
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
