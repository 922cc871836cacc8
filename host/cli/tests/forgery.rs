//! What `verify` finds when somebody alters a results directory and makes the manifest's hashes anew:
//! every leaf of every document that follows from the records, and every flipped byte of what does not.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use blackstart_testkit::{CampaignText, Instrument, free_port};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Leaves that are altered at once in documents from which nothing else is computed: fewer than the
/// differences that `verify` lists of one document.
const AT_ONCE: usize = 150;
/// Of such a document, so many leaves are altered one by one as well.
const ALONE: usize = 6;
/// Bits that are flipped in each file that is no text.
const FLIPS: usize = 12;

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Pointer and the name that `verify` gives it, of every leaf below a value.
fn leaves(value: &Value, pointer: &str, name: &str, all: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let part = key.replace('~', "~0").replace('/', "~1");
                leaves(
                    value,
                    &format!("{pointer}/{part}"),
                    &format!("{name}.{key}"),
                    all,
                );
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, value) in items.iter().enumerate() {
                leaves(
                    value,
                    &format!("{pointer}/{i}"),
                    &format!("{name}[{i}]"),
                    all,
                );
            }
        }
        _ => all.push((pointer.to_owned(), name.to_owned())),
    }
}

/// Another value of the same kind, as near as it comes.
fn altered(value: &Value) -> Value {
    match value {
        Value::Bool(b) => json!(!b),
        Value::Number(n) if n.is_u64() => json!(n.as_u64().unwrap() ^ 1),
        Value::Number(n) if n.is_i64() => json!(n.as_i64().unwrap() ^ 1),
        Value::Number(n) => json!(n.as_f64().unwrap() * (1.0 + 1e-15) + 1e-300),
        Value::String(s) => json!(format!("{s}0")),
        Value::Null => json!(0),
        Value::Array(_) => json!([0]),
        Value::Object(_) => json!({"0": 0}),
    }
}

/// Writes the manifest's entry of a file anew, as a forger can.
fn reseal(folder: &Path, file: &str) {
    if file == "manifest.json" {
        return;
    }
    let bytes = std::fs::read(folder.join(file)).unwrap();
    let path = folder.join("manifest.json");
    let mut manifest = common::json(&path);
    manifest["artifacts"][file] = json!({
        "bytes": bytes.len(),
        "sha256": hex::encode(Sha256::digest(&bytes)),
    });
    write(&path, &manifest);
}

/// A document as the instrument writes it.
fn write(path: &Path, document: &Value) {
    let text = serde_json::to_string_pretty(document).unwrap();
    std::fs::write(path, format!("{text}\n")).unwrap();
}

/// The failed assertions of a results directory: ids and files.
#[track_caller]
fn failed(instrument: &Instrument, folder: &Path, what: &str) -> BTreeSet<(String, String)> {
    let finished = instrument.run(["verify", folder.to_str().unwrap(), "--json"]);
    assert!(
        matches!(finished.code, Some(0 | 2)) && !finished.stderr.contains("panicked"),
        "{what}: {:?}\n{}",
        finished.code,
        finished.stderr
    );
    let verdict: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(verdict["ok"], finished.code == Some(0), "{what}");
    let assertions = verdict["assertions"].as_array().unwrap();
    assertions
        .iter()
        .filter(|a| a["ok"] == false)
        .map(|a| {
            ["id", "where"]
                .map(|key| a[key].as_str().unwrap().to_owned())
                .into()
        })
        .collect()
}

/// A results directory that is altered in a copy, and mended again.
struct Forger<'a> {
    instrument: &'a Instrument,
    sealed: &'a Path,
    copy: PathBuf,
    /// Leaves that were altered, and those of them that were found alone.
    altered: usize,
    alone: usize,
}

impl<'a> Forger<'a> {
    fn new(instrument: &'a Instrument, sealed: &'a Path) -> Self {
        let copy = instrument.path("forged");
        let _ = std::fs::remove_dir_all(&copy);
        copy_folder(sealed, &copy);
        assert_eq!(
            failed(instrument, &copy, "an unaltered copy"),
            BTreeSet::new()
        );
        Self {
            instrument,
            sealed,
            copy,
            altered: 0,
            alone: 0,
        }
    }

