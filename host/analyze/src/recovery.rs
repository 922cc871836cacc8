//! The recovery detector, its sensitivity, both baselines, components and the goodput deficit.

use blackstart_plan::{Plan, RecoveryRule};
use blackstart_record::{CensorKind, Outcome, RequestRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;
use crate::slo::{holds_e2e, holds_ttft, is_good};
use crate::time::{NS_PER_MS, seconds};
use crate::watch::Watch;

/// Successes of one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BucketCounts {
    /// Requests intended in the bucket.
    pub scheduled: u64,
    /// Of these, successes.
    pub good: u64,
}

/// What the detector concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryStatus {
    /// Service fell below the entry threshold and came back.
    Recovered,
    /// No window from the anchor on was below the entry threshold: there is nothing to recover from,
    /// and no time to it. It is no recovery time of 0.
    NoOutage,
    /// It did not come back by the timeout.
    NotRecovered,
    /// It seemed back, but the run ended before the hold could confirm it.
    Unconfirmed,
    /// The baseline does not allow a conclusion.
    NotEstimable,
}

/// One application of the detector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Detection {
    /// The conclusion.
    pub status: RecoveryStatus,
    /// Baseline success ratio that thresholds refer to.
    pub baseline: Option<f64>,
    /// Start of the entry bucket, in run time.
    pub entry_ns: Option<i64>,
    /// Entry minus anchor, in seconds.
    pub ttr_s: Option<f64>,
    /// Start of the last candidate that the end of the run left unconfirmed, in run time.
    pub candidate_ns: Option<i64>,
    /// Candidates that a dip within the hold cancelled.
    pub dips: u32,
    /// After recovery: episodes below the exit threshold that climbed back to the entry threshold.
    pub redegradations: u32,
    /// Whether the run ended inside such an episode.
    pub ended_degraded: bool,
    /// Why there is no entry, or a remark.
    pub note: Option<String>,
}

/// One cell of the sensitivity table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SensitivityCell {
    /// Entry threshold, percent of the baseline.
    pub entry_percent: u32,
    /// R, in buckets.
    pub window_buckets: u32,
    /// H, in buckets.
    pub hold_buckets: u32,
    /// The conclusion.
    pub status: RecoveryStatus,
    /// Time to recovery.
    pub ttr_s: Option<f64>,
    /// Cancelled candidates.
    pub dips: u32,
    /// Re-degradations.
    pub redegradations: u32,
}

/// Recovery of one component of goodput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentRecovery {
    /// `ttft_slo`, `e2e_slo` or `error_free`.
    pub component: String,
    /// The detector on that component.
    #[serde(flatten)]
    pub detection: Detection,
}

/// The degraded plateau as a baseline of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Equilibrium {
    /// Its goodput.
    pub goodput: Option<f64>,
    /// Where it was taken.
    pub start_ns: Option<i64>,
    /// First instant after it.
    pub end_ns: Option<i64>,
    /// The detector against it.
    pub detection: Option<Detection>,
    /// Why it is not estimable.
    pub note: Option<String>,
}

/// Goodput that was lost: Σ over buckets of `max(0, baseline − observed)`, in seconds of full
/// baseline service. A bucket without requests shows no loss and adds nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deficit {
    /// From the anchor to recovery; `None` if there was none, or no outage to recover from.
    pub integrated_goodput_deficit: Option<f64>,
    /// From the anchor to the timeout: a lower bound where service did not recover.
    pub to_timeout: Option<f64>,
    /// Buckets without requests on the way to recovery (or the timeout).
    pub empty_buckets: u64,
    /// Why it is absent.
    pub note: Option<String>,
}

/// Recovery of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recovery {
    /// Bucket width of the detector in seconds: it finds an entry no finer than this.
    pub resolution_s: f64,
    /// Until when the detector looked for an entry, in run time: the end of the fault window, or the
    /// cut where the run was cut off before.
    pub watched_until_ns: i64,
    /// Against the baseline before the fault, by the plan's rule.
    pub pre_fault: Detection,
    /// Against the degraded plateau.
    pub equilibrium: Equilibrium,
    /// The pre-fault detector over the grid.
    pub sensitivity: Vec<SensitivityCell>,
    /// By component.
    pub components: Vec<ComponentRecovery>,
    /// Goodput lost.
    pub deficit: Deficit,
}

