//! What is read about the system under test around the fault: facts, proof, fingerprints; and the
//! canary's endpoint.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blackstart_clock::RunClock;
use blackstart_effects::Timeline;
use blackstart_plan::{
    Accelerators, OrphanPolicy, ProcessPlan, ReplicaPlan, RestartPolicy, RuntimePlan,
};
use blackstart_plugins::{Fact as PluginFact, FaultPlugin, Proof};
use blackstart_record::{Event, EventKind, Fact, ProofVerdict, ReplicaStep, RunFiles, read_events};
use blackstart_targets::{Reexec, Supervised, Targets};

use super::recorder::Recorder;
use super::run::RunContext;
use crate::exit::{Exit, Failure};

/// A run under way.
pub struct Stage<'a> {
    /// What it needs.
    pub context: &'a RunContext<'a>,
    /// The system under test.
    pub targets: Arc<Targets>,
    /// Where events go.
    pub recorder: &'a Recorder,
    /// The run's clock.
    pub clock: RunClock,
}

impl Stage<'_> {
    /// Reads the facts of every victim, and of what the timeline has in force on it.
    pub fn facts(&self, phase: &str, timeline: &Timeline) {
        let plan = &self.context.prepared.plan;
        let Some(fault) = &plan.fault else { return };
        let mut facts: Vec<Fact> = Vec::new();
        for victim in &fault.victims {
            match self.targets.facts(victim) {
                Ok(found) => facts.extend(found),
                Err(e) => self.note(format!("facts of {victim}: {e}")),
            }
            let read = timeline.facts(victim).into_iter();
            facts.extend(read.map(|(name, value)| Fact {
                replica: victim.clone(),
                name,
                value,
            }));
        }
        if phase == "during" {
            facts.extend(self.http_statuses(&fault.victims));
        }
        if phase != "before" {
            facts.extend(self.orphans_at_exit(&fault.victims));
        }
        self.recorder.sender().emit(
            self.clock.now(),
            EventKind::Facts {
                phase: phase.to_owned(),
                facts,
            },
        );
    }

    /// The victims' answers to HTTP effects, from the record of what was sent.
    fn http_statuses(&self, victims: &[String]) -> Vec<Fact> {
        self.recorded()
            .into_iter()
            .filter_map(|event| match event.kind {
                EventKind::Effect(step) if step.step == "started" => {
                    let status = step.detail?.strip_prefix("status ")?.trim().to_owned();
                    let replica = step.replica.filter(|r| victims.contains(r))?;
                    Some(Fact {
                        replica,
                        name: "http.status".to_owned(),
                        value: Some(status),
                    })
                }
                _ => None,
            })
            .collect()
    }

    /// Descendants that outlived the victims' main processes when those ended last, also if the
    /// supervisor has ended them since.
    fn orphans_at_exit(&self, victims: &[String]) -> Vec<Fact> {
        let recorded = self.recorded();
        victims
            .iter()
            .map(|victim| Fact {
                replica: victim.clone(),
                name: "target.orphans-at-exit".to_owned(),
                value: recorded.iter().rev().find_map(|event| match &event.kind {
                    EventKind::Replica(ReplicaStep::Exited {
                        replica, orphans, ..
                    }) if replica == victim => Some(
                        orphans
                            .iter()
                            .map(|o| title_of(o))
                            .collect::<Vec<_>>()
                            .join(" "),
                    ),
                    _ => None,
                }),
            })
            .collect()
    }

    fn recorded(&self) -> Vec<Event> {
        read_events(&RunFiles::new(self.context.dir).events())
            .map_or_else(|_| Vec::new(), |log| log.events)
    }

    /// Asks the plugin whether its fault happened, and records what it says.
    pub fn prove(&self, plugin: &Mutex<Option<FaultPlugin>>, interrupted: bool) {
        // The recorder writes on its own thread; what was just read must be there.
        std::thread::sleep(Duration::from_millis(100));
        let recorded = self.recorded();
        let fired = |e: &Event| matches!(&e.kind, EventKind::Effect(s) if s.step == "started");
        if interrupted && !recorded.iter().any(fired) {
            // A plugin sees facts only, and would say that the victim survived.
            self.recorder.sender().emit(
                self.clock.now(),
                EventKind::Proof {
                    verdict: ProofVerdict::DidNotHappen,
                    statement: "it was not fired: the run was interrupted before".to_owned(),
                },
            );
            return;
        }
        let facts = joined(&recorded);
        let mut plugin = plugin.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(plugin) = plugin.as_mut() else {
            return;
        };
        let (verdict, statement) = match plugin.prove(&facts) {
            Ok(Proof::Happened(s)) => (ProofVerdict::Happened, s),
            Ok(Proof::DidNotHappen(s)) => (ProofVerdict::DidNotHappen, s),
            Ok(Proof::CannotTell(s)) => (ProofVerdict::CannotTell, s),
            Err(e) => (ProofVerdict::CannotTell, e.to_string()),
        };
        let statement = if interrupted {
            format!("{statement} (the run was interrupted)")
        } else {
            statement
        };
        self.recorder
            .sender()
            .emit(self.clock.now(), EventKind::Proof { verdict, statement });
    }

    /// Reads the accelerators' fingerprint, where the configuration declares any.
    pub fn fingerprints(&self, phase: &str) {
        let target = &self.context.prepared.plan.target;
        if target.accelerators == Accelerators::None {
            return;
        }
        let accelerators = blackstart_observe::fingerprint(target.accelerators);
        for replica in &target.replicas {
            self.recorder.sender().emit(
                self.clock.now(),
                EventKind::Fingerprint {
                    replica: replica.id.clone(),
                    phase: phase.to_owned(),
                    accelerators: accelerators.clone(),
                },
            );
        }
    }

    fn note(&self, text: String) {
        self.recorder
            .sender()
            .emit(self.clock.now(), EventKind::Note { text });
    }
}

