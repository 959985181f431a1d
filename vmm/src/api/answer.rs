// SPDX-License-Identifier: Apache-2.0
//! What clients get: JSON and a status. A refusal is a list of sentences with one sentence in it, as Cloud Hypervisor has it.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use crate::chain::chain;
use crate::devices::virtio::ResizeError;
use crate::state::DirectoryError;
use crate::vmm::{Answer, MemoryError, SnapshotError, VmmError};

/// An answer as it is sent.
pub(super) type Sent = Response<Full<Bytes>>;

/// Why a request is not granted.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    sentence: String,
    allow: Option<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, sentence: String) -> Self {
        Self { status, sentence, allow: None }
    }

    pub(super) fn not_found(path: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("{path}: there is no such path: must be one of the API below /api/v1/"),
        )
    }

    pub(super) fn not_implemented(name: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, format!("{name}: flatboot does not support this request"))
    }

    pub(super) fn verb(name: &str, found: &Method, must: &Method) -> Self {
        let allow = Some(if *must == Method::GET { "GET" } else { "PUT" });
        let sentence = format!("{name}: {found} came: must be {must}");
        Self { allow, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, sentence) }
    }

    /// What is wrong with the body of `name`.
    pub(super) fn body(name: &'static str) -> impl Fn(String) -> Self {
        move |what| Self::new(StatusCode::BAD_REQUEST, format!("{name}: {what}"))
    }

    pub(super) fn too_long(max: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too long: must have at most {max} bytes"))
    }

    pub(super) fn too_slow(seconds: u64) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, format!("the body is not there: must come within {seconds} s"))
    }

    pub(super) fn broken() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "the body has an error in it: must be of the length that is announced".to_owned(),
        )
    }

    fn of(error: &VmmError, resumed: bool) -> Self {
        Self::new(status(error, resumed), chain(error))
    }

    pub(super) fn sent(self) -> Sent {
        // A name in a body may have line feeds in it, and worse for a terminal.
        let sentence = self.sentence.replace(char::is_control, "\u{fffd}");
        let mut sent = json_answer(self.status, &[sentence]);
        if let Some(allow) = self.allow {
            sent.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        sent
    }
}

fn status(error: &VmmError, resumed: bool) -> StatusCode {
    match error {
        // That is how Cloud Hypervisor describes its interface.
        VmmError::NotNow(why) if resumed && why.state != crate::vmm::State::Running => StatusCode::NOT_FOUND,
        VmmError::NotCreated | VmmError::NoDevice(_) | VmmError::NoDisk(_) => StatusCode::NOT_FOUND,
        VmmError::NotNow(_) | VmmError::Writing => StatusCode::METHOD_NOT_ALLOWED,
        VmmError::AlreadyCreated | VmmError::Taken(_) | VmmError::Memory(MemoryError::Busy { .. }) => {
            StatusCode::CONFLICT
        }
        VmmError::TooMany(_) => StatusCode::SERVICE_UNAVAILABLE,
        VmmError::Snapshot(error) => snapshot_status(error),
        VmmError::Resize(ResizeError::Host { .. } | ResizeError::Late { .. } | ResizeError::NotBegun { .. })
        | VmmError::Vcpu(_)
        | VmmError::Worker(_)
        | VmmError::Memory(_)
        | VmmError::Start(_)
        | VmmError::NotAgain(_)
        | VmmError::PowerButton(_)
        | VmmError::Gone => StatusCode::INTERNAL_SERVER_ERROR,
        VmmError::Refused(_) | VmmError::Resize(_) | VmmError::Restore(_) => StatusCode::BAD_REQUEST,
    }
}

/// Of a path that is wrong another status than of a host that fails.
fn snapshot_status(error: &SnapshotError) -> StatusCode {
    match error {
        SnapshotError::Directory { source: DirectoryError::Busy, .. } => StatusCode::CONFLICT,
        SnapshotError::Directory { source: DirectoryError::Make(_), .. } => StatusCode::INTERNAL_SERVER_ERROR,
        SnapshotError::Config(_) | SnapshotError::Directory { .. } => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer of the owner of the VM; `resumed` says whether it was asked to let the VM go on.
pub(super) fn of_owner(answer: Result<Answer, VmmError>, resumed: bool) -> Sent {
    match answer {
        Ok(Answer::Done) => done(),
        Ok(Answer::Info(info)) => json_answer(StatusCode::OK, &info),
        Ok(Answer::Counters(counters)) => json_answer(StatusCode::OK, &counters),
        Err(error) => Refusal::of(&error, resumed).sent(),
    }
}

/// Who is there.
pub(super) fn ping() -> Sent {
    let version = env!("CARGO_PKG_VERSION");
    let features: [&str; 0] = [];
    let body = json!({
        "build_version": format!("flatboot v{version}"),
        "version": version,
        "pid": std::process::id(),
        "features": features,
    });
    json_answer(StatusCode::OK, &body)
}

fn done() -> Sent {
    let mut sent = Sent::default();
    *sent.status_mut() = StatusCode::NO_CONTENT;
    sent
}

fn json_answer(status: StatusCode, content: &impl Serialize) -> Sent {
    let (status, body) = match serde_json::to_vec(content) {
        Ok(body) => (status, body),
        // A path that is no UTF-8 has no JSON.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!([error.to_string()]).to_string().into()),
    };
    let mut sent = Response::new(Full::new(Bytes::from(body)));
    *sent.status_mut() = status;
    sent.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    sent
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_snapshot_that_a_host_fails_to_make_is_no_wrong_request() {
        for (source, expected) in [
            (DirectoryError::Make(io::ErrorKind::StorageFull.into()), StatusCode::INTERNAL_SERVER_ERROR),
            (DirectoryError::Busy, StatusCode::CONFLICT),
            (DirectoryError::Taken, StatusCode::BAD_REQUEST),
        ] {
            let error = VmmError::Snapshot(SnapshotError::Directory { path: "/s".into(), source });
            assert_eq!(Refusal::of(&error, false).status, expected, "{error:?}");
        }
    }
}
