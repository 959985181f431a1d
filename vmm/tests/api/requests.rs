// SPDX-License-Identifier: Apache-2.0
//! Each request that needs no guest: the right status, and one sentence if it is a refusal.

use flatboot::state::VERSION;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::server::Server;
use super::{Test, require};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("requests::ping", ping, None),
        ("requests::without_a_vm", without_a_vm, None),
        ("requests::a_vm_that_never_runs", created, None),
        ("requests::what_is_wrong_is_said", wrong, None),
        ("requests::disks_come_and_go", disks, None),
        ("requests::network_interfaces_come_and_go", nets, None),
        ("requests::a_vsock_device_comes_and_goes", vsock, None),
        ("requests::a_balloon_gets_another_size", balloon, None),
        ("requests::a_start_that_fails", start_fails, None),
        ("requests::what_is_not_paused_is_not_saved", not_saved, None),
        ("requests::nothing_goes_on_from_what_is_no_snapshot", not_restored, None),
    ]
}

const VM: &str = r#"{"payload": {"kernel": "/nowhere/vmlinux"}, "memory": {"size": 268435456}}"#;

/// The status is `status` and there is one sentence, which has `words`.
fn refused(server: &Server, verb: &str, name: &str, body: &str, status: u16, words: &str) -> Result<(), Failed> {
    let (found, text) = server.ask(verb, name, body);
    let sentences: Vec<String> = serde_json::from_str(&text).map_err(|error| format!("{name}: {text:?}: {error}"))?;
    let one = sentences.len() == 1 && sentences.iter().all(|line| line.contains(words) && !line.contains('\n'));
    require(found == status && one, || format!("{verb} {name} {body}: {found} {sentences:?}, not {status} {words:?}"))
}

fn not_saved() -> Result<(), Failed> {
    let server = Server::start();
    let place = server.directory.path().join("snapshot");
    let body = json!({ "destination_url": format!("file://{}", place.display()) }).to_string();
    refused(&server, "PUT", "vm.snapshot", &body, 404, "there is no VM")?;
    require(server.ask("PUT", "vm.create", VM).0 == 204, || "not created".to_owned())?;
    refused(&server, "PUT", "vm.snapshot", &body, 405, "the VM is created: must be paused")?;
    require(!place.exists(), || "something is there".to_owned())
}

fn not_restored() -> Result<(), Failed> {
    let server = Server::start();
    let place = server.directory.path().join("snapshot");
    let body = json!({ "source_url": format!("file://{}", place.display()) }).to_string();
    let restore = |words: &str| refused(&server, "PUT", "vm.restore", &body, 400, words);
    restore("snapshot: state: there is no such file")?;
    std::fs::create_dir(&place)?;
    let whole = [b"FLATSNAP", VERSION.to_le_bytes().as_slice(), b" and some more bytes"].concat();
    for (state, words) in [
        (&b""[..], "snapshot/state: is no state of a VM"),
        (&b"FLATSNAP and some more bytes"[..], "snapshot/state: is of version "),
        (&whole, "snapshot/state: has 32 bytes: must have "),
    ] {
        std::fs::write(place.join("memory"), "")?;
        std::fs::write(place.join("state"), state)?;
        restore(words)?;
    }
    refused(&server, "GET", "vm.info", "", 404, "there is no VM")?;
    require(server.ask("PUT", "vm.create", VM).0 == 204, || "not created".to_owned())?;
    refused(&server, "PUT", "vm.restore", &body, 409, "there is a VM")
}

fn ping() -> Result<(), Failed> {
    let server = Server::start();
    let (status, body) = server.ask("GET", "vmm.ping", "");
    let said: Value = serde_json::from_str(&body)?;
    require(status == 200 && said["pid"] == server.pid(), || body.clone())?;
    require(said["version"] == env!("CARGO_PKG_VERSION") && said["features"] == json!([]), || body)
}