/// Counts requests into buckets by intended time; only whole buckets of `[0, load_end_ns)` exist.
pub(crate) fn buckets(
    requests: &[RequestRecord],
    bucket_ns: i64,
    load_end_ns: i64,
    good: impl Fn(&RequestRecord) -> bool,
) -> Vec<BucketCounts> {
    let len = usize::try_from(load_end_ns / bucket_ns).unwrap_or(0);
    let mut all = vec![BucketCounts::default(); len];
    for r in requests {
        if r.intended_ns < 0 {
            continue;
        }
        if let Ok(i) = usize::try_from(r.intended_ns / bucket_ns)
            && let Some(bucket) = all.get_mut(i)
        {
            bucket.scheduled += 1;
            bucket.good += u64::from(good(r));
        }
    }
    all
}

/// Sums for every prefix of the buckets, so that a window's sum is one subtraction.
fn prefix_sums(buckets: &[BucketCounts]) -> Vec<BucketCounts> {
    let mut sums = Vec::with_capacity(buckets.len() + 1);
    let mut sum = BucketCounts::default();
    sums.push(sum);
    for b in buckets {
        sum.scheduled += b.scheduled;
        sum.good += b.good;
        sums.push(sum);
    }
    sums
}

/// `window.good / window.scheduled ≥ percent % of baseline.good / baseline.scheduled`, in whole
/// numbers. A window without requests holds nothing.
fn at_least(window: BucketCounts, percent: u32, baseline: BucketCounts) -> bool {
    window.scheduled > 0
        && u128::from(window.good) * u128::from(baseline.scheduled) * 100
            >= u128::from(window.scheduled) * u128::from(baseline.good) * u128::from(percent)
}