    fn mend(&self, file: &str) {
        for file in [file, "manifest.json"] {
            std::fs::copy(self.sealed.join(file), self.copy.join(file)).unwrap();
        }
    }

    /// Alters these leaves of a document, and expects each to be found and named.
    fn alter(&mut self, file: &str, some: &[(String, String)], by_name: bool) {
        let mut document = common::json(&self.sealed.join(file));
        for (pointer, _) in some {
            let leaf = document.pointer_mut(pointer).unwrap();
            let other = altered(leaf);
            assert_ne!(other, *leaf, "{file}{pointer}");
            *leaf = other;
        }
        write(&self.copy.join(file), &document);
        reseal(&self.copy, file);
        let found = failed(self.instrument, &self.copy, file);
        for (pointer, name) in some {
            let named = if by_name {
                // An empty list is named by what stands in it now.
                found.iter().any(|(id, _)| id.starts_with(name))
            } else {
                // What others are computed from is named by itself or by what became another.
                !found.is_empty()
            };
            assert!(named, "{file}{pointer}: {name} is not named in {found:#?}");
        }
        self.altered += some.len();
        self.alone += usize::from(some.len() == 1);
        self.mend(file);
    }

    /// Alters every leaf of a document that nothing else is computed from.
    fn derived(&mut self, file: &str, id: &str) {
        let mut all = Vec::new();
        leaves(&common::json(&self.sealed.join(file)), "", id, &mut all);
        assert!(!all.is_empty(), "{file} is empty");
        for some in all.chunks(AT_ONCE) {
            self.alter(file, some, true);
        }
        for one in all.iter().step_by((all.len() / ALONE).max(1)) {
            self.alter(file, std::slice::from_ref(one), true);
        }
    }

    /// Alters every leaf of a document from which the rest is computed, one by one. Those that only
    /// its hash holds are left out: they end in one of these.
    fn source(&mut self, file: &str, id: &str, only_hashed: &[&str]) {
        let mut all = Vec::new();
        leaves(&common::json(&self.sealed.join(file)), "", id, &mut all);
        all.retain(|(_, name)| !only_hashed.iter().any(|end| name.ends_with(end)));
        for one in &all {
            self.alter(file, std::slice::from_ref(one), false);
        }
    }

    /// Flips bits of a file, with its old hash and with a new one.
    fn flips(&self, file: &str) {
        let bytes = std::fs::read(self.sealed.join(file)).unwrap();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes.len() as u64;
        for _ in 0..FLIPS {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let mut other = bytes.clone();
            let at = usize::try_from(seed).unwrap() % other.len();
            other[at] ^= 1 << (seed >> 60 & 7);
            std::fs::write(self.copy.join(file), other).unwrap();
            let what = format!("byte {at} of {file}");
            let found = failed(self.instrument, &self.copy, &what);
            let id = format!("sha256 {file}");
            assert!(
                found.iter().any(|(found, _)| *found == id),
                "{what}: {found:#?}"
            );
            // With its hash made anew it is read, whatever it is now.
            reseal(&self.copy, file);
            failed(self.instrument, &self.copy, &what);
            self.mend(file);
        }
        let cut = &bytes[..bytes.len() / 2];
        std::fs::write(self.copy.join(file), cut).unwrap();
        reseal(&self.copy, file);
        failed(self.instrument, &self.copy, &format!("half of {file}"));
        self.mend(file);
    }

    /// Texts that differ in a byte, but in no figure.
    fn other_text(&self, file: &str, id: &str) {
        let path = self.copy.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("{\n", "{ \n", 1)).unwrap();
        reseal(&self.copy, file);
        let found = failed(self.instrument, &self.copy, file);
        let named = found.iter().any(|(found, at)| found == id && at == file);
        assert!(named, "a space in {file}: {found:#?}");
        self.mend(file);
    }
}

