//! The dead-man's switch: at its deadline, at the farewell, and when the instrument is killed.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use blackstart_clock::monotonic_ns;
use blackstart_effects::watchdog::{JournalStep, Undo};
use blackstart_effects::{HttpRequest, Signal, Watchdog};
use blackstart_targets::ProcessRef;
use support::*;

const HOUR_NS: i64 = 3_600_000_000_000;

fn frozen() -> (Child, ProcessRef) {
    let victim = Child::run(&["sleep", "1000"]);
    let held = ProcessRef::open(victim.pid()).expect("lives");
    held.send(Signal::Stop).expect("stopped");
    until("frozen", || victim.state() == 'T');
    (victim, held)
}

fn cont(held: &ProcessRef) -> Undo {
    Undo::Cont {
        pid: held.pid(),
        start_time: held.start_time(),
    }
}

fn spawn(dir: &tempfile::TempDir) -> Watchdog {
    Watchdog::spawn(&helper("__watchdog"), &dir.path().join("undo.jsonl")).expect("watchdog")
}

#[test]
fn a_deadline_that_passes_is_undone_and_others_wait() {
    let dir = tempfile::tempdir().expect("dir");
    let (late, held_late) = frozen();
    let (early, held_early) = frozen();
    let watchdog = spawn(&dir);
    watchdog
        .register("late", monotonic_ns() + HOUR_NS, cont(&held_late))
        .expect("registered");
    watchdog
        .register("early", monotonic_ns() + 50_000_000, cont(&held_early))
        .expect("registered");
    until("early undone", || early.state() != 'T');
    assert_eq!(late.state(), 'T');
    watchdog.check().expect("still answers");
    // An instrument so late that it begins the effect only now.
    held_early.send(Signal::Stop).expect("stopped");
    until("early frozen again", || early.state() == 'T');
    // The farewell undoes what is left, and what nobody has said to be over.
    drop(watchdog);
    assert_ne!(late.state(), 'T');
    assert_ne!(early.state(), 'T');
    let undone: Vec<(String, String, Option<String>)> = journal(dir.path())
        .into_iter()
        .filter_map(|j| match j {
            JournalStep::Undone {
                key,
                because,
                error,
                state_after,
                ..
            } => {
                assert_ne!(state_after.as_deref(), Some("T"));
                Some((key, because, error))
            }
            _ => None,
        })
        .collect();
    let expected = [
        ("early", "deadline passed"),
        ("late", "left at the farewell"),
        ("early", "left at the farewell"),
    ];
    assert_eq!(
        undone,
        expected.map(|(k, b)| (k.to_owned(), b.to_owned(), None))
    );
    assert!(matches!(
        journal(dir.path()).last(),
        Some(JournalStep::Closed)
    ));
}

#[test]
fn an_end_that_has_passed_is_not_registered() {
    let dir = tempfile::tempdir().expect("dir");
    let (victim, held) = frozen();
    let watchdog = spawn(&dir);
    let error = watchdog
        .register("past", monotonic_ns() - 1, cont(&held))
        .expect_err("refused");
    assert!(error.to_string().contains("has passed"), "{error}");
    drop(watchdog);
    assert_eq!(victim.state(), 'T');
}

#[test]
fn done_is_forgotten_and_another_process_with_the_pid_is_left_alone() {
    let dir = tempfile::tempdir().expect("dir");
    let (done, held) = frozen();
    let (stranger, held_stranger) = frozen();
    let watchdog = spawn(&dir);
    let soon = monotonic_ns() + 10_000_000;
    watchdog
        .register("done", monotonic_ns() + HOUR_NS, cont(&held))
        .expect("registered");
    watchdog.done("done").expect("done");
    watchdog.done("never heard of").expect("harmless");
    let reused = Undo::Cont {
        pid: stranger.pid(),
        start_time: held_stranger.start_time() + 1,
    };
    watchdog
        .register("reused", soon, reused)
        .expect("registered");
    until("reused looked at", || {
        journal(dir.path()).iter().any(|j| {
            matches!(j, JournalStep::Undone { key, state_after: Some(s), .. }
                if key == "reused" && s == "gone")
        })
    });
    drop(watchdog);
    assert_eq!(done.state(), 'T');
    assert_eq!(stranger.state(), 'T');
}

