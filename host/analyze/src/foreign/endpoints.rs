//! Endpoint summaries, recomputed from their values; values against the runs they come from.

use super::ENDPOINTS_FILE;
use super::checker::{Checker, shorten};
use super::doc::walk;
use crate::summary::summarize;
use crate::{Summary, stats};

/// Degrees of freedom of the planned five runs.
const PINNED_DF: u64 = 4;

/// Endpoints that lead with median and range.
const HEAVY_TAILED: [&str; 4] = [
    "outage_s",
    "container_start_s",
    "ttr_equilibrium_s",
    "ttr_pre_fault_s",
];

/// Most endpoints and values that are checked.
const MAX_ENDPOINTS: usize = 200;
const MAX_VALUES: usize = 10_000;

/// Statistics of a summary, in the document's order.
const STATISTICS: [&str; 10] = [
    "median",
    "mean",
    "min",
    "max",
    "sample_sd",
    "sem",
    "t_interval_lo",
    "t_interval_hi",
    "t_multiplier",
    "coefficient_of_variation",
];

/// Checks the endpoints of the report, of the separate document, and that both agree.
pub(crate) fn documents(check: &mut Checker<'_>) {
    let beside = format!("{ENDPOINTS_FILE}.endpoints");
    for list in ["campaign.endpoints", "endpoints", beside.as_str()] {
        for i in 0..check.doc.len(list).min(MAX_ENDPOINTS) {
            endpoint(check, &format!("{list}[{i}]"));
        }
    }
    if check.doc.get(ENDPOINTS_FILE).is_some() {
        let n = check.doc.len(&beside);
        check.require(
            &beside,
            "present",
            n > 0,
            "a list of endpoints".to_owned(),
            format!("{n} endpoints"),
            &[],
        );
    }
    campaign(check);
    if let (Some(report), Some(_)) = (check.doc.get("campaign.endpoints"), check.doc.get(&beside)) {
        let mut leaves = Vec::new();
        walk(report, "", &mut |path, value| {
            leaves.push((path.to_owned(), value.clone()));
        });
        for (path, value) in leaves {
            let (here, there) = (
                format!("campaign.endpoints{path}"),
                format!("{beside}{path}"),
            );
            // A null is absent on both sides.
            let found = check.doc.get(&there);
            let same = match found {
                Some(found) => *found == value,
                None => value.is_null(),
            };
            check.equal(
                &here,
                "as-in-endpoints",
                same,
                shorten(&found.map_or_else(|| "null".to_owned(), ToString::to_string)),
                shorten(&value.to_string()),
                &[&there],
            );
        }
    }
}

fn endpoint(check: &mut Checker<'_>, e: &str) {
    let s = format!("{e}.summary");
    let name = check
        .doc
        .text(&format!("{e}.name"))
        .unwrap_or("")
        .to_owned();
    let values_path = format!("{s}.values");
    let n = check.doc.len(&values_path);
    if n == 0 {
        empty(check, e, &s);
        return;
    }
    if n > MAX_VALUES {
        return;
    }
    let paths: Vec<String> = (0..n).map(|i| format!("{values_path}[{i}]")).collect();
    let values: Vec<f64> = paths.iter().filter_map(|p| check.num(p)).collect();
    if values.len() != n {
        return;
    }
    let heavy = HEAVY_TAILED.contains(&name.as_str());
    let expected = summarize(&values, heavy, PINNED_DF);
    let evidence: Vec<&str> = paths.iter().map(String::as_str).collect();
    check.eq_int(&format!("{s}.n"), "counts-values", n as i64, &[]);
    check.eq_int(&format!("{s}.df"), "n-minus-1", n as i64 - 1, &[]);
    check.eq_int(
        &format!("{e}.contributing_n"),
        "counts-values",
        n as i64,
        &[],
    );
    for statistic in STATISTICS {
        // Only moments change with every value.
        let rests_on = if statistic == "mean" {
            &evidence[..]
        } else {
            &[]
        };
        let path = format!("{s}.{statistic}");
        match value_of(&expected, statistic) {
            Some(v) => {
                check.eq_stat(&path, "from-values", v, rests_on);
                // Named, so that a failure points at them; found by the mean.
                check.mention(&evidence);
            }
            None => check.eq_num(&path, "undefined", 0.0, 0.0, &[]),
        }
    }
    check.eq_flag(
        &format!("{s}.at_pinned_df"),
        "df",
        n as u64 == PINNED_DF + 1,
        &[],
    );
    check.eq_flag(
        &format!("{s}.cov_defined"),
        "mean-not-0",
        expected.cov_defined,
        &[],
    );
    check.eq_flag(&format!("{s}.heavy_tailed"), "by-name", heavy, &[]);
    check.eq_text(
        &format!("{s}.headline"),
        "from-values",
        &expected.headline,
        &[],
    );
    blame_value(check, &s, &values, &paths);
}

fn value_of(s: &Summary, statistic: &str) -> Option<f64> {
    match statistic {
        "median" => s.median,
        "mean" => s.mean,
        "min" => s.min,
        "max" => s.max,
        "sample_sd" => s.sample_sd,
        "sem" => s.sem,
        "t_interval_lo" => s.t_interval_lo,
        "t_interval_hi" => s.t_interval_hi,
        "t_multiplier" => s.t_multiplier,
        _ => s.coefficient_of_variation,
    }
}

