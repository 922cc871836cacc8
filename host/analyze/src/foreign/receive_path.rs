//! Receive-path figures: parts against the whole, and the order of percentiles.

use super::checker::{Checker, show};

/// The canary endpoint's known timing.
const CANARY: [(&str, i64); 3] = [("ttft_ms", 20), ("itl_ms", 10), ("tokens", 32)];

/// Widest ratio between the TTFT means of two windows with the same service.
const SAME_SERVICE: f64 = 0.05;

/// Fewest samples for that comparison.
const SAME_SERVICE_MIN_COUNT: i64 = 100;

/// Agreement of a mean with its parts, relative.
const MEAN_TOLERANCE: f64 = 1e-9;

/// Checks every window of one run.
pub(crate) fn check(check: &mut Checker<'_>, run: &str) {
    let base = format!("{run}.receive_path");
    let windows = check.doc.keys(&base);
    for window in &windows {
        let w = format!("{base}.{window}");
        means(check, &w);
        canary(check, &format!("{w}.canary"));
    }
    let has = |name: &str| windows.iter().any(|w| w == name);
    if has("fault") && has("fault_degraded") && has("fault_recovered") {
        parts(check, &base);
    }
    same_service(check, &base);
    if has("outage") && has("fault_degraded") {
        outage_covers_degraded(check, run, &base);
    }
    streams_by_duration(check, run, &base);
}

/// A mean of stamps in whole microseconds times its count is a whole number of microseconds.
fn means(check: &mut Checker<'_>, w: &str) {
    let (mean_path, count_path) = (
        format!("{w}.client_ttft_mean_ms"),
        format!("{w}.client_ttft_count"),
    );
    let (Some(mean), Some(count)) = (check.num(&mean_path), check.count(&count_path)) else {
        return;
    };
    let sum_us = mean * 1000.0 * count as f64;
    // An f64 carries the sum to far better than this up to 10^12 µs.
    let whole = (sum_us - sum_us.round()).abs() < 1e-3;
    check.require(
        &mean_path,
        "whole-microseconds",
        whole && mean >= 0.0,
        "mean × count is a whole number of µs".to_owned(),
        format!("{sum_us} µs"),
        &[&count_path],
    );
    if count == 0 {
        check.eq_num(&mean_path, "no-samples", 0.0, 0.0, &[]);
    }
}

fn canary(check: &mut Checker<'_>, c: &str) {
    if check.doc.get(c).is_none() {
        return;
    }
    for (name, known) in CANARY {
        check.eq_int(&format!("{c}.{name}"), "known-timing", known, &[]);
    }
    let (streams, completed) = (format!("{c}.streams"), format!("{c}.completed"));
    if let Some(n) = check.count(&streams) {
        check.eq_int(&completed, "every-stream", n, &[&streams]);
    }
    for pair in [
        ("ttft_dev_p50_us", "ttft_dev_max_us"),
        ("itl_dev_p50_us", "itl_dev_p99_us"),
        ("itl_dev_p99_us", "itl_dev_max_us"),
        ("event_lag_p99_us", "event_lag_max_us"),
        // The first event's lag is the TTFT's deviation.
        ("ttft_dev_max_us", "event_lag_max_us"),
    ] {
        at_most(
            check,
            "order",
            &format!("{c}.{}", pair.0),
            &format!("{c}.{}", pair.1),
        );
    }
}

/// `a ≤ b`.
fn at_most(check: &mut Checker<'_>, name: &str, a: &str, b: &str) {
    if let (Some(x), Some(y)) = (check.num(a), check.num(b)) {
        check.require(
            a,
            name,
            (0.0..=y).contains(&x),
            format!("0 to {y}"),
            x.to_string(),
            &[b],
        );
    }
}

/// `fault` is `fault_degraded` and `fault_recovered` together.
fn parts(check: &mut Checker<'_>, base: &str) {
    let p = |window: &str, name: &str| format!("{base}.{window}.{name}");
    for name in ["client_ttft_count", "canary.streams", "canary.completed"] {
        let (a, b) = (p("fault_degraded", name), p("fault_recovered", name));
        if let (Some(x), Some(y)) = (check.count(&a), check.count(&b)) {
            check.eq_int(
                &p("fault", name),
                "parts-add-up",
                x.saturating_add(y),
                &[&a, &b],
            );
        }
    }
    for name in ["ttft_dev_max_us", "itl_dev_max_us", "event_lag_max_us"] {
        let name = format!("canary.{name}");
        let (a, b) = (p("fault_degraded", &name), p("fault_recovered", &name));
        if let (Some(x), Some(y)) = (check.num(&a), check.num(&b)) {
            // Only the larger part decides the whole's largest.
            let (larger, smaller) = if x > y { (&a, &b) } else { (&b, &a) };
            let whole = p("fault", &name);
            check.eq_num(&whole, "largest-of-parts", x.max(y), 0.0, &[larger]);
            at_most(check, "part-of-whole", smaller, &whole);
        }
    }
    // A percentile of the whole lies between those of its parts.
    for name in [
        "ttft_dev_p50_us",
        "itl_dev_p50_us",
        "itl_dev_p99_us",
        "event_lag_p99_us",
    ] {
        let name = format!("canary.{name}");
        let (a, b, whole) = (
            p("fault_degraded", &name),
            p("fault_recovered", &name),
            p("fault", &name),
        );
        if let (Some(x), Some(y), Some(z)) = (check.num(&a), check.num(&b), check.num(&whole)) {
            check.within(&whole, "between-parts", z, (x.min(y), x.max(y)), &[&a, &b]);
        }
    }
    weighted_mean(check, base);
}

