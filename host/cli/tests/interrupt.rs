//! Ctrl-C, SIGTERM and SIGKILL: everything is undone, nothing is left running, and what was recorded can be read.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use blackstart_record::EventKind;
use blackstart_testkit::{CampaignText, Instrument, Running, Seen, free_port, wait_for};
use rustix::process::Signal;

/// Long enough that an undo can only be an early one.
const FREEZE: &str = "duration_ms = 60000\nprocess = \"engine\"";

fn frozen(port: u16) -> CampaignText {
    let mut campaign =
        CampaignText::new("interrupted", port).process_fault("process-freeze", FREEZE);
    campaign.phases = ["1s", "2s", "90s", "1s"];
    campaign
}

fn engine(instrument: &Instrument) -> Option<Seen> {
    instrument
        .processes()
        .into_iter()
        .find(|p| p.command.contains("VLLM::EngineCore"))
}

/// Waits until the engine stands still.
fn wait_for_freeze(instrument: &Instrument, running: &mut Running) {
    running.wait_while_it_runs("a frozen engine", || {
        engine(instrument).filter(|e| e.state == 'T')
    });
}

/// The partial results are marked so, and `analyze` reads them.
fn expect_readable(instrument: &Instrument, results: &Path) {
    let finished = instrument.run(["analyze", results.to_str().unwrap()]);
    // A campaign that was cut off is no valid one, but it is read.
    finished.expect_code(2);
    assert_eq!(
        common::json(&results.join("manifest.json"))["partial"],
        true
    );
    let run = common::run_dir(results, 1);
    assert!(
        !run.join("requests.journal").exists(),
        "the journal was not sealed"
    );
    assert!(
        !common::requests(results, 1).is_empty(),
        "no record survived"
    );
    let analysis = common::analysis(results, 1);
    assert_eq!(analysis["partial"], true, "{}", analysis["partial_note"]);
    let (valid, _) = common::validity(results, 1);
    assert!(!valid, "a run that was cut off counts as valid");
}

#[test]
fn ctrl_c_while_the_server_starts() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("interrupted", free_port());
    campaign.mock = vec!["--phase".to_owned(), "weights=120".to_owned()];
    let mut running = instrument.start(common::arguments(&instrument, &campaign));
    running.wait_for_stderr("starting   r0");
    wait_for("the engine", || engine(&instrument));
    // Meanwhile nobody else measures the same server.
    let second = instrument.run(common::arguments(&instrument, &campaign));
    second.expect_code(5);
    let says = "another instrument on this host is measuring";
    assert!(second.stderr.contains(says), "{}", second.stderr);
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    instrument.expect_nothing_left(common::GONE_WITHIN);
}

#[test]
fn ctrl_c_in_the_warm_up() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = frozen(free_port());
    campaign.phases[0] = "60s";
    let mut running = instrument.start(common::arguments(&instrument, &campaign));
    running.wait_for_stderr("warm-up");
    // Some requests of the warm-up, so that there is something to read.
    std::thread::sleep(Duration::from_secs(3));
    running.signal(Signal::INT);
    let finished = running.finish();
    finished.expect_code(130);
    instrument.expect_nothing_left(common::GONE_WITHIN);
    let results = finished.results();
    let events = common::events(&results, 1);
    let statement = events.iter().find_map(|e| match &e.kind {
        EventKind::Proof { statement, .. } => Some(statement.as_str()),
        _ => None,
    });
    let not_fired = "it was not fired: the run was interrupted before";
    assert_eq!(statement, Some(not_fired));
    let interrupted = events.into_iter().find_map(|e| match e.kind {
        EventKind::Interrupted { signal } => Some(signal),
        _ => None,
    });
    assert_eq!(interrupted.as_deref(), Some("SIGINT"));
    expect_readable(&instrument, &results);
}

#[test]
fn ctrl_c_while_an_admin_interface_hangs_says_what_is_waited_for() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = CampaignText::new("interrupted", free_port());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = format!("http://{}", silent.local_addr().unwrap());
    let (hangs, over) = (AtomicBool::new(false), AtomicBool::new(false));
    campaign.fault = format!(
        "[fault]\nvariant = \"mock-fault\"\nvictims = [\"r0\"]\n\n[fault.config]\nmode = \"error\"\nstatus = 503\nduration_ms = 2500\n\n[fault.grant]\nhttp = [\"{admin}/admin/*\"]\n"
    );
    let base = format!("base_url = \"http://127.0.0.1:{}\"", campaign.port);
    let text = campaign
        .text()
        .replace(&base, &format!("{base}\nadmin_url = \"{admin}\""));
    let file = instrument.write("campaign.toml", text);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            silent.set_nonblocking(true).unwrap();
            // Takes every request and answers none, until it is told to refuse them.
            let mut held = Vec::new();
            while !over.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = silent.accept() {
                    held.push(stream);
                    hangs.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            drop((held, silent));
        });
        let mut running = instrument.start(["run", file.to_str().unwrap(), "--out", "results"]);
        let waited = std::panic::catch_unwind(AssertUnwindSafe(|| {
            running.wait_while_it_runs("a request to the admin interface", || {
                hangs.load(Ordering::Relaxed).then_some(())
            });
            running.signal(Signal::INT);
            running.wait_for_stderr("undoing  what the fault did");
            running.wait_for_stderr(&format!("{admin}/admin/fault"));
            running.wait_for_stderr("a second Ctrl-C ends at once");
        }));
        over.store(true, Ordering::Relaxed);
        waited.unwrap();
        running.finish().expect_code(130);
    });
    instrument.expect_nothing_left(common::GONE_WITHIN);
}

