//! Whole campaigns: what a results directory holds, what each fault leaves in it, and that no altered figure passes.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use blackstart_record::{ErrorClass, EventKind, Outcome, ReplicaStep};
use blackstart_testkit::{CampaignText, Instrument, free_port};
use serde_json::{Value, json};

fn kill(process: &str) -> CampaignText {
    CampaignText::new("kill", free_port()).process_fault(
        "process-kill",
        &format!("signal = \"KILL\"\nprocess = \"{process}\""),
    )
}

/// Every file of a campaign of two runs.
const CAMPAIGN_FILES: [&str; 6] = [
    "manifest.json",
    "plan.json",
    "campaign.toml",
    "analysis.json",
    "report.json",
    "report.html",
];
const RUN_FILES: [&str; 8] = [
    "requests.parquet",
    "gaps.hlog.zst",
    "events.jsonl",
    "server-r0.log",
    "metrics.parquet",
    "analysis.json",
    "findings.json",
    "report.json",
];

#[test]
fn a_campaign_leaves_results_that_prove_themselves() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = kill("api");
    campaign.negative_control = true;
    let finished = common::run(&instrument, &campaign);
    finished.expect_code(0);
    let results = finished.results();
    assert_eq!(
        finished.stdout.lines().count(),
        1,
        "stdout: {}",
        finished.stdout
    );

    layout(&instrument, &results);
    faulted_run(&results);
    negative_control(&results);
    for said in [
        // A control is no fault that could not be proven.
        "fault    withheld (negative control): no effect was executed",
        // Each figure of a gate beside its limit, and a figure beside its uncertainty.
        "client.undispatched 0 ≤ 0",
        "(loosened: the method's limit is 5000 µs)",
        " ± 1 s",
        " in flight at the fire, ",
    ] {
        assert!(
            finished.stderr.contains(said),
            "{said}: {}",
            finished.stderr
        );
    }
    assert!(
        !finished.stderr.contains("NOT PROVEN"),
        "{}",
        finished.stderr
    );
    instrument
        .run(["verify", results.to_str().unwrap()])
        .expect_code(0);
    analysed_again(&instrument, &results);
    altered_records_are_not_analysed(&instrument, &results);
    flipped_bytes(&instrument, &results);
    altered_figures(&instrument, &results);
}

fn layout(instrument: &Instrument, results: &Path) {
    let mut expected: Vec<String> = CAMPAIGN_FILES.iter().map(|f| (*f).to_owned()).collect();
    for run in 1..=2 {
        expected.extend(RUN_FILES.iter().map(|f| format!("run-{run}/{f}")));
    }
    let manifest = common::json(&results.join("manifest.json"));
    for name in &expected {
        let path = results.join(name);
        let bytes = std::fs::metadata(&path)
            .unwrap_or_else(|e| panic!("{name}: {e}"))
            .len();
        assert!(bytes > 0, "{name} is empty");
        if name == "manifest.json" {
            continue;
        }
        let entry = &manifest["artifacts"][name];
        assert_eq!(entry["bytes"], bytes, "{name} in the manifest");
        assert_eq!(entry["sha256"].as_str().map(str::len), Some(64), "{name}");
    }
    assert_eq!(manifest["partial"], false);
    assert_eq!(manifest["seeds"], json!([7, 8]));
    for plugin in ["process-kill", "vllm"] {
        let identity = &manifest["plugins"][plugin];
        assert_eq!(
            identity["sha256"].as_str().map(str::len),
            Some(64),
            "{plugin}: {identity}"
        );
    }
    assert_eq!(manifest["grants"]["process-kill"]["process"], json!(["r0"]));
    let copy = std::fs::read(results.join("campaign.toml")).unwrap();
    assert_eq!(
        copy,
        std::fs::read(instrument.path("campaign.toml")).unwrap()
    );
    for name in ["plan.json", "analysis.json", "report.json", "manifest.json"] {
        assert!(
            common::json(&results.join(name))["schema_version"].is_u64(),
            "{name} names no schema_version"
        );
    }
    assert!(
        !results.join("run-1/requests.journal").exists(),
        "the journal was not sealed"
    );
}