/// Where mean and SD both fail, one value that the mean implies may make both hold again: then it is
/// that value which was altered.
fn blame_value(check: &mut Checker<'_>, s: &str, values: &[f64], paths: &[String]) {
    let (Some(mean), Some(sd)) = (
        check.num(&format!("{s}.mean")),
        check.num(&format!("{s}.sample_sd")),
    ) else {
        return;
    };
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-7 * b.abs().max(1.0);
    if stats::mean(values).is_some_and(|m| close(m, mean)) {
        return;
    }
    let sum: f64 = values.iter().sum();
    for (i, value) in values.iter().enumerate() {
        let implied = mean * values.len() as f64 - (sum - value);
        let mut mended = values.to_vec();
        mended[i] = implied;
        if stats::sample_sd(&mended).is_some_and(|m| close(m, sd)) {
            check.equal(
                &paths[i],
                "implied-by-mean-and-sd",
                false,
                implied.to_string(),
                value.to_string(),
                &[],
            );
        }
    }
}

/// An endpoint without values claims no figure, and says why.
fn empty(check: &mut Checker<'_>, e: &str, s: &str) {
    check.eq_int(&format!("{s}.n"), "counts-values", 0, &[]);
    check.eq_int(&format!("{s}.df"), "no-values", 0, &[]);
    check.eq_int(&format!("{e}.contributing_n"), "counts-values", 0, &[]);
    check.eq_int(&format!("{e}.dropped_runs"), "not-applicable", 0, &[]);
    for statistic in STATISTICS {
        check.eq_num(&format!("{s}.{statistic}"), "no-values", 0.0, 0.0, &[]);
    }
    for flag in ["at_pinned_df", "cov_defined", "heavy_tailed"] {
        check.eq_flag(&format!("{s}.{flag}"), "no-values", false, &[]);
    }
    check.eq_text(&format!("{s}.headline"), "no-values", "", &[]);
    let reason = check.doc.text(&format!("{e}.dropped_reason")).unwrap_or("");
    check.require(
        &format!("{e}.dropped_reason"),
        "says-why",
        !reason.is_empty(),
        "a reason".to_owned(),
        reason.to_owned(),
        &[],
    );
}

/// Runs that contribute to endpoints.
const PER_RUN: [&str; 5] = [
    "outage_s",
    "container_start_s",
    "ttr_pre_fault_s",
    "in_flight_loss_fraction",
    "integrated_goodput_deficit",
];

fn campaign(check: &mut Checker<'_>) {
    if check.doc.get("campaign").is_none() {
        return;
    }
    let repetitions = check.count("campaign.repetitions");
    let (valid, invalid) = (
        check.count("campaign.valid_runs"),
        check.count("campaign.invalid_runs"),
    );
    if let (Some(valid), Some(invalid)) = (valid, invalid) {
        check.eq_int(
            "campaign.repetitions",
            "valid-and-invalid",
            valid.saturating_add(invalid),
            &["campaign.valid_runs", "campaign.invalid_runs"],
        );
    }
    for i in 0..check.doc.len("campaign.endpoints").min(MAX_ENDPOINTS) {
        let e = format!("campaign.endpoints[{i}]");
        let n = check.doc.len(&format!("{e}.summary.values"));
        if let (Some(valid), true) = (valid, n > 0) {
            let dropped = valid.saturating_sub(n as i64);
            check.eq_int(
                &format!("{e}.dropped_runs"),
                "valid-minus-values",
                dropped,
                &["campaign.valid_runs"],
            );
        }
        per_run(check, &e, repetitions);
    }
    caveat(check, repetitions);
}

/// With as many values as runs, the n-th value is the n-th run's.
fn per_run(check: &mut Checker<'_>, e: &str, repetitions: Option<i64>) {
    let Some(name) = check.doc.text(&format!("{e}.name")) else {
        return;
    };
    let values = check.doc.len(&format!("{e}.summary.values"));
    if !PER_RUN.contains(&name) || repetitions != i64::try_from(values).ok() {
        return;
    }
    for i in 0..check.doc.len("campaign.per_run").min(MAX_VALUES) {
        let number_path = format!("campaign.per_run[{i}].run");
        let Some(index) = check
            .count(&number_path)
            .and_then(|n| usize::try_from(n - 1).ok())
        else {
            continue;
        };
        let value_path = format!("{e}.summary.values[{index}]");
        if let Some(value) = check.num(&value_path) {
            let path = format!("campaign.per_run[{i}].{name}");
            check.eq_num(&path, "as-in-endpoint", value, 1e-9, &[&value_path]);
        }
    }
}

/// The caveat names the number of runs.
fn caveat(check: &mut Checker<'_>, repetitions: Option<i64>) {
    if let (Some(text), Some(n)) = (check.doc.text("caveat"), repetitions)
        && let Some((_, rest)) = text.split_once("N=")
    {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        check.equal(
            "campaign.repetitions",
            "as-in-caveat",
            digits == n.to_string(),
            format!("N={digits}"),
            format!("N={n}"),
            &["caveat"],
        );
    }
}
