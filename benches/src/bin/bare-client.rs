//! The least that a client can do: one thread, one epoll instance, keep-alive connections, every event
//! parsed as JSON, a constant rate. No records, no outcomes, no timeouts: what it costs is what the
//! sockets and the JSON cost, and the yardstick for what an instrument adds.
//!
//! `bare-client PORT RATE REQUESTS`

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};

use blackstart_benches::epoll::Epoll;
use blackstart_benches::stream::request_body;
use blackstart_clock::monotonic_ns;
use serde::Deserialize;

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u64,
}

/// A request under way, or a connection at rest.
struct Connection {
    socket: TcpStream,
    pending: Vec<u8>,
    intended_ns: i64,
    first_ns: Option<i64>,
}

#[derive(Default)]
struct Counts {
    events: u64,
    tokens: u64,
    text_bytes: usize,
    finished: u64,
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = || io::Error::other("usage: bare-client PORT RATE REQUESTS");
    let port: u16 = args.next().and_then(|a| a.parse().ok()).ok_or_else(usage)?;
    let rate: f64 = args.next().and_then(|a| a.parse().ok()).ok_or_else(usage)?;
    let requests: u64 = args.next().and_then(|a| a.parse().ok()).ok_or_else(usage)?;
    let body = request_body();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut epoll = Epoll::new()?;
    let mut busy: HashMap<RawFd, Connection> = HashMap::new();
    let mut idle: Vec<Connection> = Vec::new();
    let (mut ready, mut buffer) = (Vec::new(), vec![0_u8; 1 << 16]);
    let (mut sent, mut counts) = (0_u64, Counts::default());
    let mut ttft_ns: Vec<i64> = Vec::new();
    let start_ns = monotonic_ns() + 100_000_000;
    let due = |k: u64| start_ns + (k as f64 / rate * 1e9) as i64;
    while sent < requests || !busy.is_empty() {
        while sent < requests && due(sent) <= monotonic_ns() {
            let mut connection = match idle.pop() {
                Some(connection) => connection,
                None => {
                    let socket = TcpStream::connect(("127.0.0.1", port))?;
                    socket.set_nodelay(true)?;
                    socket.set_nonblocking(true)?;
                    epoll.add(&socket)?;
                    Connection {
                        socket,
                        pending: Vec::new(),
                        intended_ns: 0,
                        first_ns: None,
                    }
                }
            };
            connection.intended_ns = due(sent);
            connection.first_ns = None;
            connection.socket.write_all(request.as_bytes())?;
            busy.insert(connection.socket.as_raw_fd(), connection);
            sent += 1;
        }
        let wait_ns = (sent < requests).then(|| due(sent) - monotonic_ns());
        epoll.wait(wait_ns, &mut ready)?;
        for fd in &ready {
            let Some(connection) = busy.get_mut(fd) else {
                continue;
            };
            let n = connection.socket.read(&mut buffer)?;
            let at_ns = monotonic_ns();
            if n == 0 {
                return Err(io::Error::other("the target closed a connection"));
            }
            connection.pending.extend_from_slice(&buffer[..n]);
            if take_events(connection, at_ns, &mut counts)?
                && let Some(connection) = busy.remove(fd)
            {
                let first_ns = connection.first_ns.unwrap_or(at_ns);
                ttft_ns.push(first_ns - connection.intended_ns);
                idle.push(connection);
            }
        }
    }
    ttft_ns.sort_unstable();
    let quantile = |q: f64| {
        let at = ((ttft_ns.len() as f64 * q).ceil() as usize).clamp(1, ttft_ns.len()) - 1;
        ttft_ns[at] as f64 / 1e6
    };
    println!(
        "{}",
        serde_json::json!({
            "requests": counts.finished,
            "events": counts.events,
            "tokens": counts.tokens,
            "text_bytes": counts.text_bytes,
            "ttft_ms": {"p50": quantile(0.5), "p99": quantile(0.99)},
        })
    );
    Ok(())
}

/// Takes whole events from what came; true at the stream's end. The framing of chunks is skipped as
/// lines that are no data, which the null target's chunks (one event each) allow.
fn take_events(connection: &mut Connection, at_ns: i64, counts: &mut Counts) -> io::Result<bool> {
    let mut start = 0;
    let mut done = false;
    while let Some(end) = memchr::memchr(b'\n', &connection.pending[start..]) {
        let line = &connection.pending[start..start + end];
        start += end + 1;
        let Some(data) = line.strip_prefix(b"data: ") else {
            done |= line == b"0\r";
            continue;
        };
        counts.events += 1;
        if data == b"[DONE]" {
            counts.finished += 1;
            continue;
        }
        let chunk: Chunk = serde_json::from_slice(data)?;
        for choice in &chunk.choices {
            if let Some(text) = &choice.delta.content
                && !text.is_empty()
            {
                connection.first_ns.get_or_insert(at_ns);
                counts.text_bytes += text.len();
            }
            counts.text_bytes += choice.finish_reason.as_ref().map_or(0, String::len);
        }
        counts.tokens += chunk.usage.map_or(0, |u| u.completion_tokens);
    }
    connection.pending.drain(..start);
    Ok(done)
}