fn faulted_run(results: &Path) {
    let analysis = common::analysis(results, 1);
    let (valid, reasons) = common::validity(results, 1);
    assert!(valid, "{reasons}");
    assert_eq!(analysis["fault"]["proof"], "happened");
    assert!(
        analysis["outage_s"].as_f64().unwrap() > 0.3,
        "shorter than the restart's delay"
    );
    // Outcomes partition what was scheduled.
    let count = |of: &str| analysis["counts"][of].as_u64().unwrap();
    assert_eq!(
        count("scheduled"),
        count("completed") + count("errored") + count("censored")
    );
    let records = common::requests(results, 1);
    assert_eq!(records.len() as u64, count("scheduled"));
    for (i, record) in records.iter().enumerate() {
        assert_eq!(record.index, i as u64);
        assert_eq!(
            record.error_class.is_some(),
            record.outcome == Outcome::Errored
        );
        assert_eq!(
            record.censor_kind.is_some(),
            record.outcome == Outcome::Censored
        );
    }
}

fn negative_control(results: &Path) {
    let analysis = common::analysis(results, 2);
    let (valid, reasons) = common::validity(results, 2);
    assert!(valid, "{reasons}");
    assert_eq!(analysis["negative_control"], true);
    assert_eq!(
        analysis["outage_s"],
        Value::Null,
        "an outage without a fault"
    );
    assert_eq!(analysis["counts"]["errored"], 0);
    assert_eq!(analysis["fault"]["effects"][0]["started_ns"], Value::Null);
    for event in common::events(results, 2) {
        match event.kind {
            EventKind::Effect(step) => assert_ne!(step.step, "started", "{step:?}"),
            EventKind::Replica(ReplicaStep::Started { restarts, .. }) => assert_eq!(restarts, 0),
            _ => {}
        }
    }
    // It feeds no figure of the campaign.
    let campaign = common::json(&results.join("analysis.json"));
    for endpoint in campaign["endpoints"].as_array().unwrap() {
        let n = endpoint["summary"]["n"].as_u64();
        assert!(n.is_none_or(|n| n <= 1), "{endpoint}");
    }
}

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

/// A fresh copy of the results.
fn copy(instrument: &Instrument, results: &Path) -> PathBuf {
    let to = instrument.path("copy");
    if to.exists() {
        std::fs::remove_dir_all(&to).unwrap();
    }
    copy_folder(results, &to);
    to
}

fn analysed_again(instrument: &Instrument, results: &Path) {
    let copy = copy(instrument, results);
    let derived = [
        "analysis.json",
        "run-1/analysis.json",
        "run-2/analysis.json",
        "run-1/findings.json",
        "run-1/boundaries.json",
        "run-1/report.json",
        "report.json",
        "plan.json",
    ];
    // Whatever is derived must not come from its own last version.
    for name in [
        "analysis.json",
        "run-1/analysis.json",
        "run-1/findings.json",
        "run-1/boundaries.json",
    ] {
        std::fs::remove_file(copy.join(name)).unwrap();
    }
    instrument
        .run(["analyze", copy.to_str().unwrap()])
        .expect_code(0);
    for name in derived {
        assert!(
            std::fs::read(results.join(name)).unwrap() == std::fs::read(copy.join(name)).unwrap(),
            "{name} differs after `analyze`"
        );
    }
    instrument
        .run(["verify", copy.to_str().unwrap()])
        .expect_code(0);
}

