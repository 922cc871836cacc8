//! The truth of a run: from what was planted and from the planted fate of each request. Nothing here
//! knows the analysis; where a rule of the method is applied, it is applied as its sentence reads,
//! window by window.

use std::collections::BTreeMap;

use blackstart_plan::{Plan, RunPlan};
use blackstart_record::{Event, EventKind, ProbePath};
use serde::Serialize;

use crate::Scenario;
use crate::curve::{Curve, Share};
use crate::fate::{End, Fate};
use crate::planning::{MS, replica_id};
use crate::planted::Planted;
use crate::scenario::Kind;

/// How far chance may move a window's share for a conclusion to be certain, in standard deviations:
/// one in three hundred thousand on either side.
const CERTAIN_DEVIATIONS: f64 = 4.5;
/// What the curve may be off by: it has the middle of each distribution, not its width.
const CURVE_SLACK: f64 = 0.003;

/// How requests ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OutcomeTruth {
    /// All.
    pub scheduled: u64,
    /// Answered in full.
    pub completed: u64,
    /// Failed.
    pub errored: u64,
    /// Never answered.
    pub censored: u64,
    /// Answered within both thresholds.
    pub good: u64,
    /// Failures by class.
    pub errored_by_class: BTreeMap<String, u64>,
}

/// Requests in flight at the fire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FlightTruth {
    /// Certainly in flight, as far as their end tells.
    pub determinate: OutcomeTruth,
    /// Those whose end lies too close to the fire.
    pub indeterminate: OutcomeTruth,
    /// In flight at the true instant, whatever can be known of it.
    pub at_the_true_fire: u64,
}

/// All requests by when they met the fault; of each group the total and how many were lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SplitTruth {
    /// In flight at the fire.
    pub in_flight: (u64, u64),
    /// Ended before it.
    pub before_fire: (u64, u64),
    /// Meant for before it, and not yet sent.
    pub waiting_at_fire: (u64, u64),
    /// Meant for the outage.
    pub during_outage: (u64, u64),
    /// The rest.
    pub after_outage: (u64, u64),
}

/// A conclusion of the detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum RecoveryTruth {
    /// Service fell and is back from this bucket on.
    Recovered {
        /// Start of the bucket, in run time.
        entry_ns: i64,
    },
    /// It never fell.
    NoOutage,
    /// It is not back by the end of the fault window.
    NotRecovered,
    /// It seems back from this bucket on, but the load ends too soon to tell.
    Unconfirmed {
        /// Start of the bucket, in run time.
        candidate_ns: i64,
    },
}

/// What the method defines of the planted course of service, without the chance of single requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Expected {
    /// The conclusion.
    pub recovery: RecoveryTruth,
    /// Whether the method defines it: chance can not move it by more than one bucket.
    pub certain: bool,
    /// Re-degradations, where chance can not add or hide one.
    pub redegradations: Option<u32>,
}

/// What the rule of the method says of the requests that were planted, counted one by one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counted {
    /// The conclusion.
    pub recovery: RecoveryTruth,
    /// Candidates that a dip cancelled.
    pub dips: u32,
    /// Episodes below the exit threshold that climbed back.
    pub redegradations: u32,
    /// Goodput lost until the entry (or the end of the fault window), in seconds of full service.
    pub deficit_s: f64,
}

/// When the first line of a boundary after the fire was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BoundaryTruth {
    /// The boundary.
    pub key: String,
    /// When, in run time.
    pub written_ns: i64,
}

/// Everything that is known of a run because it was planted. Times are run time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Truth {
    /// The scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// When the fault truly fired; `None` = no effect was executed.
    pub fire_ns: Option<i64>,
    /// What the clock reads around it allow to say of it: instant, half-width, indeterminate zone.
    pub known_fire: Option<(i64, i64, i64)>,
    /// The earlier of the planned and the known fire.
    pub anchor_ns: i64,
    /// From when on service is good for all, until anything planted later.
    pub service_return_ns: Option<i64>,
    /// Share of the service's requests that are not good right before that.
    pub share_away: f64,
    /// By how much the leading window lets an entry come before that, in seconds: it tolerates a tenth
    /// of bad requests, and where only a share of service is away it takes longer to fill.
    pub lead_s: f64,
    /// When the victim answers for the first time after it went away.
    pub first_answer_ns: Option<i64>,
    /// End of the first direct probe that it answered then.
    pub ready_probe_ns: Option<i64>,
    /// Expected of the planted course.
    pub expected: Expected,
    /// Counted from the planted requests.
    pub counted: Counted,
    /// Outcomes by window.
    pub windows: BTreeMap<String, OutcomeTruth>,
    /// The whole run.
    pub all: OutcomeTruth,
    /// Requests in flight at the fire.
    pub in_flight: Option<FlightTruth>,
    /// All requests by when they met the fault.
    pub split: Option<SplitTruth>,
    /// The victim's log.
    pub boundaries: Vec<BoundaryTruth>,
    /// Whether the run counts.
    pub valid: bool,
}

