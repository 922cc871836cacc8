//! Properties of the estimators on arbitrary samples.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod common;

use blackstart_analyze::{
    BucketCounts, Observation, RecoveryStatus, Terminal, aalen_johansen, analyze_run,
    change_points, detect, kaplan_meier, summarize, tail_interval,
};
use blackstart_plan::RecoveryRule;
use blackstart_record::{ErrorClass, Outcome};
use common::{FIRE_NS, MS, S, plan, records, run};
use proptest::prelude::*;

fn terminal(kind: u8) -> Terminal {
    match kind {
        0 => Terminal::Completed,
        1 => Terminal::Errored,
        _ => Terminal::Censored,
    }
}

fn sample(kinds: std::ops::Range<u8>) -> impl Strategy<Value = Vec<(i64, u8)>> {
    prop::collection::vec((1..200_i64, kinds), 1..150)
}

fn observations(rows: &[(i64, u8)]) -> Vec<Observation> {
    rows.iter()
        .map(|(ms, kind)| Observation {
            time_ns: ms * MS,
            terminal: terminal(*kind),
        })
        .collect()
}

const RULE: RecoveryRule = RecoveryRule {
    bucket_ns: S,
    window_buckets: 3,
    hold_buckets: 5,
    entry_percent: 90,
    exit_percent: 85,
};

