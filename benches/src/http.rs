// SPDX-License-Identifier: Apache-2.0
//! Requests to flatboot's API.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest answer that is read: there is none so long.
const MOST: u64 = 1 << 20;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn is_granted(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Asks `socket` and waits for the answer, `limit` at the most for each part of it.
pub(crate) fn ask(socket: &Path, verb: &str, what: &str, body: &str, limit: Duration) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(limit))?;
    let length = body.len();
    let request = format!(
        "{verb} /api/v1/{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    // In one write: a server that answers before it has read everything may be gone before a second one.
    stream.write_all(request.as_bytes())?;
    read(BufReader::new(stream.take(MOST)))
}

/// Has the server at `socket` do `what`, and waits until it is done; an error is what it said.
pub(crate) fn put(socket: &Path, what: &str, body: &str, limit: Duration) -> Result<(), String> {
    match ask(socket, "PUT", what, body, limit) {
        Ok(answer) if answer.is_granted() => Ok(()),
        Ok(Answer { status, body }) => Err(format!("{what}: {status} {body}")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

fn read(mut answer: impl BufRead) -> io::Result<Answer> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{what:?} is no answer of HTTP"));
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let status = line.split_whitespace().nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| wrong(&line))?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(|_| wrong(&line))?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = String::new();
    answer.take(length).read_to_string(&mut body)?;
    Ok(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_is_read_as_far_as_it_goes() {
        let text = "HTTP/1.1 405 Method Not Allowed\r\ncontent-type: json\r\nContent-Length: 5\r\n\r\n[\"a\"]and more";
        assert_eq!(read(text.as_bytes()).unwrap(), Answer { status: 405, body: "[\"a\"]".to_owned() });
        let empty = read("HTTP/1.1 204 No Content\r\n\r\n".as_bytes()).unwrap();
        assert!(empty.is_granted() && empty.body.is_empty());
        for text in ["", "SSH-2.0\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_request_arrives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let n = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        assert!(ask(&path, "PUT", "vm.create", "{}", Duration::from_secs(60)).unwrap().is_granted());
        let request = server.join().unwrap();
        assert!(request.starts_with("PUT /api/v1/vm.create HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("Content-Length: 2\r\n\r\n{}"), "{request}");
    }
}
