use blackstart_sdk::Error;
use blackstart_sdk::config::parse;
use blackstart_sdk::fault::{Fact, FaultVariant, Proof, Signal};
use blackstart_sdk::testing::{FakeHost, SECOND, arm_context, fact};

use crate::process_freeze::{Config, Fault as ProcessFreeze};

fn arm(config: &str, host: &mut FakeHost) -> Result<(ProcessFreeze, String), Error> {
    let (freeze, armed) =
        ProcessFreeze::arm(parse::<Config>(config)?, &arm_context(&["vllm-0"]), host)?;
    Ok((freeze, armed.statement))
}

fn facts(state: [&str; 3], pid: [&str; 3], start: [&str; 3]) -> Vec<Fact> {
    let of =
        |name: &str, v: [&str; 3]| fact("vllm-0", &format!("process.api.{name}"), v[0], v[1], v[2]);
    vec![of("state", state), of("pid", pid), of("start-time", start)]
}

#[test]
fn the_host_is_told_when_to_undo_it() {
    let mut host = FakeHost::default();
    let (_, statement) =
        arm(r#"{"duration_ms":1500,"process":"worker"}"#, &mut host).expect("arms");
    let sent = &host.signals[0];
    assert_eq!((sent.signal, sent.role.as_str()), (Signal::Stop, "worker"));
    assert_eq!(sent.when.at, 20 * SECOND);
    assert_eq!(sent.when.until, Some(20 * SECOND + 1_500_000_000));
    assert_eq!(
        statement,
        "SIGSTOP to the worker process of vllm-0 for 1500 ms"
    );
}

#[test]
fn the_freeze_must_end_within_the_fault_window() {
    let mut host = FakeHost::default();
    // The window of the test run is 20 s long.
    assert!(arm(r#"{"duration_ms":20000}"#, &mut host).is_ok());
    for too_long in ["20001", "3600000"] {
        let mut host = FakeHost::default();
        let result = arm(&format!(r#"{{"duration_ms":{too_long}}}"#), &mut host);
        let Err(Error::InvalidConfig(errors)) = result else {
            panic!("{too_long}")
        };
        assert_eq!(errors[0].path, "duration_ms");
        assert!(
            errors[0]
                .help
                .as_deref()
                .is_some_and(|h| h.contains("20000"))
        );
        assert!(host.signals.is_empty());
    }
    assert!(arm(r#"{"duration_ms":0}"#, &mut host).is_err());
    assert!(arm(r#"{"duration_ms":-1}"#, &mut host).is_err());
    assert!(arm(r#"{"process":"nobody"}"#, &mut host).is_err());
}

#[test]
fn a_fault_window_without_length_is_refused_not_overflowed() {
    let mut context = arm_context(&["vllm-0"]);
    context.fire_at = i64::MAX - 5;
    context.expire_at = i64::MIN;
    let result = ProcessFreeze::arm(Config::default(), &context, &mut FakeHost::default());
    assert!(matches!(result, Err(Error::InvalidConfig(_))));
}

#[test]
fn stopped_and_then_going_on_is_proven() {
    let (freeze, _) = arm("{}", &mut FakeHost::default()).expect("arms");
    for stopped in ["T", "T (stopped)"] {
        let proof = freeze.prove(&facts(["S", stopped, "S"], ["10"; 3], ["7"; 3]));
        assert!(matches!(proof, Proof::Happened(_)), "{proof:?}");
    }
}

#[test]
fn anything_else_that_was_seen_disproves_it() {
    let (freeze, _) = arm("{}", &mut FakeHost::default()).expect("arms");
    for (what, facts) in [
        ("never stopped", facts(["S", "R", "S"], ["10"; 3], ["7"; 3])),
        (
            "stopped by a debugger",
            facts(["S", "t", "S"], ["10"; 3], ["7"; 3]),
        ),
        ("never went on", facts(["S", "T", "T"], ["10"; 3], ["7"; 3])),
        (
            "died",
            facts(["S", "T", "gone"], ["10", "10", ""], ["7", "7", ""]),
        ),
        (
            "replaced",
            facts(["S", "T", "S"], ["10", "10", "11"], ["7", "7", "9"]),
        ),
        (
            "id given away",
            facts(["S", "T", "S"], ["10"; 3], ["7", "7", "9"]),
        ),
    ] {
        let proof = freeze.prove(&facts);
        assert!(matches!(proof, Proof::DidNotHappen(_)), "{what}: {proof:?}");
    }
}

#[test]
fn what_was_not_read_proves_nothing() {
    let (freeze, _) = arm("{}", &mut FakeHost::default()).expect("arms");
    for (what, facts) in [
        ("no facts", vec![]),
        ("nothing during", facts(["S", "", "S"], ["10"; 3], ["7"; 3])),
        ("nothing after", facts(["S", "T", ""], ["10"; 3], ["7"; 3])),
        (
            "no start time after",
            facts(["S", "T", "S"], ["10"; 3], ["7", "7", ""]),
        ),
        (
            "no start time before",
            facts(["S", "T", "S"], ["10"; 3], ["", "7", "7"]),
        ),
        ("no pid", facts(["S", "T", "S"], [""; 3], ["7"; 3])),
    ] {
        let proof = freeze.prove(&facts);
        assert!(matches!(proof, Proof::CannotTell(_)), "{what}: {proof:?}");
    }
}

#[test]
fn no_start_up_segment_can_occur() {
    let about = ProcessFreeze::describe();
    let keys: Vec<_> = about
        .without_segments
        .iter()
        .map(|f| f.key.as_str())
        .collect();
    assert!(keys.contains(&"weight_load") && keys.contains(&"container_start"));
    // These are measured under a freeze as well.
    for kept in ["replica_ready", "traffic_restored", "goodput_restored"] {
        assert!(!keys.contains(&kept));
    }
}
