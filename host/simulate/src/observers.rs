//! What observers, supervisor and timeline record of a virtual run.

use blackstart_plan::Plan;
use blackstart_record::{
    EffectStep, Event, EventKind, Fact, MetricSample, MetricTable, ProbeOutcome, ProbePath,
    ProofVerdict, ReplicaStep,
};

use crate::Scenario;
use crate::planning::{EPOCH_UNIX_NS, MS, S, US, replica_id};
use crate::planted::{CREEP_MAX_NS, Phase, Planted, SLOW_TTFT_NS, State, TTFT_NS};
use crate::random::Random;
use crate::scenario::Kind;
use crate::service::at;

/// When the first life of a replica began, in run time.
pub(crate) const FIRST_LIFE_NS: i64 = -40 * S;
/// From the end of a main process to its next start.
pub(crate) const RESTART_DELAY_NS: i64 = 500 * MS;
/// How long after the last client timeout a run goes on.
const DRAIN_NS: i64 = S;

/// What is observed of a run.
pub(crate) struct Observed<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) plan: &'a Plan,
    pub(crate) planted: &'a Planted,
    pub(crate) seed: u64,
    pub(crate) random: Random,
}

impl Observed<'_> {
    /// Every event, ascending by time.
    pub(crate) fn events(&mut self, requests: u64) -> Vec<Event> {
        let mut all = vec![event(
            0,
            EventKind::Epoch {
                monotonic_ns: 1_000 * S,
                unix_ns: EPOCH_UNIX_NS,
            },
        )];
        all.push(event(
            0,
            EventKind::Note {
                text: format!(
                    "simulated run: scenario {}, seed {}; no server was measured",
                    self.scenario.name, self.seed
                ),
            },
        ));
        self.effect(&mut all);
        for number in 0..self.planted.phases.len() {
            self.lives(number as u32, &mut all);
            self.direct_probes(number, &mut all);
        }
        if self.plan.target.service_url.is_some() {
            self.service_probes(&mut all);
        }
        self.client(&mut all);
        let end_ns = self.end_ns();
        all.push(event(
            end_ns,
            EventKind::LoadEnded {
                scheduled: requests,
                recorded: requests,
            },
        ));
        all.sort_by_key(|e| e.at_ns);
        all
    }

    /// When every request has an outcome.
    fn end_ns(&self) -> i64 {
        self.plan.phases.load_end_ns() + self.plan.load.timeout_ns + DRAIN_NS
    }

    fn effect(&self, all: &mut Vec<Event>) {
        let Some(fault) = &self.plan.fault else {
            return;
        };
        let victim = replica_id(0);
        let action = format!("signal KILL to process main of {victim}");
        let step = |step: &str| EffectStep {
            effect: 1,
            step: step.to_owned(),
            action: action.clone(),
            replica: Some(victim.clone()),
            planned_ns: fault.fire_at_ns,
            before_ns: None,
            after_ns: None,
            detail: None,
            by: "instrument".to_owned(),
        };
        let facts = |phase: &str, pid: u32| EventKind::Facts {
            phase: phase.to_owned(),
            facts: vec![Fact {
                replica: victim.clone(),
                name: "process.main.pid".to_owned(),
                value: Some(pid.to_string()),
            }],
        };
        all.push(event(-S / 2, EventKind::Effect(step("scheduled"))));
        all.push(event(fault.fire_at_ns - S / 2, facts("before", 10)));
        if self.scenario.fires() {
            all.push(event(
                self.planted.fire_ns,
                EventKind::Effect(EffectStep {
                    before_ns: Some(self.planted.bracket.before_ns),
                    after_ns: Some(self.planted.bracket.after_ns),
                    detail: Some("pid 10".to_owned()),
                    ..step("started")
                }),
            ));
        }
        if let Some(remote) = &self.planted.remote {
            all.extend(remote.events(self.scenario.kind != Kind::ClockUnmeasured));
        }
        let harmed = self.scenario.fires() && self.scenario.kind != Kind::MissedFault;
        let at_ns = self.end_ns() - S / 2;
        all.push(event(at_ns, facts("after", if harmed { 11 } else { 10 })));
        let (verdict, statement) = if harmed {
            (ProofVerdict::Happened, "the victim was harmed as planted")
        } else {
            (ProofVerdict::DidNotHappen, "nothing happened to the victim")
        };
        all.push(event(
            at_ns + 1,
            EventKind::Proof {
                verdict,
                statement: statement.to_owned(),
            },
        ));
    }

    /// Starts and ends of a replica's main process.
    fn lives(&mut self, number: u32, all: &mut Vec<Event>) {
        let replica = replica_id(number);
        let mut pid = 10;
        let step = |at_ns: i64, step: ReplicaStep| event(at_ns, EventKind::Replica(step));
        all.push(step(
            FIRST_LIFE_NS,
            ReplicaStep::Started {
                replica: replica.clone(),
                pid,
                restarts: 0,
            },
        ));
        let phases = &self.planted.phases[number as usize];
        for (i, phase) in phases.iter().enumerate() {
            if phase.state != State::Refusing {
                continue;
            }
            let gone_ns = phase.from_ns + self.random.between(MS, 3 * MS);
            all.push(step(
                gone_ns,
                ReplicaStep::Exited {
                    replica: replica.clone(),
                    pid,
                    code: None,
                    signal: Some(9),
                    orphans: Vec::new(),
                },
            ));
            if i + 1 == phases.len() {
                all.push(step(
                    gone_ns + MS,
                    ReplicaStep::NotRestarted {
                        replica: replica.clone(),
                        reason: "simulated: it stays away".to_owned(),
                    },
                ));
                continue;
            }
            pid += 1;
            all.push(step(
                phase.from_ns + RESTART_DELAY_NS,
                ReplicaStep::Started {
                    replica: replica.clone(),
                    pid,
                    restarts: pid - 10,
                },
            ));
        }
    }

    /// Probes straight to a replica, one after the other.
    fn direct_probes(&mut self, number: usize, all: &mut Vec<Event>) {
        let planted = self.planted;
        let mut next = |sent_ns: i64, random: &mut Random| {
            let (at_ns, ok) = probe(&planted.phases[number], sent_ns, self.plan, random);
            Ended {
                at_ns,
                ok,
                replica: Some(replica_id(number as u32)),
            }
        };
        let probes = run_probes(
            ProbePath::Direct,
            self.plan,
            planted.fire_ns,
            &mut self.random,
            &mut next,
        );
        all.extend(probes);
    }

    /// Probes through the service, each to the next replica.
    fn service_probes(&mut self, all: &mut Vec<Event>) {
        let planted = self.planted;
        let mut turn = 0;
        let mut next = |sent_ns: i64, random: &mut Random| {
            turn = (turn + 1) % planted.phases.len();
            let (at_ns, ok) = probe(&planted.phases[turn], sent_ns, self.plan, random);
            Ended {
                at_ns,
                ok,
                replica: ok.then(|| replica_id(turn as u32)),
            }
        };
        let probes = run_probes(
            ProbePath::Service,
            self.plan,
            planted.fire_ns,
            &mut self.random,
            &mut next,
        );
        all.extend(probes);
    }

    /// The client's own fitness: a calm machine.
    fn client(&mut self, all: &mut Vec<Event>) {
        let end_ns = self.end_ns();
        let mut at_ns = S;
        while at_ns <= end_ns {
            all.push(event(
                at_ns,
                EventKind::ClientCpu {
                    interval_ns: S,
                    host_percent: 10.0 + self.random.unit(),
                    steal_percent: 0.0,
                    process_percent: 4.0,
                },
            ));
            at_ns += S;
        }
        all.push(event(
            end_ns,
            EventKind::Heartbeat {
                thread: 0,
                ticks: (end_ns / MS) as u64,
                late_ns_p50: 20 * US,
                late_ns_p99: 90 * US,
                late_ns_max: 400 * US,
                real_time: Err("simulated".to_owned()),
            },
        ));
    }

    /// The scrapes of every replica's metrics; those that fail are events.
    pub(crate) fn metrics(&mut self, events: &mut Vec<Event>) -> MetricTable {
        let mut table = MetricTable::default();
        for (number, phases) in (0_u32..).zip(&self.planted.phases) {
            let replica = replica_id(number);
            table.series.push((
                replica.clone(),
                format!(
                    "{}{{model_name=\"simulated\"}}",
                    self.plan.observe.waiting_metric
                ),
            ));
            let mut at_ns = S / 2;
            while at_ns < self.plan.phases.load_end_ns() {
                if phases[at(phases, at_ns)].state.answers() {
                    table.samples.push(MetricSample {
                        at_ns,
                        series: number,
                        value: f64::from(u8::from(self.random.chance(0.1))),
                    });
                } else {
                    events.push(event(
                        at_ns,
                        EventKind::ScrapeError {
                            replica: replica.clone(),
                            reason: "simulated: no answer".to_owned(),
                        },
                    ));
                }
                at_ns += self.plan.observe.metrics_interval_ns;
            }
        }
        events.sort_by_key(|e| e.at_ns);
        table
    }
}

