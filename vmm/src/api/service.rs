// SPDX-License-Identifier: Apache-2.0
//! One request: its body, what it asks for, the answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Body, Bytes, Incoming};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::{Refusal, Sent, of_owner, ping};
use super::route::Route;
use super::stream::Arrived;
use crate::counted::Counted;
use crate::devices::bus::lock;
use crate::vmm::{Call, Caller, VmmError};

/// Longer is no configuration.
const BODY_MAX: usize = 1 << 20;
/// How long a body may take, in seconds.
const BODY_WAIT: u64 = 30;

/// What serves one connection.
#[derive(Debug)]
pub(super) struct Service {
    caller: Caller,
    busy: Arc<AtomicUsize>,
    arrived: Arc<Mutex<Arrived>>,
}

impl Service {
    pub(super) fn new(caller: Caller, busy: Arc<AtomicUsize>, arrived: Arc<Mutex<Arrived>>) -> Self {
        Self { caller, busy, arrived }
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Sent;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Sent, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // Its head is there: whatever it waits for from now on is ours.
        let asked = Instant::now();
        let (caller, busy, arrived) = (self.caller.clone(), Counted::new(&self.busy), Arc::clone(&self.arrived));
        Box::pin(async move {
            let _busy = busy;
            Ok(serve(&caller, asked, request, &arrived).await.unwrap_or_else(Refusal::sent))
        })
    }
}

async fn serve(
    caller: &Caller,
    asked: Instant,
    request: Request<Incoming>,
    arrived: &Mutex<Arrived>,
) -> Result<Sent, Refusal> {
    let route = Route::of(request.method(), request.uri().path());
    let body = body(request.into_body()).await;
    // All of the request is there. What nobody wants of it is closed, whatever else is wrong.
    let handed = lock(arrived).take();
    let Some(call) = route?.call(asked, &body?, handed)? else { return Ok(ping()) };
    Ok(ask(caller, call).await)
}

async fn body(body: Incoming) -> Result<Vec<u8>, Refusal> {
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(Refusal::too_long(BODY_MAX));
    }
    let whole = timeout(Duration::from_secs(BODY_WAIT), whole(Limited::new(body, BODY_MAX)));
    match whole.await {
        Ok(Ok(whole)) => Ok(whole),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::too_long(BODY_MAX)),
        Ok(Err(_)) => Err(Refusal::broken()),
        Err(_) => Err(Refusal::too_slow(BODY_WAIT)),
    }
}

/// All of it in one piece: what comes a byte at a time would be many, each with what it was read into.
async fn whole<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Vec<u8>, B::Error> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        frame?.data_ref().into_iter().for_each(|data| whole.extend_from_slice(data));
    }
    Ok(whole)
}

async fn ask(caller: &Caller, call: Call) -> Sent {
    let resumed = matches!(call, Call::Resume);
    let (sender, answer) = oneshot::channel();
    caller.call(call, move |answer| drop(sender.send(answer)));
    of_owner(answer.await.unwrap_or(Err(VmmError::Gone)), resumed)
}
