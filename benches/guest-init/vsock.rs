// SPDX-License-Identifier: Apache-2.0
//! Connections to programs of the host, and from them.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use vsock::{VMADDR_CID_ANY, VMADDR_CID_HOST, VsockListener, VsockStream};

use serde_json::json;

use crate::net::{CARRIED, CONNECTIONS, PATIENCE, carry};
use crate::outcome::Outcome;

/// `out/in`: connects to port `out` of the host, where what is sent is sent back, and does the same for whoever connects to the
/// guest's port `in`, which the host does once the guest has connected.
pub(crate) fn vsock(argument: &str) -> Outcome {
    let wrong = || format!("vsock={argument}: must be OUT/IN, two ports");
    let (out, own) = argument.split_once('/').ok_or_else(wrong)?;
    let (out, own): (u32, u32) = (out.parse().map_err(|_| wrong())?, own.parse().map_err(|_| wrong())?);
    let failed = |error: io::Error| format!("vsock: {error}");
    let nobody = VsockStream::connect_with_cid_port(VMADDR_CID_HOST, out + 1).err().map(|error| error.to_string());
    let listener = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, own).map_err(failed)?;
    // Whoever waits for a connection that does not come is to end, too.
    set_socket_timeout(&listener, Timeout::Recv, Some(PATIENCE)).map_err(|error| failed(error.into()))?;
    let (carried, answered) = thread::scope(|scope| {
        let answers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(|| answer(&listener))).collect();
        let connections: Vec<_> = (0..CONNECTIONS).map(|number| scope.spawn(move || connection(out, number))).collect();
        let died = |_| Err("it died".to_owned());
        let carried: Result<Vec<usize>, String> =
            connections.into_iter().map(|one| one.join().unwrap_or_else(died)).collect();
        let answered: io::Result<Vec<usize>> =
            answers.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(io::Error::other("it died")))).collect();
        Ok::<_, String>((carried?, answered.map_err(failed)?))
    })?;
    let report = json!({
        "carried": carried.iter().sum::<usize>(), "answered": answered.iter().sum::<usize>(),
        "nobody": nobody.clone(),
    });
    let all = carried.iter().chain(&answered).all(|bytes| *bytes == CARRIED);
    Ok((all && nobody.is_some(), report))
}

fn connection(port: u32, number: usize) -> Result<usize, String> {
    let stream = VsockStream::connect_with_cid_port(VMADDR_CID_HOST, port).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    carry(&stream, |stream| stream.shutdown(Shutdown::Write), number).map_err(|error| format!("vsock: {error}"))
}

/// Sends back to one caller what it sends, to its end. How much that was.
fn answer(listener: &VsockListener) -> io::Result<usize> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            stream.shutdown(Shutdown::Write)?;
            return Ok(all);
        }
        stream.write_all(buffer.get(..length).unwrap_or_default())?;
        all += length;
    }
}