/// The recovery detector (§4). `g(t)` is the ratio of sums over the leading window of
/// `rule.window_buckets` buckets from `t`. The entry is the first bucket wholly after `anchor_ns`
/// and before `timeout_ns` at which `g ≥ entry %` of the baseline and the next `rule.hold_buckets`
/// window starts are all at or above it; a dip among them cancels the candidate and is counted.
/// After recovery, an episode below `exit %` that climbs back to `entry %` counts as one
/// re-degradation. Buckets after `timeout_ns` (the cooldown) serve only to fill windows and holds.
///
/// Worked example: 1 s buckets, R = 2, H = 2, anchor 10 s, service 0 in buckets 10 to 14 and full
/// from 15 on → entry at 15 s, TTR 5 s. (With R = 10 and a 90 % threshold the entry may come one
/// bucket before full service: nine good buckets of ten are 90 %.)
pub fn detect(
    buckets: &[BucketCounts],
    rule: &RecoveryRule,
    anchor_ns: i64,
    timeout_ns: i64,
    baseline: BucketCounts,
) -> Detection {
    let mut found = Detection {
        status: RecoveryStatus::NotEstimable,
        baseline: None,
        entry_ns: None,
        ttr_s: None,
        candidate_ns: None,
        dips: 0,
        redegradations: 0,
        ended_degraded: false,
        note: None,
    };
    if baseline.scheduled == 0 {
        found.note = Some("the baseline window holds no request".to_owned());
        return found;
    }
    found.baseline = Some(baseline.good as f64 / baseline.scheduled as f64);
    if baseline.good == 0 {
        found.note = Some("the baseline is 0: nothing to recover to".to_owned());
        return found;
    }
    let sums = prefix_sums(buckets);
    let span = rule.window_buckets as usize;
    let hold = rule.hold_buckets as usize;
    // Window starts whose window lies wholly inside the load.
    let starts = (buckets.len() + 1).saturating_sub(span);
    let holds_at = |t: usize, percent: u32| {
        let (from, to) = (sums[t], sums[t + span]);
        let window = BucketCounts {
            scheduled: to.scheduled - from.scheduled,
            good: to.good - from.good,
        };
        at_least(window, percent, baseline)
    };
    let after_anchor = anchor_ns.max(0) + rule.bucket_ns - 1;
    let first = usize::try_from(after_anchor / rule.bucket_ns).unwrap_or(usize::MAX);
    let start_ns = |t: usize| t as i64 * rule.bucket_ns;
    if first >= starts {
        found.note = Some("the load ends before one leading window after the fire".to_owned());
        return found;
    }
    let mut t = first;
    let mut entry = None;
    while t < starts && start_ns(t) < timeout_ns {
        if !holds_at(t, rule.entry_percent) {
            t += 1;
            continue;
        }
        match (t + 1..=t + hold).find(|u| *u >= starts || !holds_at(*u, rule.entry_percent)) {
            None => {
                entry = Some(t);
                break;
            }
            Some(u) if u >= starts => {
                found.candidate_ns = Some(start_ns(t));
                break;
            }
            Some(u) => {
                found.dips += 1;
                t = u + 1;
            }
        }
    }
    let Some(entry) = entry else {
        if let Some(candidate) = found.candidate_ns {
            found.status = RecoveryStatus::Unconfirmed;
            found.note = Some(format!(
                "service was back at {:.3} s of the run, but the load ended before the hold of {hold} buckets could confirm it",
                seconds(candidate)
            ));
        } else {
            found.status = RecoveryStatus::NotRecovered;
            found.note = Some(format!(
                "not recovered by the timeout, {:.3} s after the anchor",
                seconds(timeout_ns - anchor_ns)
            ));
        }
        return found;
    };
    found.entry_ns = Some(start_ns(entry));
    found.ttr_s = Some(seconds(start_ns(entry) - anchor_ns));
    let mut below = false;
    let mut always_held = entry == first && found.dips == 0;
    for u in entry..starts {
        always_held &= holds_at(u, rule.entry_percent);
        if !below {
            below = !holds_at(u, rule.exit_percent);
        } else if holds_at(u, rule.entry_percent) {
            below = false;
            found.redegradations += 1;
        }
    }
    found.ended_degraded = below;
    if always_held {
        found.status = RecoveryStatus::NoOutage;
        found.entry_ns = None;
        found.ttr_s = None;
        found.note = Some(format!(
            "no outage found: no leading window from the anchor on was below {} % of the baseline",
            rule.entry_percent
        ));
    } else {
        found.status = RecoveryStatus::Recovered;
        if entry == first {
            found.note = Some(
                "service held from the anchor on; it fell below a threshold only later".to_owned(),
            );
        }
    }
    found
}

/// What recovery is measured on.
pub(crate) struct RecoveryInput<'a> {
    pub(crate) plan: &'a Plan,
    /// Requests that were meant to be sent while the run was watched.
    pub(crate) requests: &'a [RequestRecord],
    pub(crate) anchor_ns: i64,
    /// The fire, where it is known.
    pub(crate) fire_ns: Option<i64>,
    pub(crate) baseline: Span,
    pub(crate) watch: Watch,
}

