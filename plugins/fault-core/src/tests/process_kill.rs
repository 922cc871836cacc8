use blackstart_sdk::config::{parse, schema};
use blackstart_sdk::fault::{Fact, FaultVariant, Proof, Signal};
use blackstart_sdk::testing::{FakeHost, SECOND, arm_context, fact};
use blackstart_sdk::{ConfigError, Error};

use crate::process_kill::{Config, Fault as ProcessKill};

fn armed(config: &str, victims: &[&str]) -> (ProcessKill, FakeHost, String) {
    let mut host = FakeHost::default();
    let config = parse::<Config>(config).expect("a good configuration");
    let (kill, armed) =
        ProcessKill::arm(config, &arm_context(victims), &mut host).expect("it arms");
    assert_eq!(armed.victims, victims);
    (kill, host, armed.statement)
}

fn config_errors(result: Result<impl std::fmt::Debug, Error>) -> Vec<ConfigError> {
    match result {
        Err(Error::InvalidConfig(errors)) => errors,
        other => panic!("expected a configuration error, got {other:?}"),
    }
}

/// Facts about the API process: (pid, start time, state) before, during and after.
fn facts(pid: [&str; 3], start: [&str; 3], state: [&str; 3]) -> Vec<Fact> {
    let of =
        |name: &str, v: [&str; 3]| fact("vllm-0", &format!("process.api.{name}"), v[0], v[1], v[2]);
    vec![of("pid", pid), of("start-time", start), of("state", state)]
}

#[test]
fn by_default_it_kills_the_api_process_at_the_fire_instant() {
    let (_, host, statement) = armed("{}", &["vllm-0", "vllm-1"]);
    assert_eq!(host.signals.len(), 2);
    for (sent, victim) in host.signals.iter().zip(["vllm-0", "vllm-1"]) {
        assert_eq!((sent.replica.as_str(), sent.role.as_str()), (victim, "api"));
        assert_eq!(sent.signal, Signal::Kill);
        assert_eq!((sent.when.at, sent.when.until), (20 * SECOND, None));
    }
    assert_eq!(statement, "SIGKILL to the api process of vllm-0, vllm-1");
}