/// Records that are not those that were sealed get no fresh seal.
fn altered_records_are_not_analysed(instrument: &Instrument, results: &Path) {
    let copy = copy(instrument, results);
    let log = copy.join("run-1/server-r0.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend_from_slice(b"one line more\n");
    std::fs::write(&log, bytes).unwrap();
    let manifest = std::fs::read(copy.join("manifest.json")).unwrap();
    let finished = instrument.run(["analyze", copy.to_str().unwrap()]);
    finished.expect_code(2);
    assert!(
        finished.stderr.contains("run-1/server-r0.log"),
        "{}",
        finished.stderr
    );
    assert!(
        manifest == std::fs::read(copy.join("manifest.json")).unwrap(),
        "a fresh seal on altered records"
    );
}

/// `verify` must fail, and name this.
#[track_caller]
fn expect_found(instrument: &Instrument, folder: &Path, what: &str, name: &str) {
    let finished = instrument.run(["verify", folder.to_str().unwrap()]);
    let failed: Vec<&str> = finished
        .stdout
        .lines()
        .filter(|l| l.starts_with('✗'))
        .collect();
    assert_eq!(
        finished.code,
        Some(2),
        "{what}: {failed:#?}\n{}",
        finished.stderr
    );
    assert!(
        failed.iter().any(|l| l.contains(name)),
        "{what}: {name} is not named in {failed:#?}"
    );
    let finished = instrument.run(["verify", "--json", folder.to_str().unwrap()]);
    finished.expect_code(2);
    let verdict: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(verdict["ok"], false, "{what}");
}

fn flipped_bytes(instrument: &Instrument, results: &Path) {
    for name in [
        "run-1/requests.parquet",
        "run-1/gaps.hlog.zst",
        "run-1/metrics.parquet",
        "run-1/server-r0.log",
        "run-1/events.jsonl",
        "run-2/findings.json",
        "campaign.toml",
        "report.html",
        "plan.json",
        "analysis.json",
    ] {
        let copy = copy(instrument, results);
        let path = copy.join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x01;
        std::fs::write(&path, bytes).unwrap();
        expect_found(instrument, &copy, &format!("a bit of {name}"), name);
    }
    let unreadable = self::copy(instrument, results);
    std::fs::write(unreadable.join("plan.json"), "{").unwrap();
    expect_found(
        instrument,
        &unreadable,
        "a plan that is cut off",
        "plan.json",
    );
    let copy = copy(instrument, results);
    std::fs::remove_file(copy.join("run-1/metrics.parquet")).unwrap();
    std::fs::write(copy.join("run-1/stray.txt"), "not one of ours").unwrap();
    expect_found(instrument, &copy, "a missing file", "run-1/metrics.parquet");
    expect_found(instrument, &copy, "a stray file", "run-1/stray.txt");
}

/// Alters a figure and, as a forger would, the manifest's hash of its file.
fn forge(folder: &Path, name: &str, pointer: &str) {
    use sha2::{Digest, Sha256};
    let path = folder.join(name);
    let mut document = common::json(&path);
    let figure = document
        .pointer_mut(pointer)
        .unwrap_or_else(|| panic!("{name} has no {pointer}"));
    *figure = match &*figure {
        Value::Bool(b) => json!(!b),
        Value::Number(n) if n.is_u64() => json!(n.as_u64().unwrap() + 1),
        Value::Number(n) => json!(n.as_f64().unwrap() * 0.9),
        Value::String(s) => json!(format!("{s}0")),
        other => panic!("{name} {pointer} holds no figure but {other}"),
    };
    let bytes = serde_json::to_vec_pretty(&document).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let manifest_path = folder.join("manifest.json");
    let mut manifest = common::json(&manifest_path);
    manifest["artifacts"][name] = json!({
        "sha256": hex::encode(Sha256::digest(&bytes)),
        "bytes": bytes.len(),
    });
    std::fs::write(manifest_path, serde_json::to_vec(&manifest).unwrap()).unwrap();
}

fn altered_figures(instrument: &Instrument, results: &Path) {
    for (name, pointer, named) in [
        (
            "run-1/analysis.json",
            "/outage_s",
            "run-1.analysis.outage_s",
        ),
        (
            "run-1/analysis.json",
            "/in_flight_determinate/errored",
            "run-1.analysis.in_flight_determinate.errored",
        ),
        (
            "run-1/analysis.json",
            "/counts/completed",
            "run-1.analysis.counts.completed",
        ),
        (
            "run-2/analysis.json",
            "/windows/0/scheduled",
            "run-2.analysis.windows[0].scheduled",
        ),
        (
            "analysis.json",
            "/endpoints/0/summary/median",
            "campaign.analysis.endpoints[0].summary.median",
        ),
        (
            "analysis.json",
            "/valid_runs",
            "campaign.analysis.valid_runs",
        ),
        ("plan.json", "/runs/0/seed", "run-1.analysis.seed"),
        (
            "plan.json",
            "/runs/0/schedule_sha256",
            "run-1.schedule_sha256",
        ),
        ("report.json", "/campaign/per_run/0/outage_s", "outage_s"),
        ("run-1/report.json", "/run/outage_s", "outage_s"),
    ] {
        let copy = copy(instrument, results);
        forge(&copy, name, pointer);
        expect_found(
            instrument,
            &copy,
            &format!("{pointer} of {name}, with its hash"),
            named,
        );
    }
}

/// Asks for `/health` until it is told to stop; gives each answer's status with its instant.
struct HealthWatch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<(i64, u16)>>,
}

