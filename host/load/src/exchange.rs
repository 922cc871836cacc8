//! One request on one connection, from the first byte sent to the outcome. Never a retry.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use blackstart_clock::RunClock;

use crate::connection::{Connection, ReadStamp, Stamps, closed};
use crate::gaps::GapSink;
use crate::http1::{Malformed, Part, ResponseReader};
use crate::outcome::{BodyEnd, Response};
use crate::pool::Pool;

/// How long the end of a response may take once its outcome is known, before its connection is
/// given up.
const DRAIN_LIMIT: Duration = Duration::from_millis(250);
/// How many bytes may come in that time.
const MAX_DRAIN_BYTES: usize = 64 << 10;
/// Bytes of one connection that are taken before the others have their turn: a server that sends as
/// fast as it can must not hold up the requests that are due.
const BYTES_IN_A_TURN: usize = 16 << 10;
/// How long what explains a certain failure may take to come, before the request is over.
const EXPLANATION_LIMIT: Duration = Duration::from_millis(250);
/// The last stretch before the intended time, in which nothing else is looked after: about as long as
/// it takes to look after another connection.
const LAST_STRETCH_NS: i64 = 10_000;

/// A connection whose request is decided, with the rest of its response.
pub(crate) struct Leftover {
    connection: Connection,
    answer: ResponseReader,
}

/// What an exchange leaves visible when it is dropped at its deadline.
pub(crate) struct Trace {
    stamps: Cell<Option<Stamps>>,
    last_read_ns: Cell<i64>,
}

impl Trace {
    /// Before anything was read.
    pub(crate) fn new() -> Self {
        Self {
            stamps: Cell::new(None),
            last_read_ns: Cell::new(i64::MIN),
        }
    }

    /// The last read that brought bytes; before any, the earliest time there is.
    pub(crate) fn last_read_ns(&self) -> i64 {
        self.last_read_ns.get()
    }

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
    request: &[u8],
    due_ns: i64,
    replica_header: Option<&str>,
    response: &mut Response,
    gaps: &RefCell<GapSink>,
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
    connection.expect_request();
    trace.stamps.set(Some(connection.stamps()));
    wait_out(clock, due_ns).await;
    let mut answer = ResponseReader::new();
    let mut unsent = request;
    let mut explained_until: Option<tokio::time::Instant> = None;
    let end = loop {
        let explaining = explained_until.is_some();
        let received = receive_answer(
            pool,
            &mut connection,
            &mut unsent,
            &mut answer,
            |seen, read| {
                trace.last_read_ns.set(read.user_ns);
                response.read_by_kernel(read.user_ns, read.kernel_ns);
                match seen {
                    Seen::Framing => response.heard(read.user_ns),
                    Seen::Part(Part::Head(head)) => response.head(
                        read.user_ns,
                        head.status,
                        head.text("content-type"),
                        replica_header.and_then(|name| head.text(name)),
                    ),
                    Seen::Part(Part::Data(bytes)) => {
                        response.body(read.user_ns, read.number, bytes, &mut gaps.borrow_mut());
                    }
                    Seen::Part(Part::End) => response.end(read.user_ns, BodyEnd::Clean),
                }
                if response.decided() {
                    Wish::Enough
                } else if response.failing() && !explaining {
                    Wish::Pause
                } else {
                    Wish::More
                }
            },
        );
        let end = match explained_until {
            None => received.await,
            Some(until) => match tokio::time::timeout_at(until, received).await {
                Ok(end) => end,
                Err(_) => {
                    response.give_up_explanation();
                    return None;
                }
            },
        };
        match end {
            // The failure is certain; what follows can only explain it, and must not hold up a place
            // under the concurrency cap.
            End::Pause => {
                explained_until = Some(tokio::time::Instant::now() + EXPLANATION_LIMIT);
            }
            end => break end,
        }
    };
    match end {
        End::Pause => {}
        // The server answered and left a part of the request unread: what is sent next would be taken
        // for the rest of it.
        End::Enough if !unsent.is_empty() || connection.has_unsent() => {}
        End::Enough => {
            let leftover = Leftover { connection, answer };
            if leftover.answer.whole() {
                leftover.put_back(pool);
                return None;
            }
            return Some(leftover);
        }
        End::Closed => response.end(clock.now(), closed(&answer)),
        End::Failed(e) => response.end(clock.now(), connection.classify(&e, &answer)),
        End::Malformed(e) => {
            response.end(clock.now(), connection.classify_malformed(e, &answer));
        }
    }
    None
}

