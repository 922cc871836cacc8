//! `blackstart verify` on a published report of schema version 1: clean it holds, altered it is named.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use blackstart_testkit::Instrument;
use serde_json::{Value, json};

const REPORT: &str = "process-kill-campaign-run-1.json";
const ENDPOINTS: &str = "process-kill-endpoints.json";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../analyze/tests/fixtures")
        .join(name)
}

/// The program, with the published files in its folder.
fn instrument() -> Instrument {
    let instrument = Instrument::new(env!("CARGO_BIN_EXE_blackstart"));
    for name in [REPORT, ENDPOINTS] {
        instrument.write(name, std::fs::read(fixture(name)).unwrap());
    }
    instrument
}

#[test]
fn the_published_report_holds_and_says_what_it_cannot_recompute() {
    let instrument = instrument();
    let text = instrument.run(["verify", REPORT]);
    text.expect_code(0);
    assert!(text.stdout.contains("not recomputed"), "{}", text.stdout);
    assert!(text.stderr.contains("0 do not"), "{}", text.stderr);

    let finished = instrument.run(["verify", REPORT, "--json"]);
    finished.expect_code(0);
    let verdict: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(verdict["ok"], true);
    let assertions = verdict["assertions"].as_array().unwrap();
    assert!(
        assertions.len() > 50,
        "only {} assertions",
        assertions.len()
    );
    for assertion in assertions {
        assert_eq!(assertion["ok"], true, "{assertion}");
        for text in ["id", "expected", "found", "where"] {
            assert!(assertion[text].is_string(), "{text} in {assertion}");
        }
    }
    assert!(!verdict["not_recomputed"].as_array().unwrap().is_empty());
    instrument.run(["verify", ENDPOINTS]).expect_code(0);
}

/// A figure of the report, how to alter it, and the name that a person looks for.
const FIGURES: [(&str, &str); 13] = [
    (
        "/campaign/per_run/0/container/fire_uncertainty_ns",
        "fire_uncertainty_ns",
    ),
    (
        "/campaign/per_run/0/container/indeterminate_zone_ns",
        "indeterminate_zone_ns",
    ),
    ("/campaign/per_run/0/outage_s", "outage_s"),
    ("/campaign/per_run/0/container_start_s", "container_start_s"),
    (
        "/campaign/per_run/0/decomposition/segments/1/end_at",
        "segments[1]",
    ),
    (
        "/campaign/per_run/0/decomposition/segments/3/end_at",
        "segments[3]",
    ),
    (
        "/campaign/per_run/0/decomposition/segments/5/start_at",
        "segments[5]",
    ),
    (
        "/campaign/per_run/0/decomposition/segments/7/end_at",
        "segments[7]",
    ),
    ("/campaign/endpoints/0/summary/sample_sd", "sample_sd"),
    ("/campaign/endpoints/0/summary/median", "median"),
    (
        "/campaign/endpoints/0/summary/t_interval_lo",
        "t_interval_lo",
    ),
    ("/campaign/endpoints/0/summary/max", "max"),
    (
        "/campaign/endpoints/0/summary/coefficient_of_variation",
        "coefficient_of_variation",
    ),
];

fn altered(value: &Value) -> Value {
    if let Some(whole) = value.as_i64() {
        return json!(whole + 1000);
    }
    if let Some(x) = value.as_f64() {
        return json!(x + 0.01);
    }
    let stamp: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
    json!((stamp + jiff::SignedDuration::from_millis(5)).to_string())
}

#[test]
fn one_altered_figure_is_found_and_named() {
    let instrument = instrument();
    let clean: Value = serde_json::from_slice(&std::fs::read(fixture(REPORT)).unwrap()).unwrap();
    for (pointer, name) in FIGURES {
        let mut report = clean.clone();
        let figure = report
            .pointer_mut(pointer)
            .unwrap_or_else(|| panic!("no {pointer}"));
        assert!(!figure.is_null(), "{pointer} holds no figure");
        *figure = altered(figure);
        instrument.write(REPORT, serde_json::to_vec(&report).unwrap());
        let text = instrument.run(["verify", REPORT]);
        text.expect_code(2);
        let failed: Vec<&str> = text.stdout.lines().filter(|l| l.starts_with('✗')).collect();
        assert!(
            failed.iter().any(|l| l.contains(name)),
            "{pointer}: {name} is not named in\n{}",
            failed.join("\n")
        );
        let json = instrument.run(["verify", REPORT, "--json"]);
        json.expect_code(2);
        let verdict: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(verdict["ok"], false, "{pointer}");
    }
}

#[test]
fn what_is_no_report_is_a_mistake_of_the_caller_not_a_failed_check() {
    let instrument = instrument();
    for (name, content) in [
        ("empty.json", ""),
        ("other.json", "{\"a\": 1}"),
        ("list.json", "[]"),
    ] {
        instrument.write(name, content);
        let finished = instrument.run(["verify", name]);
        assert!(
            matches!(finished.code, Some(2 | 3)),
            "{name}: {:?} {}",
            finished.code,
            finished.stdout
        );
        assert!(
            !format!("{}{}", finished.stdout, finished.stderr)
                .trim()
                .is_empty()
        );
    }
    instrument.run(["verify", "missing.json"]).expect_code(3);
}
