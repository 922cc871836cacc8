//! One request on one connection, from the first byte sent to the outcome. Never a retry.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName};

use crate::connection::{Connection, Request, Stage, Stamps, classify, classify_connect};
use crate::gaps::GapSink;
use crate::outcome::{BodyEnd, Response};
use crate::pool::Pool;

/// How long the end of a response may take once its outcome is known, before its connection is
/// given up.
const DRAIN_LIMIT: Duration = Duration::from_millis(250);
/// How many bytes may come in that time.
const MAX_DRAIN_BYTES: usize = 64 << 10;

/// A connection whose request is decided, with the rest of its response.
pub(crate) struct Leftover {
    connection: Connection,
    body: Incoming,
}

/// What an exchange leaves visible when it is dropped at its deadline.
#[derive(Default)]
pub(crate) struct Trace {
    stamps: Cell<Option<Stamps>>,
}

impl Trace {
    /// The first write of the request, if it came to that.
    pub(crate) fn dispatched_ns(&self) -> Option<i64> {
        let stamps = self.stamps.take()?;
        stamps.first_write_ns()
    }
}

/// Sends a request, not before `due_ns`, and feeds its response to `response` until the outcome is
/// decided.
pub(crate) async fn exchange(
    pool: &Pool,
    request: Request,
    due_ns: i64,
    replica_header: Option<&HeaderName>,
    response: &mut Response,
    gaps: &RefCell<GapSink>,
    trace: &Trace,
) -> Option<Leftover> {
    let clock = pool.clock;
    let mut connection = match pool.take() {
        Some(idle) => idle,
        None => {
            response.connecting(clock.now());
            match Connection::open(&pool.address, clock).await {
                Ok(fresh) => {
                    if clock.now() <= due_ns {
                        response.connected_in_time();
                    }
                    fresh
                }
                Err(e) => {
                    // Tried within the lead: it failed at its intended time at the earliest.
                    response.end(clock.now().max(due_ns), classify_connect(&e));
                    return None;
                }
            }
        }
    };
    response.on_connection(connection.reused());
    if let Err(e) = connection.ready().await {
        response.end(clock.now().max(due_ns), classify(&e, Stage::Unanswered));
        return None;
    }
    connection.expect_write();
    trace.stamps.set(Some(connection.stamps()));
    let reads_before = connection.reads();
    // The pacer hands over a little early, so that waking this thread costs no skew.
    while clock.now() < due_ns {
        std::hint::spin_loop();
    }
    let head = match connection.send(request).await {
        Ok(head) => head,
        Err(e) => {
            let stage = if connection.reads() == reads_before {
                Stage::Unanswered
            } else {
                Stage::Head
            };
            response.end(clock.now(), classify(&e, stage));
            return None;
        }
    };
    let text = |name: &HeaderName| head.headers().get(name).and_then(|v| v.to_str().ok());
    response.head(
        connection.last_read_ns(),
        head.status().as_u16(),
        text(&CONTENT_TYPE),
        replica_header.and_then(text),
    );
    let mut body = head.into_body();
    while !response.decided() {
        match connection.frame(&mut body).await {
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    response.body(
                        connection.last_read_ns(),
                        connection.reads(),
                        &bytes,
                        &mut gaps.borrow_mut(),
                    );
                }
            }
            None => response.end(clock.now(), BodyEnd::Clean),
            Some(Err(e)) => {
                response.end(clock.now(), classify(&e, Stage::Body));
                return None;
            }
        }
    }
    Some(Leftover { connection, body })
}

/// Reads what is left of a decided response, so that its connection can serve another request. One
/// that does not end soon is closed.
pub(crate) async fn recycle(pool: &Pool, leftover: Leftover) {
    let Leftover {
        mut connection,
        mut body,
    } = leftover;
    let drain = async {
        let mut bytes = 0;
        while let Some(frame) = connection.frame(&mut body).await {
            let Ok(frame) = frame else { return false };
            bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
            if bytes > MAX_DRAIN_BYTES {
                return false;
            }
        }
        true
    };
    if tokio::time::timeout(DRAIN_LIMIT, drain).await == Ok(true) {
        drop(body);
        connection.settle().await;
        pool.put(connection);
    }
}