fn event(at_ns: i64, kind: EventKind) -> Event {
    Event { at_ns, kind }
}

/// How a probe ended.
struct Ended {
    at_ns: i64,
    /// Whether with a token.
    ok: bool,
    /// Who answered, or was asked directly.
    replica: Option<String>,
}

/// When a probe ends, and whether with a token.
fn probe(phases: &[Phase], sent_ns: i64, plan: &Plan, random: &mut Random) -> (i64, bool) {
    let quick_ns = random.around(TTFT_NS.0, TTFT_NS.1);
    let slow_ns = random.between(SLOW_TTFT_NS.0, SLOW_TTFT_NS.1);
    let chance = random.unit();
    let given_up = (sent_ns + plan.observe.probe_timeout_ns, false);
    let now = at(phases, sent_ns);
    let mut token_ns = match phases[now].state {
        State::Refusing => return (sent_ns + MS, false),
        State::Hanging => return given_up,
        State::Degraded { miss } if chance < miss => sent_ns + slow_ns,
        State::Creeping { ns_per_s } => {
            let since_s = (sent_ns - phases[now].from_ns) as f64 / 1e9;
            sent_ns + quick_ns + ((ns_per_s * since_s) as i64).min(CREEP_MAX_NS)
        }
        _ => sent_ns + quick_ns,
    };
    for (i, phase) in phases.iter().enumerate().skip(now) {
        let from_ns = phase.from_ns.max(sent_ns);
        if token_ns < from_ns {
            break;
        }
        match phase.state {
            State::Refusing => return (from_ns + MS, false),
            State::Hanging => return given_up,
            State::Frozen => {
                let until_ns = phases.get(i + 1).map_or(i64::MAX / 4, |p| p.from_ns);
                token_ns += until_ns - from_ns;
            }
            _ => {}
        }
    }
    if token_ns > given_up.0 {
        given_up
    } else {
        (token_ns, true)
    }
}

