//! The published report of the predecessor: clean it holds; any altered figure that evidence
//! determines is found and named; what no evidence determines is listed by name.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use blackstart_analyze::foreign::{ForeignReport, is_foreign, verify_foreign};
use serde_json::{Number, Value};

const REPORT: &[u8] = include_bytes!("fixtures/process-kill-campaign-run-1.json");
const ENDPOINTS: &[u8] = include_bytes!("fixtures/process-kill-endpoints.json");

fn failures(report: &ForeignReport) -> Vec<String> {
    report
        .assertions
        .iter()
        .filter(|a| !a.ok)
        .map(|a| format!("{}: expected {}, found {}", a.id, a.expected, a.found))
        .collect()
}

#[test]
fn the_published_report_holds() {
    for endpoints in [None, Some(ENDPOINTS)] {
        let report = verify_foreign(REPORT, endpoints);
        assert!(report.ok, "{:#?}", failures(&report));
        assert!(report.suspects.is_empty());
        assert!(!report.not_recomputable.is_empty());
    }
    let report = verify_foreign(REPORT, None);
    for id in [
        "campaign.per_run[0].container.fire_uncertainty_ns#formula",
        "campaign.per_run[0].container.indeterminate_zone_ns#formula",
        "campaign.per_run[0].outage_s#formula",
        "campaign.per_run[0].container_start_s#formula",
        "campaign.per_run[0].decomposition.segments[7].end_at#formula",
        "campaign.endpoints[0].summary.sample_sd#from-values",
    ] {
        assert!(report.assertions.iter().any(|a| a.id == id), "{id}");
    }
}

#[test]
fn endpoints_alone_hold() {
    assert!(is_foreign(ENDPOINTS) && is_foreign(REPORT));
    let report = verify_foreign(ENDPOINTS, None);
    assert!(report.ok, "{:#?}", failures(&report));
}

/// Paths of all leaves, as JSON pointers and as the checker writes them.
fn leaves(value: &Value, pointer: &str, path: &str, all: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                let next = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                leaves(inner, &format!("{pointer}/{key}"), &next, all);
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                leaves(
                    inner,
                    &format!("{pointer}/{i}"),
                    &format!("{path}[{i}]"),
                    all,
                );
            }
        }
        _ => all.push((pointer.to_owned(), path.to_owned())),
    }
}

