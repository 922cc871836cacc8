//! `simulate`: results directories that every other command takes, and checks by the seed.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

fn simulated(scenario: &str, seed: &str, code: i32) -> (blackstart_testkit::Instrument, String) {
    let instrument = common::instrument();
    let dir = instrument.path(scenario).to_string_lossy().into_owned();
    let args = ["simulate", "--scenario", scenario, "--seed", seed];
    let finished = instrument.run(args.into_iter().chain(["--out", &dir]));
    finished.expect_code(code);
    assert_eq!(finished.stdout.trim_end(), dir);
    (instrument, dir)
}

/// Boundaries that the analysis took from the log after the fire: key → run time and stamp.
fn boundaries(dir: &Path) -> BTreeMap<String, (i64, String, i64)> {
    let analysis = common::analysis(dir, 1);
    let found = analysis["decomposition"]["boundaries"].as_object().unwrap();
    found
        .iter()
        .map(|(key, b)| {
            let stamp = b["stamp"].as_str().unwrap().to_owned();
            let at = b["at_ns"].as_i64().unwrap();
            (
                key.clone(),
                (at, stamp, b["uncertainty_ns"].as_i64().unwrap()),
            )
        })
        .collect()
}

/// The planted lines after the fire: key → when each was written.
fn planted(dir: &Path) -> BTreeMap<String, i64> {
    let truth = common::json(&common::run_dir(dir, 1).join("truth.json"));
    truth["boundaries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| {
            let key = b["key"].as_str().unwrap().to_owned();
            (key, b["written_ns"].as_i64().unwrap())
        })
        .collect()
}

#[test]
fn a_simulated_directory_is_analysed_and_verified_like_any_other() {
    let (instrument, dir) = simulated("crash-of-two", "3", 0);
    let before = common::analysis(Path::new(&dir), 1);
    instrument.run(["analyze", &dir]).expect_code(0);
    assert_eq!(common::analysis(Path::new(&dir), 1), before);
    instrument.run(["verify", &dir]).expect_code(0);
    let report = std::fs::read_to_string(Path::new(&dir).join("report.html")).unwrap();
    assert!(report.contains("no server was measured"));
    // Records that were changed are not those of the seed.
    let events = common::run_dir(Path::new(&dir), 1).join("events.jsonl");
    let text = std::fs::read_to_string(&events).unwrap();
    std::fs::write(&events, text.replacen("crash-of-two", "crash", 1)).unwrap();
    instrument.run(["verify", &dir]).expect_code(2);
}

#[test]
fn a_page_says_what_its_time_to_recovery_does_not() {
    for (scenario, says) in [
        ("relapse", "Service fell again after it counted as back"),
        (
            "short-watch",
            "service seemed back then, but the load ended before that could be confirmed",
        ),
    ] {
        let (_instrument, dir) = simulated(scenario, "3", 0);
        let page = std::fs::read_to_string(Path::new(&dir).join("report.html")).unwrap();
        assert!(page.contains(says), "{scenario}");
    }
}

#[test]
fn the_matcher_finds_the_planted_lines_in_a_captured_log() {
    let (_instrument, dir) = simulated("crash", "4", 0);
    let (found, planted) = (boundaries(Path::new(&dir)), planted(Path::new(&dir)));
    assert_eq!(planted.len(), 11);
    for (key, written) in planted {
        let (at, stamp, uncertainty) = &found[&key];
        assert_eq!(stamp, "capture", "{key}");
        assert_eq!(*uncertainty, 1, "{key}");
        assert!(
            (0..=2_000_000).contains(&(at - written)),
            "{key}: {at} {written}"
        );
    }
}

#[test]
fn stamps_of_a_second_on_another_hosts_clock_hold_the_planted_lines() {
    let (_instrument, dir) = simulated("remote-clock", "4", 0);
    let (found, planted) = (boundaries(Path::new(&dir)), planted(Path::new(&dir)));
    // The last line of a start carries no stamp of its own.
    assert_eq!(planted.len(), 10);
    assert!(!found.contains_key("startup_complete"));
    for (key, written) in planted {
        let (at, stamp, uncertainty) = &found[&key];
        assert_eq!(stamp, "line", "{key}");
        assert!(*uncertainty > 1_000_000_000, "{key}: {uncertainty}");
        assert!(
            (at - written).abs() <= *uncertainty,
            "{key}: {at} {written}"
        );
    }
    let analysis = common::analysis(Path::new(&dir), 1);
    assert_eq!(analysis["fire"]["clock"], "remote");
}

#[test]
fn a_clock_that_was_not_measured_again_makes_the_run_invalid() {
    let (_instrument, dir) = simulated("clock-unmeasured", "1", 2);
    let (valid, reasons) = common::validity(Path::new(&dir), 1);
    assert!(
        !valid && reasons.contains("clock_offset_unmeasured"),
        "{reasons}"
    );
}

#[test]
fn a_check_prints_a_table_and_the_scenarios_are_listed() {
    let instrument = common::instrument();
    let check = ["simulate", "--check", "--scenario", "hang", "--seeds", "2"];
    let finished = instrument.run(check);
    finished.expect_code(0);
    assert!(
        finished.stdout.contains("| `hang` | 2 |"),
        "{}",
        finished.stdout
    );
    assert!(
        finished.stderr.contains("2 as planted, 0 not"),
        "{}",
        finished.stderr
    );
    let list = instrument.run(["simulate"]);
    list.expect_code(0);
    assert!(list.stdout.lines().any(|l| l.starts_with("flapping ")));
}

#[test]
fn mistakes_are_refused_before_anything_is_written() {
    let instrument = common::instrument();
    let full = instrument.path("full");
    std::fs::create_dir(&full).unwrap();
    instrument.write("full/mine.txt", "mine");
    let full = full.to_string_lossy().into_owned();
    for (args, says) in [
        (vec!["--scenario", "flood"], "flapping"),
        (vec!["--check", "--noise", "0.9"], "--noise"),
        (vec!["--check", "--rate", "0"], "--rate"),
        (
            vec!["--scenario", "crash", "--out", &full],
            "nothing is overwritten",
        ),
        (vec!["--write-docs", "no-such-page.md"], "no-such-page.md"),
    ] {
        let finished = instrument.run(["simulate"].into_iter().chain(args));
        finished.expect_code(3);
        assert!(finished.stderr.contains(says), "{}", finished.stderr);
    }
    let files: Vec<_> = std::fs::read_dir(&full).unwrap().collect();
    assert_eq!(files.len(), 1);
}