proptest! {
    #[test]
    fn without_errors_incidence_is_one_minus_kaplan_meier(
        rows in prop::collection::vec((1..200_i64, prop::sample::select(vec![0_u8, 2])), 1..150),
    ) {
        let curve = aalen_johansen(&observations(&rows), S);
        let events: Vec<(f64, bool)> = rows.iter().map(|(ms, k)| (*ms as f64, *k == 0)).collect();
        let survival = kaplan_meier(&events).last().map_or(1.0, |p| p.1);
        prop_assert!((curve.final_incidence - (1.0 - survival)).abs() < 1e-9);
    }

    #[test]
    fn incidence_is_monotone_and_everything_adds_up_to_one(rows in sample(0..3)) {
        let curve = aalen_johansen(&observations(&rows), S);
        let sum = curve.final_incidence + curve.final_error_incidence + curve.remaining;
        prop_assert!((sum - 1.0).abs() < 1e-9);
        for pair in curve.curve.windows(2) {
            prop_assert!(pair[0].completed <= pair[1].completed && pair[0].at_ms < pair[1].at_ms);
        }
        for q in &curve.quantiles {
            prop_assert!(q.value_ms.is_some() != q.refusal.is_some());
        }
    }

    #[test]
    fn a_tail_interval_holds_its_estimate(mut ns in prop::collection::vec(1..10_000_i64, 1..800)) {
        ns.sort_unstable();
        for q in [0.95, 0.99] {
            let tail = tail_interval("e2e", &ns, q);
            if let (Some(lo), Some(hi)) = (tail.lo_ms, tail.hi_ms) {
                let estimate = tail.estimate_ms.unwrap();
                prop_assert!(lo <= estimate && estimate <= hi);
            } else {
                prop_assert!(tail.note.is_some());
            }
        }
    }

    #[test]
    fn a_summary_is_consistent(values in prop::collection::vec(0.001..1e4_f64, 1..30)) {
        let s = summarize(&values, true, 4);
        let (min, median, mean, max) = (s.min.unwrap(), s.median.unwrap(), s.mean.unwrap(), s.max.unwrap());
        prop_assert!(min <= median && median <= max && min <= mean + 1e-9 && mean <= max + 1e-9);
        prop_assert_eq!(s.sample_sd.is_some(), values.len() > 1);
        if let (Some(lo), Some(hi)) = (s.t_interval_lo, s.t_interval_hi) {
            prop_assert!(lo <= mean && mean <= hi);
        }
    }

    /// A dead stretch of any length: found within the leading window's reach, never before service
    /// is back by more than one bucket, and never where the series stays dead.
    #[test]
    fn recovery_is_within_one_bucket(anchor in 5..30_usize, dead in 4..40_usize, per in 5..40_u64) {
        let len = 120;
        let buckets: Vec<BucketCounts> = (0..len)
            .map(|i| BucketCounts {
                scheduled: per,
                good: if (anchor..anchor + dead).contains(&i) { 0 } else { per },
            })
            .collect();
        let full = BucketCounts { scheduled: per, good: per };
        let found = detect(&buckets, &RULE, anchor as i64 * S, 100 * S, full);
        prop_assert_eq!(found.status, RecoveryStatus::Recovered);
        prop_assert_eq!(found.entry_ns, Some((anchor + dead) as i64 * S));
        let never: Vec<BucketCounts> = (0..len)
            .map(|i| BucketCounts { scheduled: per, good: if i < anchor { per } else { 0 } })
            .collect();
        let found = detect(&never, &RULE, anchor as i64 * S, 100 * S, full);
        prop_assert_eq!(found.status, RecoveryStatus::NotRecovered);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever becomes of the requests, windows partition the fault window and counts add up.
    #[test]
    fn counts_add_up(seed in prop::collection::vec(0..12_u8, 2100)) {
        let mut records = records();
        for (r, kind) in records.requests.iter_mut().zip(&seed) {
            match kind {
                0 => {
                    r.outcome = Outcome::Errored;
                    r.error_class = Some(ErrorClass::Truncated);
                    r.ended_ns = r.intended_ns + 300 * MS;
                }
                1 => {
                    r.outcome = Outcome::Censored;
                    r.error_class = None;
                    r.ended_ns = r.intended_ns + 5 * S;
                }
                _ => {}
            }
        }
        let plan = plan();
        let a = analyze_run(&plan, &run(2100), &records).unwrap();
        let sum = |pick: fn(&blackstart_analyze::Second) -> u64| -> u64 {
            a.timeline.iter().map(pick).sum()
        };
        prop_assert_eq!(sum(|s| s.scheduled), a.counts.scheduled);
        prop_assert_eq!(sum(|s| s.completed) + sum(|s| s.errored) + sum(|s| s.censored), 2100);
        let flight = a.in_flight.as_ref().unwrap();
        prop_assert_eq!(flight.all.total, flight.determinate.total + flight.indeterminate.total);
        let by_replica: u64 = flight.by_replica.values().map(|g| g.counts.total).sum();
        prop_assert_eq!(by_replica, flight.all.total);
        let phases = flight.at_fire;
        prop_assert_eq!(phases.no_response + phases.accepted_no_token + phases.streaming, flight.all.total);
        let truth = records
            .requests
            .iter()
            .filter(|r| r.dispatched_ns.unwrap() < FIRE_NS && r.ended_ns > FIRE_NS)
            .count() as u64;
        prop_assert_eq!(flight.all.total, truth);
        if let Some(p) = &a.decomposition.partition {
            let total: i64 = p.phases.iter().map(|p| p.end_ns - p.start_ns).sum();
            prop_assert_eq!(total, p.end_ns - p.start_ns);
        }
    }
}

/// Twice the smallest negative log-likelihood of a stretch, by its definition.
fn likelihood_cost(counts: &[BucketCounts]) -> f64 {
    let all: f64 = counts.iter().map(|b| b.scheduled as f64).sum();
    let good: f64 = counts.iter().map(|b| b.good as f64).sum();
    let part = |k: f64| if k > 0.0 { k * (k / all).ln() } else { 0.0 };
    -2.0 * (part(good) + part(all - good))
}

/// Cost of a segmentation that starts a segment at each of `starts`.
fn segmentation_cost(counts: &[BucketCounts], starts: &[usize], penalty: f64) -> f64 {
    let ends = starts.iter().skip(1).copied().chain([counts.len()]);
    let segments = starts.iter().zip(ends);
    let sum: f64 = segments.map(|(a, b)| likelihood_cost(&counts[*a..b])).sum();
    sum + penalty * starts.len().saturating_sub(1) as f64
}

proptest! {
    /// Whatever the counts and the penalty, segments are in order, touch, and start where requests are.
    #[test]
    fn change_points_of_anything(
        counts in prop::collection::vec((any::<u64>(), any::<u64>(), 0..4_u8), 0..120),
        penalty in prop::num::f64::ANY,
    ) {
        let counts: Vec<BucketCounts> = counts
            .into_iter()
            .map(|(scheduled, good, kind)| match kind {
                0 => BucketCounts::default(),
                1 => BucketCounts { scheduled, good },
                _ => BucketCounts { scheduled: scheduled % 30, good: good % 30 },
            })
            .collect();
        let starts = change_points(&counts, penalty);
        prop_assert_eq!(starts.is_empty(), counts.iter().all(|b| b.scheduled == 0));
        prop_assert!(starts.first().is_none_or(|s| *s == 0));
        prop_assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(starts.iter().skip(1).all(|s| counts[*s].scheduled > 0));
    }

    /// No segmentation of all that there are is cheaper.
    #[test]
    fn change_points_are_the_cheapest(
        counts in prop::collection::vec((0..12_u64, 0.0..=1.0_f64), 1..11),
        penalty in 0.0..12.0_f64,
    ) {
        let counts: Vec<BucketCounts> = counts
            .into_iter()
            .map(|(scheduled, share)| BucketCounts {
                scheduled,
                good: (scheduled as f64 * share).round() as u64,
            })
            .collect();
        prop_assume!(counts.iter().any(|b| b.scheduled > 0));
        let ours = segmentation_cost(&counts, &change_points(&counts, penalty), penalty);
        let least = (0..1_u32 << (counts.len() - 1))
            .map(|cuts| {
                let starts: Vec<usize> = (0..counts.len())
                    .filter(|i| *i == 0 || cuts >> (i - 1) & 1 == 1)
                    .collect();
                segmentation_cost(&counts, &starts, penalty)
            })
            .fold(f64::INFINITY, f64::min);
        prop_assert!((ours - least).abs() < 1e-6, "{} {}", ours, least);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever the counts of a pinned run, the cross-check ends with a conclusion or a reason, and
    /// never touches what the detector said.
    #[test]
    fn a_cross_check_concludes_or_says_why(lost in prop::collection::vec(0..101_u8, 105)) {
        let mut records = records();
        for r in &mut records.requests {
            let second = (r.intended_ns / S) as usize;
            if r.index * 37 % 101 < u64::from(lost[second.min(104)]) {
                r.outcome = Outcome::Errored;
                r.error_class = Some(ErrorClass::Truncated);
            }
        }
        let a = analyze_run(&plan(), &run(2100), &records).unwrap();
        let check = &a.recovery.cross_check;
        prop_assert_eq!(a.recovery_cross_check.is_some(), check.agrees == Some(false));
        prop_assert!(check.agrees == Some(true) || check.note.is_some());
        prop_assert_eq!(check.back_ns.is_some(), check.back_s.is_some());
        prop_assert!(check.back_s.is_none_or(|s| s > 0.0));
        prop_assert_eq!(a.ttr_pre_fault_s, a.recovery.pre_fault.ttr_s);
    }
}