/// What the truth is told of.
pub(crate) struct TruthInput<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) plan: &'a Plan,
    pub(crate) run: &'a RunPlan,
    pub(crate) planted: &'a Planted,
    pub(crate) fates: &'a [Fate],
    pub(crate) events: &'a [Event],
    pub(crate) curve: &'a Curve,
    pub(crate) victims_log: Vec<(&'static str, i64)>,
}

impl Truth {
    /// The truth of a run.
    pub(crate) fn of(input: &TruthInput<'_>) -> Self {
        let (plan, planted, scenario) = (input.plan, input.planted, input.scenario);
        let planned_ns = plan.phases.fire_at_ns();
        let fire_ns = scenario.fires().then_some(planted.fire_ns);
        let known_fire = fire_ns
            .filter(|_| scenario.kind != Kind::ClockUnmeasured)
            .map(|_| known_fire_of(planted));
        let anchor_ns = known_fire.map_or(planned_ns, |(at, ..)| at.min(planned_ns));
        let rule = Rule::of(input, anchor_ns);
        let counted = rule.counted(input.fates);
        let first_answer_ns = planted.first_answer_ns;
        let ready_probe_ns = known_fire
            .and(first_answer_ns)
            .and_then(|at| first_probe_after(input.events, at));
        let outage = known_fire
            .zip(ready_probe_ns)
            .map(|((from, ..), until)| (from, until));
        let still_out = known_fire.is_some()
            && ready_probe_ns.is_none()
            && planted.phases[0].iter().any(|p| !p.state.answers());
        let rule_window = f64::from(plan.method.recovery.window_buckets);
        let tolerated = 1.0 - f64::from(plan.method.recovery.entry_percent) / 100.0;
        Self {
            scenario: scenario.name.to_owned(),
            seed: input.run.seed,
            fire_ns,
            known_fire,
            anchor_ns,
            service_return_ns: planted.service_return_ns,
            share_away: planted.share_away,
            lead_s: rule_window * tolerated / planted.share_away,
            first_answer_ns,
            ready_probe_ns,
            expected: rule.expected(input.curve),
            windows: windows(input, anchor_ns, &counted, outage),
            counted,
            all: rule.outcomes(input.fates.iter()),
            in_flight: known_fire
                .map(|(at, _, zone)| flight(&rule, input.fates, (at, zone), planted.fire_ns)),
            split: known_fire
                .map(|(at, _, zone)| split(input.fates, (at, zone), outage, still_out)),
            boundaries: input
                .victims_log
                .iter()
                .filter(|_| known_fire.is_some())
                .map(|(key, written_ns)| BoundaryTruth {
                    key: (*key).to_owned(),
                    written_ns: *written_ns,
                })
                .collect(),
            valid: !matches!(scenario.kind, Kind::ClockUnmeasured | Kind::MissedFault),
        }
    }
}

/// What the clock reads and the measured offsets allow to say of the fire (method, section 5).
fn known_fire_of(planted: &Planted) -> (i64, i64, i64) {
    let (before, after) = (planted.bracket.before_ns, planted.bracket.after_ns);
    let half_up = (after - before + 1) / 2;
    let Some(clock) = &planted.remote else {
        return (before + (after - before) / 2, half_up, half_up);
    };
    let bound = clock.arm.bound_ns.max(clock.after.bound_ns);
    let moved = (clock.after.offset_ns - clock.arm.offset_ns).abs();
    let at = before + (after - before) / 2 - clock.arm.offset_ns;
    let uncertainty = bound + moved + half_up;
    (at, uncertainty, uncertainty + bound)
}

