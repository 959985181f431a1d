// SPDX-License-Identifier: Apache-2.0
//! Clients that others wrote for Cloud Hypervisor.

use std::process::{Command, Stdio};

use cloud_hypervisor_client::apis::{DefaultApi, Error};
use cloud_hypervisor_client::models::{CpusConfig, DiskConfig, MemoryConfig, PayloadConfig, VmConfig, VmRemoveDevice};
use cloud_hypervisor_client::socket_based_api_client;
use flatboot::vm;
use libtest_mimic::Failed;

use super::server::Server;
use super::{Test, life, require};

pub(crate) fn tests() -> Vec<Test> {
    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    let missing = curl.is_err().then(|| "there is no curl".to_owned());
    let no_kvm = vm::open_kvm().err().map(|error| error.to_string());
    vec![
        ("clients::the_crate", the_crate, None),
        ("clients::the_crate_and_a_whole_life", the_crate_lives, no_kvm),
        ("clients::curl", curl_works, missing),
    ]
}

fn the_crate() -> Result<(), Failed> {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(typed(&server))
}

fn the_crate_lives() -> Result<(), Failed> {
    let mut server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(whole_life(&mut server))?;
    let (status, said) = server.ended();
    require(status.success() && said.is_empty(), || format!("{status} {said}"))
}

fn failed(error: &Error) -> Failed {
    format!("{error}").into()
}

async fn typed(server: &Server) -> Result<(), Failed> {
    let client = socket_based_api_client(server.socket());
    let ping = client.vmm_ping_get().await.map_err(|error| failed(&error))?;
    require(ping.pid == Some(i64::from(server.pid())), || format!("{ping:?}"))?;

    let mut payload = PayloadConfig::new();
    payload.kernel = Some("/nowhere".to_owned());
    let mut config = VmConfig::new(payload);
    config.cpus = Some(CpusConfig::new(2, 8));
    config.memory = Some(MemoryConfig::new(1 << 30));
    client.create_vm(config).await.map_err(|error| failed(&error))?;

    let mut disk = DiskConfig::new();
    (disk.path, disk.id, disk.readonly) = (Some("/d".to_owned()), Some("data".to_owned()), Some(true));
    // This client waits for content where there is none to a disk that is not plugged into a running VM.
    match client.vm_add_disk_put(disk).await {
        Ok(_) | Err(Error::Serde(_)) => {}
        Err(error) => return Err(failed(&error)),
    }
    let info = client.vm_info_get().await.map_err(|error| failed(&error))?;
    require(info.state.to_string() == "Created", || format!("{info:?}"))?;
    let disks = info.config.disks.as_deref().unwrap_or_default();
    require(disks.iter().any(|disk| disk.id.as_deref() == Some("data")), || format!("{info:?}"))?;
    let mut device = VmRemoveDevice::new();
    device.id = Some("data".to_owned());
    client.vm_remove_device_put(device).await.map_err(|error| failed(&error))?;

    match client.pause_vm().await {
        Err(Error::Api(error)) => require(error.code.as_u16() == 405, || format!("{error:?}"))?,
        other => return Err(format!("{other:?}").into()),
    }
    // What it is told, it can send.
    client.delete_vm().await.map_err(|error| failed(&error))?;
    client.create_vm(*Box::new(info.config)).await.map_err(|error| failed(&error))?;
    client.delete_vm().await.map_err(|error| failed(&error))?;
    client.shutdown_vmm().await.map_err(|error| failed(&error))
}

/// Every request that a VM's life has, in the crate's own types.
async fn whole_life(server: &mut Server) -> Result<(), Failed> {
    let client = socket_based_api_client(server.socket());
    let config: VmConfig = serde_json::from_str(&life::vm(server))?;
    client.create_vm(config.clone()).await.map_err(|error| failed(&error))?;
    client.boot_vm().await.map_err(|error| failed(&error))?;
    is_in(&client, "Running").await?;
    life::goes_on(server);
    let counters = client.vm_counters_get().await.map_err(|error| failed(&error))?;
    let count = |of: &str, what: &str| counters.get(of).and_then(|counters| counters.get(what)).copied();
    let counted = count("vcpu", "port_write") > Some(0) && count("host", "faults") > Some(0);
    require(counted && count("_disk0", "read_ops") == Some(0), || format!("{counters:?}"))?;
    client.pause_vm().await.map_err(|error| failed(&error))?;
    is_in(&client, "Paused").await?;
    client.resume_vm().await.map_err(|error| failed(&error))?;
    life::goes_on(server);
    client.power_button_vm().await.map_err(|error| failed(&error))?;
    client.reboot_vm().await.map_err(|error| failed(&error))?;
    life::goes_on(server);
    client.shutdown_vm().await.map_err(|error| failed(&error))?;
    is_in(&client, "Shutdown").await?;
    client.boot_vm().await.map_err(|error| failed(&error))?;
    life::goes_on(server);
    client.delete_vm().await.map_err(|error| failed(&error))?;
    client.create_vm(config).await.map_err(|error| failed(&error))?;
    is_in(&client, "Created").await?;
    client.shutdown_vmm().await.map_err(|error| failed(&error))
}

async fn is_in(client: &dyn DefaultApi, state: &str) -> Result<(), Failed> {
    let info = client.vm_info_get().await.map_err(|error| failed(&error))?;
    require(info.state.to_string() == state, || format!("{state}: {info:?}"))
}

fn curl(server: &Server, arguments: &[&str], name: &str) -> Result<String, Failed> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--write-out", " %{http_code}", "--unix-socket"])
        .arg(server.socket())
        .args(arguments)
        .arg(format!("http://localhost/api/v1/{name}"))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    require(output.status.success(), || errors)?;
    Ok(String::from_utf8(output.stdout)?)
}

fn curl_works() -> Result<(), Failed> {
    let server = Server::start();
    let ping = curl(&server, &[], "vmm.ping")?;
    require(ping.ends_with(" 200"), || ping)?;
    let body = r#"{"payload": {"kernel": "/nowhere"}}"#;
    let json = ["-X", "PUT", "-H", "Content-Type: application/json", "-d", body];
    let created = curl(&server, &json, "vm.create")?;
    require(created == " 204", || created)?;
    // It asks whether it may send that much before it does.
    let long = format!("{{\"payload\": {{\"kernel\": \"/nowhere\", \"initramfs\": \"{}\"}}}}", "x".repeat(100_000));
    let again = curl(&server, &["-X", "PUT", "-H", "Expect: 100-continue", "-d", &long], "vm.create")?;
    require(again.ends_with(" 409"), || again)?;
    let quit = curl(&server, &["-X", "PUT"], "vmm.shutdown")?;
    require(quit == " 204", || quit)
}