impl RecoveryInput<'_> {
    fn buckets(&self, good: impl Fn(&RequestRecord) -> bool) -> Vec<BucketCounts> {
        buckets(
            self.requests,
            self.plan.method.recovery.bucket_ns,
            self.decided_until_ns(),
            good,
        )
    }

    /// Up to where every request is decided. One that the cut censored while it could still have been
    /// good is neither good nor a loss of service, and its bucket says nothing.
    fn decided_until_ns(&self) -> i64 {
        let end_ns = self.watch.until(self.plan.phases.load_end_ns());
        let Some(cut_ns) = self.watch.cut_ns else {
            return end_ns;
        };
        let e2e_ns = i64::from(self.plan.method.slo.e2e_ms) * NS_PER_MS;
        self.requests
            .iter()
            .filter(|r| r.censor_kind == Some(CensorKind::RunEnd))
            .filter(|r| cut_ns - r.intended_ns <= e2e_ns)
            .map(|r| r.intended_ns)
            .min()
            .map_or(end_ns, |at| at.min(end_ns))
    }

    /// The instant after which no entry counts: the end of the fault window, or the cut before it.
    fn timeout_ns(&self) -> i64 {
        self.watch.until(self.plan.phases.fault_window_end_ns())
    }

    /// The detector, and what only the run knows of its conclusion.
    fn detect(
        &self,
        series: &[BucketCounts],
        rule: &RecoveryRule,
        baseline: BucketCounts,
    ) -> Detection {
        let timeout_ns = self.timeout_ns();
        let mut found = detect(series, rule, self.anchor_ns, timeout_ns, baseline);
        let cut = timeout_ns < self.plan.phases.fault_window_end_ns();
        if cut && found.status == RecoveryStatus::NotRecovered {
            found.note = Some(format!(
                "not recovered when the run was cut off, {:.3} s after the anchor",
                seconds(timeout_ns - self.anchor_ns)
            ));
        }
        // A fire that came late: what the detector found before it is no recovery from it.
        if let (Some(entry_ns), Some(fire_ns)) = (found.entry_ns, self.fire_ns)
            && entry_ns + rule.bucket_ns <= fire_ns
        {
            found.status = RecoveryStatus::NotEstimable;
            found.entry_ns = None;
            found.ttr_s = None;
            found.note = Some(format!(
                "service held from {:.3} s of the run on, which is before the fire at {:.3} s: no recovery from it can be told",
                seconds(entry_ns),
                seconds(fire_ns)
            ));
        }
        found
    }

    fn baseline(&self, good: impl Fn(&RequestRecord) -> bool) -> BucketCounts {
        let mut sum = BucketCounts::default();
        for r in self.requests.iter().filter(|r| self.baseline.holds(r)) {
            sum.scheduled += 1;
            sum.good += u64::from(good(r));
        }
        sum
    }
}

/// Recovery of a run.
pub(crate) fn analyze(input: &RecoveryInput<'_>) -> Recovery {
    let method = &input.plan.method;
    let slo = method.slo;
    let good = |r: &RequestRecord| is_good(r, slo.ttft_ms, slo.e2e_ms);
    let series = input.buckets(good);
    let baseline = input.baseline(good);
    let run_rule = |rule: &RecoveryRule| input.detect(&series, rule, baseline);
    let pre_fault = run_rule(&method.recovery);
    let mut sensitivity = Vec::new();
    for entry_percent in &method.sensitivity.entry_percent {
        for window_buckets in &method.sensitivity.window_buckets {
            for hold_buckets in &method.sensitivity.hold_buckets {
                let cell = run_rule(&RecoveryRule {
                    entry_percent: *entry_percent,
                    window_buckets: *window_buckets,
                    hold_buckets: *hold_buckets,
                    ..method.recovery
                });
                sensitivity.push(SensitivityCell {
                    entry_percent: *entry_percent,
                    window_buckets: *window_buckets,
                    hold_buckets: *hold_buckets,
                    status: cell.status,
                    ttr_s: cell.ttr_s,
                    dips: cell.dips,
                    redegradations: cell.redegradations,
                });
            }
        }
    }
    let component = |name: &str, holds: &dyn Fn(&RequestRecord) -> bool| ComponentRecovery {
        component: name.to_owned(),
        detection: input.detect(
            &input.buckets(holds),
            &method.recovery,
            input.baseline(holds),
        ),
    };
    let components = vec![
        component("ttft_slo", &|r| holds_ttft(r, slo.ttft_ms)),
        component("e2e_slo", &|r| holds_e2e(r, slo.e2e_ms)),
        component("error_free", &|r| r.outcome != Outcome::Errored),
    ];
    let equilibrium = equilibrium(input, &series, &pre_fault);
    let deficit = deficit(input, &series, &pre_fault);
    Recovery {
        resolution_s: seconds(method.recovery.bucket_ns),
        watched_until_ns: input.timeout_ns(),
        pre_fault,
        equilibrium,
        sensitivity,
        components,
        deficit,
    }
}

