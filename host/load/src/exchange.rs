//! One request on one connection, from the first byte sent to the outcome. Never a retry.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use blackstart_record::GapHistograms;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName};

use crate::connection::{Connection, Request, Stage, Stamps};
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
    /// The first write of the request, if it came to that; and the same to its response, with how long
    /// what it received waited to be read. Before the connection serves anything else.
    pub(crate) fn tell(&self, response: &mut Response) -> Option<i64> {
        let stamps = self.stamps.take()?;
        response.read_lag(stamps.read_lag_max_ns());
        let at_ns = stamps.first_write_ns()?;
        response.dispatched(at_ns);
        Some(at_ns)
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
    gaps: &RefCell<GapHistograms>,
    trace: &Trace,
) -> Option<Leftover> {
    let clock = pool.clock;
    let mut connection = match pool.take() {
        Some(idle) => idle,
        None => {
            response.connecting(clock.now());
            match pool.open().await {
                Ok(fresh) => {
                    if clock.now() <= due_ns {
                        response.connected_in_time();
                    }
                    fresh
                }
                Err(end) => {
                    // Tried within the lead: it failed at its intended time at the earliest.
                    response.end(clock.now().max(due_ns), end);
                    return None;
                }
            }
        }
    };
    response.on_connection(connection.reused());
    if let Err(e) = connection.ready().await {
        let end = connection.classify(&e, Stage::Unanswered);
        response.end(clock.now().max(due_ns), end);
        return None;
    }
    connection.expect_write();
    trace.stamps.set(Some(connection.stamps()));
    // The pacer hands over a little early, so that waking this thread costs no skew.
    while clock.now() < due_ns {
        std::hint::spin_loop();
    }
    let head = match connection.send(request).await {
        Ok(head) => head,
        Err(e) => {
            let stage = if connection.answered() {
                Stage::Head
            } else {
                Stage::Unanswered
            };
            response.end(clock.now(), connection.classify(&e, stage));
            return None;
        }
    };
    let text = |name: &HeaderName| head.headers().get(name).and_then(|v| v.to_str().ok());
    let read = connection.last_read();
    response.read_by_kernel(read.user_ns, read.kernel_ns);
    response.head(
        read.user_ns,
        head.status().as_u16(),
        text(&CONTENT_TYPE),
        replica_header.and_then(text),
    );
    let mut body = head.into_body();
    while !response.decided() {
        match connection.frame(&mut body).await {
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    let read = connection.last_read();
                    response.read_by_kernel(read.user_ns, read.kernel_ns);
                    response.body(
                        read.user_ns,
                        connection.reads(),
                        &bytes,
                        &mut gaps.borrow_mut(),
                    );
                }
            }
            None => response.end(clock.now(), BodyEnd::Clean),
            Some(Err(e)) => {
                response.end(clock.now(), connection.classify(&e, Stage::Body));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::driver::{base_headers, request_uri};
    use crate::outcome::Expectation;
    use crate::worker::post;
    use blackstart_clock::{NS_PER_MS, RunClock, monotonic_ns};
    use blackstart_plan::Endpoint;
    use blackstart_record::RequestRecord;
    use bytes::Bytes;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
        data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";

    /// One request that is answered after 60 ms; the thread cannot read from 30 ms on for `stall`.
    /// With the kernel's refusal of its stamps, if there is one.
    fn stalled_for(stall: Duration) -> (RequestRecord, Option<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            std::thread::sleep(Duration::from_millis(60));
            stream.write_all(ANSWER.as_bytes()).unwrap();
        });
        let clock = RunClock::with_epoch(monotonic_ns());
        let address = Address::resolve(&url, None).unwrap();
        let uri = request_uri(&address, Endpoint::Chat).unwrap();
        let request = post(&uri, &base_headers(&address), Bytes::from_static(b"{}"));
        let mut response = Response::new(0, 0, Expectation::until(i64::MAX));
        let (gaps, trace) = (RefCell::new(GapHistograms::default()), Trace::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .unwrap();
        let refused = runtime.block_on(async {
            let pool = Pool::new(address, clock);
            tokio::join!(
                exchange(&pool, request, 0, None, &mut response, &gaps, &trace),
                async {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    std::thread::sleep(stall);
                }
            );
            pool.receive_stamps_refused()
        });
        trace.tell(&mut response);
        server.join().unwrap();
        (response.into_record(), refused)
    }

    #[test]
    fn a_thread_that_cannot_read_shows_how_long_bytes_waited_for_it() {
        // The kernel turns its stamps on a moment after the first socket asks for them.
        let (first, refused) = stalled_for(Duration::ZERO);
        assert!(first.first_token_ns.is_some(), "{first:?}");
        if let Some(reason) = refused {
            assert_eq!(first.read_lag_max_ns, None);
            println!("skipped: a_thread_that_cannot_read_shows_how_long: {reason}");
            return;
        }
        let (record, _) = stalled_for(Duration::from_millis(200));
        // 170 ms, but for how late the server's own thread and the stall were.
        let lag_ns = record.read_lag_max_ns.unwrap();
        assert!(lag_ns > 50 * NS_PER_MS, "{record:?}");
        let token_lag_ns = record.first_token_ns.unwrap() - record.first_token_kernel_ns.unwrap();
        assert_eq!(token_lag_ns, lag_ns);
        assert_eq!(
            record.ended_ns - record.ended_kernel_ns.unwrap(),
            lag_ns,
            "one read brought all of it"
        );
    }
}
