//! `analyze` of directories that are not what a run leaves behind, or on a machine that cannot judge
//! them: one clear error, and nothing is overwritten.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use blackstart_testkit::{CampaignText, Instrument, free_port};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// Every file below a folder with its bytes.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    files
}

/// The program under limits of the shell.
fn limited(instrument: &Instrument, limits: &str, args: &[&str]) -> Command {
    let plain = instrument.command(args);
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(format!("{limits}; exec \"$0\" \"$@\""))
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(plain.get_current_dir().unwrap())
        .stdin(std::process::Stdio::null());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    command
}

#[test]
fn a_campaign_that_ended_before_its_load_holds_no_run() {
    let _turn = common::turn();
    let mut campaign = CampaignText::new("early", free_port());
    campaign.restart = "no";
    let text = campaign
        .text()
        .replace("\"${blackstart}\", ", "\"/bin/false\", ");
    let instrument = common::instrument();
    let file = instrument.write("campaign.toml", &text);
    instrument
        .run(["run", file.to_str().unwrap(), "--out", "results"])
        .expect_code(5);
    let results = common::only_results(&instrument);
    let finished = instrument.run(["analyze", results.to_str().unwrap()]);
    finished.expect_code(3);
    assert!(
        finished
            .stderr
            .contains(&format!("error: {} holds no run", results.display())),
        "{}",
        finished.stderr
    );
}

#[test]
fn what_cannot_be_judged_or_was_changed_is_refused_and_nothing_is_overwritten() {
    let turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("stored", free_port());
    campaign.phases = ["0s", "2s", "2s", "0s"];
    let finished = common::run(&instrument, &campaign);
    drop(turn);
    let results = finished.results();
    let path = results.to_str().unwrap();
    let sealed = snapshot(&results);

    // A machine without the address space that a component reserves: no verdict, so no report.
    let command = limited(&instrument, "ulimit -v 3500000", &["analyze", path]);
    let starved = instrument.start_command(command).finish();
    starved.expect_code(1);
    assert!(
        starved.stderr.contains("ulimit -v") && !starved.stderr.contains("NOT OBSERVED"),
        "{}",
        starved.stderr
    );
    assert!(snapshot(&results) == sealed, "files were changed");
    let command = limited(&instrument, "ulimit -v 3500000", &["verify", path]);
    instrument.start_command(command).finish().expect_code(1);

    // Figures that no instrument wrote are told, not calculated with.
    let plan = std::fs::read_to_string(results.join("plan.json")).unwrap();
    for (figure, wild) in [
        (
            "\"baseline_ns\": 2000000000",
            "\"baseline_ns\": 9223372036854775807",
        ),
        (
            "\"fault_window_ns\": 2000000000",
            "\"fault_window_ns\": -9223372036854775808",
        ),
        ("\"rate_per_s\": 15.5", "\"rate_per_s\": 0.0"),
        ("\"rate_per_s\": 15.5", "\"rate_per_s\": 9e300"),
    ] {
        let altered = plan.replacen(figure, wild, 1);
        assert_ne!(altered, plan, "{figure}");
        std::fs::write(results.join("plan.json"), altered).unwrap();
        for command in ["verify", "analyze"] {
            let told = instrument.run([command, path]);
            told.expect_code(2);
            let said = format!("{}{}", told.stdout, told.stderr);
            assert!(
                said.contains("no instrument wrote that"),
                "{command}: {said}"
            );
        }
    }
    std::fs::write(results.join("plan.json"), &plan).unwrap();
    // The campaign file is gone, or no file.
    let config = std::fs::read(results.join("campaign.toml")).unwrap();
    std::fs::remove_file(results.join("campaign.toml")).unwrap();
    let missing = instrument.run(["verify", path]);
    missing.expect_code(2);
    assert!(
        missing.stdout.contains("campaign.toml"),
        "{}",
        missing.stdout
    );
    let _pipe = std::os::unix::net::UnixListener::bind(results.join("campaign.toml")).unwrap();
    instrument.run(["verify", path]).expect_code(2);
    std::fs::remove_file(results.join("campaign.toml")).unwrap();
    std::fs::write(results.join("campaign.toml"), config).unwrap();

    // Another version's plan.
    let newer = plan.replacen("\"schema_version\": 1", "\"schema_version\": 77", 1);
    assert_ne!(newer, plan);
    std::fs::write(results.join("plan.json"), newer).unwrap();
    let other = instrument.run(["analyze", path]);
    other.expect_code(3);
    assert!(
        other.stderr.contains("schema version 77") && other.stderr.contains("help: use blackstart"),
        "{}",
        other.stderr
    );
    std::fs::write(results.join("plan.json"), plan).unwrap();

    // A seal that cannot be read is not no seal.
    let seal = std::fs::read(results.join("manifest.json")).unwrap();
    std::fs::write(results.join("manifest.json"), &seal[..seal.len() / 2]).unwrap();
    let before = snapshot(&results);
    let broken = instrument.run(["analyze", path]);
    broken.expect_code(2);
    assert!(broken.stderr.contains("manifest.json"), "{}", broken.stderr);
    assert!(snapshot(&results) == before, "files were changed");
    std::fs::write(results.join("manifest.json"), seal).unwrap();

    // A directory that was never sealed is no place for what no run wrote.
    std::fs::remove_file(results.join("manifest.json")).unwrap();
    std::fs::create_dir(results.join("run-9")).unwrap();
    let events = results.join("run-1/events.jsonl");
    let written = std::fs::read_to_string(&events).unwrap();
    let third = written.lines().nth(2).unwrap();
    std::fs::write(&events, format!("{written}{third}\n")).unwrap();
    let before = snapshot(&results);
    let strange = instrument.run(["analyze", path]);
    strange.expect_code(2);
    let line = written.lines().count() + 1;
    for says in [
        "run-9 is no run of the plan".to_owned(),
        format!("run-1/events.jsonl: line {line} repeats line 3"),
    ] {
        assert!(strange.stderr.contains(&says), "{}", strange.stderr);
    }
    assert!(snapshot(&results) == before, "files were changed");

    // As the run left it, it is analysed, and says that it is partial.
    std::fs::write(&events, written).unwrap();
    std::fs::remove_dir(results.join("run-9")).unwrap();
    let again = instrument.run(["analyze", path]);
    again.expect_code(2);
    assert!(again.stderr.contains("partial"), "{}", again.stderr);
}

