//! Small servers and plans for tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, monotonic_ns};
use blackstart_observe::{
    CpuSource, EventSink, FireSignal, ObserveRun, ObserveSummary, Observers, ObserversHandle,
};
use blackstart_plan::*;
use blackstart_record::{Event, EventKind, ProbeOutcome};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

/// Longest wait for something that must come. Generous: it bounds a failure, not a speed.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// An interval that never comes round in a test.
pub const NEVER_NS: i64 = 3_600 * NS_PER_S;

/// One request as a server read it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub head: String,
    pub body: String,
}

impl Seen {
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }
}

type Handler = dyn Fn(&Seen, &mut TcpStream) + Send + Sync;

/// A server with one thread for each connection; it ends with the value.
pub struct Server {
    pub addr: SocketAddr,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(handler: impl Fn(&Seen, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), handler)
    }

    pub fn on(
        listener: TcpListener,
        handler: impl Fn(&Seen, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ending = Arc::new(AtomicBool::new(false));
        let handler: Arc<Handler> = Arc::new(handler);
        let (all, end) = (Arc::clone(&seen), Arc::clone(&ending));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(mut stream) = stream else { continue };
                let (handler, all) = (Arc::clone(&handler), Arc::clone(&all));
                std::thread::spawn(move || {
                    if let Some(request) = read_request(&stream) {
                        all.lock().unwrap().push(request.clone());
                        handler(&request, &mut stream);
                    }
                });
            }
        });
        Self {
            addr,
            seen,
            ending,
            thread: Some(thread),
        }
    }

    /// A server that gives the same bytes to every request and closes.
    pub fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |_, stream| {
            let _ = stream.write_all(&bytes);
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read_request(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let length = head
        .lines()
        .filter_map(|l| l.split_once(':'))
        .find(|(k, _)| k.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, v)| v.trim().parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen {
        head,
        body: String::from_utf8(body).unwrap(),
    })
}

/// A response with a length.
pub fn response(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// An event stream that ends by closing.
pub fn events(lines: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n{lines}")
}

/// A stream with one token.
pub fn one_token() -> String {
    events(
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
         data: {\"choices\":[{\"delta\":{\"content\":\" x\"},\"finish_reason\":\"length\"}]}\n\n\
         data: [DONE]\n\n",
    )
}

/// Keeps a connection open until the other side closes it.
pub fn hold(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 64]);
}

/// An address that refuses connections and that no other test can get: a socket that is bound but
/// does not listen.
pub struct Reserved {
    socket: OwnedFd,
    pub addr: SocketAddr,
}

impl Reserved {
    pub fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = getsockname(&socket).unwrap().try_into().unwrap();
        Self { socket, addr }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// From here it accepts.
    pub fn listen(self) -> TcpListener {
        listen(&self.socket, 64).unwrap();
        TcpListener::from(self.socket)
    }
}

/// Closes a connection by a reset.
pub fn reset(stream: &TcpStream) {
    set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

pub fn replica(id: &str, url: &str) -> ReplicaPlan {
    ReplicaPlan {
        id: id.to_owned(),
        base_url: url.to_owned(),
        admin_url: None,
        runtime: RuntimePlan::Url {
            log_file: None,
            pid: None,
            command_match: None,
        },
        process_roles: BTreeMap::new(),
    }
}

pub fn load() -> LoadPlan {
    LoadPlan {
        rate_per_s: 1.0,
        arrivals: Arrivals::Poisson,
        endpoint: Endpoint::Chat,
        model: "tiny".to_owned(),
        max_tokens: 8,
        ignore_eos: true,
        prompt_words: 8,
        timeout_ns: NS_PER_S,
        idle_timeout_ns: None,
        first_token_timeout_ns: None,
        base_url: "http://127.0.0.1:1".to_owned(),
        headers: vec![("x-team".to_owned(), "blue".to_owned())],
        api_key_env: Some("TEST_KEY".to_owned()),
        replica_header: None,
        threads: 1,
        real_time: false,
    }
}

/// A plan that probes once at the epoch, then only after a fire, and scrapes nothing.
pub fn plan(replicas: Vec<ReplicaPlan>, service_url: Option<String>) -> Plan {
    Plan {
        schema_version: PLAN_SCHEMA_VERSION,
        campaign: "test".to_owned(),
        instrument_version: "0".to_owned(),
        config_sha256: String::new(),
        profile: Profile::Free,
        deviations: Vec::new(),
        phases: Phases {
            warmup_ns: NS_PER_S,
            baseline_ns: NS_PER_S,
            fault_window_ns: NS_PER_S,
            cooldown_ns: NS_PER_S,
        },
        load: load(),
        target: TargetPlan {
            replicas,
            service_url,
            routing: Routing::PerRequest,
            accelerators: Accelerators::None,
        },
        fault: None,
        gates: Vec::new(),
        matcher: MatcherPlan {
            plugin: None,
            config: serde_json::Value::Null,
        },
        observe: ObservePlan {
            probe_interval_ns: NEVER_NS,
            probe_interval_outage_ns: 20 * NS_PER_MS,
            probe_timeout_ns: NEVER_NS,
            metrics_interval_ns: NEVER_NS,
            metrics_path: None,
            waiting_metric: "vllm:num_requests_waiting".to_owned(),
            canary: false,
        },
        method: Method::pinned(),
        runs: Vec::new(),
        plugins: BTreeMap::new(),
    }
}

/// Running observers with their events.
pub struct Watch {
    pub clock: RunClock,
    pub fire: FireSignal,
    pub events: mpsc::Receiver<Event>,
    handle: ObserversHandle,
}

impl Watch {
    pub fn start(plan: &Plan) -> Self {
        Self::with(plan, None, CpuSource::default())
    }

    pub fn with(plan: &Plan, api_key: Option<&str>, cpu: CpuSource) -> Self {
        let (send, events) = mpsc::channel();
        let clock = RunClock::with_epoch(monotonic_ns());
        let fire = FireSignal::new();
        let handle = Observers::start(ObserveRun {
            plan,
            clock,
            sink: EventSink::from(send),
            fire: fire.clone(),
            api_key,
            cpu,
        })
        .unwrap();
        Self {
            clock,
            fire,
            events,
            handle,
        }
    }

    /// The next event for which `pick` gives a value.
    pub fn next<T>(&self, mut pick: impl FnMut(EventKind) -> Option<T>) -> T {
        loop {
            let event = self
                .events
                .recv_timeout(PATIENCE)
                .expect("the event did not come");
            if let Some(found) = pick(event.kind) {
                return found;
            }
        }
    }

    pub fn probe(&self) -> ProbeOutcome {
        self.next(|kind| match kind {
            EventKind::Probe(outcome) => Some(outcome),
            _ => None,
        })
    }

    pub fn scrape_error(&self) -> String {
        self.next(|kind| match kind {
            EventKind::ScrapeError { reason, .. } => Some(reason),
            _ => None,
        })
    }

    /// Stops; fails if that waits for anything the servers hold back.
    pub fn stop(self) -> ObserveSummary {
        let (send, receive) = mpsc::channel();
        let handle = self.handle;
        std::thread::spawn(move || send.send(handle.stop()));
        receive
            .recv_timeout(PATIENCE)
            .expect("stop waited for a server")
    }
}
