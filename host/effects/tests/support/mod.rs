//! Small real processes and a small real HTTP server for the tests.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use blackstart_clock::{RunClock, monotonic_ns};
use blackstart_effects::watchdog::{JournalEntry, JournalStep, read_journal};
use blackstart_effects::{Mode, Notice, NoticeSink, Timeline, TimelineOptions, Watchdog};
use blackstart_plan::{
    Accelerators, OrphanPolicy, ProcessPlan, ProcessSelector, ReplicaPlan, RestartPolicy, Routing,
    RuntimePlan, TargetPlan,
};
use blackstart_record::{EffectStep, Event, EventKind};
use blackstart_targets::{Reexec, Targets, proc};

/// Nothing in these tests takes so long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so; fails with its name.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_blackstart-effects-helper"))
}

/// A helper process as this crate's helper program exposes it.
pub fn helper(subcommand: &str) -> Reexec {
    Reexec {
        program: program(),
        prefix: vec![subcommand.into()],
    }
}

/// A process that is killed when the test ends, also by a panic.
pub struct Child(pub std::process::Child);

impl Child {
    pub fn run(command: &[&str]) -> Self {
        Self(
            std::process::Command::new(command[0])
                .args(&command[1..])
                .spawn()
                .expect("started"),
        )
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn state(&self) -> char {
        state(self.pid())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// State of a process, `-` when it is gone.
pub fn state(pid: u32) -> char {
    proc::stat(pid).map_or('-', |s| s.state)
}

/// Living processes whose command line contains the text.
pub fn with_text(text: &str) -> Vec<u32> {
    proc::snapshot()
        .expect("proc")
        .iter()
        .filter(|s| s.lives() && proc::cmdline(s.pid).is_some_and(|c| c.contains(text)))
        .map(|s| s.pid)
        .collect()
}

/// A `sleep` duration that no other process on this machine uses: names a tree.
pub fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("200{}{n:03}", std::process::id())
}

/// Why a test that needs rights or tools of the host cannot run here; said by name.
pub fn lacks(test: &str, reason: &str) -> bool {
    assert!(
        std::env::var_os("BLACKSTART_REQUIRE_ALL").is_none(),
        "{test} cannot run here: {reason}"
    );
    // Not by a macro of the standard library, whose text the test harness keeps to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
    true
}

/// An address on which nothing listens: a loopback host of its own for each call, since a free
/// port could be taken by a test beside this one.
fn free_address() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    format!(
        "http://127.{}.{}.{}:18001",
        1 + process % 250,
        process / 250 % 250,
        1 + n % 250
    )
}

fn replica(id: &str, runtime: RuntimePlan) -> ReplicaPlan {
    ReplicaPlan {
        id: id.to_owned(),
        base_url: free_address(),
        admin_url: None,
        runtime,
        process_roles: BTreeMap::from([
            ("api".to_owned(), ProcessSelector::Main),
            (
                "engine".to_owned(),
                ProcessSelector::Contains {
                    text: "sleep".to_owned(),
                },
            ),
        ]),
    }
}

/// A replica that the instrument launches with `sh -c script`.
pub fn supervised(id: &str, script: &str) -> ReplicaPlan {
    replica(
        id,
        RuntimePlan::Process(ProcessPlan {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
            cwd: None,
            restart: RestartPolicy::No,
            restart_delay_ns: 0,
            orphans: OrphanPolicy::Kill,
            start_timeout_ns: 10_000_000_000,
            stop_timeout_ns: 1_000_000_000,
        }),
    )
}

/// A replica that already runs.
pub fn running(id: &str, pid: u32) -> ReplicaPlan {
    replica(
        id,
        RuntimePlan::Url {
            log_file: None,
            pid: Some(pid),
            command_match: None,
        },
    )
}

pub fn target_plan(replicas: Vec<ReplicaPlan>) -> TargetPlan {
    TargetPlan {
        replicas,
        service_url: None,
        routing: Routing::Direct,
        accelerators: Accelerators::None,
    }
}

/// A timeline over some replicas, with what it said.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub clock: RunClock,
    pub targets: Arc<Targets>,
    pub watchdog: Arc<Watchdog>,
    pub timeline: Timeline,
    events: Arc<Mutex<Vec<Event>>>,
    notices: Arc<Mutex<Vec<(u32, Notice)>>>,
}

