//! What one seed of a scenario plants: when the fault fires, and how each replica fares.

use blackstart_plan::Plan;

use crate::Scenario;
use crate::clock::{Bracket, RemoteClock};
use crate::planning::{MS, S, US};
use crate::random::{Random, Stream};
use crate::scenario::Kind;

/// How a replica treats requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum State {
    /// Serves.
    Up,
    /// Refuses connections; what it held is reset as the state begins.
    Refusing,
    /// Accepts and never answers; what it held is never answered either.
    Hanging,
    /// Stands still and goes on with everything afterwards.
    Frozen,
    /// Serves, but this share of requests misses its TTFT.
    Degraded { miss: f64 },
    /// Serves with a TTFT that grows from the state's begin on.
    Creeping { ns_per_s: f64 },
}

impl State {
    /// Whether a request that is sent now is answered at all, if the state lasts.
    pub(crate) fn answers(self) -> bool {
        matches!(
            self,
            Self::Up | Self::Degraded { .. } | Self::Creeping { .. }
        )
    }
}

/// Most that a creeping TTFT grows by: a probe is still answered.
pub(crate) const CREEP_MAX_NS: i64 = 2_500 * MS;
/// TTFT of a served request lies around the middle of this span.
pub(crate) const TTFT_NS: (i64, i64) = (40 * MS, 100 * MS);
/// Time between two events of an answer.
pub(crate) const GAP_NS: (i64, i64) = (20 * MS, 40 * MS);
/// TTFT of a request that misses its threshold.
pub(crate) const SLOW_TTFT_NS: (i64, i64) = (1_200 * MS, 2_500 * MS);

/// A state from an instant on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    pub(crate) from_ns: i64,
    pub(crate) state: State,
}

/// Everything that is planted.
#[derive(Debug, Clone)]
pub(crate) struct Planted {
    /// When the operation took place, on the run's clock; in a run without one the planned instant.
    pub(crate) fire_ns: i64,
    /// The clock reads around it, as the executing host made them.
    pub(crate) bracket: Bracket,
    /// The executing host's clock, where it is another one.
    pub(crate) remote: Option<RemoteClock>,
    /// The states of each replica, ascending; the first begins long before the run.
    pub(crate) phases: Vec<Vec<Phase>>,
    /// From when on service is good for all, until anything planted later.
    pub(crate) service_return_ns: Option<i64>,
    /// Share of the service's requests that are not good right before that.
    pub(crate) share_away: f64,
    /// When the victim answers for the first time after it went away.
    pub(crate) first_answer_ns: Option<i64>,
}

/// Long before the run.
const ALWAYS: i64 = -1_000 * S;

/// Draws what a seed plants.
pub(crate) fn plant(scenario: &Scenario, plan: &Plan, seed: u64) -> Planted {
    let mut random = Random::new(scenario.name, seed, Stream::Planted);
    let planned_ns = plan.phases.fire_at_ns();
    let late_ns = match scenario.kind {
        Kind::LateFire => random.between(100 * MS, 450 * MS),
        _ => random.between(0, 200 * US),
    };
    let fire_ns = planned_ns + if scenario.fires() { late_ns } else { 0 };
    let remote = scenario
        .is_remote()
        .then(|| RemoteClock::draw(&mut random, plan.phases.load_end_ns()));
    let bracket = Bracket::around(fire_ns, &mut random, remote.as_ref());
    let victim = victim(scenario.kind, fire_ns, plan, &mut random);
    let slack_ns = i64::from(plan.method.slo.ttft_ms) * MS - middle(TTFT_NS);
    let service_return_ns = victim.return_ns.map(|at| match scenario.kind {
        // What is sent shortly before the thaw is answered within its threshold.
        Kind::Freeze => at - slack_ns,
        _ => at,
    });
    let mut phases = vec![victim.phases];
    phases.resize(
        scenario.replicas as usize,
        vec![Phase {
            from_ns: ALWAYS,
            state: State::Up,
        }],
    );
    Planted {
        fire_ns,
        bracket,
        remote,
        first_answer_ns: first_answer(&phases[0]),
        phases,
        service_return_ns,
        share_away: victim.away / f64::from(scenario.replicas),
    }
}

/// The middle of a span.
pub(crate) fn middle((from, to): (i64, i64)) -> i64 {
    (from + to) / 2
}

/// When the replica answers again after it did not.
fn first_answer(phases: &[Phase]) -> Option<i64> {
    let away = phases.iter().position(|p| !p.state.answers())?;
    phases[away..]
        .iter()
        .find(|p| p.state.answers())
        .map(|p| p.from_ns)
}