/// Probes of a path, from before the run to the end of its load: densely from the fire until the path
/// works again.
fn run_probes(
    path: ProbePath,
    plan: &Plan,
    fire_ns: i64,
    random: &mut Random,
    send: &mut dyn FnMut(i64, &mut Random) -> Ended,
) -> Vec<Event> {
    let mut all = Vec::new();
    let mut sent_ns = random.between(0, plan.observe.probe_interval_ns);
    let (mut failed, mut works_again) = (false, false);
    while sent_ns < plan.phases.load_end_ns() {
        let Ended {
            at_ns: ended_ns,
            ok,
            replica,
        } = send(sent_ns, random);
        all.push(event(
            ended_ns,
            EventKind::Probe(ProbeOutcome {
                path,
                replica,
                sent_ns,
                first_token_ns: ok.then_some(ended_ns),
                ok,
                reason: (!ok).then(|| "simulated: no answer".to_owned()),
            }),
        ));
        failed |= !ok;
        works_again |= failed && ok;
        let mut next_ns = sent_ns
            + if sent_ns >= fire_ns && !works_again {
                plan.observe.probe_interval_outage_ns
            } else {
                plan.observe.probe_interval_ns
            };
        // The fire wakes the prober.
        if sent_ns < fire_ns {
            next_ns = next_ns.min(fire_ns + MS);
        }
        sent_ns = next_ns.max(ended_ns);
    }
    all
}