/// Alterations of a figure that any reader would call one.
fn alterations(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(b) => vec![Value::Bool(!b)],
        Value::Number(n) => {
            if let Some(i) = n.as_i64() {
                let tenth = (i / 10).max(1);
                // Half of a Unix stamp's last nanosecond is lost in the middle of the bracket.
                let least = if i > 1_000_000_000_000_000 { 2 } else { 1 };
                vec![i + least, i - least, i + tenth, 0]
                    .into_iter()
                    .filter(|v| *v != i)
                    .map(Value::from)
                    .collect()
            } else {
                let x = n.as_f64().expect("a JSON number");
                [x + 1.0, x * 1.1, x - 0.01, 0.0]
                    .into_iter()
                    .filter_map(Number::from_f64)
                    .map(Value::Number)
                    .collect()
            }
        }
        Value::String(s) => {
            let Ok(stamp) = s.parse::<jiff::Timestamp>() else {
                return Vec::new();
            };
            [1_000_000_000_i128, -1_000_000_000, 5_000_000, 2_000]
                .into_iter()
                .filter_map(|d| jiff::Timestamp::from_nanosecond(stamp.as_nanosecond() + d).ok())
                .map(|t| Value::String(t.to_string()))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Alters every figure of `original` in turn. Returns how many figures are determined and the paths
/// of those that are not found every time.
fn alter_every_figure(
    original: &[u8],
    verify: impl Fn(&[u8]) -> ForeignReport,
    prefix: &str,
) -> (usize, BTreeSet<String>) {
    let root: Value = serde_json::from_slice(original).unwrap();
    let listed: BTreeSet<String> = verify(original)
        .not_recomputable
        .into_iter()
        .map(|n| n.path)
        .collect();
    let mut all = Vec::new();
    leaves(&root, "", prefix, &mut all);
    let mut determined = 0;
    let mut missed = BTreeSet::new();
    for (pointer, path) in all {
        let values = alterations(root.pointer(&pointer).unwrap());
        if values.is_empty() {
            continue;
        }
        let is_listed = listed.contains(&path);
        determined += usize::from(!is_listed);
        for value in values {
            let mut altered = root.clone();
            let shown = value.to_string();
            *altered.pointer_mut(&pointer).unwrap() = value;
            let report = verify(&serde_json::to_vec(&altered).unwrap());
            let named = report
                .assertions
                .iter()
                .any(|a| !a.ok && a.where_.contains(&path));
            if report.ok || !named {
                assert!(
                    is_listed,
                    "{path} = {shown} went unnoticed and is not listed as not recomputable: {:#?}",
                    failures(&report)
                );
                missed.insert(path.clone());
            } else if !is_listed {
                assert!(
                    report.suspects.contains(&path),
                    "{path} = {shown}: the suspects are {:?}, failures {:#?}",
                    report.suspects,
                    failures(&report)
                );
            }
        }
    }
    (determined, missed)
}

#[test]
fn every_altered_figure_of_the_report_is_found_and_named() {
    let (determined, missed) = alter_every_figure(REPORT, |r| verify_foreign(r, None), "");
    println!(
        "{determined} figures determined, {} only listed:",
        missed.len()
    );
    for path in &missed {
        println!("  {path}");
    }
    assert!(determined >= 300, "{determined}");
    assert!(missed.len() <= 62, "{}", missed.len());
}

#[test]
fn with_the_endpoints_beside_it_too() {
    alter_every_figure(REPORT, |r| verify_foreign(r, Some(ENDPOINTS)), "");
    let (determined, missed) =
        alter_every_figure(ENDPOINTS, |e| verify_foreign(REPORT, Some(e)), "$endpoints");
    assert!(determined >= 100, "{determined}");
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn every_altered_figure_of_the_endpoints_alone_is_found() {
    let (determined, missed) = alter_every_figure(ENDPOINTS, |e| verify_foreign(e, None), "");
    assert!(determined >= 100, "{determined}");
    println!("{missed:?}");
}

#[test]
fn a_removed_figure_is_found() {
    let mut root: Value = serde_json::from_slice(REPORT).unwrap();
    let run = root.pointer_mut("/campaign/per_run/0").unwrap();
    run.as_object_mut().unwrap().remove("outage_s");
    let report = verify_foreign(&serde_json::to_vec(&root).unwrap(), None);
    assert!(!report.ok);
    assert!(failures(&report).iter().any(|f| f.contains("outage_s")));
}

#[test]
fn hostile_documents_fail_without_a_panic() {
    for bytes in [
        &b""[..],
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"{\"campaign\":{\"per_run\":[{}]}}",
        b"{\"campaign\":{\"per_run\":[{\"container\":{\"kill\":{\"remote_before_ns\":9223372036854775807,\"remote_after_ns\":-9223372036854775808},\"offset_at_arm\":{\"offset_ns\":-9223372036854775808,\"bound_ns\":9223372036854775807},\"offset_after\":{\"offset_ns\":9223372036854775807,\"bound_ns\":1}}}]}}",
        &[0xff, 0xfe, 0x00],
    ] {
        assert!(!verify_foreign(bytes, None).ok);
        assert!(!verify_foreign(REPORT, Some(bytes)).ok);
    }
    let deep = "[".repeat(100_000);
    assert!(!verify_foreign(deep.as_bytes(), None).ok);
}

/// Every leaf replaced by values that a parser may trip over: no panic, and nothing that was a
/// figure still holds.
#[test]
fn wild_values_never_panic() {
    let root: Value = serde_json::from_slice(REPORT).unwrap();
    let mut all = Vec::new();
    leaves(&root, "", "", &mut all);
    let wild = [
        Value::Null,
        Value::from(i64::MIN),
        Value::from(u64::MAX),
        Value::from("-009999-01-01T00:00:00Z"),
        Value::Array(vec![]),
    ];
    for (pointer, _) in all {
        for value in &wild {
            let mut altered = root.clone();
            *altered.pointer_mut(&pointer).unwrap() = value.clone();
            verify_foreign(&serde_json::to_vec(&altered).unwrap(), None);
        }
    }
}
