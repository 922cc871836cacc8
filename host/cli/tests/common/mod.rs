//! A campaign from its text to its results directory, and what is in it.
#![allow(dead_code)] // Each test program uses its own part.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blackstart_record::{Event, EventKind, RequestRecord, read_events, read_requests_parquet};
use blackstart_testkit::{CampaignText, Finished, Instrument};
use serde_json::Value;

/// How long everything that a run started may take to end after it.
pub const GONE_WITHIN: Duration = Duration::from_secs(15);

/// The program under test.
pub fn instrument() -> Instrument {
    Instrument::new(env!("CARGO_BIN_EXE_blackstart"))
}

/// Waits for its turn to run a campaign; see [`blackstart_testkit::alone`].
pub fn turn() -> std::fs::File {
    blackstart_testkit::alone()
}

/// Writes the campaign file and returns arguments that run it.
pub fn arguments(instrument: &Instrument, campaign: &CampaignText) -> Vec<String> {
    let file = instrument.write("campaign.toml", campaign.text());
    let out = instrument.path("results");
    [
        "run",
        &file.to_string_lossy(),
        "--out",
        &out.to_string_lossy(),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Runs the campaign to its end; nothing may be left running.
#[track_caller]
pub fn run(instrument: &Instrument, campaign: &CampaignText) -> Finished {
    let finished = instrument.run(arguments(instrument, campaign));
    instrument.expect_nothing_left(GONE_WITHIN);
    finished
}

/// The only results directory below the instrument's folder, also of a run that printed none.
pub fn only_results(instrument: &Instrument) -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir(instrument.path("results"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// A JSON file.
pub fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Folder of a run.
pub fn run_dir(results: &Path, run: u32) -> PathBuf {
    results.join(format!("run-{run}"))
}

/// `analysis.json` of a run.
pub fn analysis(results: &Path, run: u32) -> Value {
    json(&run_dir(results, run).join("analysis.json"))
}

/// Whether the campaign counts a run, with its reasons.
pub fn validity(results: &Path, run: u32) -> (bool, String) {
    let campaign = json(&results.join("analysis.json"));
    let of = campaign["runs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["run"] == run)
        .unwrap_or_else(|| panic!("the campaign does not list run {run}"))
        .clone();
    (of["valid"].as_bool().unwrap(), of["reasons"].to_string())
}

/// The requests that a run recorded.
pub fn requests(results: &Path, run: u32) -> Vec<RequestRecord> {
    read_requests_parquet(&run_dir(results, run).join("requests.parquet")).unwrap()
}

/// The events that a run recorded.
pub fn events(results: &Path, run: u32) -> Vec<Event> {
    read_events(&run_dir(results, run).join("events.jsonl"))
        .unwrap()
        .events
}

/// `CLOCK_MONOTONIC` at a run's epoch, nanoseconds.
pub fn epoch_monotonic_ns(results: &Path, run: u32) -> i64 {
    events(results, run)
        .iter()
        .find_map(|e| match e.kind {
            EventKind::Epoch { monotonic_ns, .. } => Some(monotonic_ns),
            _ => None,
        })
        .expect("a run has an epoch")
}