#[test]
fn the_configuration_chooses_signal_and_process() {
    for (name, signal) in [
        ("KILL", Signal::Kill),
        ("TERM", Signal::Term),
        ("INT", Signal::Int),
        ("HUP", Signal::Hup),
        ("ABRT", Signal::Abrt),
        ("SEGV", Signal::Segv),
    ] {
        let config = format!(r#"{{"signal":"{name}","process":"engine"}}"#);
        let (_, host, statement) = armed(&config, &["vllm-1"]);
        assert_eq!(host.signals[0].signal, signal);
        assert_eq!(host.signals[0].role, "engine");
        assert!(
            statement.starts_with(&format!("SIG{name} to the engine")),
            "{statement}"
        );
    }
}

#[test]
fn mistakes_in_the_configuration_name_their_key() {
    let errors = config_errors(parse::<Config>(r#"{"signal":"STOP"}"#));
    assert_eq!(errors[0].path, "signal");
    assert!(errors[0].message.contains("`KILL`"), "{errors:?}");
    let errors = config_errors(parse::<Config>(r#"{"sinal":"KILL"}"#));
    assert_eq!(errors[0].path, "sinal");
    let errors = config_errors(parse::<Config>(r#"{"process":""}"#));
    assert_eq!(errors[0].path, "process");
    assert!(errors[0].help.is_some());
    assert!(parse::<Config>(&format!(r#"{{"process":"{}"}}"#, "a".repeat(64))).is_ok());
    assert!(parse::<Config>(&format!(r#"{{"process":"{}"}}"#, "a".repeat(65))).is_err());
}

#[test]
fn the_schema_lists_the_signals() {
    let schema = schema::<Config>();
    for name in ["KILL", "TERM", "INT", "HUP", "ABRT", "SEGV"] {
        assert!(
            schema.contains(&format!("\"{name}\"")),
            "{name} in {schema}"
        );
    }
}

#[test]
fn nothing_is_scheduled_unless_every_victim_has_the_process() {
    let mut host = FakeHost::default();
    host.targets[1].process_roles = vec!["api".into()];
    let config = parse::<Config>(r#"{"process":"engine"}"#).expect("a good configuration");
    let result = ProcessKill::arm(config, &arm_context(&["vllm-0", "vllm-1"]), &mut host);
    let errors = config_errors(result);
    assert_eq!(errors[0].path, "process");
    assert!(errors[0].message.contains("vllm-1"));
    assert_eq!(errors[0].help.as_deref(), Some("one of: api"));
    assert!(host.signals.is_empty());
}

#[test]
fn unknown_or_absent_victims_and_refusals_stop_the_arming() {
    let arm = |victims: &[&str], host: &mut FakeHost| {
        ProcessKill::arm(Config::default(), &arm_context(victims), host)
    };
    let mut host = FakeHost::default();
    assert!(matches!(arm(&[], &mut host), Err(Error::Other(_))));
    assert!(matches!(
        arm(&["vllm-9"], &mut host),
        Err(Error::Unsupported(_))
    ));
    assert!(host.signals.is_empty());
    host.refuse = Some(Error::Denied("no grant".into()));
    assert!(matches!(arm(&["vllm-0"], &mut host), Err(Error::Denied(_))));
}

#[test]
fn a_new_process_proves_the_kill() {
    let (kill, ..) = armed("{}", &["vllm-0"]);
    // Not yet back during, back after.
    let proof = kill.prove(&facts(["10", "", "20"], ["100", "", "200"], ["S", "", "S"]));
    let Proof::Happened(why) = proof else {
        panic!("{proof:?}")
    };
    assert!(
        why.contains("process 10") && why.contains("process 20"),
        "{why}"
    );
    // The same id, given to a later process.
    let proof = kill.prove(&facts(["10", "10", "10"], ["100", "200", "200"], ["S"; 3]));
    assert!(matches!(proof, Proof::Happened(_)), "{proof:?}");
    // Drained by SIGTERM: still there during, another one after.
    let proof = kill.prove(&facts(["10", "10", "11"], ["100", "100", "300"], ["S"; 3]));
    assert!(matches!(proof, Proof::Happened(_)), "{proof:?}");
}

#[test]
fn a_process_that_is_gone_proves_the_kill() {
    let (kill, ..) = armed("{}", &["vllm-0"]);
    for state in ["gone", "Z", "Z (zombie)", "X"] {
        let proof = kill.prove(&facts(["10", "", ""], ["100", "", ""], ["S", state, state]));
        assert!(matches!(proof, Proof::Happened(_)), "{state}: {proof:?}");
    }
    let proof = kill.prove(&facts(["10", "10", "10"], ["100"; 3], ["S", "S", "Z"]));
    assert!(matches!(proof, Proof::Happened(_)), "{proof:?}");
}

#[test]
fn a_survivor_disproves_the_kill() {
    let (kill, ..) = armed("{}", &["vllm-0"]);
    let proof = kill.prove(&facts(["10"; 3], ["100"; 3], ["S"; 3]));
    assert!(matches!(proof, Proof::DidNotHappen(_)), "{proof:?}");
    let proof = kill.prove(&facts(["10", "", "10"], ["100", "", "100"], ["S", "", "S"]));
    assert!(matches!(proof, Proof::DidNotHappen(_)), "{proof:?}");
}

#[test]
fn what_was_not_read_proves_nothing() {
    let (kill, ..) = armed("{}", &["vllm-0"]);
    for (what, facts) in [
        ("no facts", vec![]),
        (
            "nothing before",
            facts(["", "10", "20"], ["", "1", "2"], ["S"; 3]),
        ),
        (
            "nothing later",
            facts(["10", "", ""], ["100", "", ""], ["S", "", ""]),
        ),
        (
            "alive, then unread",
            facts(["10", "10", ""], ["100", "100", ""], ["S", "S", ""]),
        ),
        (
            "same id, no start time",
            facts(["10"; 3], ["100", "", ""], ["S"; 3]),
        ),
        (
            "another replica's facts",
            vec![fact("vllm-1", "process.api.pid", "10", "20", "20")],
        ),
        (
            "another process's facts",
            vec![fact("vllm-0", "process.engine.pid", "10", "20", "20")],
        ),
    ] {
        let proof = kill.prove(&facts);
        assert!(matches!(proof, Proof::CannotTell(_)), "{what}: {proof:?}");
    }
}

#[test]
fn one_victim_that_lives_disproves_the_whole() {
    let (kill, ..) = armed("{}", &["vllm-0", "vllm-1"]);
    let mut both = facts(["10", "", "20"], ["1", "", "2"], ["S", "", "S"]);
    let proof = kill.prove(&both);
    assert!(matches!(proof, Proof::CannotTell(_)), "{proof:?}");
    for (name, value) in [("pid", "30"), ("start-time", "5"), ("state", "S")] {
        both.push(fact(
            "vllm-1",
            &format!("process.api.{name}"),
            value,
            value,
            value,
        ));
    }
    let proof = kill.prove(&both);
    assert!(matches!(proof, Proof::DidNotHappen(_)), "{proof:?}");
}

#[test]
fn orphans_are_named() {
    let (kill, ..) = armed("{}", &["vllm-0"]);
    let with = |during: &str, after: &str| {
        let mut facts = facts(["10", "20", "20"], ["1", "2", "2"], ["S"; 3]);
        facts.push(Fact {
            during: (during != "?").then(|| during.to_owned()),
            after: (after != "?").then(|| after.to_owned()),
            ..fact("vllm-0", "process.api.orphaned-pids", "", "", "")
        });
        match kill.prove(&facts) {
            Proof::Happened(why) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(with("11,12", "11,12").ends_with("11, 12 survived as orphans to the end"));
    assert!(with("11 12", "").ends_with("11, 12 survived it as orphans for a while"));
    assert!(with("11", "?").ends_with("whether to the end was not read"));
    // Whether one survived and was ended before the look is not known without the supervisor.
    assert!(with("", "").ends_with("no descendant was there any more when looked at"));
    assert!(with("?", "?").ends_with("was not read"));
}

#[test]
fn orphans_that_were_gone_before_the_first_look_are_told() {
    let (kill, ..) = armed("{}", &["vllm-0"]);
    // At the exit, then pids during and after; `?` = not read.
    let with = |at_exit: [&str; 2], during: &str, after: &str| {
        let read = |text: &str| (text != "?").then(|| text.to_owned());
        let mut facts = facts(["10", "20", "20"], ["1", "2", "2"], ["S"; 3]);
        facts.push(Fact {
            during: read(during),
            after: read(after),
            ..fact("vllm-0", "process.api.orphaned-pids", "", "", "")
        });
        facts.push(Fact {
            during: read(at_exit[0]),
            after: read(at_exit[1]),
            ..fact("vllm-0", "target.orphans-at-exit", "", "", "")
        });
        match kill.prove(&facts) {
            Proof::Happened(why) => why,
            other => panic!("{other:?}"),
        }
    };
    let engine = "11:VLLM::EngineCore";
    let said = with([engine, engine], "", "");
    assert!(
        said.ends_with(
            "1 descendant outlived the main process (VLLM::EngineCore, pid 11) and was gone when looked at"
        ),
        "{said}"
    );
    // Titles with spaces; read only at the end, as after an engine's death.
    let said = with(
        ["?", "11:VLLM::EngineCore DP 0 12:VLLM::Worker 13:"],
        "",
        "",
    );
    assert!(
        said.ends_with(
            "3 descendants outlived the main process (VLLM::EngineCore DP 0, pid 11; \
             VLLM::Worker, pid 12; pid 13) and were gone when looked at"
        ),
        "{said}"
    );
    assert!(with([engine, "?"], "11", "").ends_with("and was gone at the end"));
    assert!(with([engine, "?"], "11", "11").ends_with("and pid 11 survived to the end"));
    assert!(with([engine, "?"], "11", "?").ends_with("whether to the end was not read"));
    assert!(with([engine, "?"], "?", "?").ends_with("what became of it was not read"));
    assert!(with(["", ""], "", "").ends_with("no descendant survived it"));
    assert!(with(["", ""], "11", "").ends_with("survived it as orphans for a while"));
    assert!(with(["?", "?"], "", "").ends_with("was there any more when looked at"));
    assert!(!with(["garbage", "?"], "", "").contains("garbage"));
}