struct Victim {
    phases: Vec<Phase>,
    return_ns: Option<i64>,
    away: f64,
}

/// States one after the other.
struct Course {
    phases: Vec<Phase>,
    at_ns: i64,
}

impl Course {
    /// A state that lasts so long, or for good where nothing follows.
    fn put(&mut self, state: State, length_ns: i64) {
        self.phases.push(Phase {
            from_ns: self.at_ns,
            state,
        });
        self.at_ns += length_ns;
    }

    /// Service from here on; the instant.
    fn back(&mut self) -> Option<i64> {
        self.put(State::Up, 0);
        Some(self.at_ns)
    }
}

fn victim(kind: Kind, fire_ns: i64, plan: &Plan, random: &mut Random) -> Victim {
    let mut course = Course {
        phases: vec![Phase {
            from_ns: ALWAYS,
            state: State::Up,
        }],
        at_ns: fire_ns,
    };
    let mut away = 1.0;
    let mut return_ns = None;
    let (watched_ns, load_end_ns) = (plan.phases.fault_window_end_ns(), plan.phases.load_end_ns());
    match kind {
        Kind::Crash | Kind::LateFire | Kind::RemoteClock | Kind::ClockUnmeasured => {
            course.put(State::Refusing, random.between(5 * S, 60 * S));
            return_ns = course.back();
        }
        Kind::Hang => {
            course.put(State::Hanging, random.between(5 * S, 60 * S));
            return_ns = course.back();
        }
        Kind::Freeze => {
            course.put(State::Frozen, random.between(7 * S, 40 * S));
            return_ns = course.back();
        }
        Kind::Partial => {
            course.put(State::Refusing, random.between(5 * S, 20 * S));
            let miss = random.real(0.5, 0.95);
            course.put(State::Degraded { miss }, random.between(8 * S, 40 * S));
            away = miss;
            return_ns = course.back();
        }
        Kind::Flapping => {
            for _ in 0..random.between(1, 5) {
                course.put(State::Refusing, random.between(4 * S, 10 * S));
                course.put(State::Up, random.between(3 * S, 15 * S));
            }
            course.put(State::Refusing, random.between(4 * S, 10 * S));
            return_ns = course.back();
        }
        Kind::Relapse => {
            course.put(State::Refusing, random.between(5 * S, 20 * S));
            return_ns = Some(course.at_ns);
            course.put(State::Up, random.between(45 * S, 55 * S));
            course.put(State::Refusing, random.between(4 * S, 12 * S));
            course.back();
        }
        Kind::SlowDegradation | Kind::LateDegradation => {
            let slow = kind == Kind::SlowDegradation;
            let (from_s, to_s) = if slow { (4.0, 20.0) } else { (45.0, 60.0) };
            let passes_s = random.real(from_s, to_s);
            let threshold_ns = i64::from(plan.method.slo.ttft_ms) * MS;
            let ns_per_s = (threshold_ns - middle(TTFT_NS)) as f64 / passes_s;
            let bad_ns = random.between(10 * S, if slow { 60 * S } else { 45 * S });
            let length_ns = (passes_s * 1e9) as i64 + bad_ns;
            course.put(State::Creeping { ns_per_s }, length_ns);
            return_ns = course.back();
        }
        Kind::NeverReturns => course.put(State::Refusing, 0),
        Kind::HangForever => course.put(State::Hanging, 0),
        Kind::ReturnsDegraded => {
            course.put(State::Refusing, random.between(5 * S, 20 * S));
            let miss = random.real(0.25, 0.9);
            course.put(State::Degraded { miss }, 0);
        }
        Kind::FlapsForever => {
            while course.at_ns < load_end_ns {
                course.put(State::Refusing, random.between(4 * S, 10 * S));
                course.put(State::Up, random.between(5 * S, 20 * S));
            }
        }
        Kind::ReturnsTooLate => {
            let until_ns = random.between(watched_ns + 3 * S, watched_ns + 20 * S);
            course.put(State::Refusing, until_ns - fire_ns);
            return_ns = course.back();
        }
        Kind::ShortWatch => {
            let until_ns = random.between(watched_ns - 25 * S, watched_ns - 10 * S);
            course.put(State::Refusing, until_ns - fire_ns);
            return_ns = course.back();
        }
        Kind::MissedFault | Kind::Control | Kind::NoFault => {}
    }
    Victim {
        phases: course.phases,
        return_ns,
        away,
    }
}