#[test]
fn sigterm_while_the_victim_is_frozen() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut running = instrument.start(common::arguments(&instrument, &frozen(free_port())));
    wait_for_freeze(&instrument, &mut running);
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::TERM);
    let finished = running.finish();
    finished.expect_code(130);
    instrument.expect_nothing_left(common::GONE_WITHIN);
    let results = finished.results();
    let events = common::events(&results, 1);
    // First of all, whatever else there is to do: until then, what is armed could still fire.
    let at = |what: &dyn Fn(&EventKind) -> bool| events.iter().position(|e| what(&e.kind));
    let undone = at(&|kind| matches!(kind, EventKind::Effect(step) if step.step == "undone"));
    let after = at(&|kind| matches!(kind, EventKind::Facts { phase, .. } if phase == "after"));
    assert!(undone.is_some() && undone < after, "{undone:?} {after:?}");
    let undone: Vec<String> = events
        .into_iter()
        .filter_map(|e| match e.kind {
            EventKind::Effect(step) if step.step == "undone" => Some(step.by),
            _ => None,
        })
        .collect();
    assert_eq!(
        undone,
        ["instrument"],
        "the engine was not let go on by the instrument"
    );
    expect_readable(&instrument, &results);
}

/// An instrument that stood still past the end of its fault does not know when that was over.
#[test]
fn an_undo_by_the_watchdog_is_not_claimed_by_a_late_instrument() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut campaign = frozen(free_port());
    campaign.fault = campaign.fault.replace("60000", "2000");
    campaign.phases[2] = "6s";
    let mut running = instrument.start(common::arguments(&instrument, &campaign));
    wait_for_freeze(&instrument, &mut running);
    running.signal(Signal::STOP);
    let journal = common::only_results(&instrument).join("undo.jsonl");
    wait_for("the watchdog's undo", || {
        let text = std::fs::read_to_string(&journal).unwrap();
        text.contains("deadline passed").then_some(())
    });
    running.signal(Signal::CONT);
    let results = running.finish().results();
    instrument.expect_nothing_left(common::GONE_WITHIN);
    let undone = common::events(&results, 1)
        .into_iter()
        .find_map(|e| match e.kind {
            EventKind::Effect(step) if step.step == "undone" => Some(step),
            _ => None,
        })
        .expect("an undo is recorded");
    assert_eq!(
        (undone.before_ns, undone.after_ns),
        (None, None),
        "{undone:?}"
    );
    let detail = undone.detail.unwrap();
    assert!(
        detail.contains("the watchdog may have undone it"),
        "{detail}"
    );
}

#[test]
fn sigkill_of_the_instrument_takes_its_servers_with_it() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let mut running = instrument.start(common::arguments(&instrument, &frozen(free_port())));
    wait_for_freeze(&instrument, &mut running);
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, None);
    // Supervisors see the end of their input, the watchdog its own: nobody is told.
    instrument.expect_nothing_left(common::GONE_WITHIN);
    let results = common::only_results(&instrument);
    assert!(
        common::run_dir(&results, 1)
            .join("requests.journal")
            .exists(),
        "nothing to seal: the instrument did not die in the middle"
    );
    let journal = std::fs::read_to_string(results.join("undo.jsonl")).unwrap();
    assert!(
        journal.contains("\"undone\""),
        "the watchdog undid nothing:\n{journal}"
    );
    expect_readable(&instrument, &results);
}

#[test]
fn sigkill_of_the_instrument_lets_a_server_of_somebody_else_go_on() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let port = free_port();
    let port_text = port.to_string();
    // Started by somebody else: no supervisor of ours will remove it.
    let server = instrument.start([
        "mock",
        "--port",
        &port_text,
        "--model",
        "mock",
        "--startup-scale",
        "0.02",
    ]);
    wait_for("the server", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let text = frozen(port).text();
    let from = text.find("[target.replica.process]").unwrap();
    let to = text.find("[fault]").unwrap();
    let text = format!(
        "{}[target.replica.running]\npid = {}\n\n{}",
        &text[..from],
        server.pid(),
        &text[to..]
    );
    let file = instrument.write("campaign.toml", text);
    let mut running = instrument.start(["run", file.to_str().unwrap(), "--out", "results"]);
    wait_for_freeze(&instrument, &mut running);
    running.signal(Signal::KILL);
    running.finish();
    wait_for("an engine that goes on", || {
        engine(&instrument).filter(|e| e.state != 'T')
    });
    // Of the instrument nothing is left; the server is untouched.
    wait_for("the instrument's helpers' end", || {
        let left = instrument.processes();
        left.iter()
            .all(|p| p.pid == server.pid() || p.command.contains("VLLM::"))
            .then_some(())
    });
    let results = common::only_results(&instrument);
    let journal = std::fs::read_to_string(results.join("undo.jsonl")).unwrap();
    assert!(journal.contains("\"undone\""), "{journal}");
    expect_readable(&instrument, &results);
    server.signal(Signal::TERM);
    server.finish();
    instrument.expect_nothing_left(common::GONE_WITHIN);
}
