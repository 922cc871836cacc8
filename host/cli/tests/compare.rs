//! `compare` of results directories that are written here: table, JSON, schema and exit codes.

#![allow(clippy::unwrap_used)]

#[path = "../../report/tests/common/mod.rs"]
mod synthetic;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use blackstart_analyze::{RunAnalysis, analyze_campaign, analyze_run};
use blackstart_plan::Plan;
use blackstart_record::{Manifest, ManifestHead, write_json_atomic};
use blackstart_testkit::Instrument;
use serde_json::Value;
use synthetic::{SMALL, Story, plan, records};

/// Five analysed runs and their plan.
static BASE: LazyLock<(Plan, Vec<RunAnalysis>)> = LazyLock::new(|| {
    let mut plan = plan(SMALL, &[Story::Recovers; 5]);
    plan.gates.clear();
    let mut runs = Vec::new();
    for i in 0..plan.runs.len() {
        let records = records::records(&plan, Story::Recovers, plan.runs[i].seed);
        plan.runs[i].requests = records.requests.len() as u64;
        let planned = plan.runs[i].clone();
        runs.push(analyze_run(&plan, &planned, &records).unwrap());
    }
    (plan, runs)
});

/// A results directory with what `compare` reads; its outages are longer by so many seconds.
fn results(
    instrument: &Instrument,
    name: &str,
    longer_s: f64,
    change: impl FnOnce(&mut Plan, &mut Vec<RunAnalysis>),
) -> PathBuf {
    let (mut plan, mut runs) = BASE.clone();
    for run in &mut runs {
        run.outage_s = run.outage_s.map(|s| s + longer_s);
    }
    change(&mut plan, &mut runs);
    let dir = instrument.path(name);
    std::fs::create_dir(&dir).unwrap();
    write(&dir.join("plan.json"), &plan);
    write(
        &dir.join("analysis.json"),
        &analyze_campaign(&plan, &runs, &BTreeMap::new()),
    );
    for run in &runs {
        let folder = dir.join(format!("run-{}", run.run));
        std::fs::create_dir(&folder).unwrap();
        write(&folder.join("analysis.json"), run);
    }
    dir
}

fn sealed(dir: &Path) -> Manifest {
    let head = ManifestHead {
        instrument_version: "0".to_owned(),
        campaign: "c".to_owned(),
        config_sha256: String::new(),
        seeds: Vec::new(),
        plugins: BTreeMap::new(),
        grants: BTreeMap::new(),
        host: BTreeMap::new(),
        partial: false,
    };
    Manifest::build(dir, head).unwrap()
}

fn write(path: &Path, what: &impl serde::Serialize) {
    write_json_atomic(path, what).unwrap();
}

fn instrument() -> Instrument {
    Instrument::new(env!("CARGO_BIN_EXE_blackstart"))
}

fn schema() -> jsonschema::Validator {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/schema/comparison.schema.json");
    jsonschema::validator_for(&serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
        .unwrap()
}

#[track_caller]
fn json(stdout: &str) -> Value {
    let value: Value = serde_json::from_str(stdout).unwrap();
    let problems: Vec<String> = schema()
        .iter_errors(&value)
        .take(5)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
    let again: blackstart_analyze::CampaignComparison =
        serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(again).unwrap(), value);
    value
}

#[test]
fn a_longer_outage_is_named_and_the_table_fits_100_columns() {
    let instrument = instrument();
    results(&instrument, "a", 0.0, |_, _| {});
    results(&instrument, "b", 5.0, |plan, runs| {
        plan.campaign = "with a very long name ".repeat(8);
        plan.target.replicas[0].base_url = "http://127.0.0.1:9000".into();
        runs[3].partial = true;
        runs[4].outage_s = None;
        runs[4].ttr_pre_fault_s = None;
        runs[4].ttr_censored_at_s = Some(40.0);
    });
    let finished = instrument.run(["compare", "a", "b"]);
    finished.expect_code(0);
    let table = &finished.stdout;
    for line in table.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    // Long sentences are broken between words.
    let flat = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "4 of 5 runs count, 1 invalid",
        "run 4 is left out: invalid run: partial",
        "differs: target.replicas[0].base_url",
        "compared unpaired: the seeds agree, but 4 pairs cannot reach p ≤ 0.05",
        "A lower",
        "≥40",
        "exploratory: described, not tested",
        "noise floor",
    ] {
        assert!(flat.contains(says), "{says}:\n{table}");
    }
    let value = json(&instrument.run(["compare", "a", "b", "--json"]).stdout);
    let outage = &value["endpoints"][0];
    assert_eq!(outage["name"], "outage_s");
    assert_eq!(outage["verdict"]["word"], "a_lower");
    // Exchanged, the verdict is the mirror's.
    let value = json(&instrument.run(["compare", "b", "a", "--json"]).stdout);
    assert_eq!(value["endpoints"][0]["verdict"]["word"], "b_lower");
}

