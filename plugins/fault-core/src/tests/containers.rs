//! Operations of the container engine.

use blackstart_sdk::fault::{ContainerOperation, Fact};
use blackstart_sdk::testing::{SECOND, Sent};

use super::{config_errors, judge, named, read};

/// Facts of a container: state, start, id.
fn container(state: [&str; 3], started: [&str; 3], id: [&str; 3]) -> Vec<Fact> {
    vec![
        read("container.state", state),
        read("container.started-at", started),
        read("container.id", id),
    ]
}

const RUNS: &str = "running";
const ONE: [&str; 3] = ["t1"; 3];
const SAME: [&str; 3] = ["4f1d2c3b4a59687f"; 3];

#[test]
fn each_asks_for_its_operation() {
    use ContainerOperation as Op;
    let named_network = Op::Disconnect(Some("lan".to_owned()));
    for (name, config, operation, until) in [
        (
            "container-pause",
            r#"{"duration_ms":3000}"#,
            Op::Pause,
            Some(23),
        ),
        ("container-kill", "{}", Op::Kill("KILL".to_owned()), None),
        (
            "container-kill",
            r#"{"signal":"TERM","down_ms":3000}"#,
            Op::Kill("TERM".to_owned()),
            Some(23),
        ),
        ("container-stop", "{}", Op::Stop(10), None),
        (
            "container-stop",
            r#"{"grace_s":2,"down_ms":3000}"#,
            Op::Stop(2),
            Some(23),
        ),
        (
            "container-restart",
            r#"{"grace_s":0}"#,
            Op::Restart(0),
            None,
        ),
        ("container-recreate", "{}", Op::Recreate, None),
        (
            "network-disconnect",
            r#"{"duration_ms":3000}"#,
            Op::Disconnect(None),
            Some(23),
        ),
        (
            "network-disconnect",
            r#"{"network":"lan","duration_ms":3000}"#,
            named_network,
            Some(23),
        ),
    ] {
        let (_, host) = named(name).armed(config);
        let (replica, sent, when) = &host.others[0];
        assert_eq!(
            (replica.as_str(), sent),
            ("vllm-0", &Sent::Container(operation)),
            "{name}"
        );
        assert_eq!(
            (when.at, when.until),
            (20 * SECOND, until.map(|s| s * SECOND)),
            "{name}"
        );
    }
}