/// End of the first direct probe of the victim that was answered after an instant.
fn first_probe_after(events: &[Event], at_ns: i64) -> Option<i64> {
    let victim = replica_id(0);
    events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Probe(p)
                if p.path == ProbePath::Direct && p.replica.as_deref() == Some(&victim) =>
            {
                p.first_token_ns
            }
            _ => None,
        })
        .filter(|token| *token > at_ns)
        .min()
}

/// Total and good of some requests.
#[derive(Debug, Clone, Copy, Default)]
struct Goods {
    all: u64,
    good: u64,
}

/// The recovery rule of a run.
struct Rule {
    bucket_ns: i64,
    window: i64,
    hold: i64,
    entry: u64,
    exit: u64,
    ttft_ns: i64,
    e2e_ns: i64,
    baseline: (i64, i64),
    /// First bucket wholly after the anchor.
    first: i64,
    /// The first bucket at which no entry counts any more.
    timeout: i64,
    /// Whole buckets of the load.
    buckets: i64,
}

impl Rule {
    fn of(input: &TruthInput<'_>, anchor_ns: i64) -> Self {
        let (phases, method) = (&input.plan.phases, &input.plan.method);
        let bucket_ns = method.recovery.bucket_ns;
        let up = |ns: i64| ns.div_euclid(bucket_ns) + i64::from(ns.rem_euclid(bucket_ns) > 0);
        Self {
            bucket_ns,
            window: i64::from(method.recovery.window_buckets),
            hold: i64::from(method.recovery.hold_buckets),
            entry: u64::from(method.recovery.entry_percent),
            exit: u64::from(method.recovery.exit_percent),
            ttft_ns: i64::from(method.slo.ttft_ms) * MS,
            e2e_ns: i64::from(method.slo.e2e_ms) * MS,
            baseline: (
                phases.baseline_start_ns(),
                anchor_ns - input.plan.load.timeout_ns,
            ),
            first: up(anchor_ns),
            timeout: up(phases.fault_window_end_ns()),
            buckets: phases.load_end_ns() / bucket_ns,
        }
    }

