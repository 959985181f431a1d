// SPDX-License-Identifier: Apache-2.0
//! The socket of a vsock device: one that cannot be made, and one that comes and goes with its VM.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::kvm::{RUNS, program};
use crate::net::wait;
use crate::refusal::{ERROR, Row, USAGE};

pub(crate) fn rows() -> Vec<Row> {
    let run = |options: &str, status, line: &str| {
        Row::new(&format!("run --vsock {options}"), &format!("run --vsock {options}"), status, line)
    };
    let disks = "--disk path=@/disk,readonly=on ".repeat(13);
    vec![
        run("cid=3", USAGE, "--vsock cid=N and socket=PATH: is missing: must be given"),
        run("cid=2,socket=@/s", USAGE, "--vsock cid=2: must be a context id, 3 to 4294967294"),
        run("cid=3,socket=@/disk", ERROR, "--vsock socket=@/disk: is there and no socket: must not exist"),
        run(
            "cid=3,socket=@/no/s",
            ERROR,
            "--vsock socket=@/no/s: cannot be created: entity not found: must be in a directory that exists and is writable",
        ),
        Row::new(
            "a vsock device besides 13 disks",
            &format!("run --vsock cid=3,socket=@/s {}", disks.trim_end()),
            USAGE,
            "--disk, --net, --vsock, --console and --balloon: 14 given: must be at most 13",
        ),
    ]
}

pub(crate) fn trials(host: &Host) -> Vec<Trial> {
    ["", "--landlock", "--restart-on-reset", "--api-socket path=api"]
        .into_iter()
        .map(|options| {
            let name = format!("a vsock device's socket comes and goes with its VM: {options}");
            let ignored = host.skips(&name, Needs::OpenKvm);
            Trial::test(name, move || comes_and_goes(options)).with_ignored_flag(ignored)
        })
        .collect()
}

/// What a VM that was killed leaves behind is no hindrance for the next one.
fn comes_and_goes(options: &str) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    fs::write(path("kernel"), program(RUNS))?;
    for signal in ["KILL", "TERM"] {
        let mut vm = start(directory.path(), options, "file=console")?;
        wait("the guest runs", || fs::read(path("console")).is_ok_and(|said| !said.is_empty()))?;
        UnixStream::connect(path("socket"))?;
        let second = start(directory.path(), "", "null")?.wait_with_output()?;
        let said = String::from_utf8(second.stderr)?;
        assert!(
            said.contains("--vsock socket=socket: is in use by another process: must be used by no other"),
            "{said}"
        );
        Command::new("kill").args(["-s", signal, &vm.id().to_string()]).status()?;
        vm.wait()?;
        if signal == "KILL" {
            // One that has a keeper goes a moment later.
            wait("nobody listens", || UnixStream::connect(path("socket")).is_err())?;
        } else {
            assert!(!path("socket").exists(), "the socket is there");
        }
        fs::remove_file(path("console"))?;
    }
    Ok(())
}

fn start(directory: &Path, options: &str, serial: &str) -> Result<Child, Failed> {
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args("run --kernel kernel --rng off --shutdown-timeout 1".split_whitespace()).current_dir(directory);
    flatboot.args(["--vsock", "cid=3,socket=socket", "--serial", serial]).args(options.split_whitespace());
    Ok(flatboot.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
}