/// A report that cannot be written (as on a full disk) takes nothing from runs that are whole.
#[test]
fn a_campaign_whose_report_was_not_written_is_not_partial() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("unwritten", free_port());
    campaign.phases = ["1s", "4s", "3s", "1s"];
    let mut running = instrument.start(common::arguments(&instrument, &campaign));
    running.wait_for_stderr("warm-up");
    let results = common::only_results(&instrument);
    let in_the_way = results.join("report.html");
    std::fs::create_dir(&in_the_way).unwrap();
    let finished = running.finish();
    finished.expect_code(1);
    let help = "what was measured is recorded: mend that, then `blackstart analyze ";
    assert!(finished.stderr.contains(help), "{}", finished.stderr);
    std::fs::remove_dir(&in_the_way).unwrap();

    let path = results.to_str().unwrap();
    instrument.run(["analyze", path]).expect_code(0);
    let manifest = common::json(&results.join("manifest.json"));
    assert_eq!(manifest["partial"], false);
    instrument.run(["verify", path]).expect_code(0);
}

/// A server that was started for nothing, or an instrument that panics in the middle, is no answer
/// to a limit of the shell.
#[test]
fn too_few_open_files_are_found_before_anything_starts() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let campaign = CampaignText::new("files", free_port());
    let arguments = common::arguments(&instrument, &campaign);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let command = limited(&instrument, "ulimit -n 40", &arguments);
    let refused = instrument.start_command(command).finish();
    refused.expect_code(3);
    let says = "the limit on open files is 40; raise it";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
    assert!(!instrument.path("results").exists());
    // A limit that this user may raise is none.
    let command = limited(
        &instrument,
        "ulimit -S -n 10",
        &[&arguments[..], &["--dry-run"]].concat(),
    );
    instrument.start_command(command).finish().expect_code(0);
}

#[test]
fn a_record_that_cannot_be_written_ends_the_run_at_once_with_the_fault_undone() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("full", free_port())
        .process_fault("process-freeze", "duration_ms = 1800000\nprocess = \"api\"");
    // The fault comes early and stays; its end and that of the load lie far behind the patience of
    // this test.
    campaign.phases = ["0s", "2s", "1h", "0s"];
    let arguments = common::arguments(&instrument, &campaign);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let command = limited(&instrument, "true", &arguments);
    let mut running = instrument.start_command(command);
    running.wait_for_stderr("FAULT");
    // Its record may not grow any more, and what it tells people may: the same to a writer as a full
    // disk, without needing one. (The wrapping shell has become the program.)
    const LIMIT_BYTES: u64 = 16 << 10;
    let events = common::run_dir(&common::only_results(&instrument), 1).join("events.jsonl");
    running.wait_while_it_runs("a record of some length", || {
        (std::fs::metadata(&events).ok()?.len() > LIMIT_BYTES).then_some(())
    });
    let pid = Pid::from_raw(i32::try_from(running.pid()).unwrap());
    let limit = Rlimit {
        current: Some(LIMIT_BYTES),
        maximum: Some(LIMIT_BYTES),
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
    let finished = running.finish();
    finished.expect_code(1);
    for says in ["the record cannot be written: ", "the run ends now"] {
        assert!(finished.stderr.contains(says), "{}", finished.stderr);
    }
    assert_eq!(
        finished
            .stderr
            .lines()
            .filter(|l| l.starts_with("error"))
            .count(),
        1,
        "{}",
        finished.stderr
    );
    instrument.expect_nothing_left(common::GONE_WITHIN);
    // The freeze was in force when the record broke, and was undone.
    let undo = std::fs::read_to_string(common::only_results(&instrument).join("undo.jsonl"));
    let steps: Vec<serde_json::Value> = undo
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |wanted: &[&str]| {
        steps
            .iter()
            .filter(|s| wanted.contains(&s["step"].as_str().unwrap()))
            .count()
    };
    assert_eq!(of(&["registered"]), 1, "{steps:?}");
    assert_eq!(of(&["done", "undone"]), 1, "{steps:?}");
}