#[test]
fn a_container_is_not_started_before_its_stop_can_be_over() {
    let parse = named("container-stop").parse;
    let errors = config_errors(parse(r#"{"grace_s":5,"down_ms":5000}"#));
    assert_eq!(errors[0].path, "down_ms");
    assert!(
        errors[0]
            .help
            .as_deref()
            .is_some_and(|h| h.contains("5000"))
    );
    assert!(parse(r#"{"grace_s":5,"down_ms":5001}"#).is_ok());
}

#[test]
fn a_statement_says_whether_the_container_comes_back() {
    for (name, back) in [
        ("container-kill", "started again"),
        ("container-stop", "started again"),
    ] {
        let variant = named(name);
        let mut host = super::host();
        let context = variant.context();
        let (_, stays) = (variant.arm)("{}", &context, &mut host).expect("it arms");
        assert!(
            stays.statement.ends_with("not started again"),
            "{}",
            stays.statement
        );
        let (_, comes) =
            (variant.arm)(r#"{"down_ms":20000}"#, &context, &mut host).expect("it arms");
        assert!(comes.statement.contains(back) && comes.statement.contains("20000 ms"));
        assert!(
            !comes.statement.contains("not started"),
            "{}",
            comes.statement
        );
    }
}

#[test]
fn a_pause_is_seen_from_both_ends() {
    let (live, _) = named("container-pause").armed("{}");
    let other = ["4f", "4f", "5a"];
    judge(
        live.as_ref(),
        &[],
        &[
            ("happened", container([RUNS, "paused", RUNS], ONE, SAME)),
            ("not", container([RUNS, RUNS, RUNS], ONE, SAME)),
            ("not", container([RUNS, "paused", "paused"], ONE, SAME)),
            ("not", container([RUNS, "paused", "exited"], ONE, SAME)),
            ("not", container(["paused"; 3], ONE, SAME)),
            (
                "not",
                container([RUNS, "paused", RUNS], ["t1", "t1", "t2"], SAME),
            ),
            ("not", container([RUNS, "paused", RUNS], ONE, other)),
            ("unknown", container([RUNS, "?", RUNS], ONE, SAME)),
            ("unknown", container([RUNS, "paused", "?"], ONE, SAME)),
            ("unknown", container(["?", "paused", RUNS], ONE, SAME)),
            (
                "unknown",
                container([RUNS, "paused", RUNS], ["t1", "t1", "?"], SAME),
            ),
            ("unknown", container([RUNS, "paused", RUNS], ONE, ["?"; 3])),
        ],
    );
}

#[test]
fn a_container_that_was_down_or_started_once_more_has_ended() {
    for name in ["container-kill", "container-stop"] {
        let (live, _) = named(name).armed("{}");
        let anew = ["t1", "t1", "t2"];
        judge(
            live.as_ref(),
            &[],
            &[
                ("happened", container([RUNS, "exited", "exited"], ONE, SAME)),
                ("happened", container([RUNS, "exited", RUNS], anew, SAME)),
                (
                    "happened",
                    container([RUNS, "dead", "?"], ["t1", "?", "?"], SAME),
                ),
                // A slow stop is over only after the look at it.
                ("happened", container([RUNS, RUNS, "exited"], ONE, SAME)),
                // Down and up between two looks.
                ("happened", container([RUNS, RUNS, RUNS], anew, SAME)),
                ("not", container([RUNS; 3], ONE, SAME)),
                ("not", container(["exited"; 3], ONE, SAME)),
                ("not", container([RUNS, "?", RUNS], ["t1", "?", "t1"], SAME)),
                (
                    "unknown",
                    container([RUNS, RUNS, "?"], ["t1", "t1", "?"], SAME),
                ),
                (
                    "unknown",
                    container([RUNS, RUNS, RUNS], ["?", "t1", "t2"], SAME),
                ),
                ("unknown", container(["?", "exited", "exited"], ONE, SAME)),
                (
                    "unknown",
                    container([RUNS, "exited", "exited"], ONE, ["?"; 3]),
                ),
            ],
        );
    }
}

#[test]
fn a_restart_keeps_the_container_and_changes_its_start() {
    let (live, _) = named("container-restart").armed("{}");
    let anew = ["t1", "t2", "t2"];
    judge(
        live.as_ref(),
        &[],
        &[
            ("happened", container([RUNS; 3], anew, SAME)),
            ("happened", container([RUNS, "exited", RUNS], anew, SAME)),
            ("not", container([RUNS; 3], ONE, SAME)),
            ("not", container([RUNS, "exited", "exited"], anew, SAME)),
            ("not", container([RUNS; 3], anew, ["4f", "5a", "5a"])),
            ("unknown", container([RUNS; 3], ["t1", "t2", "?"], SAME)),
            ("unknown", container([RUNS, RUNS, "?"], anew, SAME)),
            ("unknown", container([RUNS; 3], anew, ["4f", "4f", "?"])),
        ],
    );
}

#[test]
fn another_container_in_its_place_proves_the_recreation() {
    let (live, _) = named("container-recreate").armed("{}");
    let anew = ["t1", "t2", "t2"];
    let other = ["4f1d2c3b4a59687f", "?", "5a1d2c3b4a59687f"];
    judge(
        live.as_ref(),
        &[],
        &[
            ("happened", container([RUNS, "?", RUNS], anew, other)),
            ("not", container([RUNS; 3], anew, SAME)),
            ("not", container([RUNS, "?", "exited"], anew, other)),
            ("not", container([RUNS, "exited", "exited"], ONE, SAME)),
            (
                "unknown",
                container([RUNS, "?", RUNS], anew, ["4f", "?", "?"]),
            ),
            ("unknown", container([RUNS, "?", "?"], anew, other)),
            ("unknown", container(["?", "?", RUNS], anew, other)),
        ],
    );
}

#[test]
fn networks_that_were_left_and_joined_again_are_the_proof() {
    let base = container([RUNS; 3], ONE, SAME);
    let on = |values| vec![read("container.networks", values)];
    let (live, _) = named("network-disconnect").armed("{}");
    judge(
        live.as_ref(),
        &base,
        &[
            ("happened", on(["bridge", "", "bridge"])),
            ("happened", on(["a b", "", "b a"])),
            ("not", on(["a b", "b", "a b"])),
            ("not", on(["bridge"; 3])),
            ("not", on(["", "", ""])),
            ("not", on(["bridge", "", ""])),
            ("unknown", on(["bridge", "?", "bridge"])),
            ("unknown", on(["?", "", "bridge"])),
            ("unknown", on(["bridge", "", "?"])),
            ("unknown", vec![]),
        ],
    );
    judge(
        live.as_ref(),
        &container([RUNS; 3], ["t1", "t1", "t2"], SAME),
        &[("not", on(["bridge", "", "bridge"]))],
    );
    let (live, _) = named("network-disconnect").armed(r#"{"network":"a"}"#);
    judge(
        live.as_ref(),
        &base,
        &[
            ("happened", on(["a b", "b", "a b"])),
            ("not", on(["a b", "a", "a b"])),
            ("not", on(["b", "", "b"])),
            ("not", on(["ab", "", "ab"])),
        ],
    );
}
