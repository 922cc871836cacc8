//! A scripted server on a loopback port, in plain threads.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use blackstart_clock::{RunClock, monotonic_ns};
use blackstart_load::{LoadHandle, LoadRun, LoadSummary, OpenLoop, Pacing, Prompts, start};
use blackstart_plan::{Arrivals, Endpoint, LoadPlan, Schedule, SloThresholds};
use blackstart_record::{RequestRecord, RunRecords, read_run};

/// Head of a streamed answer.
pub const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                               transfer-encoding: chunked\r\n\r\n";

/// One HTTP chunk.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// One content event.
pub fn token() -> String {
    chunk(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n",
    )
}

/// Finish reason, usage and the end marker.
pub fn tail(tokens: u32) -> String {
    let finish =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
    let usage = format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{tokens}}}}}\n\n"
    );
    chunk(finish) + &chunk(&usage) + &chunk("data: [DONE]\n\n") + "0\r\n\r\n"
}

/// A whole good answer of `tokens` tokens.
pub fn good_answer(tokens: u32) -> String {
    STREAM_HEAD.to_owned() + &token().repeat(tokens as usize) + &tail(tokens)
}

/// What a script sees of one request.
pub struct Exchange {
    pub stream: TcpStream,
    /// Requests before this one, over all connections.
    pub number: u64,
    /// Requests before this one on this connection.
    pub on_connection: u64,
    stop: Arc<AtomicBool>,
}

impl Exchange {
    pub fn send(&mut self, text: &str) {
        // The client may be gone; the test looks at its records.
        let _ = self.stream.write_all(text.as_bytes());
    }

    /// Says nothing until the client or the test ends.
    pub fn hang(&mut self) {
        let mut byte = [0];
        while !self.stopped() {
            match self.stream.read(&mut byte) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Closes with a reset instead of a FIN.
    pub fn reset(&mut self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }
}

/// What the connection does after a script.
#[derive(PartialEq, Eq)]
pub enum Then {
    KeepAlive,
    Close,
}

pub struct Server {
    pub address: SocketAddr,
    /// Bodies and heads of all requests.
    pub requests: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers each request by `script`.
    pub fn start(script: impl Fn(&mut Exchange) -> Then + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let script = Arc::new(script);
        let acceptor = {
            let (requests, stop) = (Arc::clone(&requests), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut threads = Vec::new();
                for stream in listener.incoming() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let Ok(stream) = stream else { break };
                    stream
                        .set_read_timeout(Some(Duration::from_millis(50)))
                        .unwrap();
                    let (requests, stop) = (Arc::clone(&requests), Arc::clone(&stop));
                    let script = Arc::clone(&script);
                    threads.push(std::thread::spawn(move || {
                        serve(stream, &requests, &stop, script.as_ref());
                    }));
                }
                drop(listener);
                for thread in threads {
                    thread.join().unwrap();
                }
            })
        };
        Self {
            address,
            requests,
            stop,
            acceptor: Some(acceptor),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().unwrap();
        }
    }
}

fn serve(
    mut stream: TcpStream,
    requests: &Mutex<Vec<String>>,
    stop: &Arc<AtomicBool>,
    script: &(impl Fn(&mut Exchange) -> Then + ?Sized),
) {
    let mut on_connection = 0;
    while let Some(request) = read_request(&mut stream, stop) {
        let number = {
            let mut requests = requests.lock().unwrap();
            requests.push(request);
            requests.len() as u64 - 1
        };
        let mut exchange = Exchange {
            stream: stream.try_clone().unwrap(),
            number,
            on_connection,
            stop: Arc::clone(stop),
        };
        if script(&mut exchange) == Then::Close {
            return;
        }
        on_connection += 1;
    }
}

