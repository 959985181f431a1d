// SPDX-License-Identifier: Apache-2.0
//! A VM that is booted by requests to a server, as programs that manage VMs do, in the place of `flatboot run`.

use crate::command::Command;

/// Its arguments are flatboot's path, `run`, and what `run` is given. It ends as the server does, when the guest is over.
/// curl sends the requests. Sockets need a file system of the host's own, which /run is in the emulated one.
const SCRIPT: &str = r#"
    set -e
    directory=$(mktemp -d -p /run 2>/dev/null || mktemp -d); server=
    # A server that has ended is no failure.
    trap 'kill $server 2>/dev/null || :; rm -rf "$directory"' EXIT
    cd "$directory"
    flatboot=$1; shift 2
    put() { curl --silent --show-error --fail-with-body --unix-socket socket -X PUT "http://localhost/api/v1/$1" ${2:+-d @"$2"} >&2; }
    "$flatboot" config "$@" >vm.json
    "$flatboot" --api-socket path=socket & server=$!
    n=0; until [ -S socket ]; do n=$((n+1)); [ $n -lt 600 ] || exit 99; sleep 0.1; done
    put vm.create vm.json
    put vm.boot
    wait $server
"#;

/// The same VM as `run`, a `flatboot run` without options of the process such as `--seccomp`. The zero of its timeline is vm.boot.
pub(crate) fn instead_of(run: Command) -> Command {
    let script = Command::new("/bin/sh").args(["-c", SCRIPT, "sh"]).arg(run.program).args(run.args);
    Command { timeout: run.timeout, ..script }
}
