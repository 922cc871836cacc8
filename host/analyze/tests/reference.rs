//! Every estimator against scipy, lifelines and ruptures: `reference/make.py` made `reference/values.json`.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

use blackstart_analyze::{
    BucketCounts, Observation, RecoveryStatus, Terminal, aalen_johansen, change_points, detect,
    holm, kaplan_meier, permutation_paired, permutation_unpaired, shift_paired, shift_unpaired,
    summarize, t_multiplier, t_quantile, tail_interval,
};
use blackstart_plan::RecoveryRule;
use serde_json::Value;

const VALUES: &str = include_str!("reference/values.json");

fn values() -> Value {
    serde_json::from_str(VALUES).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    let all = value[key].as_array().unwrap();
    assert!(!all.is_empty(), "{key}");
    all
}

/// Good and scheduled requests by bucket.
fn counts(row: &Value) -> Vec<BucketCounts> {
    let pairs = list(row, "good").iter().zip(list(row, "scheduled"));
    pairs
        .map(|(good, scheduled)| BucketCounts {
            scheduled: scheduled.as_u64().unwrap(),
            good: good.as_u64().unwrap(),
        })
        .collect()
}

fn f(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn close(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(
        (got - want).abs() <= tolerance * want.abs().max(1.0),
        "{what}: {got}, reference {want}"
    );
}

#[test]
fn students_t() {
    let all = values();
    for row in list(&all, "t_quantile") {
        let got = t_quantile(f(&row["p"]), row["df"].as_u64().unwrap()).unwrap();
        close(got, f(&row["t"]), 1e-9, &row.to_string());
    }
    for row in list(&all, "t_multiplier") {
        let got = t_multiplier(row["df"].as_u64().unwrap()).unwrap();
        close(got, f(&row["t"]), 1e-12, &row.to_string());
    }
}

#[test]
fn incidence_with_and_without_ties() {
    let all = values();
    let samples = list(&all, "aalen_johansen_tied")
        .iter()
        .chain(list(&all, "aalen_johansen_untied"));
    for sample in samples {
        let rows: Vec<Observation> = list(sample, "rows")
            .iter()
            .map(|row| Observation {
                time_ns: row[0].as_i64().unwrap() * 1_000_000,
                terminal: match row[1].as_i64().unwrap() {
                    1 => Terminal::Completed,
                    2 => Terminal::Errored,
                    _ => Terminal::Censored,
                },
            })
            .collect();
        let curve = aalen_johansen(&rows, 30_000_000_000);
        close(
            curve.final_incidence,
            f(&sample["completed"]),
            1e-9,
            "completed",
        );
        close(
            curve.final_error_incidence,
            f(&sample["errored"]),
            1e-9,
            "errored",
        );
        if let Some(survival) = sample.get("survival") {
            close(curve.remaining, f(survival), 1e-9, "survival");
        }
        close(
            curve.final_incidence + curve.final_error_incidence + curve.remaining,
            1.0,
            1e-9,
            "everything adds up to 1",
        );
    }
}

#[test]
fn kaplan_meier_median_and_end() {
    let all = values();
    let reference = &all["kaplan_meier"];
    let sample: Vec<(f64, bool)> = list(reference, "sample")
        .iter()
        .map(|row| (f(&row[0]), row[1].as_bool().unwrap()))
        .collect();
    let points = kaplan_meier(&sample);
    let median = points.iter().find(|(_, s)| *s <= 0.5).unwrap().0;
    close(median, f(&reference["median"]), 1e-12, "median");
    close(
        points.last().unwrap().1,
        f(&reference["final"]),
        1e-9,
        "final",
    );
}

#[test]
fn ranks_of_tail_intervals() {
    let all = values();
    for row in list(&all, "tails") {
        let n = row["n"].as_i64().unwrap();
        let sorted: Vec<i64> = (1..=n).collect();
        let tail = tail_interval("e2e", &sorted, f(&row["q"]));
        let (lo, hi) = (row["lo"].as_u64().unwrap(), row["hi"].as_u64().unwrap());
        if hi <= n as u64 {
            assert_eq!((tail.lo_rank, tail.hi_rank), (Some(lo), Some(hi)), "{row}");
        } else {
            assert_eq!(tail.hi_rank, None, "{row}");
        }
    }
}

#[test]
fn summaries() {
    let all = values();
    for row in list(&all, "summaries") {
        let sample: Vec<f64> = list(row, "values").iter().map(f).collect();
        let got = summarize(&sample, true, 4);
        for (name, value) in [
            ("median", got.median),
            ("mean", got.mean),
            ("sample_sd", got.sample_sd),
            ("sem", got.sem),
            ("t_multiplier", got.t_multiplier),
            ("t_interval_lo", got.t_interval_lo),
            ("t_interval_hi", got.t_interval_hi),
        ] {
            close(value.unwrap(), f(&row[name]), 1e-9, name);
        }
    }
}

#[test]
fn holm_adjustment() {
    let all = values();
    let p: Vec<f64> = list(&all["holm"], "p").iter().map(f).collect();
    for (got, want) in holm(&p).iter().zip(list(&all["holm"], "adjusted")) {
        close(*got, f(want), 1e-12, "holm");
    }
}

#[test]
fn two_samples() {
    let all = values();
    for row in list(&all, "two_samples") {
        let (a, b): (Vec<f64>, Vec<f64>) = (
            list(row, "a").iter().map(f).collect(),
            list(row, "b").iter().map(f).collect(),
        );
        let (test, shift) = if row["paired"].as_bool().unwrap() {
            let d: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
            (permutation_paired(&d), shift_paired(&d, 0.025))
        } else {
            (permutation_unpaired(&a, &b), shift_unpaired(&a, &b, 0.025))
        };
        let test = test.unwrap();
        close(test.p, f(&row["p"]), 1e-12, "p");
        assert_eq!(Some(test.arrangements), row["arrangements"].as_u64());
        assert_eq!(shift.is_some(), row["shift_lo"].is_number(), "{row}");
        if let Some((lo, hi)) = shift {
            close(lo, f(&row["shift_lo"]), 1e-9, "shift_lo");
            close(hi, f(&row["shift_hi"]), 1e-9, "shift_hi");
        }
    }
}

/// The published endpoints, field by field and text by text.
#[test]
fn published_summaries() {
    let published: Value =
        serde_json::from_str(include_str!("fixtures/process-kill-endpoints.json")).unwrap();
    for endpoint in list(&published, "endpoints") {
        let summary = &endpoint["summary"];
        let Some(sample) = summary["values"].as_array() else {
            continue;
        };
        let sample: Vec<f64> = sample.iter().map(f).collect();
        let ours = summarize(&sample, summary["heavy_tailed"].as_bool().unwrap(), 4);
        let ours = serde_json::to_value(&ours).unwrap();
        for (key, want) in summary.as_object().unwrap() {
            if key == "values" {
                continue;
            }
            match (want.as_f64(), ours[key].as_f64()) {
                (Some(want), Some(got)) => close(got, want, 1e-12, key),
                _ => assert_eq!(&ours[key], want, "{key}"),
            }
        }
    }
}

/// Change-points against ruptures' PELT under a binomial cost, and the cost against a search that
/// prunes nothing.
#[test]
fn change_points_of_counts() {
    let all = values();
    for row in list(&all, "change_points") {
        let counts = counts(row);
        let starts: Vec<u64> = change_points(&counts, f(&row["penalty"]))
            .into_iter()
            .map(|s| s as u64)
            .collect();
        assert_eq!(serde_json::json!(starts), row["starts"]);
    }
}

/// The detector against a reading of its definition that shares no loop with ours.
#[test]
fn recovery_detector() {
    const S: i64 = 1_000_000_000;
    let all = values();
    let (mut entries, mut dips, mut redegradations) = (0, 0, 0);
    for row in list(&all, "detector") {
        let counts = counts(row);
        let number = |key: &str| row[key].as_i64().unwrap();
        let rule = RecoveryRule {
            bucket_ns: S,
            window_buckets: number("window") as u32,
            hold_buckets: number("hold") as u32,
            entry_percent: 90,
            exit_percent: 85,
        };
        let base = BucketCounts {
            good: row["base"][0].as_u64().unwrap(),
            scheduled: row["base"][1].as_u64().unwrap(),
        };
        let (anchor, timeout) = (number("anchor"), number("timeout"));
        let got = detect(&counts, &rule, anchor * S, timeout * S, base);
        let outage = row["outage"].as_bool().unwrap_or(true);
        let entry = row["entry"].as_i64().filter(|_| outage);
        assert_eq!(got.entry_ns, entry.map(|t| t * S), "{row}");
        assert_eq!(got.ttr_s, entry.map(|t| (t - anchor) as f64));
        assert_eq!(
            got.status == RecoveryStatus::NoOutage,
            !outage,
            "{:?}",
            got.status
        );
        assert_eq!(got.candidate_ns, row["candidate"].as_i64().map(|t| t * S));
        assert_eq!(i64::from(got.dips), number("dips"), "{row}");
        assert_eq!(i64::from(got.redegradations), number("redegradations"));
        entries += i32::from(entry.is_some());
        dips += got.dips;
        redegradations += got.redegradations;
    }
    assert!(
        entries > 2 && dips > 0 && redegradations > 0,
        "the reference shows little"
    );
}