fn weighted_mean(check: &mut Checker<'_>, base: &str) {
    let read = |check: &mut Checker<'_>, window: &str| {
        let mean = format!("{base}.{window}.client_ttft_mean_ms");
        let count = format!("{base}.{window}.client_ttft_count");
        Some((check.num(&mean)?, check.count(&count)? as f64, mean, count))
    };
    let (Some((m1, n1, p1, c1)), Some((m2, n2, p2, c2)), Some((_, n, whole, _))) = (
        read(check, "fault_degraded"),
        read(check, "fault_recovered"),
        read(check, "fault"),
    ) else {
        return;
    };
    if n > 0.0 && n1 + n2 > 0.0 {
        let expected = (m1 * n1 + m2 * n2) / (n1 + n2);
        let mut evidence = Vec::new();
        for (count, paths) in [(n1, [&p1, &c1]), (n2, [&p2, &c2])] {
            if count > 0.0 {
                evidence.extend(paths.map(String::as_str));
            }
        }
        check.eq_num(
            &whole,
            "weighted-mean-of-parts",
            expected,
            MEAN_TOLERANCE * expected.abs().max(1.0),
            &evidence,
        );
    }
}

/// After recovery the service is that of the baseline, and so is its TTFT.
fn same_service(check: &mut Checker<'_>, base: &str) {
    let mean = |check: &mut Checker<'_>, window: &str| {
        let path = format!("{base}.{window}.client_ttft_mean_ms");
        let count = check.count(&format!("{base}.{window}.client_ttft_count"))?;
        let value = check.num(&path)?;
        (count >= SAME_SERVICE_MIN_COUNT).then_some((value, path))
    };
    if let (Some((before, path)), Some((after, other))) =
        (mean(check, "baseline"), mean(check, "fault_recovered"))
    {
        let (lo, hi) = (after * (1.0 - SAME_SERVICE), after * (1.0 + SAME_SERVICE));
        check.within(&path, "same-service", before, (lo, hi), &[&other]);
    }
}

/// Where the outage ends after recovery's entry, it holds every canary stream of the degraded window
/// up to the fire error.
fn outage_covers_degraded(check: &mut Checker<'_>, run: &str, base: &str) {
    let outage = check.num(&format!("{run}.outage_s"));
    let ttr = check.num(&format!("{run}.ttr_pre_fault_s"));
    let longer = matches!((outage, ttr), (Some(o), Some(t)) if o >= t);
    if !longer {
        return;
    }
    for name in [
        "streams",
        "ttft_dev_max_us",
        "itl_dev_max_us",
        "event_lag_max_us",
    ] {
        at_most(
            check,
            "inside-outage",
            &format!("{base}.fault_degraded.canary.{name}"),
            &format!("{base}.outage.canary.{name}"),
        );
    }
    for name in [
        "streams",
        "ttft_dev_max_us",
        "itl_dev_max_us",
        "event_lag_max_us",
    ] {
        at_most(
            check,
            "inside-fault",
            &format!("{base}.outage.canary.{name}"),
            &format!("{base}.fault.canary.{name}"),
        );
    }
}

/// Length of the fault window and of the baseline, pinned.
const FAULT_S: f64 = 600.0;
const BASELINE_S: f64 = 270.0;
const GUARD_S: f64 = 30.0;

/// One canary stream follows the other, so that their number goes with the window's length: at most
/// this many more or fewer than the fault window's rate gives.
const STREAMS_SLACK: f64 = 3.0;
/// And relative to it.
const STREAMS_RELATIVE: f64 = 0.01;

/// One request rate through the run: requests per window within this many standard deviations.
const RATE_SIGMAS: f64 = 5.0;

fn streams_by_duration(check: &mut Checker<'_>, run: &str, base: &str) {
    let whole_path = format!("{base}.fault.canary.streams");
    let Some(whole) = check.count(&whole_path) else {
        return;
    };
    let ttr = check.num(&format!("{run}.ttr_pre_fault_s"));
    let outage = check.num(&format!("{run}.outage_s"));
    for (window, length_s) in [
        ("baseline", Some(BASELINE_S)),
        ("guard", Some(GUARD_S)),
        ("fault_degraded", ttr),
        ("fault_recovered", ttr.map(|t| FAULT_S - t)),
        ("outage", outage),
    ] {
        let path = format!("{base}.{window}.canary.streams");
        if let (Some(n), Some(length_s)) = (check.count(&path), length_s) {
            let expected = whole as f64 * length_s / FAULT_S;
            let slack = STREAMS_SLACK + STREAMS_RELATIVE * expected.abs();
            check.within(
                &path,
                "one-after-the-other",
                n as f64,
                (expected - slack, expected + slack),
                &[&whole_path],
            );
        }
    }
    rate(check, base);
}

/// Baseline, guard and recovered windows see the same Poisson arrivals.
fn rate(check: &mut Checker<'_>, base: &str) {
    let whole_path = format!("{base}.baseline.client_ttft_count");
    let Some(whole) = check.count(&whole_path) else {
        return;
    };
    let path = format!("{base}.guard.client_ttft_count");
    if let Some(n) = check.count(&path) {
        let expected = whole as f64 * GUARD_S / BASELINE_S;
        let slack = RATE_SIGMAS * expected.max(1.0).sqrt();
        check.require(
            &path,
            "steady-rate",
            (n as f64 - expected).abs() <= slack,
            format!("{expected:.1} ± {slack:.1}"),
            show(Some(n)),
            &[&whole_path],
        );
    }
}