fn read_request(stream: &mut TcpStream, stop: &AtomicBool) -> Option<String> {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut block) {
            Ok(0) => return None,
            Ok(n) => bytes.extend_from_slice(&block[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => return None,
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text[..head]
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "))
                .map_or(0, |n| n.parse::<usize>().unwrap());
            if bytes.len() >= head + 4 + length {
                return Some(text);
            }
        }
    }
    None
}

pub const MS: i64 = 1_000_000;

pub fn plan(base_url: String) -> LoadPlan {
    LoadPlan {
        rate_per_s: 50.0,
        arrivals: Arrivals::Constant,
        endpoint: Endpoint::Chat,
        model: "m".to_owned(),
        max_tokens: 3,
        ignore_eos: true,
        prompt_words: 16,
        timeout_ns: 3_000 * MS,
        idle_timeout_ns: None,
        first_token_timeout_ns: None,
        base_url,
        headers: Vec::new(),
        api_key_env: None,
        replica_header: None,
        threads: 2,
        real_time: false,
    }
}

/// An open loop with these send times.
pub fn at(intended_ns: Vec<i64>) -> Pacing {
    Pacing::Open(OpenLoop::whole(Schedule { intended_ns }))
}

pub fn load_run(plan: LoadPlan, count: i64, dir: &Path) -> LoadRun {
    LoadRun {
        pacing: at((1..=count).map(|k| k * 10 * MS).collect()),
        plan,
        prompts: Prompts::UNIQUE,
        seed: 5,
        clock: RunClock::with_epoch(monotonic_ns() + 20 * MS),
        canary: None,
        dir: dir.to_owned(),
        request_id_prefix: "test-1".to_owned(),
        api_key: None,
        tls: None,
        good: SloThresholds::PINNED,
        every_gap: false,
    }
}

/// Runs `count` requests against a server and reads back what was written.
pub fn drive(plan: LoadPlan, count: i64) -> (LoadSummary, RunRecords) {
    let dir = tempfile::tempdir().unwrap();
    let handle = start(load_run(plan, count, dir.path())).unwrap();
    finish(handle, dir.path(), count)
}

pub fn finish(handle: LoadHandle, dir: &Path, count: i64) -> (LoadSummary, RunRecords) {
    let summary = handle.join().unwrap();
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["gaps.hlog.zst", "requests.parquet"]);
    let records = read_run(dir).unwrap();
    assert_eq!(summary.scheduled, count as u64);
    assert_eq!(summary.recorded, count as u64);
    let indices: Vec<u64> = records.requests.iter().map(|r| r.index).collect();
    assert_eq!(indices, (0..count as u64).collect::<Vec<_>>());
    for record in &records.requests {
        check_record(record);
    }
    (summary, records)
}

/// What holds of every record, whatever happened.
fn check_record(r: &RequestRecord) {
    use blackstart_record::Outcome;
    assert_eq!(
        r.error_class.is_some(),
        r.outcome == Outcome::Errored,
        "{r:?}"
    );
    assert_eq!(
        r.censor_kind.is_some(),
        r.outcome == Outcome::Censored,
        "{r:?}"
    );
    assert!(r.observed_ns() >= 0, "{r:?}");
    assert!(r.send_skew_ns().is_none_or(|skew| skew >= 0), "{r:?}");
    let order = [
        r.connect_started_ns,
        r.dispatched_ns,
        r.headers_ns,
        r.first_event_ns,
        r.first_token_ns,
        r.last_token_ns,
    ];
    let present: Vec<i64> = order.into_iter().flatten().collect();
    assert!(present.is_sorted(), "{r:?}");
    assert_eq!(r.first_token_ns.is_some(), r.content_events > 0, "{r:?}");
    for (kernel, user) in [
        (r.first_token_kernel_ns, r.first_token_ns),
        (r.ended_kernel_ns, Some(r.ended_ns)),
    ] {
        if let Some(kernel) = kernel {
            let lag = user.unwrap() - kernel;
            assert!(lag >= 0 && r.read_lag_max_ns.unwrap() >= lag, "{r:?}");
        }
    }
}