#[test]
fn a_request_is_undone_too() {
    let dir = tempfile::tempdir().expect("dir");
    let server = Server::start(|_| OK);
    let watchdog = spawn(&dir);
    let undo = HttpRequest {
        headers: vec![("authorization".to_owned(), "Bearer very-secret".to_owned())],
        body: b"none".to_vec(),
        ..HttpRequest::post(&format!("{}/fault", server.url))
    };
    watchdog
        .register("request", monotonic_ns() + HOUR_NS, Undo::Http(undo))
        .expect("registered");
    drop(watchdog);
    assert_eq!(server.got(), ["POST /fault none"]);
    let text = std::fs::read_to_string(dir.path().join("undo.jsonl")).expect("journal");
    assert!(text.contains("\"state_after\":\"200\""), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn one_that_cannot_start_is_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let mut nowhere = helper("__watchdog");
    nowhere.program = "/no/such/program".into();
    let Err(error) = Watchdog::spawn(&nowhere, &dir.path().join("undo.jsonl")) else {
        panic!("started");
    };
    assert!(error.to_string().contains("/no/such/program"), "{error}");
    let journal = std::path::Path::new("/no/such/directory/undo.jsonl");
    let Err(error) = Watchdog::spawn(&helper("__watchdog"), journal) else {
        panic!("started");
    };
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
    // A program that is no watchdog.
    let Err(error) = Watchdog::spawn(&helper("nonsense"), &dir.path().join("undo.jsonl")) else {
        panic!("started");
    };
    assert!(
        error.to_string().contains("could not be started"),
        "{error}"
    );
}

#[test]
fn one_that_died_refuses_registrations() {
    let dir = tempfile::tempdir().expect("dir");
    let (_victim, held) = frozen();
    let watchdog = spawn(&dir);
    let process = ProcessRef::open(watchdog.pid()).expect("lives");
    for harmless in [Signal::Int, Signal::Term, Signal::Hup] {
        process.send(harmless).expect("sent");
    }
    watchdog.check().expect("deaf to these");
    process.send(Signal::Kill).expect("killed");
    until("dead", || process.has_ended());
    let error = watchdog
        .register("x", monotonic_ns() + HOUR_NS, cont(&held))
        .expect_err("refused");
    assert!(error.to_string().contains("does not answer"), "{error}");
    assert!(watchdog.check().is_err());
}

/// The instrument is killed at several moments around its fire: the frozen server goes on, the
/// supervised server is gone, and so are all helpers.
#[test]
fn sigkill_of_the_instrument_leaves_nothing_undone_and_nothing_running() {
    for delay_ms in [None, Some(0), Some(15), Some(45), Some(80)] {
        let dir = tempfile::tempdir().expect("dir");
        let nap = unique_sleep();
        let victim = Child::run(&["sleep", "1000"]);
        let bystander = Child::run(&["sleep", "1000"]);
        let plan = target_plan(vec![
            running("r0", victim.pid()),
            supervised("r1", &format!("sleep {nap} & setsid sleep {nap} & wait")),
        ]);
        let json = serde_json::to_vec(&plan).expect("json");
        std::fs::write(dir.path().join("plan.json"), json).expect("written");
        let mut instrument = Child(
            Command::new(program())
                .arg("instrument")
                .arg(dir.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("instrument"),
        );
        let stdin = instrument.0.stdin.take();
        let mut out = BufReader::new(instrument.0.stdout.take().expect("stdout"));
        let wanted = if delay_ms.is_some() {
            "\"step\":\"scheduled\""
        } else {
            "\"step\":\"started\",\"action\""
        };
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert!(out.read_line(&mut line).expect("line") > 0, "no {wanted}");
        }
        if let Some(ms) = delay_ms {
            std::thread::sleep(std::time::Duration::from_millis(ms));
        } else {
            until("frozen", || victim.state() == 'T');
        }
        let helpers: Vec<ProcessRef> = blackstart_targets::proc::snapshot()
            .expect("proc")
            .descendants(instrument.pid())
            .into_iter()
            .filter_map(|s| ProcessRef::open_same(s.pid, s.start_time).ok())
            .collect();
        assert!(helpers.len() >= 3, "watchdog, supervisor, server");
        instrument.0.kill().expect("killed");
        instrument.0.wait().expect("reaped");
        until("all below it gone", || {
            helpers.iter().all(ProcessRef::has_ended) && with_text(&nap).is_empty()
        });
        // Continued a moment ago, it may still be on its way back to sleep.
        until("victim goes on", || victim.state() == 'S');
        assert_eq!(bystander.state(), 'S');
        let steps = journal(dir.path());
        assert!(
            matches!(steps.last(), Some(JournalStep::Closed)),
            "{steps:?}"
        );
        if delay_ms.is_none() {
            assert!(
                steps.iter().any(|j| matches!(
                    j,
                    JournalStep::Undone { because, error: None, state_after: Some(s), .. }
                        if because == "instrument died" && s != "T"
                )),
                "{steps:?}"
            );
        }
        drop(stdin);
    }
}

/// The frozen victim is itself supervised: freezing must not keep its tree from being removed.
#[test]
fn a_frozen_supervised_server_is_gone_too() {
    let dir = tempfile::tempdir().expect("dir");
    let nap = unique_sleep();
    let plan = target_plan(vec![supervised("r0", &format!("sleep {nap} & wait"))]);
    let json = serde_json::to_vec(&plan).expect("json");
    std::fs::write(dir.path().join("plan.json"), json).expect("written");
    let mut instrument = Child(
        Command::new(program())
            .arg("instrument")
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("instrument"),
    );
    let _stdin = instrument.0.stdin.take();
    let mut out = BufReader::new(instrument.0.stdout.take().expect("stdout"));
    let mut line = String::new();
    while !line.contains("\"step\":\"started\",\"action\"") {
        line.clear();
        assert!(out.read_line(&mut line).expect("line") > 0, "never fired");
    }
    until("frozen", || {
        with_text(&nap).iter().any(|p| state(*p) == 'T')
    });
    instrument.0.kill().expect("killed");
    until("gone", || with_text(&nap).is_empty());
}