impl Bench {
    pub fn new(replicas: Vec<ReplicaPlan>) -> Self {
        Self::with(replicas, Mode::Real, Arc::new(|_, _| {}))
    }

    pub fn with(replicas: Vec<ReplicaPlan>, mode: Mode, notice: NoticeSink) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let clock = RunClock::with_epoch(monotonic_ns());
        let watchdog = Watchdog::spawn(&helper("__watchdog"), &dir.path().join("undo.jsonl"));
        let watchdog = Arc::new(watchdog.expect("watchdog"));
        let targets = Targets::launch(
            &target_plan(replicas),
            dir.path(),
            clock,
            &helper("__supervise"),
            Arc::new(|_| {}),
        );
        let targets = Arc::new(targets.expect("targets"));
        let events = Arc::new(Mutex::new(Vec::new()));
        let notices = Arc::new(Mutex::new(Vec::new()));
        let (all_events, all_notices) = (events.clone(), notices.clone());
        let timeline = Timeline::new(TimelineOptions {
            clock,
            targets: targets.clone(),
            watchdog: watchdog.clone(),
            sink: Arc::new(move |event| all_events.lock().expect("lock").push(event)),
            notice: Arc::new(move |id, what| {
                all_notices.lock().expect("lock").push((id, what.clone()));
                notice(id, what);
            }),
            helper: Some(helper("__balloon")),
            mode,
        });
        Self {
            dir,
            clock,
            targets,
            watchdog,
            timeline: timeline.expect("timeline"),
            events,
            notices,
        }
    }

    /// Run time so many milliseconds from now.
    pub fn in_ms(&self, ms: i64) -> i64 {
        self.clock.now() + ms * 1_000_000
    }

    pub fn steps(&self) -> Vec<EffectStep> {
        let events = self.events.lock().expect("lock");
        events
            .iter()
            .filter_map(|e| match &e.kind {
                EventKind::Effect(step) => Some(step.clone()),
                _ => None,
            })
            .collect()
    }

    /// Names of one effect's steps.
    pub fn names(&self, effect: u32) -> Vec<String> {
        self.steps()
            .into_iter()
            .filter(|s| s.effect == effect)
            .map(|s| s.step)
            .collect()
    }

    pub fn notices(&self) -> Vec<(u32, Notice)> {
        self.notices.lock().expect("lock").clone()
    }

    /// Waits for a step of an effect.
    pub fn wait(&self, effect: u32, name: &str) -> EffectStep {
        let mut found = None;
        until(&format!("effect {effect} {name}"), || {
            found = self
                .steps()
                .into_iter()
                .find(|s| s.effect == effect && s.step == name);
            found.is_some()
        });
        found.expect("waited for it")
    }

    pub fn journal(&self) -> Vec<JournalStep> {
        journal(self.dir.path())
    }
}

pub fn journal(dir: &Path) -> Vec<JournalStep> {
    let entries: Vec<JournalEntry> = read_journal(&dir.join("undo.jsonl")).expect("journal");
    assert!(entries.is_sorted_by_key(|e| e.monotonic_ns));
    entries.into_iter().map(|e| e.step).collect()
}

/// Requests that a [`Server`] got.
pub type Got = Arc<Mutex<Vec<String>>>;

/// An HTTP server that notes `METHOD path body` and answers as `answer` says; an empty answer
/// closes the connection.
pub struct Server {
    pub url: String,
    pub got: Got,
}

impl Server {
    pub fn start(answer: fn(&str) -> &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let got = Got::default();
        let all = got.clone();
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = serve(stream, &all, answer);
            }
        });
        Self { url, got }
    }

    pub fn got(&self) -> Vec<String> {
        self.got.lock().expect("lock").clone()
    }
}

fn serve(
    mut stream: TcpStream,
    got: &Got,
    answer: fn(&str) -> &'static str,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let words: Vec<&str> = first.split_ascii_whitespace().take(2).collect();
    let request = format!("{} {}", words.join(" "), String::from_utf8_lossy(&body));
    let request = request.trim().to_owned();
    let text = answer(&request);
    got.lock().expect("lock").push(request);
    stream.write_all(text.as_bytes())
}

pub const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
pub const BROKEN: &str =
    "HTTP/1.1 500 Oh\r\ncontent-length: 8\r\nconnection: close\r\n\r\nno fault";
