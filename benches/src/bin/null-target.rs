//! A target that costs next to nothing and whose timing is known: one thread, canned streams.
//!
//! `null-target PORT OUT.tsv` serves until SIGTERM and then writes a line for each request: its
//! `x-request-id` (or `-`), when it arrived, and when its first token was handed to the socket, both on
//! `CLOCK_MONOTONIC` in nanoseconds. It arrived when the kernel had received its last segment: how late
//! this process was to read it is no lateness of the client.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blackstart_benches::epoll::Epoll;
use blackstart_benches::stream::{ITL_NS, TTFT_NS, writes};
use blackstart_clock::{RunClock, Urgency, monotonic_ns, request_real_time};
use blackstart_load::receive::{ReceiveClock, receive};

/// Largest request.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Answer to any GET.
const MODELS: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 56\r\n\r\n\
    {\"object\":\"list\",\"data\":[{\"id\":\"mock-8b\",\"object\":\"m\"}]}";
/// Longest wait, so that SIGTERM is noticed.
const MAX_WAIT_NS: i64 = 50_000_000;

struct Connection {
    socket: TcpStream,
    received: Vec<u8>,
}

/// A stream under way.
struct Stream {
    due_ns: i64,
    fd: RawFd,
    /// The connection of this request, not another one with the same descriptor later.
    request: usize,
    next: usize,
}

struct Seen {
    id: String,
    arrived_ns: i64,
    first_token_ns: Option<i64>,
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = || io::Error::other("usage: null-target PORT OUT.tsv");
    let port: u16 = args.next().and_then(|p| p.parse().ok()).ok_or_else(usage)?;
    let out = args.next().ok_or_else(usage)?;
    let ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&ended))?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    listener.set_nonblocking(true)?;
    let _ = request_real_time(Urgency::Instants);
    println!("{}", listener.local_addr()?.port());
    let seen = serve(&listener, &ended)?;
    let mut file = io::BufWriter::new(std::fs::File::create(out)?);
    for s in seen {
        let first = s.first_token_ns.unwrap_or(-1);
        writeln!(file, "{}\t{}\t{first}", s.id, s.arrived_ns)?;
    }
    file.flush()
}

fn serve(listener: &TcpListener, ended: &AtomicBool) -> io::Result<Vec<Seen>> {
    let writes = writes();
    let mut epoll = Epoll::new()?;
    epoll.add(listener)?;
    let mut connections: HashMap<RawFd, Connection> = HashMap::new();
    let mut seen: Vec<Seen> = Vec::new();
    // Delays are fixed, so each queue is in order of time.
    let (mut firsts, mut others) = (VecDeque::<Stream>::new(), VecDeque::<Stream>::new());
    let mut ready = Vec::new();
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 1 << 16];
    let stamps = ReceiveClock::new(RunClock::with_epoch(0));
    while !ended.load(Ordering::Relaxed) {
        let due = |queue: &VecDeque<Stream>| queue.front().map_or(i64::MAX, |s| s.due_ns);
        let next_ns = due(&firsts).min(due(&others));
        let wait_ns = next_ns.saturating_sub(monotonic_ns()).min(MAX_WAIT_NS);
        epoll.wait(Some(wait_ns), &mut ready)?;
        for &fd in &ready {
            if fd == listener.as_raw_fd() {
                while let Ok((socket, _)) = listener.accept() {
                    socket.set_nonblocking(true)?;
                    socket.set_nodelay(true)?;
                    stamps.ask(socket.as_fd());
                    epoll.add(&socket)?;
                    let received = Vec::new();
                    connections.insert(socket.as_raw_fd(), Connection { socket, received });
                }
                continue;
            }
            let Some(connection) = connections.get_mut(&fd) else {
                continue;
            };
            let kernel_unix_ns = match receive(connection.socket.as_fd(), &mut buffer) {
                Ok(read) if read.bytes == 0 => {
                    connections.remove(&fd);
                    continue;
                }
                Ok(read) => {
                    // SAFETY: so many bytes were read into it.
                    let bytes = buffer[..read.bytes]
                        .iter()
                        .map(|b| unsafe { b.assume_init() });
                    connection.received.extend(bytes);
                    read.kernel_unix_ns
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => {
                    connections.remove(&fd);
                    continue;
                }
            };
            let read_ns = monotonic_ns();
            let arrived_ns = kernel_unix_ns
                .and_then(|at| stamps.run_time(at, 0, read_ns))
                .unwrap_or(read_ns);
            if connection.received.starts_with(b"GET ") {
                // Some tools look first whether it lives, and which model it has.
                if connection.received.ends_with(b"\r\n\r\n") {
                    connection.received.clear();
                    let _ = connection.socket.write_all(MODELS);
                }
                continue;
            }
            let Some((length, id)) = whole_request(&connection.received) else {
                if connection.received.len() > MAX_REQUEST_BYTES {
                    connections.remove(&fd);
                }
                continue;
            };
            connection.received.drain(..length);
            firsts.push_back(Stream {
                due_ns: read_ns + TTFT_NS,
                fd,
                request: seen.len(),
                next: 0,
            });
            seen.push(Seen {
                id,
                arrived_ns,
                first_token_ns: None,
            });
        }
        let now = monotonic_ns();
        for first in [true, false] {
            loop {
                let queue = if first { &mut firsts } else { &mut others };
                let Some(mut stream) = queue.pop_front_if(|s| s.due_ns <= now) else {
                    break;
                };
                let Some(connection) = connections.get_mut(&stream.fd) else {
                    continue;
                };
                if stream.next == 0 {
                    seen[stream.request].first_token_ns = Some(monotonic_ns());
                }
                if connection.socket.write_all(&writes[stream.next]).is_err() {
                    connections.remove(&stream.fd);
                    continue;
                }
                stream.next += 1;
                stream.due_ns += ITL_NS;
                if stream.next < writes.len() {
                    others.push_back(stream);
                }
            }
        }
    }
    Ok(seen)
}

/// Length of the first request and its id, once it is whole.
fn whole_request(received: &[u8]) -> Option<(usize, String)> {
    let head_length = received.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&received[..head_length]);
    let value = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let body_length: usize = value("content-length").and_then(|v| v.parse().ok())?;
    let id = value("x-request-id").unwrap_or("-").to_owned();
    (received.len() >= head_length + body_length).then_some((head_length + body_length, id))
}