/// Waits until an instant that is at hand. A load thread is woken a little early, so that its wake-up
/// costs no skew; until the last moment it looks after its other connections.
async fn wait_out(clock: RunClock, due_ns: i64) {
    loop {
        let left_ns = due_ns - clock.now();
        if left_ns <= 0 {
            return;
        }
        if left_ns > LAST_STRETCH_NS {
            tokio::task::yield_now().await;
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Why the reading of an answer paused, or ended.
enum End {
    /// Its receiver has seen enough.
    Enough,
    /// Its receiver asked for a pause.
    Pause,
    /// The connection was closed.
    Closed,
    /// The connection failed.
    Failed(io::Error),
    /// What came is no HTTP.
    Malformed(Malformed),
}

/// What the receiver of an answer is shown.
enum Seen<'p, 'h, 'b> {
    /// A part of the answer.
    Part(Part<'p, 'h, 'b>),
    /// A read that completed no part: bytes came, of a head or of a chunk's frame.
    Framing,
}

/// What the receiver of an answer wants next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    More,
    Pause,
    Enough,
}

/// The read that brought a part.
struct Read {
    user_ns: i64,
    kernel_ns: Option<i64>,
    number: u64,
}

/// Sends what is unsent and hands out the parts of the answer, until `sink` wants a pause or no more.
async fn receive_answer(
    pool: &Pool,
    connection: &mut Connection,
    unsent: &mut &[u8],
    answer: &mut ResponseReader,
    mut sink: impl FnMut(Seen<'_, '_, '_>, &Read) -> Wish,
) -> End {
    loop {
        let turn = poll_fn(|cx| poll_turn(cx, pool, connection, unsent, answer, &mut sink));
        if let Some(end) = turn.await {
            return end;
        }
        // Not woken at once, as a waker would do: the event loop looks at everything else first.
        tokio::task::yield_now().await;
    }
}

/// One turn of that; `None` when it is over and the answer is not.
fn poll_turn(
    cx: &mut Context<'_>,
    pool: &Pool,
    connection: &mut Connection,
    unsent: &mut &[u8],
    answer: &mut ResponseReader,
    sink: &mut impl FnMut(Seen<'_, '_, '_>, &Read) -> Wish,
) -> Poll<Option<End>> {
    // Of the thread, not of the connection: what is read is taken apart at once.
    let buffer = &mut *pool.buffer.borrow_mut();
    let mut left = BYTES_IN_A_TURN;
    while left > 0 {
        let bytes = match ready!(connection.poll_read(cx, unsent, buffer)) {
            Ok(0) => return Poll::Ready(Some(End::Closed)),
            Ok(n) => &buffer[..n],
            Err(e) => return Poll::Ready(Some(End::Failed(e))),
        };
        let ReadStamp { user_ns, kernel_ns } = connection.last_read();
        let read = Read {
            user_ns,
            kernel_ns,
            number: connection.reads(),
        };
        left = left.saturating_sub(bytes.len());
        let mut shown = None;
        let fed = answer.feed(bytes, |part| shown = Some(sink(Seen::Part(part), &read)));
        let wish = match shown {
            Some(wish) => wish,
            None => sink(Seen::Framing, &read),
        };
        if wish == Wish::Enough {
            return Poll::Ready(Some(End::Enough));
        }
        if let Err(e) = fed {
            return Poll::Ready(Some(End::Malformed(e)));
        }
        if wish == Wish::Pause {
            return Poll::Ready(Some(End::Pause));
        }
    }
    Poll::Ready(None)
}

impl Leftover {
    fn put_back(self, pool: &Pool) {
        if self.answer.reusable() {
            pool.put(self.connection);
        }
    }
}

/// Reads what is left of a decided response, so that its connection can serve another request. One
/// that does not end soon is closed.
pub(crate) async fn recycle(pool: &Pool, mut leftover: Leftover) {
    let mut bytes = 0;
    let Leftover { connection, answer } = &mut leftover;
    let mut nothing = &[][..];
    let drain = receive_answer(
        pool,
        connection,
        &mut nothing,
        answer,
        |seen, _| match seen {
            Seen::Part(Part::Data(data)) => {
                bytes += data.len();
                if bytes > MAX_DRAIN_BYTES {
                    Wish::Enough
                } else {
                    Wish::More
                }
            }
            Seen::Part(Part::End) => Wish::Enough,
            Seen::Part(Part::Head(_)) | Seen::Framing => Wish::More,
        },
    );
    if let Ok(End::Enough) = tokio::time::timeout(DRAIN_LIMIT, drain).await {
        leftover.put_back(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::outcome::Expectation;
    use crate::request::{RequestHead, base_headers};
    use blackstart_clock::{NS_PER_MS, RunClock, monotonic_ns};
    use blackstart_plan::Endpoint;
    use blackstart_record::RequestRecord;
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
        let head = RequestHead::new(&address, Endpoint::Chat, &base_headers(&address)).unwrap();
        let request = head.with(None, b"{}");
        let mut response = Response::new(0, 0, Expectation::until(i64::MAX));
        let (gaps, trace) = (RefCell::new(GapSink::default()), Trace::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .unwrap();
        let refused = runtime.block_on(async {
            let pool = Pool::new(address, clock);
            tokio::join!(
                exchange(&pool, &request, 0, None, &mut response, &gaps, &trace),
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
