//! The recovery detector: goodput by bucket, a leading window, an entry that holds.

use blackstart_plan::RecoveryRule;
use blackstart_record::RequestRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::seconds;

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
pub(crate) fn at_least(window: BucketCounts, percent: u32, baseline: BucketCounts) -> bool {
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
