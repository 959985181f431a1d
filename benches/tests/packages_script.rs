// SPDX-License-Identifier: Apache-2.0
//! benches/packages.sh with a fake apt.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages.sh");
/// The first two updates find the lists locked; the third does what `UPDATE` says.
const APT_GET: &str = r#"#!/bin/sh
echo "$*" >>"$CALLS"
[ "$1" = update ] || exit 0
[ "$(grep -c update "$CALLS")" -gt 2 ] && exit "$UPDATE"
echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"
exit 100
"#;
/// Nothing is installed but git, for two architectures, and shellcheck for another one than this machine's.
const DPKG_QUERY: &str = r"#!/bin/sh
case $3 in
git) printf 'installed amd64\ninstalled i386\n' ;;
shellcheck) echo 'installed i386' ;;
*) exit 1 ;;
esac
";
const DPKG: &str = "#!/bin/sh\necho amd64\n";
const SLEEP: &str = "#!/bin/sh\nexec /bin/sleep 0.01\n";

/// Root whose id says so, or a user without sudo: only what is named here is found.
fn run(user: &str, update: &str) -> (Output, String) {
    let lab = TempDir::new().unwrap();
    for (name, text) in [("apt-get", APT_GET), ("dpkg", DPKG), ("dpkg-query", DPKG_QUERY), ("sleep", SLEEP)] {
        executable(&lab, name, text);
    }
    executable(&lab, "id", &format!("#!/bin/sh\necho {user}\n"));
    for name in ["bash", "cat", "env", "flock", "grep", "mkdir", "mktemp", "rm", "sh", "tail"] {
        symlink(format!("/usr/bin/{name}"), lab.path().join(name)).unwrap();
    }
    let calls = lab.path().join("calls");
    let mut command = Command::new(SCRIPT);
    command.args(["host", "check"]).env("PATH", lab.path()).env("FLATBOOT_CACHE", lab.path());
    let output = command.env("CALLS", &calls).env("UPDATE", update).output().unwrap();
    (output, fs::read_to_string(calls).unwrap_or_default())
}

fn executable(lab: &TempDir, name: &str, text: &str) {
    let path = lab.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_busy_apt_is_waited_for_and_an_update_that_fails_is_no_end() {
    for (update, words) in [("0", "apt is busy"), ("7", "apt-get update has failed")] {
        let (output, calls) = run("0", update);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(words), "{said}");
        let install = calls.strip_prefix("update -q\nupdate -q\nupdate -q\n").unwrap_or_default();
        assert!(install.contains("Lock::Timeout=300 --no-install-recommends qemu-system-x86 shellcheck\n"), "{calls}");
    }
}

#[test]
fn who_cannot_become_root_is_told_all_that_root_is_to_do() {
    let (output, calls) = run("1000", "0");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("as root: apt-get update; apt-get install qemu-system-x86 shellcheck\n"), "{said}");
    assert!(output.status.code() == Some(1) && calls.is_empty(), "{calls}");
}
