//! `report.json` and its checked-in schema.

// A test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use blackstart_report::report_schema;
use common::{SMALL, Story, campaign};

/// Renews the checked-in schema.
const COMMAND: &str = "BLESS=1 cargo test --release -p blackstart-report --test schema";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schema/report.schema.json")
}

/// Renews the file once where that is asked for, before any test reads it.
fn bless() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("BLESS").is_some() {
            let text = serde_json::to_string_pretty(&report_schema()).unwrap() + "\n";
            std::fs::write(path(), text).unwrap();
        }
    });
}

fn checked_in() -> serde_json::Value {
    bless();
    let text = std::fs::read_to_string(path())
        .unwrap_or_else(|e| panic!("{}: {e}; make it with `{COMMAND}`", path().display()));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_checked_in_schema_is_that_of_the_code() {
    let schema = report_schema();
    assert!(
        checked_in() == schema,
        "{} is not the schema of the code; renew it with `{COMMAND}`",
        path().display()
    );
}

#[test]
fn reports_hold_to_the_schema() {
    let validator = jsonschema::validator_for(&checked_in()).unwrap();
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
    let validator = jsonschema::validator_for(&checked_in()).unwrap();
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