#[test]
fn a_page_is_written_and_objectives_are_held_to() {
    let instrument = instrument();
    results(&instrument, "a", 0.0, |_, _| {});
    results(&instrument, "b", 5.0, |_, _| {});
    results(&instrument, "other", 0.0, |plan, _| {
        plan.load.rate_per_s = 99.0
    });
    let compare = |more: &[&str]| instrument.run(["compare", "a", "b"].iter().chain(more));
    let met = compare(&[
        "--html",
        "page.html",
        "--require",
        "outage_s.verdict == 'a_lower' and outage_s.median_difference >= 4",
    ]);
    met.expect_code(0);
    assert!(
        met.stderr
            .contains("outage_s.median_difference >= 4: met, "),
        "{}",
        met.stderr
    );
    let page = std::fs::read_to_string(instrument.path("page.html")).unwrap();
    assert!(
        page.contains("<h1>Outage: A lower</h1>"),
        "{}",
        &page[..2_000]
    );
    compare(&["--html", "no/such/folder.html"]).expect_code(3);
    for device in ["/dev/null", "/dev/stdout", ".", "a/plan.json", "b/new.html"] {
        compare(&["--html", device]).expect_code(3);
    }
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    compare(&["--require", "outage_s.median_difference <= 4"]).expect_code(6);
    // A script reads the outcome from the document.
    let both = compare(&[
        "--json",
        "--require",
        "outage_s.median_difference <= 4",
        "--require",
        "outage_s.verdict == 'a_lower'",
    ]);
    both.expect_code(6);
    let document: Value = serde_json::from_str(&both.stdout).unwrap();
    let required = document["requirements"].as_array().unwrap();
    assert_eq!(required[0]["verdict"], "not met");
    assert_eq!(
        required[0]["figures"][0]["name"],
        "outage_s.median_difference"
    );
    assert!(required[0]["figures"][0]["value"].as_f64().unwrap() > 4.0);
    assert_eq!(required[1]["verdict"], "met");
    let unknown = compare(&["--require", "outage_s.verdikt == 'a_lower'"]);
    unknown.expect_code(3);
    assert!(
        unknown.stderr.contains("outage_s.verdict"),
        "{}",
        unknown.stderr
    );
    // What was not compared meets nothing, and that comes first.
    let refused = instrument.run(["compare", "a", "other", "--require", "outage_s.a.n > 0"]);
    refused.expect_code(2);
    assert!(
        refused.stderr.contains("not met, not measured"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_campaign_against_itself_has_no_winner() {
    let instrument = instrument();
    results(&instrument, "a", 0.0, |_, _| {});
    for more in [
        &[][..],
        &["--paired"],
        &["--unpaired"],
        &["--margin", "0.001"],
    ] {
        let finished = instrument.run(["compare", "a", "a", "--json"].iter().chain(more));
        finished.expect_code(0);
        for e in json(&finished.stdout)["endpoints"].as_array().unwrap() {
            assert_eq!(e["verdict"]["word"], "cannot_tell", "{e:#}");
        }
    }
    let text = instrument.run(["compare", "a", "a"]).stdout;
    assert!(!text.contains(" lower"), "{text}");
}

#[test]
fn campaigns_that_asked_different_questions_are_refused() {
    let instrument = instrument();
    results(&instrument, "a", 0.0, |_, _| {});
    results(&instrument, "other", 0.0, |plan, _| {
        plan.phases.fault_window_ns += 1;
        plan.load.rate_per_s = 99.0;
    });
    results(&instrument, "none", 0.0, |_, runs| {
        for run in runs {
            run.partial = true;
        }
    });
    let other = instrument.run(["compare", "a", "other"]);
    other.expect_code(2);
    assert!(
        other
            .stderr
            .contains("their plans differ in load.rate_per_s, phases.fault_window_ns"),
        "{}",
        other.stderr
    );
    assert!(
        other
            .stdout
            .contains("refused: load.rate_per_s: 18.0 | 99.0"),
        "{}",
        other.stdout
    );
    let other = instrument.run(["compare", "a", "other", "--json"]);
    other.expect_code(2);
    let value = json(&other.stdout);
    assert_eq!(value["comparable"], false);
    assert_eq!(value["endpoints"].as_array().unwrap().len(), 0);
    let none = instrument.run(["compare", "a", "none"]);
    none.expect_code(2);
    assert!(
        none.stderr.contains("B has no valid run"),
        "{}",
        none.stderr
    );
    // Figures of another version.
    let path = instrument.path("a").join("run-2/analysis.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let newer = text.replacen("\"schema_version\": 1", "\"schema_version\": 9", 1);
    assert_ne!(newer, text);
    std::fs::write(&path, newer).unwrap();
    let newer = instrument.run(["compare", "a", "none"]);
    newer.expect_code(2);
    assert!(
        newer.stderr.contains("schema version 9"),
        "{}",
        newer.stderr
    );
    // One that is gone.
    std::fs::remove_file(&path).unwrap();
    instrument.run(["compare", "a", "none"]).expect_code(2);
}

#[test]
fn figures_that_were_altered_are_not_compared() {
    let instrument = instrument();
    let a = results(&instrument, "a", 0.0, |_, _| {});
    results(&instrument, "b", 0.0, |_, _| {});
    let open = instrument.run(["compare", "a", "b", "--json"]);
    open.expect_code(0);
    let notes = json(&open.stdout)["caveats"].to_string();
    assert!(notes.contains("A has no manifest"), "{notes}");
    for dir in ["a", "b"] {
        let dir = instrument.path(dir);
        write(&dir.join("manifest.json"), &sealed(&dir));
    }
    let closed = instrument.run(["compare", "a", "b"]);
    closed.expect_code(0);
    assert!(!closed.stdout.contains("no manifest"), "{}", closed.stdout);
    let path = a.join("run-3/analysis.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let altered = text.replacen("\"outage_s\":", "\"outage_s\": 0.1, \"was\":", 1);
    assert_ne!(altered, text);
    std::fs::write(&path, altered).unwrap();
    let refused = instrument.run(["compare", "a", "b"]);
    refused.expect_code(2);
    assert!(
        refused.stderr.contains("run-3/analysis.json was changed"),
        "{}",
        refused.stderr
    );
}

/// Written before a figure existed: what to do is said with the folder's name.
#[test]
fn an_analysis_of_an_earlier_release_is_to_be_made_again() {
    let instrument = instrument();
    results(&instrument, "old", 0.0, |_, _| {});
    results(&instrument, "b", 0.0, |_, _| {});
    let path = instrument.path("old").join("run-1/analysis.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    value["recovery"]
        .as_object_mut()
        .unwrap()
        .remove("cross_check")
        .expect("was there");
    write(&path, &value);
    let old = instrument.run(["compare", "old", "b"]);
    old.expect_code(2);
    assert!(
        old.stderr.contains("blackstart analyze old"),
        "{}",
        old.stderr
    );
}

#[test]
fn wrong_options_are_mistakes_of_the_command_line() {
    let instrument = instrument();
    results(&instrument, "a", 0.0, |_, _| {});
    results(&instrument, "seeds", 0.0, |plan, runs| {
        for (planned, run) in plan.runs.iter_mut().zip(runs) {
            planned.seed += 100;
            run.seed += 100;
        }
    });
    for args in [
        &["compare", "a"][..],
        &["compare", "a", "a", "--paired", "--unpaired"],
        &["compare", "a", "a", "--margin", "0"],
        &["compare", "a", "a", "--margin", "little"],
        &["compare", "a", "seeds", "--paired"],
        &["compare", "a", "nowhere"],
    ] {
        instrument.run(args).expect_code(3);
    }
    instrument.run(["compare", "a", "seeds"]).expect_code(0);
}