impl HealthWatch {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut answers = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if let Some(status) = health(port) {
                    answers.push((blackstart_clock::monotonic_ns(), status));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            answers
        });
        Self { stop, thread }
    }

    fn stop(self) -> Vec<(i64, u16)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn health(port: u16) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

#[test]
fn a_frozen_engine_hangs_requests_behind_a_healthy_face_and_is_undone() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let campaign = CampaignText::new("freeze", free_port())
        .process_fault("process-freeze", "duration_ms = 3000\nprocess = \"engine\"");
    let watch = HealthWatch::start(campaign.port);
    let finished = common::run(&instrument, &campaign);
    let answers = watch.stop();
    finished.expect_code(0);
    let results = finished.results();
    let analysis = common::analysis(&results, 1);
    assert_eq!(analysis["fault"]["proof"], "happened");

    let effect = &analysis["fault"]["effects"][0];
    let started = effect["started_ns"].as_i64().unwrap();
    let undone = effect["undone_ns"].as_i64().unwrap();
    assert!(
        undone >= effect["undo_planned_ns"].as_i64().unwrap(),
        "undone before its time: {effect}"
    );
    assert_eq!(effect["undone_by"], "instrument");

    let epoch = common::epoch_monotonic_ns(&results, 1);
    let during: Vec<u16> = answers
        .iter()
        .filter(|(at, _)| (started..undone).contains(&(at - epoch)))
        .map(|(_, status)| *status)
        .collect();
    assert!(
        during.len() >= 5,
        "only {} answers of /health during the freeze",
        during.len()
    );
    assert!(
        during.iter().all(|s| *s == 200),
        "/health was not 200 all along: {during:?}"
    );

    // Hung or late, never told.
    let records = common::requests(&results, 1);
    assert!(records.iter().all(|r| r.outcome != Outcome::Errored));
    let hit: Vec<_> = records
        .iter()
        .filter(|r| r.dispatched_ns.is_some_and(|t| t < undone) && r.ended_ns > started)
        .collect();
    assert!(
        hit.iter().any(|r| r.outcome == Outcome::Censored),
        "nothing hung past its timeout"
    );
    for record in &hit {
        let slow = record.observed_ns() > 1_000_000_000 || record.ended_ns < started + 500_000_000;
        assert!(
            record.outcome == Outcome::Censored
                || slow
                || record.intended_ns > undone - 1_000_000_000,
            "untouched by the freeze: {record:?}"
        );
    }
    // The same processes went on, and served again.
    let starts = common::events(&results, 1)
        .iter()
        .filter(|e| matches!(e.kind, EventKind::Replica(ReplicaStep::Started { .. })))
        .count();
    assert_eq!(starts, 1, "a freeze restarts nothing");
    let late: Vec<_> = records
        .iter()
        .filter(|r| r.intended_ns > undone + 1_500_000_000)
        .collect();
    assert!(!late.is_empty());
    assert!(
        late.iter().all(|r| r.outcome == Outcome::Completed),
        "not back after the freeze"
    );
}

#[test]
fn an_error_mode_of_the_mock_gives_its_status_and_ends() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("errors", free_port());
    let admin = free_port();
    campaign.admin_port = Some(admin);
    campaign.fault = format!(
        "[fault]\nvariant = \"mock-fault\"\nvictims = [\"r0\"]\n\n[fault.config]\nmode = \"error\"\nstatus = 503\nduration_ms = 2500\n\n[fault.grant]\nhttp = [\"http://127.0.0.1:{admin}/admin/*\"]\n"
    );
    let finished = common::run(&instrument, &campaign);
    finished.expect_code(0);
    let results = finished.results();
    let analysis = common::analysis(&results, 1);
    assert_eq!(
        analysis["fault"]["proof"], "happened",
        "{}",
        analysis["fault"]
    );
    let effect = &analysis["fault"]["effects"][0];
    let (started, undone) = (
        effect["started_ns"].as_i64().unwrap(),
        effect["undone_ns"].as_i64().unwrap(),
    );
    let slack = 100_000_000;
    let mut hit = 0;
    for record in common::requests(&results, 1) {
        let sent = record.dispatched_ns.unwrap();
        if sent > started + slack && sent < undone - slack {
            hit += 1;
            assert_eq!(
                record.error_class,
                Some(ErrorClass::HttpStatus),
                "{record:?}"
            );
            assert_eq!(record.http_status, Some(503));
        } else if sent < started - slack || sent > undone + slack {
            // Requests in flight at the fire end well: the mode is for new ones.
            assert_eq!(record.outcome, Outcome::Completed, "{record:?}");
        }
    }
    assert!(hit > 10, "only {hit} requests fell into the fault");
    assert_eq!(analysis["in_flight_loss_fraction"], 0.0);
    assert!(
        analysis["outage_s"].as_f64().unwrap() > 1.0,
        "probes were refused too"
    );
}

