// SPDX-License-Identifier: Apache-2.0
//! Clients that others wrote for Cloud Hypervisor.

use std::process::{Command, Stdio};

use cloud_hypervisor_client::apis::{DefaultApi, Error};
use cloud_hypervisor_client::models::{CpusConfig, DiskConfig, MemoryConfig, PayloadConfig, VmConfig, VmRemoveDevice};
use cloud_hypervisor_client::socket_based_api_client;
use libtest_mimic::Failed;

use super::server::Server;
use super::{Test, require};

pub(crate) fn tests() -> Vec<Test> {
    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    let missing = curl.is_err().then(|| "there is no curl".to_owned());
    vec![("clients::the_crate", the_crate, None), ("clients::curl", curl_works, missing)]
}

fn the_crate() -> Result<(), Failed> {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(typed(&server))
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