    fn outcomes<'a>(&self, fates: impl Iterator<Item = &'a Fate>) -> OutcomeTruth {
        let mut sum = OutcomeTruth::default();
        for fate in fates {
            sum.scheduled += 1;
            match fate.end {
                End::Served => sum.completed += 1,
                End::Unanswered => sum.censored += 1,
                End::Failed(class) => {
                    sum.errored += 1;
                    *sum.errored_by_class
                        .entry(class.name().to_owned())
                        .or_default() += 1;
                }
            }
            sum.good += u64::from(fate.good(self.ttft_ns, self.e2e_ns));
        }
        sum
    }

    /// Window starts whose window lies within the load.
    fn last_start(&self) -> i64 {
        self.buckets - self.window
    }

    /// What the rule says where `holds(t, percent)` tells whether the window that starts at bucket t
    /// is at or above a percentage of the baseline.
    fn conclude(&self, holds: &dyn Fn(i64) -> bool) -> RecoveryTruth {
        let last = self.last_start();
        if (self.first..=last).all(holds) {
            return RecoveryTruth::NoOutage;
        }
        let confirmed = |t: i64| t + self.hold <= last && (t..=t + self.hold).all(holds);
        let pending = |t: i64| t + self.hold > last && (t..=last).all(holds);
        let candidates = || self.first..self.timeout.min(last + 1);
        if let Some(entry) = candidates().find(|t| confirmed(*t)) {
            return RecoveryTruth::Recovered {
                entry_ns: entry * self.bucket_ns,
            };
        }
        match candidates().find(|t| pending(*t)) {
            Some(t) => RecoveryTruth::Unconfirmed {
                candidate_ns: t * self.bucket_ns,
            },
            None => RecoveryTruth::NotRecovered,
        }
    }

    /// The rule on the planted requests.
    fn counted(&self, fates: &[Fate]) -> Counted {
        let mut buckets = vec![Goods::default(); self.buckets.max(0) as usize];
        let mut base = Goods::default();
        for fate in fates {
            let good = u64::from(fate.good(self.ttft_ns, self.e2e_ns));
            if let Some(bucket) = buckets.get_mut((fate.intended_ns / self.bucket_ns) as usize) {
                bucket.all += 1;
                bucket.good += good;
            }
            if fate.intended_ns >= self.baseline.0 && fate.intended_ns < self.baseline.1 {
                base.all += 1;
                base.good += good;
            }
        }
        let at_least = |t: i64, percent: u64| {
            let window = &buckets[t as usize..(t + self.window) as usize];
            let all: u64 = window.iter().map(|b| b.all).sum();
            let good: u64 = window.iter().map(|b| b.good).sum();
            all > 0 && good * base.all * 100 >= all * base.good * percent
        };
        let recovery = self.conclude(&|t| at_least(t, self.entry));
        let last = self.last_start();
        let until = match recovery {
            RecoveryTruth::Recovered { entry_ns } => entry_ns / self.bucket_ns,
            RecoveryTruth::Unconfirmed { candidate_ns } => candidate_ns / self.bucket_ns,
            _ => self.timeout.min(last + 1),
        };
        // A candidate that is cancelled is a stretch of windows that hold, and that ends before the
        // candidate is confirmed.
        let mut dips = 0;
        if recovery != RecoveryTruth::NoOutage {
            for t in self.first..until {
                let begins =
                    at_least(t, self.entry) && (t == self.first || !at_least(t - 1, self.entry));
                let ends = (t..=last).any(|u| !at_least(u, self.entry));
                dips += u32::from(begins && ends);
            }
        }
        let mut redegradations = 0;
        if let RecoveryTruth::Recovered { entry_ns } = recovery {
            let mut below = false;
            for t in entry_ns / self.bucket_ns..=last {
                if below && at_least(t, self.entry) {
                    below = false;
                    redegradations += 1;
                } else if !at_least(t, self.exit) {
                    below = true;
                }
            }
        }
        let end = match recovery {
            RecoveryTruth::Recovered { entry_ns } => entry_ns / self.bucket_ns,
            _ => self.timeout,
        };
        let full = base.good as f64 / base.all as f64;
        let deficit_s = (self.first..end)
            .map(|t| buckets[t as usize])
            .filter(|b| b.all > 0)
            .map(|b| (full - b.good as f64 / b.all as f64).max(0.0))
            .sum::<f64>()
            * (self.bucket_ns as f64 / 1e9);
        Counted {
            recovery,
            dips,
            redegradations,
            deficit_s,
        }
    }

    /// The rule on the planted course, and whether chance can move what it says.
    fn expected(&self, curve: &Curve) -> Expected {
        let last = self.last_start();
        let base = curve.share(self.baseline.0, self.baseline.1 / MS * MS);
        let shares: Vec<Share> = (0..=last)
            .map(|t| curve.share(t * self.bucket_ns, (t + self.window) * self.bucket_ns))
            .collect();
        // Distance of a window from a percentage of the baseline, and what chance may do to it.
        let margin = |t: i64, percent: u64| {
            let part = percent as f64 / 100.0;
            let here = shares[t as usize];
            let spread = hypotenuse(here.deviation, part * base.deviation);
            (
                here.good - part * base.good,
                CERTAIN_DEVIATIONS * spread + CURVE_SLACK,
            )
        };
        let above = |t: i64, percent: u64| margin(t, percent).0 >= margin(t, percent).1;
        let below = |t: i64, percent: u64| margin(t, percent).0 <= -margin(t, percent).1;
        let holds = |t: i64| margin(t, self.entry).0 >= 0.0;
        let recovery = self.conclude(&holds);
        // No earlier candidate survives.
        let dies = |t: i64| (t..=(t + self.hold).min(last)).any(|u| below(u, self.entry));
        let fell = || (self.first..=last).any(|t| below(t, self.entry));
        let certain = match recovery {
            RecoveryTruth::NoOutage => (self.first..=last).all(|t| above(t, self.entry)),
            RecoveryTruth::NotRecovered => (self.first..self.timeout.min(last + 1)).all(dies),
            RecoveryTruth::Recovered { entry_ns } => {
                let entry = entry_ns / self.bucket_ns;
                let holds_to = entry + 1 + self.hold;
                fell()
                    && entry + 1 < self.timeout
                    && holds_to <= last
                    && (self.first..=entry - 2).all(dies)
                    && (entry + 1..=holds_to).all(|t| above(t, self.entry))
            }
            RecoveryTruth::Unconfirmed { candidate_ns } => {
                let candidate = candidate_ns / self.bucket_ns;
                candidate + 1 < self.timeout
                    && candidate - 1 + self.hold > last
                    && (self.first..=candidate - 2).all(dies)
                    && (candidate + 1..=last).all(|t| above(t, self.entry))
            }
        };
        let redegradations = match recovery {
            RecoveryTruth::Recovered { entry_ns } => {
                let entry = entry_ns / self.bucket_ns;
                let surely = episodes(
                    entry + 1..=last,
                    |t| below(t, self.exit),
                    |t| above(t, self.entry),
                );
                let maybe = episodes(
                    entry + 1..=last,
                    |t| !above(t, self.exit),
                    |t| !below(t, self.entry),
                );
                (certain && surely == maybe).then_some(surely)
            }
            _ => None,
        };
        Expected {
            recovery,
            certain,
            redegradations,
        }
    }
}