fn without_a_vm() -> Result<(), Failed> {
    let server = Server::start();
    for name in ["vm.boot", "vm.pause", "vm.resume", "vm.shutdown", "vm.reboot", "vm.power-button"] {
        refused(&server, "PUT", name, "", 404, "there is no VM: must be created before")?;
    }
    for name in ["vm.info", "vm.counters"] {
        refused(&server, "GET", name, "", 404, "there is no VM")?;
    }
    refused(&server, "PUT", "vm.add-disk", r#"{"path": "/d"}"#, 404, "there is no VM")?;
    refused(&server, "PUT", "vm.remove-device", r#"{"id": "x"}"#, 404, "there is no VM")?;
    require(server.put("vm.delete") == 204, || "nothing cannot be deleted".to_owned())
}

fn created() -> Result<(), Failed> {
    let server = Server::start();
    require(server.ask("PUT", "vm.create", VM) == (204, String::new()), || "not created".to_owned())?;
    let info = server.info();
    require(info["state"] == "Created" && info["memory_actual_size"] == 256 << 20, || info.to_string())?;
    let config = &info["config"];
    require(config["payload"]["kernel"] == "/nowhere/vmlinux", || info.to_string())?;
    require(config["cpus"]["boot_vcpus"] == 1 && config["cpus"]["max_vcpus"] == 1, || info.to_string())?;
    require(config["memory"]["thp"] == true && config["restart_on_reset"] == true, || info.to_string())?;
    refused(&server, "PUT", "vm.create", VM, 409, "there is a VM")?;
    for name in ["vm.pause", "vm.shutdown", "vm.reboot", "vm.power-button"] {
        refused(&server, "PUT", name, "", 405, "the VM is created: must be running")?;
    }
    refused(&server, "PUT", "vm.resume", "", 404, "the VM is created: must be running")?;
    refused(&server, "GET", "vm.counters", "", 405, "the VM is created: must be running")?;
    require(server.put("vm.delete") == 204, || "not deleted".to_owned())?;
    refused(&server, "GET", "vm.info", "", 404, "there is no VM")?;
    require(server.ask("PUT", "vm.create", VM).0 == 204, || "not created again".to_owned())
}

fn wrong() -> Result<(), Failed> {
    let server = Server::start();
    for (verb, name, body, status, words) in [
        ("PUT", "vmm.ping", "", 405, "vmm.ping: PUT came: must be GET"),
        ("GET", "vm.boot", "", 405, "vm.boot: GET came: must be PUT"),
        ("BREW", "vm.boot", "", 405, "vm.boot: BREW came: must be PUT"),
        ("GET", "/", "", 404, "/: there is no such path"),
        ("GET", "/api/v2/vm.info", "", 404, "/api/v2/vm.info: there is no such path"),
        ("GET", "vm.nothing", "", 404, "there is no such path"),
        ("PUT", "vm.send-migration", "{}", 501, "vm.send-migration: flatboot does not support this request"),
        (
            "PUT",
            "vm.snapshot",
            r#"{"destination_url": "x"}"#,
            400,
            "destination_url=x: must be file:// and the absolute",
        ),
        (
            "PUT",
            "vm.restore",
            r#"{"source_url": "file://x"}"#,
            400,
            "source_url=file://x: must be file:// and the absolute",
        ),
        ("PUT", "vm.restore", r#"{"source": "file:///x"}"#, 400, "vm.restore: "),
        ("PUT", "vm.resize-zone", r#"{"id": "a"}"#, 501, "vm.resize-zone: flatboot does not support this request"),
        ("PUT", "vm.resize", r#"{"desired_ram": 1}"#, 404, "there is no VM"),
        (
            "PUT",
            "vm.resize",
            r#"{"desired_ram": "1"}"#,
            400,
            "vm.resize: desired_ram=1: must be a whole number, 0 or more",
        ),
        (
            "PUT",
            "vm.resize",
            r#"{"desired": 1}"#,
            400,
            "vm.resize: desired: there is no such field: must be one of desired_vcpus",
        ),
        ("PUT", "vm.create", "", 400, "vm.create: has no body"),
        ("PUT", "vm.create", "garbage", 400, "vm.create: is no JSON"),
        ("PUT", "vm.create", "{}", 400, "vm.create: payload: is missing: must be given"),
        ("PUT", "vm.create", r#"{"payload": {}}"#, 400, "payload: has neither kernel nor firmware"),
        ("PUT", "vm.create", r#"{"payload": {"kernel": "k"}, "balloon": {"size": 5}}"#, 400, "balloon.size=5: must be"),
        ("PUT", "vm.create", r#"{"payload": {"kernel": "k"}, "memory": {"size": 5}}"#, 400, "memory.size=5: must be"),
        (
            "PUT",
            "vm.create",
            r#"{"payload": {"kernel": "k"}, "cpus": {"boot_vcpus": 70000}}"#,
            400,
            "cpus.boot_vcpus=70000: must be a number of vCPUs, 1 to 1024",
        ),
        (
            "PUT",
            "vm.create",
            "{\"payload\": {\"kernel\": \"k\", \"cmdline\": \"a\\nb\"}}",
            400,
            "payload.cmdline: has byte 0x0a",
        ),
        ("PUT", "vm.remove-device", "{}", 400, "vm.remove-device: id: is missing: must be given"),
    ] {
        refused(&server, verb, name, body, status, words)?;
    }
    require(server.ask("GET", "vmm.ping", "").0 == 200, || "it is gone".to_owned())
}

fn disks() -> Result<(), Failed> {
    let server = Server::start();
    server.ask("PUT", "vm.create", VM);
    let add = |body: &str| server.ask("PUT", "vm.add-disk", body).0;
    let first = [add(r#"{"path": "/a"}"#), add(r#"{"path": "/b", "id": "data", "readonly": true, "num_queues": 4}"#)];
    require(first == [204, 204], || format!("{first:?}"))?;
    refused(
        &server,
        "PUT",
        "vm.add-disk",
        r#"{"path": "/c", "id": "data"}"#,
        409,
        "id=data: is that of another device",
    )?;
    let refused_disk =
        |rest: &str, why| refused(&server, "PUT", "vm.add-disk", &format!(r#"{{"path": "/c", {rest}}}"#), 400, why);
    refused_disk(r#""iommu": true"#, "iommu=true: flatboot does not support")?;
    refused_disk(r#""image_type": "Qcow2""#, "image_type=Qcow2: must be a raw disk, which")?;
    refused(&server, "PUT", "vm.remove-device", r#"{"id": "none"}"#, 404, "there is no device with id=none")?;
    require(server.ask("PUT", "vm.remove-device", r#"{"id": "_disk0"}"#).0 == 204, || "still there".to_owned())?;
    let expected = json!([{"path": "/b", "readonly": true, "id": "data", "num_queues": 4}]);
    require(server.info()["config"]["disks"] == expected, || server.info().to_string())?;
    for _ in 1..13 {
        add(r#"{"path": "/x"}"#);
    }
    refused(
        &server,
        "PUT",
        "vm.add-disk",
        r#"{"path": "/x"}"#,
        400,
        "there are 13 disks, network interfaces and other devices: must be at most 13",
    )
}

fn nets() -> Result<(), Failed> {
    let server = Server::start();
    server.ask("PUT", "vm.create", VM);
    let add = |body: &str| server.ask("PUT", "vm.add-net", body).0;
    let added = [
        add(r#"{"tap": "a"}"#),
        add(r#"{"fds": [9], "id": "lan", "mac": "52:54:00:12:34:56", "num_queues": 2, "queue_size": 256}"#),
    ];
    require(added == [204, 204], || format!("{added:?}"))?;
    refused(&server, "PUT", "vm.add-net", r#"{"tap": "b", "id": "lan"}"#, 409, "id=lan: is that of another device")?;
    refused(
        &server,
        "PUT",
        "vm.add-net",
        r#"{"tap": "b", "vhost_user": true}"#,
        400,
        "vhost_user=true: flatboot does not support",
    )?;
    refused(&server, "PUT", "vm.add-net", r#"{"tap": "b", "mac": "x"}"#, 400, "x: must be six bytes")?;
    require(server.ask("PUT", "vm.remove-device", r#"{"id": "_net0"}"#).0 == 204, || "still there".to_owned())?;
    let expected = json!([{"fds": [9], "id": "lan", "mac": "52:54:00:12:34:56", "num_queues": 2, "queue_size": 256}]);
    require(server.info()["config"]["net"] == expected, || server.info().to_string())
}

fn balloon() -> Result<(), Failed> {
    let server = Server::start();
    server.ask("PUT", "vm.create", VM);
    let refusals = [
        (r#"{"desired_balloon": 4096}"#, "desired_balloon=4096: there is no balloon: must be absent, or 0"),
        (r#"{"desired_ram": 5}"#, "desired_ram=5: cannot change: must be absent, or 268435456"),
        (r#"{"desired_vcpus": 2}"#, "desired_vcpus=2: cannot change: must be absent, or 1"),
    ];
    for (body, words) in refusals {
        refused(&server, "PUT", "vm.resize", body, 400, words)?;
    }
    let resized = |body: &str| server.ask("PUT", "vm.resize", body).0 == 204;
    let nothing = r#"{"desired_ram": 268435456, "desired_vcpus": 1, "desired_balloon": 0}"#;
    require(resized(nothing) && resized("{}"), || "nothing cannot be asked for".to_owned())?;
    server.put("vm.delete");
    let mut vm: Value = serde_json::from_str(VM).unwrap();
    vm["balloon"] = json!({"size": 0, "deflate_on_oom": true, "free_page_reporting": false, "id": "_balloon"});
    server.ask("PUT", "vm.create", &vm.to_string());
    require(resized(r#"{"desired_balloon": 8192}"#), || "not resized".to_owned())?;
    let wrong = "desired_balloon=5: must be a multiple of 4096 bytes, and less than the memory that the VM starts with, 268435456";
    refused(&server, "PUT", "vm.resize", r#"{"desired_balloon": 5}"#, 400, wrong)?;
    let expected = json!({"size": 8192, "deflate_on_oom": true, "free_page_reporting": false});
    require(server.info()["config"]["balloon"] == expected, || server.info().to_string())
}

fn vsock() -> Result<(), Failed> {
    let server = Server::start();
    server.ask("PUT", "vm.create", VM);
    let add = |body: &str| server.ask("PUT", "vm.add-vsock", body).0;
    refused(&server, "PUT", "vm.add-vsock", r#"{"cid": 1, "socket": "a"}"#, 400, "cid=1: must be a context id")?;
    require(add(r#"{"cid": 3, "socket": "a", "iommu": false}"#) == 204, || "refused".to_owned())?;
    refused(
        &server,
        "PUT",
        "vm.add-vsock",
        r#"{"cid": 4, "socket": "b"}"#,
        409,
        "there is a vsock device: must be one at most",
    )?;
    require(server.ask("PUT", "vm.remove-device", r#"{"id": "_vsock0"}"#).0 == 204, || "still there".to_owned())?;
    require(add(r#"{"cid": 4, "socket": "b", "id": "agent"}"#) == 204, || "refused again".to_owned())?;
    let expected = json!({"cid": 4, "socket": "b", "id": "agent"});
    require(server.info()["config"]["vsock"] == expected, || server.info().to_string())
}

fn start_fails() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    server.ask("PUT", "vm.create", VM);
    let missing = "payload.kernel=/nowhere/vmlinux: there is no such file";
    refused(&server, "PUT", "vm.boot", "", 500, missing)?;
    let before = server.usage();
    for _ in 0..20 {
        refused(&server, "PUT", "vm.boot", "", 500, missing)?;
    }
    server.is_back_at(&before);
    require(server.info()["state"] == "Created", || server.info().to_string())?;
    // Each start that begins has an end.
    let path = server.directory.path().join("events");
    let events = || std::fs::read_to_string(&path).unwrap_or_default();
    let count = |words: &str| events().matches(words).count();
    server.wait_for("no event", |_| count("\"boot-failed\"") == 21 && count(missing) == 21);
    require(count("\"booting\"") == 21 && count("\"booted\"") == 0, events)
}
