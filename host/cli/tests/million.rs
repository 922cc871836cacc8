//! Writes a run of a million requests, so that its analysis can be measured; see `benches/README.md`.

#![allow(clippy::unwrap_used)]

#[path = "../../report/tests/common/mod.rs"]
mod synthetic;

use std::path::Path;

use blackstart_record::{
    EventWriter, RunFiles, write_gaps, write_json_atomic, write_metrics_parquet,
    write_requests_parquet,
};
use synthetic::{PINNED, Scale, Story, plan, records};

/// The pinned phases at 1000 requests per second: 1.02 million requests.
const MILLION: Scale = Scale {
    rate_per_s: 1_000.0,
    ..PINNED
};

#[test]
#[ignore = "writes 50 MB for a measurement"]
fn writes_a_run_of_a_million_requests() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("million");
    let _ = std::fs::remove_dir_all(&dir);
    let run = dir.join("run-1");
    std::fs::create_dir_all(&run).unwrap();
    let mut plan = plan(MILLION, &[Story::Recovers]);
    let records = records::records(&plan, Story::Recovers, plan.runs[0].seed);
    assert!(records.requests.len() > 1_000_000);
    plan.matcher.plugin = Some("vllm".to_owned());
    plan.runs[0].requests = records.requests.len() as u64;
    write_json_atomic(&dir.join("plan.json"), &plan).unwrap();
    let files = RunFiles::new(&run);
    write_requests_parquet(&files.requests(), &records.requests).unwrap();
    write_gaps(&files.gaps(), &records.gaps).unwrap();
    write_metrics_parquet(&files.metrics(), &records.metrics).unwrap();
    let mut events = EventWriter::create(&files.events()).unwrap();
    for event in &records.events {
        events.append(event).unwrap();
    }
    println!("{} requests in {}", records.requests.len(), dir.display());
}