/// Why one replica has no equilibrium: nobody carries on while it is away, so that whatever it serves
/// in between is its own return, and no level to recover to.
pub(crate) const ONE_REPLICA: &str =
    "not applicable: one replica, and the equilibrium is the level at which survivors carry on";

/// Equilibrium baseline: goodput over `[anchor + R, recovery to pre-fault or timeout)`, whole
/// buckets only; estimable if that span is at least R long and its goodput is above 0.
fn equilibrium(
    input: &RecoveryInput<'_>,
    series: &[BucketCounts],
    pre_fault: &Detection,
) -> Equilibrium {
    let rule = &input.plan.method.recovery;
    let none = |note: String| Equilibrium {
        goodput: None,
        start_ns: None,
        end_ns: None,
        detection: None,
        note: Some(note),
    };
    if input.plan.target.replicas.len() == 1 {
        return none(ONE_REPLICA.to_owned());
    }
    if pre_fault.status == RecoveryStatus::NoOutage {
        return none("not estimable: no outage found, so there is no degraded plateau".to_owned());
    }
    let window_ns = i64::from(rule.window_buckets) * rule.bucket_ns;
    let start_ns = input.anchor_ns + window_ns;
    let end_ns = pre_fault.entry_ns.unwrap_or(input.timeout_ns());
    if end_ns - start_ns < window_ns {
        return none(format!(
            "not estimable: the degraded plateau from {:.3} s after the anchor is shorter than R = {:.3} s",
            seconds(window_ns),
            seconds(window_ns)
        ));
    }
    let mut sum = BucketCounts::default();
    for (i, bucket) in series.iter().enumerate() {
        let at = i as i64 * rule.bucket_ns;
        if at >= start_ns && at + rule.bucket_ns <= end_ns {
            sum.scheduled += bucket.scheduled;
            sum.good += bucket.good;
        }
    }
    if sum.good == 0 {
        return none("not estimable: no service during the degraded plateau".to_owned());
    }
    Equilibrium {
        goodput: Some(sum.good as f64 / sum.scheduled as f64),
        start_ns: Some(start_ns),
        end_ns: Some(end_ns),
        detection: Some(input.detect(series, rule, sum)),
        note: None,
    }
}