#[test]
fn every_altered_leaf_of_a_campaign_is_found() {
    let turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("forged", free_port())
        .process_fault("process-kill", "signal = \"KILL\"\nprocess = \"api\"");
    campaign.phases = ["1s", "3s", "5s", "1s"];
    let finished = common::run(&instrument, &campaign);
    drop(turn);
    let results = finished.results();
    let mut forger = Forger::new(&instrument, &results);
    for (file, id) in [
        ("report.json", "campaign.report"),
        ("analysis.json", "campaign.analysis"),
        ("run-1/report.json", "run-1.report"),
        ("run-1/analysis.json", "run-1.analysis"),
        ("run-1/findings.json", "run-1.findings"),
        ("run-1/boundaries.json", "run-1.boundaries"),
    ] {
        forger.derived(file, id);
        forger.other_text(file, id);
    }
    // The command's program and its folder are the machine's, and nothing else names them.
    forger.source("plan.json", "plan", &["command[0]", ".cwd"]);
    forger.source("manifest.json", "manifest", &[]);
    println!(
        "{} leaves altered, {} of them alone",
        forger.altered, forger.alone
    );
    for file in [
        "run-1/requests.parquet",
        "run-1/gaps.hlog.zst",
        "run-1/metrics.parquet",
        "run-1/events.jsonl",
        "run-1/server-r0.log",
        "report.html",
        "campaign.toml",
        "host.json",
    ] {
        forger.flips(file);
    }
    // A page that says something else, a run that nobody planned, a key that stands there twice.
    let page = std::fs::read_to_string(results.join("report.html")).unwrap();
    std::fs::write(
        forger.copy.join("report.html"),
        page.replacen("run", "ruN", 1),
    )
    .unwrap();
    reseal(&forger.copy, "report.html");
    let found = failed(&instrument, &forger.copy, "report.html");
    assert!(
        found.iter().any(|(id, _)| id == "report.html"),
        "{found:#?}"
    );
    forger.mend("report.html");
    std::fs::remove_file(forger.copy.join("manifest.json")).unwrap();
    let found = failed(&instrument, &forger.copy, "no manifest");
    assert!(found.iter().any(|(id, _)| id == "manifest"), "{found:#?}");
    forger.mend("manifest.json");
    std::fs::create_dir(forger.copy.join("run-9")).unwrap();
    let found = failed(&instrument, &forger.copy, "a stray folder");
    assert!(found.iter().any(|(id, _)| id == "run-9"), "{found:#?}");

    requirements(&instrument, &results);
}

/// `--require` of figures that were recomputed.
fn requirements(instrument: &Instrument, results: &Path) {
    let path = results.to_str().unwrap();
    let report = common::json(&results.join("report.json"));
    let endpoints = report["campaign"]["endpoints"].as_array().unwrap();
    let outage = endpoints.iter().find(|e| e["name"] == "outage_s").unwrap();
    let median = outage["summary"]["median"].as_f64().unwrap();
    let generous = format!("outage_s.median <= {}", median + 100.0);
    let met = instrument.run(["verify", path, "--require", &generous]);
    met.expect_code(0);
    assert!(
        met.stderr.contains(&format!("require {generous}: met, ")),
        "{}",
        met.stderr
    );
    let both = [
        "verify",
        path,
        "--require",
        &generous,
        "--require",
        "outage_s.median <= 0",
    ];
    let not = instrument.run(both);
    not.expect_code(6);
    assert!(
        not.stderr
            .contains("require outage_s.median <= 0: not met, "),
        "{}",
        not.stderr
    );
    // One replica has no survivors: not measured, in either direction.
    for text in [
        "survivor_p95_ms.median <= 1e9",
        "survivor_p95_ms.median > 0",
    ] {
        let not = instrument.run(["verify", path, "--require", text]);
        not.expect_code(6);
        assert!(not.stderr.contains("not measured"), "{}", not.stderr);
    }
    let unknown = instrument.run(["verify", path, "--require", "outages_s.median <= 0"]);
    unknown.expect_code(3);
    assert!(
        unknown.stderr.contains("outage_s.median"),
        "{}",
        unknown.stderr
    );
    // What is invalid is not also an objective that was missed.
    let copy = instrument.path("invalid");
    copy_folder(results, &copy);
    std::fs::write(copy.join("campaign.toml"), "").unwrap();
    let invalid = [
        "verify",
        copy.to_str().unwrap(),
        "--require",
        "outage_s.median <= 0",
    ];
    instrument.run(invalid).expect_code(2);
    let file = instrument.path("campaign.toml");
    let file = file.to_str().unwrap();
    // Before anything starts.
    let unknown = instrument.run(["run", file, "--require", "ttr.median <= 0"]);
    unknown.expect_code(3);
    instrument
        .run(["run", file, "--require", "ttr ="])
        .expect_code(3);
}

