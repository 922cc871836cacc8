//! Small real processes for the tests.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use blackstart_clock::{RunClock, monotonic_ns};
use blackstart_plan::{
    OrphanPolicy, ProcessPlan, ProcessSelector, ReplicaPlan, RestartPolicy, RuntimePlan,
};
use blackstart_record::{Event, EventKind, ReplicaStep};
use blackstart_targets::{EventSink, Reexec, proc};

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

/// The supervisor as this crate's helper program exposes it.
pub fn helper() -> Reexec {
    Reexec {
        program: PathBuf::from(env!("CARGO_BIN_EXE_blackstart-targets-helper")),
        prefix: vec!["__supervise".into()],
    }
}

/// A clock whose epoch is now.
pub fn clock() -> RunClock {
    RunClock::with_epoch(monotonic_ns())
}

/// An address on which nothing listens: a loopback host of its own for each call, since a free
/// port could be taken by a test beside this one.
pub fn free_address() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    format!(
        "http://127.{}.{}.{}:18000",
        1 + process % 250,
        process / 250 % 250,
        1 + n % 250
    )
}

/// Collects events.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    pub fn sink(&self) -> EventSink {
        let this = self.clone();
        Arc::new(move |event| this.0.lock().expect("lock").push(event))
    }

    pub fn all(&self) -> Vec<Event> {
        self.0.lock().expect("lock").clone()
    }

    pub fn steps(&self) -> Vec<ReplicaStep> {
        self.all()
            .into_iter()
            .filter_map(|e| match e.kind {
                EventKind::Replica(step) => Some(step),
                _ => None,
            })
            .collect()
    }

    /// Waits for a step and returns it.
    pub fn wait(&self, what: &str, is: impl Fn(&ReplicaStep) -> bool) -> ReplicaStep {
        let mut found = None;
        until(what, || {
            found = self.steps().into_iter().find(&is);
            found.is_some()
        });
        found.expect("waited for it")
    }
}

/// A replica that runs `sh -c script`, never restarted, orphans killed; change what a test needs.
pub fn replica(script: &str) -> ReplicaPlan {
    ReplicaPlan {
        id: "r0".to_owned(),
        base_url: free_address(),
        admin_url: None,
        runtime: RuntimePlan::Process(ProcessPlan {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
            cwd: None,
            restart: RestartPolicy::No,
            restart_delay_ns: 10_000_000,
            orphans: OrphanPolicy::Kill,
            start_timeout_ns: 10_000_000_000,
            stop_timeout_ns: 2_000_000_000,
        }),
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

/// Its process plan.
pub fn process(replica: &mut ReplicaPlan) -> &mut ProcessPlan {
    match &mut replica.runtime {
        RuntimePlan::Process(plan) => plan,
        RuntimePlan::Url { .. } => panic!("not a supervised replica"),
    }
}

/// Whether a process lives (a zombie does not).
pub fn lives(pid: u32) -> bool {
    proc::stat(pid).is_ok_and(|s| s.lives())
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
    format!("100{}{n:03}", std::process::id())
}

/// A process that is killed when the test ends, also by a panic.
pub struct Bystander(pub std::process::Child);

impl Bystander {
    pub fn sleep(seconds: &str) -> Self {
        Self(
            std::process::Command::new("sleep")
                .arg(seconds)
                .spawn()
                .expect("sleep"),
        )
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
