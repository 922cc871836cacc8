//! Every estimator against scipy and lifelines: `reference/make.py` made `reference/values.json`.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

use blackstart_analyze::{
    Observation, Terminal, aalen_johansen, holm, kaplan_meier, permutation_paired,
    permutation_unpaired, shift_paired, shift_unpaired, summarize, t_multiplier, t_quantile,
    tail_interval,
};
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