#[test]
fn an_engine_kill_is_told_to_clients_and_the_supervisor_restarts_an_exit_code_of_0() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let finished = common::run(&instrument, &kill("engine"));
    finished.expect_code(0);
    let results = finished.results();
    let analysis = common::analysis(&results, 1);
    assert_eq!(analysis["fault"]["proof"], "happened");
    let lost = &analysis["in_flight_determinate"];
    assert!(lost["total"].as_u64().unwrap() > 0);
    assert_eq!(lost["errored"], lost["total"], "{lost}");
    assert_eq!(
        analysis["in_flight_errored_by_class"]["in_stream_error"], lost["total"],
        "{}",
        analysis["in_flight_errored_by_class"]
    );
    let exit = &analysis["replicas"][0]["exits"][0];
    assert_eq!(
        exit["code"], 0,
        "the API process leaves in good order: {exit}"
    );
    assert_eq!(analysis["replicas"][0]["restarts_after_fire"], 1);
    assert!(analysis["outage_s"].as_f64().is_some());
}

#[test]
fn a_server_that_is_never_started_again_is_said_to_be_down_and_no_figure_is_made_up() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = kill("engine");
    // The mock leaves with code 0 when its engine is dead, as the real server does.
    campaign.restart = "on-failure";
    campaign.phases = ["1s", "4s", "5s", "1s"];
    let finished = common::run(&instrument, &campaign);
    let results = finished.results();
    let analysis = common::analysis(&results, 1);
    // The fault is proven and all was seen: the run is valid, its recovery censored.
    let (valid, reasons) = common::validity(&results, 1);
    assert!(valid, "{reasons}");
    finished.expect_code(0);
    assert_eq!(analysis["fault"]["proof"], "happened");
    let why = analysis["replicas"][0]["not_restarted"].to_string();
    assert!(
        why.contains("on-failure") || why.contains("code 0"),
        "{why}"
    );
    for figure in ["outage_s", "container_start_s", "ttr_pre_fault_s"] {
        assert_eq!(analysis[figure], Value::Null, "{figure} is made up");
    }
    assert!(
        analysis["outage_censored_at_s"].as_f64().unwrap() > 3.0,
        "{}",
        analysis["outage_censored_at_s"]
    );
    assert!(
        analysis["outage_note"]
            .as_str()
            .is_some_and(|n| !n.is_empty())
    );
    assert_eq!(
        analysis["recovery"]["pre_fault"]["status"]
            .as_str()
            .map(|s| s == "recovered"),
        Some(false)
    );
    let refused = common::requests(&results, 1)
        .iter()
        .filter(|r| r.error_class == Some(ErrorClass::Connect))
        .count();
    assert!(refused > 30, "only {refused} refused");
    assert!(finished.stderr.contains("outage"), "{}", finished.stderr);
}

#[test]
fn a_dry_run_says_what_would_happen_and_starts_nothing() {
    let instrument = common::instrument();
    let mut args = common::arguments(&instrument, &kill("api"));
    args.push("--dry-run".to_owned());
    let finished = instrument.run(&args);
    finished.expect_code(0);
    for word in [
        "5.000 s",
        "signal KILL to process api of r0",
        "seed 7",
        "departs from the method",
        "baseline",
    ] {
        assert!(
            finished.stdout.contains(word),
            "no {word:?} in\n{}",
            finished.stdout
        );
    }
    assert!(!instrument.path("results").exists());
    assert!(instrument.processes().is_empty());
}