/// Stretches that fall and climb back.
fn episodes(
    windows: std::ops::RangeInclusive<i64>,
    falls: impl Fn(i64) -> bool,
    climbs: impl Fn(i64) -> bool,
) -> u32 {
    let (mut low, mut count) = (false, 0);
    for t in windows {
        if !low {
            low = falls(t);
        } else if climbs(t) {
            low = false;
            count += 1;
        }
    }
    count
}

/// √(a² + b²) by operations that every platform rounds alike.
fn hypotenuse(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

/// Outcomes by window, by the windows' definitions.
fn windows(
    input: &TruthInput<'_>,
    anchor_ns: i64,
    counted: &Counted,
    outage: Option<(i64, i64)>,
) -> BTreeMap<String, OutcomeTruth> {
    let phases = &input.plan.phases;
    let planned_ns = phases.fire_at_ns();
    let guard_ns = anchor_ns - input.plan.load.timeout_ns;
    let end_ns = phases.fault_window_end_ns();
    let mut spans = vec![
        ("baseline", phases.baseline_start_ns(), guard_ns),
        ("guard", guard_ns, planned_ns),
    ];
    if input.plan.fault.is_some() {
        spans.push(("fault", planned_ns, end_ns));
        if let RecoveryTruth::Recovered { entry_ns } = counted.recovery
            && input.scenario.fires()
        {
            spans.push(("fault_degraded", planned_ns, entry_ns));
            spans.push(("fault_recovered", entry_ns, end_ns));
        }
    }
    spans.extend(outage.map(|(from, until)| ("outage", from, until)));
    let rule = Rule::of(input, anchor_ns);
    spans
        .into_iter()
        .map(|(name, from, until)| {
            let inside = input
                .fates
                .iter()
                .filter(|f| f.intended_ns >= from && f.intended_ns < until);
            (name.to_owned(), rule.outcomes(inside))
        })
        .collect()
}

/// Whether a request was sent before the fire and not over at it, as far as its end tells.
fn met_the_fire(fate: &Fate, (at_ns, zone_ns): (i64, i64)) -> bool {
    fate.dispatched_ns.is_some_and(|sent| sent < at_ns) && fate.ended_ns >= at_ns - zone_ns
        // Its very end is the fire's own instant at the earliest.
        && (zone_ns > 0 || fate.ended_ns > at_ns)
}

fn flight(rule: &Rule, fates: &[Fate], known: (i64, i64), true_ns: i64) -> FlightTruth {
    let (at_ns, zone_ns) = known;
    let close = |f: &&Fate| (f.ended_ns - at_ns).abs() <= zone_ns;
    let met = || fates.iter().filter(|f| met_the_fire(f, known));
    let really = fates
        .iter()
        .filter(|f| f.dispatched_ns.is_some_and(|sent| sent < true_ns) && f.ended_ns > true_ns);
    FlightTruth {
        determinate: rule.outcomes(met().filter(|f| !close(f))),
        indeterminate: rule.outcomes(met().filter(close)),
        at_the_true_fire: really.count() as u64,
    }
}

fn split(
    fates: &[Fate],
    known: (i64, i64),
    outage: Option<(i64, i64)>,
    still_out: bool,
) -> SplitTruth {
    let (at_ns, _) = known;
    let until_ns = match outage {
        Some((_, until)) => until,
        None if still_out => i64::MAX,
        None => at_ns,
    };
    let mut split = SplitTruth::default();
    for fate in fates {
        let group = if met_the_fire(fate, known) {
            &mut split.in_flight
        } else if fate.ended_ns <= at_ns {
            &mut split.before_fire
        } else if fate.intended_ns < at_ns {
            &mut split.waiting_at_fire
        } else if fate.intended_ns < until_ns {
            &mut split.during_outage
        } else {
            &mut split.after_outage
        };
        group.0 += 1;
        group.1 += u64::from(fate.lost());
    }
    split
}
