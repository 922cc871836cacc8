//! What somebody tried in order to break the program, and what it must do instead.
#![allow(clippy::unwrap_used)] // a test's own helpers may panic

mod common;

use std::fs;
use std::process::{Command, Stdio};

use blackstart_testkit::{CampaignText, free_port};
use rustix::process::Signal;

fn mkfifo(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A pipe would block for ever and a device never end: both are refused before they are read.
#[test]
fn what_is_no_regular_file_is_refused() {
    let instrument = common::instrument();
    let pipe = instrument.path("pipe");
    mkfifo(&pipe);
    for path in ["/dev/zero", pipe.to_str().unwrap()] {
        for (command, code) in [("run", 3), ("verify", 3)] {
            let finished = instrument.run([command, path]);
            finished.expect_code(code);
            assert!(
                finished.stderr.contains("not a regular file"),
                "{}",
                finished.stderr
            );
        }
    }
    // In a plugin folder it must not hide the others.
    let folder = instrument.path("plugins");
    fs::create_dir(&folder).unwrap();
    mkfifo(&folder.join("x.wasm"));
    let finished = instrument.run(["plugin", "list", "--plugin-dir", folder.to_str().unwrap()]);
    finished.expect_code(0);
    assert!(
        finished.stderr.contains("not a plain file"),
        "{}",
        finished.stderr
    );
}

/// A reader that has seen enough is no error; a full disk is one.
#[test]
fn standard_output_may_close_or_fill_up() {
    let instrument = common::instrument();
    let mut closed = instrument
        .command(["demo", "--print-config"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(closed.stdout.take());
    assert_eq!(closed.wait().unwrap().code(), Some(0));
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = instrument
        .command(["demo", "--print-config"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: No space left"));
}

/// Ctrl-C before the first request: undone, sealed as partial, exit code 130.
#[test]
fn an_interrupt_while_the_server_starts_is_an_orderly_end() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("early", free_port());
    campaign.mock = vec!["--startup-scale".into(), "20".into()];
    let mut running = instrument.start(common::arguments(&instrument, &campaign));
    running.wait_for_stderr("starting   r0");
    running.signal(Signal::INT);
    let finished = running.finish();
    finished.expect_code(130);
    instrument.expect_nothing_left(common::GONE_WITHIN);
    let results = common::only_results(&instrument);
    assert_eq!(
        common::json(&results.join("manifest.json"))["partial"],
        true
    );
    assert!(results.join("report.html").exists());
}

/// A server that dies at every start is not started until the start timeout either.
#[test]
fn a_server_that_dies_at_every_start_is_given_up() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("again", free_port());
    campaign.restart = "always";
    campaign.mock = vec!["--no-such-option".into()];
    let finished = common::run(&instrument, &campaign);
    finished.expect_code(5);
    for words in [
        "ended with exit code 3 before it answered, and so did each of its 4 starts",
        "its last line was:",
    ] {
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
    instrument.expect_nothing_left(common::GONE_WITHIN);
}

/// A server that ended for good is not waited for until the start timeout.
#[test]
fn a_server_that_ends_at_once_is_named_with_its_last_words() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("boom", free_port());
    campaign.restart = "no";
    campaign.mock = vec!["--no-such-option".into()];
    let finished = common::run(&instrument, &campaign);
    finished.expect_code(5);
    assert!(
        finished
            .stderr
            .contains("ended with exit code 3 before it answered"),
        "{}",
        finished.stderr
    );
    assert!(
        finished.stderr.contains("its last line was:"),
        "{}",
        finished.stderr
    );
}

/// A second instrument on the same address would make both campaigns look at each other's load.
#[test]
fn two_instruments_do_not_measure_one_address() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("first", free_port());
    campaign.mock = vec!["--startup-scale".into(), "20".into()];
    let mut first = instrument.start(common::arguments(&instrument, &campaign));
    first.wait_for_stderr("starting   r0");
    let second = instrument.run(common::arguments(&instrument, &campaign));
    second.expect_code(5);
    assert!(
        second
            .stderr
            .contains("another instrument on this host is measuring"),
        "{}",
        second.stderr
    );
    // By another name it is the same server, and a campaign that looks only on is a load too.
    let file = instrument.path("campaign.toml");
    let same = format!("http://127.0.0.1:{}", campaign.port);
    let alias = format!("http://localhost:{}", campaign.port);
    fs::write(&file, campaign.text().replace(&same, &alias)).unwrap();
    let third = instrument.run(["run", file.to_str().unwrap()]);
    third.expect_code(5);
    let says = format!("another instrument on this host is measuring {alias}");
    assert!(third.stderr.contains(&says), "{}", third.stderr);
    first.signal(Signal::TERM);
    first.finish().expect_code(130);
    instrument.expect_nothing_left(common::GONE_WITHIN);
}

/// Analysing altered records would give them a fresh seal; links lead out of the directory.
#[test]
fn sealed_records_stay_sealed_and_links_are_not_followed() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("sealed", free_port());
    campaign.phases = ["1s", "4s", "3s", "1s"];
    let finished = common::run(&instrument, &campaign);
    finished.expect_code(0);
    let results = finished.results();
    let dir = results.to_str().unwrap();

    // Derived files may be anything: they are replaced, links and left-over parts too.
    let outside = instrument.path("outside");
    for name in ["report.html", "analysis.json.part"] {
        let _ = fs::remove_file(results.join(name));
        std::os::unix::fs::symlink(&outside, results.join(name)).unwrap();
    }
    fs::write(results.join("run-1/boundaries.json"), "no JSON").unwrap();
    instrument.run(["analyze", dir]).expect_code(0);
    assert!(!outside.exists(), "an analysis wrote through a link");
    instrument.run(["verify", dir]).expect_code(0);

    // Raw ones must be those that were sealed.
    let gaps = results.join("run-1/gaps.hlog.zst");
    let kept = fs::read(&gaps).unwrap();
    fs::remove_file(&gaps).unwrap();
    let refused = instrument.run(["analyze", dir]);
    refused.expect_code(2);
    assert!(
        refused.stderr.contains("run-1/gaps.hlog.zst is missing"),
        "{}",
        refused.stderr
    );
    fs::write(&gaps, kept).unwrap();

    // Records that cannot be read are findings of `verify`, beside every hash.
    let requests = results.join("run-1/requests.parquet");
    fs::write(&requests, b"PAR1").unwrap();
    let verified = instrument.run(["verify", dir]);
    verified.expect_code(2);
    assert!(
        verified.stdout.contains("✗ sha256 run-1/requests.parquet"),
        "{}",
        verified.stdout
    );
    assert!(
        verified.stdout.contains("✗ run-1.records"),
        "{}",
        verified.stdout
    );
}

/// A plan is somebody's file too.
#[test]
fn a_plan_with_impossible_numbers_is_refused() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("plan", free_port());
    campaign.phases = ["1s", "4s", "2s", "1s"];
    let results = common::run(&instrument, &campaign).results();
    fs::remove_file(results.join("manifest.json")).unwrap();
    let path = results.join("plan.json");
    let mut plan = common::json(&path);
    plan["method"]["recovery"]["bucket_ns"] = i64::MAX.into();
    fs::write(&path, plan.to_string()).unwrap();
    let finished = instrument.run(["analyze", results.to_str().unwrap()]);
    finished.expect_code(1);
    assert!(finished.stderr.contains("bucket_ns"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}