/// Forges the folder of a load.
fn forge_load(instrument: &Instrument, folder: &Path) {
    let mut forger = Forger::new(instrument, folder);
    // The summary says where the records lay, which a copy cannot know.
    forger.source("summary.json", "summary", &[".out"]);
    forger.source("manifest.json", "manifest", &[]);
    forger.other_text("summary.json", "summary");
    for name in ["seed", "schedule_sha256"] {
        forger.alter("load.json", &[(format!("/{name}"), name.to_owned())], false);
    }
    for file in [
        "requests.parquet",
        "gaps.hlog.zst",
        "gaps.parquet",
        "events.jsonl",
        "load.json",
    ] {
        forger.flips(file);
    }
    println!("{} leaves of {} altered", forger.altered, folder.display());
    let journal = forger.copy.join("requests.journal");
    std::fs::write(&journal, [0x5a; 3_000]).unwrap();
    let found = failed(instrument, &forger.copy, "a journal");
    assert!(
        found.iter().any(|(_, at)| at == "requests.journal"),
        "{found:#?}"
    );
}

#[test]
fn every_altered_leaf_of_a_load_and_of_a_merged_one_is_found() {
    let turn = common::turn();
    let instrument = common::instrument();
    let port = free_port();
    let text = port.to_string();
    let mut mock = instrument.start(["mock", "--port", &text, "--startup-scale", "0"]);
    mock.wait_while_it_runs("an open port", || {
        TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
    });
    let url = format!("http://127.0.0.1:{port}");
    let load = |more: &[&str]| {
        let args = [
            "load",
            "--url",
            &url,
            "--rate",
            "20",
            "--duration",
            "2s",
            "--max-tokens",
            "8",
        ];
        let also = ["--no-canary", "--no-real-time"];
        instrument.run(args.iter().chain(&also).chain(more))
    };
    load(&["--out", "alone", "--every-gap"]).expect_code(0);
    let missed = load(&["--require", "e2e_ms.max <= 0", "--require", "scheduled > 0"]);
    missed.expect_code(6);
    for says in ["e2e_ms.max <= 0: not met, ", "scheduled > 0: met, "] {
        assert!(missed.stderr.contains(says), "{}", missed.stderr);
    }
    let unknown = load(&["--require", "ttft_ms.p98 <= 0"]);
    unknown.expect_code(3);
    assert!(unknown.stderr.contains("ttft_ms.p99"), "{}", unknown.stderr);
    let start = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        + 6;
    let start = start.to_string();
    let parts: Vec<_> = ["0/2", "1/2"]
        .iter()
        .map(|shard| {
            let args = [
                "load",
                "--url",
                &url,
                "--rate",
                "20",
                "--duration",
                "2s",
                "--max-tokens",
                "8",
            ];
            let also = [
                "--no-canary",
                "--every-gap",
                "--no-real-time",
                "--start-at",
                &start,
            ];
            let out = format!("part-{}", &shard[..1]);
            let own = ["--shard", shard, "--out", &out];
            instrument.start(args.iter().chain(&also).chain(&own))
        })
        .collect();
    for part in parts {
        part.finish().expect_code(0);
    }
    drop(mock);
    drop(turn);
    instrument
        .run(["merge", "part-0", "part-1", "--out", "merged"])
        .expect_code(0);
    forge_load(&instrument, &instrument.path("alone"));
    forge_load(&instrument, &instrument.path("merged"));
    // A part that was altered is not merged, and not summed up again.
    let summary = instrument.path("part-1").join("events.jsonl");
    let mut text = std::fs::read_to_string(&summary).unwrap();
    text.push('\n');
    std::fs::write(&summary, text).unwrap();
    for args in [
        &["merge", "part-0", "part-1", "--out", "again"][..],
        &["analyze", "part-1"],
    ] {
        let refused = instrument.run(args);
        refused.expect_code(2);
        assert!(
            refused.stderr.contains("events.jsonl was changed"),
            "{}",
            refused.stderr
        );
    }
}
