//! `report.json`, a load's `summary.json`, a comparison, and their checked-in schemas.

// A test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use blackstart_analyze::{LoadAsked, LoadFiguresBuilder};
use blackstart_plan::SloThresholds;
use blackstart_record::pinned_histogram;
use blackstart_report::{LoadReport, comparison_schema, load_schema, report_schema};
use common::{SMALL, Story, campaign};

/// Renews the checked-in schema.
const COMMAND: &str = "BLESS=1 cargo test --release -p blackstart-report --test schema";

const REPORT: &str = "report.schema.json";
const LOAD: &str = "load-summary.schema.json";
const COMPARISON: &str = "comparison.schema.json";

fn schemas() -> [(&'static str, serde_json::Value); 3] {
    [
        (REPORT, report_schema()),
        (LOAD, load_schema()),
        (COMPARISON, comparison_schema()),
    ]
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("schema")
        .join(name)
}

/// Renews the files once where that is asked for, before any test reads them.
fn bless() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("BLESS").is_some() {
            for (name, schema) in schemas() {
                let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
                std::fs::write(path(name), text).unwrap();
            }
        }
    });
}

fn checked_in(name: &str) -> serde_json::Value {
    bless();
    let text = std::fs::read_to_string(path(name))
        .unwrap_or_else(|e| panic!("{}: {e}; make it with `{COMMAND}`", path(name).display()));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_checked_in_schemas_are_those_of_the_code() {
    for (name, schema) in schemas() {
        assert!(
            checked_in(name) == schema,
            "{} is not the schema of the code; renew it with `{COMMAND}`",
            path(name).display()
        );
    }
}

/// A real one is held to the schema where the program is tested; this one has nothing in it.
#[test]
fn the_summary_of_a_load_without_requests_holds_to_its_schema() {
    let validator = jsonschema::validator_for(&checked_in(LOAD)).unwrap();
    let builder = LoadFiguresBuilder::new(LoadAsked {
        rate_per_s: None,
        length_ns: 1,
        slo: SloThresholds::PINNED,
        partial: true,
    });
    let report = LoadReport::new(builder.finish(&pinned_histogram(), &[]), None, None);
    let mut value = serde_json::to_value(&report).unwrap();
    let problems: Vec<String> = validator
        .iter_errors(&value)
        .map(|e| e.to_string())
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
    let again: LoadReport = serde_json::from_value(value.clone()).unwrap();
    assert!(again == report);
    value["scheduled"] = "none".into();
    assert!(!validator.is_valid(&value));
}

#[test]
fn reports_hold_to_the_schema() {
    let validator = jsonschema::validator_for(&checked_in(REPORT)).unwrap();
    for stories in [
        &[Story::Recovers, Story::NeverBack, Story::GateFails][..],
        &[Story::Control, Story::Interrupted],
        &[Story::NoFault],
    ] {
        let report = serde_json::to_value(campaign(SMALL, stories)).unwrap();
        let problems: Vec<String> = validator
            .iter_errors(&report)
            .take(5)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

#[test]
fn the_schema_refuses_what_is_no_report() {
    let validator = jsonschema::validator_for(&checked_in(REPORT)).unwrap();
    let mut report = serde_json::to_value(campaign(SMALL, &[Story::NoFault])).unwrap();
    assert!(validator.is_valid(&report));
    report["campaign"]["valid_runs"] = "one".into();
    assert!(!validator.is_valid(&report));
    report["campaign"]
        .as_object_mut()
        .unwrap()
        .remove("valid_runs");
    assert!(!validator.is_valid(&report));
}

#[test]
fn a_report_reads_back_as_it_was_written() {
    let report = campaign(SMALL, &[Story::Recovers, Story::NeverBack]);
    let text = serde_json::to_string(&report).unwrap();
    let again: blackstart_report::CampaignReport = serde_json::from_str(&text).unwrap();
    assert!(again == report);
}
