// SPDX-License-Identifier: Apache-2.0
//! Hosts whose /dev/kvm is missing, forbidden, something else, or no good.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::host::{Host, Needs};
use crate::refusal::{ERROR, Row, USAGE, matches};

/// Names, what makes the host so, and what flatboot says of it.
const HOSTS: [(&str, Needs, &str); 6] = [
    (
        "missing",
        Needs::Devices("true"),
        "/dev/kvm: missing: load the kvm_intel or kvm_amd module, or enable virtualization in the firmware",
    ),
    (
        "an empty file",
        Needs::Devices(": > /dev/kvm"),
        "/dev/kvm: is something else, must be the device of the kvm module (character device 10, 232)",
    ),
    (
        "a directory",
        Needs::Devices("mkdir /dev/kvm"),
        "/dev/kvm: cannot be opened, must be the device of the kvm module: Is a directory (os error 21)",
    ),
    (
        "another device",
        Needs::Nodes("mknod /dev/kvm c 1 3"),
        "/dev/kvm: is something else, must be the device of the kvm module (character device 10, 232)",
    ),
    (
        "no permission",
        Needs::NodesUnprivileged("mknod -m 000 /dev/kvm c 10 232 && chown 0:107 /dev/kvm"),
        "/dev/kvm: no permission: it belongs to group id 107; add yourself to that group or run as root",
    ),
    (
        "unable to run guests",
        Needs::UnusableKvm,
        "/dev/kvm: opens, but … use a host with full KVM or the emulated KVM host",
    ),
];

pub(crate) fn rows(host: &Host) -> Vec<Row> {
    let mut rows: Vec<_> = HOSTS
        .into_iter()
        .flat_map(|(name, needs, line)| {
            // What is wrong with an image comes before what is wrong with the host.
            let image = "run --kernel @/text";
            [
                Row::new(&format!("/dev/kvm: {name}: run"), "run --kernel @/bzimage", ERROR, line).needs(needs),
                Row::new(&format!("/dev/kvm: {name}: image first"), image, ERROR, "kernel @/text: not a kernel: …")
                    .needs(needs),
            ]
        })
        .collect();
    rows.push(too_wide(host));
    rows
}

/// That memory reaches beyond this host's addresses, KVM says.
fn too_wide(host: &Host) -> Row {
    let bits = host.check["address_bits"].as_u64().unwrap_or(40);
    let arguments = format!("run --memory size={}", 1u64 << bits);
    let line = format!(
        "--memory size=…: must be between 64M and …, which is what {bits}-bit physical addresses have room for"
    );
    Row::new("more memory than this host's addresses reach", &arguments, USAGE, &line).needs(Needs::OpenKvm)
}

/// `flatboot check` of every such host, and of this one.
pub(crate) fn trials(host: &Arc<Host>) -> Vec<Trial> {
    let hosts = HOSTS.into_iter().map(|(name, needs, line)| {
        let name = format!("/dev/kvm: {name}: check");
        let ignored = host.skips(&name, needs);
        let host = Arc::clone(host);
        Trial::test(name, move || check(&host, needs, Some(line))).with_ignored_flag(ignored)
    });
    let this = Arc::clone(host);
    hosts
        .chain([Trial::test("check says the same as text and as JSON", move || check(&this, Needs::Nothing, None))])
        .collect()
}

/// Both forms agree with each other, with the exit status, and with `line`.
fn check(host: &Host, needs: Needs, line: Option<&str>) -> Result<(), Failed> {
    let run =
        |arguments: &[&str]| host.command(needs).ok_or("no such host")?.args(arguments).output().map_err(Failed::from);
    let (text, json) = (run(&["check"])?, run(&["check", "--json"])?);
    let report: Value = serde_json::from_slice(&json.stdout)?;
    let usable = report["usable"].as_bool().ok_or("usable is no truth value")?;
    let status = Some(i32::from(!usable));
    assert_eq!((text.status.code(), json.status.code()), (status, status), "{report}");
    assert!(text.stderr.is_empty(), "{}", String::from_utf8_lossy(&text.stderr));

    let shown = String::from_utf8(text.stdout)?;
    let first = shown.lines().next().unwrap_or_default();
    if usable {
        assert_eq!((first, json.stderr.as_slice(), report.get("problem")), ("/dev/kvm: runs guests", &b""[..], None));
    } else {
        let problem = report["problem"].as_str().ok_or("no problem")?;
        assert_eq!((first, String::from_utf8(json.stderr)?), (problem, format!("{problem}\n")));
    }
    let limits = shown.lines().nth(1).unwrap_or_default();
    if let (Some(vcpus), Some(bits)) = (report["vcpus"].as_u64(), report["address_bits"].as_u64()) {
        assert_eq!(limits, format!("limits: {vcpus} vCPUs, {bits}-bit guest physical addresses"));
        assert!((1..=255).contains(&vcpus) && (36..=52).contains(&bits), "{limits}");
    } else {
        assert_eq!(limits, "");
    }
    if let Some(line) = line {
        assert!(matches(first, line), "{first}");
    }
    Ok(())
}
