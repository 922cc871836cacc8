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
use serde_json::Value;

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
            std::fs::write(fields_path(), fields_page()).unwrap();
        }
    });
}

fn checked_in(name: &str) -> serde_json::Value {
    bless();
    let text = std::fs::read_to_string(path(name))
        .unwrap_or_else(|e| panic!("{}: {e}; make it with `{COMMAND}`", path(name).display()));
    serde_json::from_str(&text).unwrap()
}

/// The page that lists every key of the published files.
fn fields_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/fields.md")
}

/// A description as one cell of a table, without the links of the code's own pages.
fn cell(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.replace("[`", "`")
        .replace("`]", "`")
        .replace('|', "\\|")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// What a value may be, for people.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/$defs/");
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(all) = schema[key].as_array() {
            return all.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    let one = |name: &str| match name {
        "array" if schema["items"].is_object() => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map to {}", kind(&schema["additionalProperties"]))
        }
        "null" => "absent".to_owned(),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => {
            let all: Vec<String> = names.iter().filter_map(Value::as_str).map(one).collect();
            all.join(" or ")
        }
        _ => "any".to_owned(),
    }
}

/// The keys of an object, or the values of a word.
fn table(out: &mut String, schema: &Value) {
    if let Some(keys) = schema["properties"].as_object() {
        out.push_str("\n| key | is | meaning |\n| --- | --- | --- |\n");
        for (key, value) in keys {
            out.push_str(&format!(
                "| `{key}` | {} | {} |\n",
                kind(value),
                cell(value)
            ));
        }
    }
    if let Some(all) = schema["oneOf"].as_array() {
        out.push_str("\n| value | meaning |\n| --- | --- |\n");
        for value in all {
            // A value with figures of its own is an object that says which one it is.
            let inner = value["properties"].as_object().into_iter().flatten();
            let tag = inner.filter_map(|(_, p)| p["const"].as_str()).next();
            let name = value["const"].as_str().or(tag).unwrap_or("(an object)");
            let own = value["properties"].as_object().into_iter().flatten();
            let own: String = own
                .filter(|(_, p)| p["const"].is_null())
                .map(|(key, p)| format!(" `{key}` ({}): {}", kind(p), cell(p)))
                .collect();
            out.push_str(&format!("| `{name}` | {}{own} |\n", cell(value)));
        }
    }
}

/// `docs/fields.md`, from the schemas, which come from the code's own descriptions.
fn fields_page() -> String {
    let mut out = String::from(
        "# Every key\n\nMade from the JSON Schemas; renew it with them. Formulas, sources and worked examples are in [the method](method.md);\nnames end in their unit, and *absent* is `null`, for which a note beside it has the reason. `analysis.json` of a run is\n`RunPart` without `valid`, `verdict` and `logs`.\n",
    );
    let files = [
        (REPORT, "report.json"),
        (LOAD, "summary.json of a load"),
        (COMPARISON, "compare --json"),
    ];
    let mut known: Vec<(String, Value)> = Vec::new();
    for (name, title) in files {
        let (_, schema) = schemas().into_iter().find(|(n, _)| *n == name).unwrap();
        out.push_str(&format!("\n## {title}\n\n{}\n", cell(&schema)));
        table(&mut out, &schema);
        let Some(parts) = schema["$defs"].as_object() else {
            continue;
        };
        for (part, inner) in parts {
            // What two files share is told once.
            let entry = (part.clone(), inner.clone());
            if known.contains(&entry) {
                continue;
            }
            out.push_str(&format!("\n### {part}\n\n{}\n", cell(inner)));
            table(&mut out, inner);
            known.push(entry);
        }
    }
    out
}

/// No figure is published that no page explains.
#[test]
fn every_key_is_explained() {
    let mut found = 0;
    for (name, schema) in schemas() {
        let parts = schema["$defs"].as_object().into_iter().flatten();
        for (part, inner) in parts.chain([(&name.to_owned(), &schema)]) {
            for (key, value) in inner["properties"].as_object().into_iter().flatten() {
                assert!(
                    cell(value).len() > 2,
                    "{part}.{key} has no description: write it beside the field"
                );
                found += 1;
            }
        }
    }
    assert!(found > 400, "{found}");
    bless();
    let page = std::fs::read_to_string(fields_path()).unwrap();
    assert!(
        page == fields_page(),
        "docs/fields.md is not that of the code; renew it with `{COMMAND}`"
    );
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
