// SPDX-License-Identifier: Apache-2.0
//! Hostile clients made of bytes: what the fuzz target and a property test both run.
//!
//! The bytes are what a client sends before it hangs up, in one of two ways. They go the way of a real client's, through the
//! parser of HTTP, the routes and the owner of a VM; but there is no socket, no thread, and no VM is started.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::{io, str};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Request, StatusCode};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::answer::Sent;
use super::connections::converse;
use super::service::Service;
use crate::config::VmConfig;
use crate::events::Events;
use crate::sandbox::Jail;
use crate::vmm::{Restart, Vmm};

/// What requests ask for, by the first letter of a piece of bytes.
const NAMED: [(u8, &str); 19] = [
    (b'a', "PUT /api/v1/vm.add-disk"),
    (b'e', "PUT /api/v1/vm.add-net"),
    (b'V', "PUT /api/v1/vm.add-vsock"),
    (b'R', "PUT /api/v1/vm.resize"),
    (b'B', "PUT /api/v1/vm.reboot"),
    (b'D', "PUT /api/v1/vm.resize-disk"),
    (b'P', "PUT /api/v1/vm.power-button"),
    (b'S', "PUT /api/v1/vm.snapshot"),
    (b'b', "PUT /api/v1/vm.boot"),
    (b'c', "PUT /api/v1/vm.create"),
    (b'd', "PUT /api/v1/vm.delete"),
    (b'i', "GET /api/v1/vm.info"),
    (b'n', "GET /api/v1/vm.counters"),
    (b'o', "PUT /api/v1/vm.restore"),
    (b'p', "PUT /api/v1/vm.pause"),
    (b'r', "PUT /api/v1/vm.remove-device"),
    (b's', "PUT /api/v1/vm.shutdown"),
    (b'u', "PUT /api/v1/vm.resume"),
    (b'v', "GET /api/v1/vmm.ping"),
];

/// Waiting for a body needs a clock, though nobody ever waits here.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| Builder::new_current_thread().enable_time().build());

/// Sends `bytes`: as they are or, behind a `;`, cut at zeros into requests, each of which is a letter and a body. Panics if the
/// server does, if it hangs, and if an answer is not what one has to be; fails only when the host has no memory or descriptors.
pub fn exercise(bytes: &[u8]) -> io::Result<()> {
    let runtime = RUNTIME.as_ref().map_err(|error| io::Error::from(error.kind()))?;
    let _entered = runtime.enter();
    let sent = match bytes.strip_prefix(b";") {
        Some(pieces) => pieces.split(|byte| *byte == 0).flat_map(request).collect(),
        None => bytes.to_owned(),
    };
    check_sent(&talk(&sent));
    Ok(())
}

fn request(piece: &[u8]) -> Vec<u8> {
    let (letter, body) = piece.split_first().unwrap_or((&b'v', &[]));
    let named = NAMED.iter().find(|(of, _)| of == letter);
    let line = named.map_or("PUT /api/v1/vm.resize", |(_, line)| line);
    let head = format!("{line} HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// All that a server answers to `sent`.
fn talk(sent: &[u8]) -> Vec<u8> {
    let mut owner = Vmm::new(Restart::Here, Events::default(), Jail::none());
    let service = Checked(Service::new(owner.caller(), Arc::default(), Arc::default()));
    let mut stream = Stream { unread: sent, answers: Vec::new() };
    // It is never closed from this end: the client hangs up.
    let (_closing, closed) = watch::channel(());
    let woken = Arc::new(Woken::default());
    {
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut conversation = pin!(converse(&mut stream, service, closed));
        while conversation.as_mut().poll(&mut context).is_pending() {
            let answered = owner.answer_asked();
            let again = woken.0.swap(false, Ordering::Relaxed);
            assert!(answered || again, "the server waits for nobody");
        }
    }
    stream.answers
}

/// Whether there is something to go on with.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that has sent all it will, and takes every answer.
struct Stream<'a> {
    unread: &'a [u8],
    answers: Vec<u8>,
}

impl Read for Stream<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut room: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let (now, later) = self.unread.split_at(room.remaining().min(self.unread.len()));
        room.put_slice(now);
        self.unread = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answers.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The service, every answer of which is looked at.
struct Checked(Service);

impl hyper::service::Service<Request<Incoming>> for Checked {
    type Response = Sent;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Sent, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let sent = answer.await?;
            let body = sent.body().clone().collect().await?.to_bytes();
            check(sent.status(), &body);
            Ok(sent)
        })
    }
}

fn check_sent(answers: &[u8]) {
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "no answer: {}", answers.escape_ascii());
}

/// What every answer has to be: an object, nothing, or a refusal that is a list of one sentence.
fn check(status: StatusCode, body: &[u8]) {
    let right = match status.as_u16() {
        200 => is_object(body),
        204 => body.is_empty(),
        400 | 404 | 405 | 409 | 413 | 501 => is_sentence(body),
        _ => false,
    };
    assert!(right, "{status} is no answer with {}", body.escape_ascii());
}

fn is_sentence(body: &[u8]) -> bool {
    let sentences: Vec<String> = serde_json::from_slice(body).unwrap_or_default();
    matches!(sentences.as_slice(), [one] if !one.is_empty() && !one.contains(char::is_control))
}

/// What a VM says of itself makes the same VM.
fn is_object(body: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let same = |config: &Value| {
        let again = VmConfig::from_client(config.to_string().as_bytes()).ok();
        again.and_then(|again| serde_json::to_value(again).ok()).as_ref() == Some(config)
    };
    value.is_object() && value.get("config").is_none_or(same)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of requests, right and wrong, which come in any order.
    const PIECES: [&str; 28] = [
        "GET ",
        "PUT ",
        "HEAD ",
        "/api/v1/",
        "vmm.ping",
        "vm.create",
        "vm.info",
        "vm.add-disk",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "Content-Length: ",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Expect: 100-continue",
        "0",
        "2",
        "7",
        "1048577",
        "\r\n",
        "\r\n\r\n",
        "{",
        "}",
        "\"payload\": ",
        "{\"kernel\": \"k\"}",
        "[]",
        ",",
        "\0",
        "\n",
    ];

    fn answers(bytes: &str) -> String {
        let _entered = RUNTIME.as_ref().unwrap().enter();
        String::from_utf8(talk(bytes.as_bytes())).unwrap()
    }

    #[test]
    fn a_client_is_answered_as_on_a_socket() {
        let create = r#"{"payload": {"kernel": "k"}}"#;
        let sent = [format!("c{create}"), "i".to_owned(), "b".to_owned(), r#"r{"id": "x"}"#.to_owned()];
        let requests: Vec<u8> = sent.iter().flat_map(|piece| request(piece.as_bytes())).collect();
        let answers = answers(str::from_utf8(&requests).unwrap());
        let statuses: Vec<_> = answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
        assert_eq!(statuses, ["204", "200", "400", "404"], "{answers}");
    }

    #[test]
    fn refusals_are_one_line() {
        let answers = answers("PUT /api/v1/vm.create HTTP/1.1\r\nContent-Length: 10\r\n\r\n{\"a\\n\": 1}");
        assert!(
            answers.ends_with("\u{fffd}=1: flatboot does not support this: must be absent, null, false, 0 or empty\"]")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn no_bytes_break_the_server(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            exercise(&bytes).unwrap();
        }

        #[test]
        fn no_requests_break_the_server(
            start in prop_oneof![Just(""), Just(";"), Just("PUT /api/v1/vm.create HTTP/1.1\r\n")],
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..64),
        ) {
            exercise([start, &pieces.concat()].concat().as_bytes()).unwrap();
        }
    }
}
