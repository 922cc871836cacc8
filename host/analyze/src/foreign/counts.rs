//! Counts that must add up, and figures that are stated twice.

use super::checker::{Checker, TOLERANCE_RELATIVE, show};

/// Histogram grid of the published percentiles: 3 significant figures need 2048 sub-buckets.
const SUB_BUCKETS: u64 = 2048;

/// The client timeout, in milliseconds.
const TIMEOUT_MS: f64 = 30_000.0;

/// Checks one run's counts.
pub(crate) fn check(check: &mut Checker<'_>, run: &str) {
    in_flight(check, run);
    outage(check, run);
    let number_path = format!("{run}.run");
    if let Some(number) = check.count(&number_path) {
        for key in [
            "log_path",
            "fingerprint_before_path",
            "fingerprint_after_path",
        ] {
            let path = format!("{run}.container.{key}");
            if let Some(text) = check.doc.text(&path) {
                let expected = format!("/run-{number}-");
                check.equal(
                    &number_path,
                    &format!("names-{key}"),
                    text.contains(&expected),
                    format!("a path with {expected}"),
                    text.to_owned(),
                    &[&path],
                );
            }
        }
    }
    percentile(check, run);
    deficit(check, run);
    if let Some(absent) = check.flag(&format!("{run}.survivor_cohort_absent")) {
        let survivors = format!("{run}.survivor_p95_ms");
        let stated = check.doc.get(&survivors).is_some();
        check.equal(
            &format!("{run}.survivor_cohort_absent"),
            "no-survivor-figure",
            absent != stated,
            format!("{}", !stated),
            format!("{absent}"),
            &[],
        );
    }
}

/// Sum over the classes at `path`, with the paths of the counts.
fn classes(check: &mut Checker<'_>, path: &str) -> (i64, Vec<String>) {
    let mut sum = 0_i64;
    let mut paths = Vec::new();
    for class in check.doc.keys(path) {
        let one = format!("{path}.{class}");
        if let Some(n) = check.count(&one) {
            sum = sum.saturating_add(n);
        }
        paths.push(one);
    }
    (sum, paths)
}

fn in_flight(check: &mut Checker<'_>, run: &str) {
    let p = |name: &str| format!("{run}.in_flight_determinate.{name}");
    let parts = ["completed", "errored", "censored"].map(&p);
    let counts: Vec<Option<i64>> = parts.iter().map(|path| check.count(path)).collect();
    let [Some(completed), Some(errored), Some(censored)] = counts[..] else {
        return;
    };
    let evidence: Vec<&str> = parts.iter().map(String::as_str).collect();
    let total = completed.saturating_add(errored).saturating_add(censored);
    check.eq_int(&p("total"), "adds-up", total, &evidence);
    let indeterminate_path = format!("{run}.in_flight_indeterminate");
    let Some(indeterminate) = check.count(&indeterminate_path) else {
        return;
    };
    let (by_class, class_paths) = classes(check, &format!("{run}.in_flight_errored_by_class"));
    let all = total.saturating_add(indeterminate);
    let fraction_path = format!("{run}.in_flight_loss_fraction");
    // A censored request ends at its timeout, far from the fire: it is never indeterminate. So the
    // lost ones are the errored ones by class and the determinate censored ones.
    let lost = by_class.saturating_add(censored);
    let mut evidence: Vec<&str> = class_paths.iter().map(String::as_str).collect();
    evidence.push(&indeterminate_path);
    let within = by_class >= errored && by_class - errored <= indeterminate;
    check.equal(
        &indeterminate_path,
        "holds-the-errored",
        within,
        format!(
            "{errored} to {} errored by class",
            errored.saturating_add(indeterminate)
        ),
        by_class.to_string(),
        &[&p("errored")],
    );
    check.mention(&evidence);
    if all > 0 {
        let expected = lost as f64 / all as f64;
        check.eq_num(
            &fraction_path,
            "lost-over-all",
            expected,
            TOLERANCE_RELATIVE,
            &evidence,
        );
    } else {
        let stated = check.doc.get(&fraction_path).is_some();
        check.require(
            &fraction_path,
            "lost-over-all",
            !stated,
            "absent: nothing was in flight".to_owned(),
            if stated { "a figure" } else { "absent" }.to_owned(),
            &[],
        );
    }
}

fn outage(check: &mut Checker<'_>, run: &str) {
    let p = |name: &str| format!("{run}.outage_outcomes.{name}");
    let parts = ["completed", "errored", "censored"].map(&p);
    let counts: Vec<Option<i64>> = parts.iter().map(|path| check.count(path)).collect();
    let [Some(completed), Some(errored), Some(censored)] = counts[..] else {
        return;
    };
    let evidence: Vec<&str> = parts.iter().map(String::as_str).collect();
    let total = completed.saturating_add(errored).saturating_add(censored);
    check.eq_int(&p("total"), "adds-up", total, &evidence);
    let (by_class, class_paths) = classes(check, &p("errored_by_class"));
    let class_refs: Vec<&str> = class_paths.iter().map(String::as_str).collect();
    check.eq_int(&p("errored"), "classes-add-up", by_class, &class_refs);
    let client = format!("{run}.receive_path.outage.client_ttft_count");
    if check.doc.get(&client).is_some() {
        // A count that is no count has failed already; −1 equals nothing.
        let streamed = check.count(&client).unwrap_or(-1);
        check.eq_int(&p("completed"), "ttft-of-each", streamed, &[&client]);
    }
}

/// A published percentile is the upper edge of a histogram bin.
fn percentile(check: &mut Checker<'_>, run: &str) {
    let path = format!("{run}.fault_window_e2e_p95_ms");
    let Some(ms) = check.num(&path) else {
        return;
    };
    check.within(&path, "below-timeout", ms, (0.0, TIMEOUT_MS), &[]);
    let us = (ms * 1000.0).round();
    if (0.0..1e15).contains(&us) {
        let value = us as u64;
        let mut width = 1;
        while value / width >= SUB_BUCKETS {
            width *= 2;
        }
        let on_edge = (value + 1).is_multiple_of(width) && (ms * 1000.0 - us).abs() < 1e-6;
        check.require(
            &path,
            "histogram-edge",
            on_edge,
            format!("the upper edge of a bin of {width} µs"),
            format!("{value} µs"),
            &[],
        );
    }
}

/// The deficit adds at most one second for each second until recovery, and with no service at all a
/// whole one for each bucket that had a request.
fn deficit(check: &mut Checker<'_>, run: &str) {
    let path = format!("{run}.integrated_goodput_deficit");
    let ttr_path = format!("{run}.ttr_pre_fault_s");
    if let (Some(deficit), Some(ttr)) = (check.num(&path), check.num(&ttr_path)) {
        check.within(&path, "at-most-ttr", deficit, (0.0, ttr), &[&ttr_path]);
    }
    let degraded = format!("{run}.receive_path.fault_degraded.client_ttft_count");
    if check.count(&degraded) == Some(0)
        && let Some(deficit) = check.num(&path)
    {
        check.require(
            &path,
            "whole-buckets-without-service",
            (deficit - deficit.round()).abs() < 1e-6,
            "a whole number: no request completed before recovery".to_owned(),
            show(Some(deficit)),
            &[&degraded],
        );
    }
}
