// SPDX-License-Identifier: Apache-2.0
//! Requests to a VMM's server (docs/api.md).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::order::Resize;
use super::vmm::Interrupted;
use crate::http;

/// Longer than any request takes: vm.resize answers after 60 s at the latest if the guest does nothing.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The same with that limit.
pub(super) fn put(socket: &Path, what: &str, body: &str) -> Result<(), String> {
    http::put(socket, what, body, LIMIT)
}

impl Resize {
    /// Nanoseconds that the last of the changes took.
    pub(super) fn run(&self, interrupted: &Interrupted) -> Result<u64, String> {
        let mut took = Duration::ZERO;
        for bytes in &self.sizes {
            if interrupted.load(Ordering::SeqCst) {
                return Err("interrupted".to_owned());
            }
            let began = Instant::now();
            put(&self.socket, "vm.resize", &format!("{{\"desired_ram\": {bytes}}}"))?;
            took = began.elapsed();
        }
        u64::try_from(took.as_nanos()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn the_last_change_is_timed_and_an_error_is_what_the_server_says() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("api");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            let mut asked = Vec::new();
            for (status, wait) in [("204 No Content", 0), ("204 No Content", 50), ("409 Conflict", 0)] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                head.read_line(&mut line).unwrap();
                asked.push(line);
                thread::sleep(Duration::from_millis(wait));
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nwhy").unwrap();
            }
            asked
        });
        let took = Resize { socket: socket.clone(), sizes: vec![1, 2] }.run(&Interrupted::new(false)).unwrap();
        assert!((50_000_000..60_000_000_000).contains(&took), "{took}");
        assert_eq!(put(&socket, "vm.resize", "{}").unwrap_err(), "vm.resize: 409 why");
        assert!(server.join().unwrap().iter().all(|line| line == "PUT /api/v1/vm.resize HTTP/1.1\r\n"));
        assert!(put(&socket, "vm.pause", "").unwrap_err().starts_with("vm.pause: "));
    }
}