/// Σ over buckets of max(0, baseline − observed) × bucket length, from the first bucket wholly after
/// the anchor.
fn deficit(input: &RecoveryInput<'_>, series: &[BucketCounts], pre_fault: &Detection) -> Deficit {
    let bucket_ns = input.plan.method.recovery.bucket_ns;
    let Some(baseline) = pre_fault.baseline else {
        return Deficit {
            integrated_goodput_deficit: None,
            to_timeout: None,
            empty_buckets: 0,
            note: pre_fault.note.clone(),
        };
    };
    let (mut to_recovery, mut to_timeout, mut empty_buckets) = (0.0, 0.0, 0);
    let timeout_ns = input.timeout_ns();
    let end = pre_fault.entry_ns.unwrap_or(timeout_ns);
    for (i, bucket) in series.iter().enumerate() {
        let at = i as i64 * bucket_ns;
        if at < input.anchor_ns || at >= timeout_ns {
            continue;
        }
        if bucket.scheduled == 0 {
            empty_buckets += u64::from(at < end);
            continue;
        }
        let observed = bucket.good as f64 / bucket.scheduled as f64;
        let lost = (baseline - observed).max(0.0) * seconds(bucket_ns);
        to_timeout += lost;
        if at < end {
            to_recovery += lost;
        }
    }
    let recovered = pre_fault.entry_ns.is_some();
    Deficit {
        integrated_goodput_deficit: recovered.then_some(to_recovery),
        to_timeout: Some(to_timeout),
        empty_buckets,
        note: match pre_fault.status {
            RecoveryStatus::Recovered => None,
            RecoveryStatus::NoOutage => Some(format!(
                "no outage found, so there is no stretch to sum over; goodput below the baseline adds up to {to_timeout:.3} s of full service by the timeout"
            )),
            _ => Some(format!(
                "service did not recover: at least {to_timeout:.3} s of full service were lost by {:.3} s of the run, where it was watched no longer",
                seconds(timeout_ns)
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RecoveryRule = RecoveryRule {
        bucket_ns: 1_000_000_000,
        window_buckets: 2,
        hold_buckets: 2,
        entry_percent: 90,
        exit_percent: 85,
    };
    const FULL: BucketCounts = BucketCounts {
        scheduled: 10,
        good: 10,
    };

    fn series(bad: &[(usize, usize)], len: usize) -> Vec<BucketCounts> {
        (0..len)
            .map(|i| BucketCounts {
                scheduled: 10,
                good: if bad.iter().any(|(from, to)| (*from..*to).contains(&i)) {
                    0
                } else {
                    10
                },
            })
            .collect()
    }

    fn run(bad: &[(usize, usize)], len: usize) -> Detection {
        detect(
            &series(bad, len),
            &RULE,
            10_000_000_000,
            40_000_000_000,
            FULL,
        )
    }

    #[test]
    fn worked_example() {
        let found = run(&[(10, 15)], 50);
        assert_eq!(found.status, RecoveryStatus::Recovered);
        assert_eq!(found.entry_ns, Some(15_000_000_000));
        assert_eq!(found.ttr_s, Some(5.0));
        assert_eq!((found.dips, found.redegradations), (0, 0));
    }

    #[test]
    fn a_dip_within_the_hold_cancels_the_candidate() {
        // Good at 15, 16; bad at 17: the window at 15 holds, the one at 16 does not.
        let found = run(&[(10, 15), (17, 18)], 50);
        assert_eq!(found.entry_ns, Some(18_000_000_000));
        assert_eq!(found.dips, 1);
    }

    #[test]
    fn a_later_episode_is_a_redegradation() {
        let found = run(&[(10, 15), (25, 27)], 50);
        assert_eq!(found.entry_ns, Some(15_000_000_000));
        assert_eq!(found.redegradations, 1);
        assert!(!found.ended_degraded);
        let found = run(&[(10, 15), (45, 50)], 50);
        assert_eq!(found.redegradations, 0);
        assert!(found.ended_degraded);
    }

    #[test]
    fn nothing_is_extrapolated() {
        let found = run(&[(10, 50)], 50);
        assert_eq!(found.status, RecoveryStatus::NotRecovered);
        assert_eq!((found.entry_ns, found.ttr_s), (None, None));
        // Back for the last three buckets: one window start too few for the hold.
        let found = run(&[(10, 37)], 40);
        assert_eq!(found.status, RecoveryStatus::Unconfirmed);
        assert_eq!(found.candidate_ns, Some(37_000_000_000));
        assert_eq!(found.ttr_s, None);
    }

    #[test]
    fn recovery_after_the_timeout_does_not_count() {
        let found = run(&[(10, 41)], 60);
        assert_eq!(found.status, RecoveryStatus::NotRecovered);
    }

    #[test]
    fn no_outage_is_said() {
        let found = run(&[], 50);
        assert_eq!(found.status, RecoveryStatus::NoOutage);
        assert_eq!((found.entry_ns, found.ttr_s), (None, None));
        assert!(found.note.unwrap().contains("no outage found"));
    }

    #[test]
    fn without_a_baseline_nothing_is_estimable() {
        let empty = BucketCounts::default();
        let found = detect(&series(&[], 50), &RULE, 0, 10, empty);
        assert_eq!(found.status, RecoveryStatus::NotEstimable);
        assert_eq!(found.baseline, None);
        let zero = BucketCounts {
            scheduled: 5,
            good: 0,
        };
        let found = detect(&series(&[], 50), &RULE, 0, 10, zero);
        assert_eq!(found.status, RecoveryStatus::NotEstimable);
    }

    #[test]
    fn thresholds_are_exact() {
        let window = BucketCounts {
            scheduled: 10,
            good: 9,
        };
        assert!(at_least(window, 90, FULL));
        assert!(!at_least(window, 91, FULL));
        assert!(!at_least(BucketCounts::default(), 0, FULL));
    }
}