/// `pid:title` of a descendant that was recorded as `pid title and arguments`.
fn title_of(orphan: &str) -> String {
    let mut words = orphan.split(' ');
    format!(
        "{}:{}",
        words.next().unwrap_or_default(),
        words.next().unwrap_or("?")
    )
}

/// Facts of the three phases side by side, as `prove` wants them.
fn joined(events: &[Event]) -> Vec<PluginFact> {
    let mut facts: BTreeMap<(String, String), PluginFact> = BTreeMap::new();
    for event in events {
        let EventKind::Facts { phase, facts: read } = &event.kind else {
            continue;
        };
        for fact in read {
            let entry = facts
                .entry((fact.replica.clone(), fact.name.clone()))
                .or_insert_with(|| PluginFact {
                    replica: fact.replica.clone(),
                    name: fact.name.clone(),
                    before: None,
                    during: None,
                    after: None,
                });
            match phase.as_str() {
                "before" => entry.before.clone_from(&fact.value),
                "during" => entry.during.clone_from(&fact.value),
                _ => entry.after.clone_from(&fact.value),
            }
        }
    }
    facts.into_values().collect()
}

/// The canary's endpoint: the mock server with known timing, in a process of its own that ends with
/// the instrument.
pub struct Canary {
    base_url: String,
    process: Supervised,
}

impl Canary {
    /// Starts it on a free port and waits until it accepts connections.
    ///
    /// # Errors
    /// When it does not start.
    pub fn launch(dir: &Path, clock: RunClock) -> Result<Self, Failure> {
        const START_TIMEOUT: Duration = Duration::from_secs(10);
        let fail =
            |e: String| Failure::message(Exit::Internal, format!("the canary's endpoint: {e}"));
        let port = free_port().map_err(|e| fail(e.to_string()))?;
        let exe = std::env::current_exe().map_err(|e| fail(e.to_string()))?;
        let base_url = format!("http://127.0.0.1:{port}");
        let replica = ReplicaPlan {
            id: "canary".to_owned(),
            base_url: base_url.clone(),
            admin_url: None,
            runtime: RuntimePlan::Process(ProcessPlan {
                command: ["mock", "--canary", "--port", &port.to_string()]
                    .iter()
                    .fold(vec![exe.to_string_lossy().into_owned()], |mut c, a| {
                        c.push((*a).to_owned());
                        c
                    }),
                env: BTreeMap::new(),
                cwd: None,
                restart: RestartPolicy::No,
                restart_delay_ns: 0,
                orphans: OrphanPolicy::Kill,
                start_timeout_ns: 10_000_000_000,
                stop_timeout_ns: 2_000_000_000,
            }),
            process_roles: BTreeMap::new(),
        };
        // Its life is no event of the run.
        let process = Supervised::launch(
            &replica,
            &dir.join("canary.log"),
            clock,
            &Reexec::supervisor(),
            Arc::new(|_| {}),
        )
        .map_err(|e| fail(e.to_string()))?;
        let until = Instant::now() + START_TIMEOUT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until {
                return Err(fail(format!(
                    "no answer on port {port} within {START_TIMEOUT:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { base_url, process })
    }

    /// Whether its process still runs.
    pub fn is_running(&self) -> bool {
        self.process.main().is_some()
    }

    /// Its address.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }
}

/// A port that is free now.
pub fn free_port() -> std::io::Result<u16> {
    TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()
        .map(|a| a.port())
}
