// SPDX-License-Identifier: Apache-2.0
//! What this host lets a test do: run as a user without rights, or with another /dev/kvm.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::FLATBOOT;

/// The user without rights.
pub(crate) const NOBODY: u32 = 65534;

/// What a row needs of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// A user whom permissions bind.
    Unprivileged,
    /// A mount namespace whose /dev is empty but for what this script puts there.
    Devices(&'static str),
    /// The same, and real root, who may make device nodes.
    Nodes(&'static str),
    /// The same, to be run as a user without rights.
    NodesUnprivileged(&'static str),
    /// A /dev/kvm that opens but cannot run guests.
    UnusableKvm,
    /// A /dev/kvm that opens.
    OpenKvm,
    /// A /dev/kvm that runs guests.
    UsableKvm,
    /// A /dev/net/tun that opens, and root, who may make taps.
    Taps,
    /// That many free pages of that many KiB in a pool of huge pages.
    HugePages(u64, u64),
}

/// What this host has; each `Err` says what is missing.
#[derive(Debug)]
pub(crate) struct Host {
    /// The program, where a user without rights can run it.
    unprivileged: Result<PathBuf, String>,
    /// How `unshare` is called to get a mount namespace.
    namespace: Result<&'static [&'static str], String>,
    root: bool,
    /// What `flatboot check --json` says.
    pub(crate) check: serde_json::Value,
    /// Keeps the copy of the program.
    _directory: TempDir,
}

impl Host {
    pub(crate) fn look() -> Self {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let root = is_root(directory.path());
        let output = Command::new(FLATBOOT).args(["check", "--json"]).stdin(Stdio::null()).output();
        let check = output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default();
        Self {
            unprivileged: unprivileged(root, directory.path()),
            namespace: namespace(),
            root,
            check,
            _directory: directory,
        }
    }

    /// Whether the test `name` cannot run here; says why not.
    pub(crate) fn skips(&self, name: &str, needs: Needs) -> bool {
        let missing = self.lacks(needs);
        if let Some(why) = &missing {
            eprintln!("SKIPPED: {name}: {why}");
        }
        missing.is_some()
    }

    /// What is missing for `needs`.
    fn lacks(&self, needs: Needs) -> Option<String> {
        let unprivileged = || self.unprivileged.as_ref().err().cloned();
        let namespace = || self.namespace.as_ref().err().cloned();
        let nodes = || (!self.root).then(|| "only root may make device nodes".to_owned()).or_else(namespace);
        let opens = self.check.get("vcpus").is_some();
        match needs {
            Needs::Nothing => None,
            Needs::Unprivileged => unprivileged(),
            Needs::Devices(_) => namespace(),
            Needs::Nodes(_) => nodes(),
            Needs::NodesUnprivileged(_) => nodes().or_else(unprivileged),
            Needs::OpenKvm => (!opens).then(|| format!("KVM does not open here: {}", self.check)),
            Needs::UsableKvm if self.check["usable"] == true => None,
            Needs::UsableKvm => Some(format!("KVM runs no guests here: {}", self.check["problem"])),
            Needs::UnusableKvm if self.check["usable"] == true => Some("this host's KVM runs guests".to_owned()),
            Needs::UnusableKvm => self.lacks(Needs::OpenKvm),
            Needs::Taps if !self.root => Some("only root may make taps".to_owned()),
            Needs::Taps => {
                let tun = File::options().read(true).write(true).open("/dev/net/tun");
                tun.err().map(|error| format!("/dev/net/tun: {error}")).or_else(|| self.lacks(Needs::OpenKvm))
            }
            Needs::HugePages(pages, kib) => no_huge_pages(pages, kib),
        }
    }

    /// flatboot, to be given its arguments.
    pub(crate) fn command(&self, needs: Needs) -> Option<Command> {
        Some(match needs {
            Needs::Nothing
            | Needs::UnusableKvm
            | Needs::OpenKvm
            | Needs::UsableKvm
            | Needs::Taps
            | Needs::HugePages(..) => Command::new(FLATBOOT),
            Needs::Unprivileged => {
                let mut command = Command::new(self.unprivileged.as_ref().ok()?);
                if self.root {
                    command.uid(NOBODY).gid(NOBODY);
                }
                command
            }
            Needs::Devices(script) | Needs::Nodes(script) => self.with_devices(script, "", Path::new(FLATBOOT))?,
            Needs::NodesUnprivileged(script) => {
                let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
                self.with_devices(script, user, self.unprivileged.as_ref().ok()?)?
            }
        })
    }

    /// `program` by way of `user`, in a namespace of its own whose /dev `script` fills.
    fn with_devices(&self, script: &str, user: &str, program: &Path) -> Option<Command> {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o mode=755 none /dev && {script} && exec {user} \"$@\"");
        command.args(*self.namespace.as_ref().ok()?).args(["sh", "-c", &script, "sh"]).arg(program);
        Some(command)
    }
}

/// What is missing for `pages` pages of `kib` KiB.
fn no_huge_pages(pages: u64, kib: u64) -> Option<String> {
    let file = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages");
    let free: u64 = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (free < pages).then(|| format!("{file} is {free}, {pages} are needed"))
}

/// Whether permissions do not bind this process.
fn is_root(directory: &Path) -> bool {
    let secret = directory.join("secret");
    fs::write(&secret, "").expect("a temporary file");
    fs::set_permissions(&secret, Permissions::from_mode(0o000)).expect("a file of our own");
    fs::read(&secret).is_ok()
}

/// The program or a copy of it that can be run by a user whom permissions bind.
fn unprivileged(root: bool, directory: &Path) -> Result<PathBuf, String> {
    let copy = directory.join("flatboot");
    if !root {
        return Ok(FLATBOOT.into());
    }
    let runs = |program: &Path| {
        let mut command = Command::new(program);
        command.arg("--version").uid(NOBODY).gid(NOBODY).current_dir("/");
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if runs(Path::new(FLATBOOT)) {
        return Ok(FLATBOOT.into());
    }
    fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    fs::copy(FLATBOOT, &copy).map_err(|error| error.to_string())?;
    if runs(&copy) { Ok(copy) } else { Err("this user may read every file, and nobody cannot run flatboot".to_owned()) }
}

/// The first way to a mount namespace that works.
fn namespace() -> Result<&'static [&'static str], String> {
    const WAYS: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];
    let works = |way: &&&[&str]| {
        let mut command = Command::new("unshare");
        command.args(**way).args(["mount", "-t", "tmpfs", "none", "/dev"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    WAYS.iter().find(works).copied().ok_or_else(|| "no mount namespace: unshare and mount do not work here".to_owned())
}
