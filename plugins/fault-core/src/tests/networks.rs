//! Packet rules and queues.

use blackstart_sdk::fault::NetworkRule;
use blackstart_sdk::testing::{SECOND, Sent};

use super::{config_errors, host, judge, named, read, same_process};

#[test]
fn each_asks_for_its_rule_from_the_fire_to_the_end() {
    for (name, config, rule) in [
        (
            "black-hole",
            r#"{"duration_ms":3000}"#,
            NetworkRule::DropAll,
        ),
        (
            "connection-reset",
            r#"{"duration_ms":3000}"#,
            NetworkRule::RejectWithReset,
        ),
        (
            "network-delay",
            r#"{"delay_ms":250,"duration_ms":3000}"#,
            NetworkRule::Delay(250_000),
        ),
        (
            "network-loss",
            r#"{"percent":12.5,"duration_ms":3000}"#,
            NetworkRule::Lose(12.5),
        ),
        (
            "network-bandwidth",
            r#"{"bytes_per_s":5000,"duration_ms":3000}"#,
            NetworkRule::LimitSend(5000),
        ),
        (
            "network-bandwidth",
            r#"{"bytes_per_s":5000,"duration_ms":3000,"direction":"receive"}"#,
            NetworkRule::LimitReceive(5000),
        ),
    ] {
        let (_, host) = named(name).armed(config);
        let (replica, sent, when) = &host.others[0];
        assert_eq!(
            (replica.as_str(), sent),
            ("vllm-0", &Sent::Network(rule)),
            "{name}"
        );
        assert_eq!(
            (when.at, when.until),
            (20 * SECOND, Some(23 * SECOND)),
            "{name}"
        );
    }
}

#[test]
fn a_black_hole_lasts_as_pinned_or_to_the_end_of_the_window() {
    let variant = named("black-hole");
    for (window_s, until_s) in [(600, 140), (120, 140), (30, 50)] {
        let mut context = variant.context();
        context.expire_at = context.fire_at + window_s * SECOND;
        let mut host = host();
        let (_, armed) = (variant.arm)("{}", &context, &mut host).expect("it arms");
        assert_eq!(host.needs[0].1.until, Some(until_s * SECOND));
        let length = format!("for {} ms", (until_s - 20) * 1000);
        assert!(armed.statement.ends_with(&length), "{}", armed.statement);
    }
}

#[test]
fn packets_that_were_hit_are_the_proof() {
    for (name, config, counter) in [
        ("black-hole", "{}", "network.dropped-packets"),
        ("network-loss", "{}", "network.dropped-packets"),
        (
            "network-bandwidth",
            r#"{"direction":"receive"}"#,
            "network.dropped-packets",
        ),
        ("connection-reset", "{}", "network.rejected-packets"),
    ] {
        let (live, _) = named(name).armed(config);
        let counted = |values| vec![read(counter, values)];
        let other = match counter {
            "network.dropped-packets" => "network.rejected-packets",
            _ => "network.dropped-packets",
        };
        judge(
            live.as_ref(),
            &same_process(),
            &[
                ("happened", counted(["0", "0", "1"])),
                ("happened", counted(["?", "7", "9"])),
                ("happened", counted(["0", "7", "?"])),
                ("not", counted(["0", "0", "0"])),
                ("not", counted(["5", "5", "5"])),
                ("unknown", counted(["0", "0", "?"])),
                ("unknown", counted(["?", "?", "?"])),
                ("unknown", counted(["0", "many", "many"])),
                ("unknown", vec![read(other, ["0", "7", "9"])]),
                ("unknown", vec![]),
            ],
        );
        // The rule went with the process: not the whole fault was in force.
        let hit = || read(counter, ["0", "7", "9"]);
        let with = |name: &str, values| vec![hit(), read(name, values)];
        judge(
            live.as_ref(),
            &[],
            &[
                ("unknown", vec![hit()]),
                ("unknown", with("process.api.pid", ["10", "10", "?"])),
                ("unknown", with("process.api.pid", ["10", "10", "10"])),
                ("not", with("process.api.pid", ["10", "10", "11"])),
                (
                    "unknown",
                    [
                        with("process.worker.pid", ["12", "12", "?"]),
                        same_process(),
                    ]
                    .concat(),
                ),
                (
                    "not",
                    vec![
                        hit(),
                        read("process.api.pid", ["10", "?", "?"]),
                        read("process.api.state", ["S", "gone", "gone"]),
                    ],
                ),
                (
                    "not",
                    vec![
                        hit(),
                        read("process.api.pid", ["10"; 3]),
                        read("process.api.start-time", ["7", "7", "8"]),
                    ],
                ),
            ],
        );
    }
}

#[test]
fn a_queue_of_the_faults_own_on_every_device_is_the_proof() {
    for (name, queue) in [("network-delay", "netem"), ("network-bandwidth", "tbf")] {
        let (live, _) = named(name).armed("{}");
        let kinds = |during: &str| vec![read("network.queue", ["noqueue", during, "noqueue"])];
        let two = format!("{queue} {queue}");
        let mixed = format!("{queue} noqueue");
        let counted = |n: &str| {
            let mut facts = kinds(queue);
            facts.push(read("network.queue-packets", ["?", n, n]));
            facts
        };
        judge(
            live.as_ref(),
            &same_process(),
            &[
                ("happened", kinds(queue)),
                ("happened", kinds(&two)),
                ("happened", counted("12")),
                ("not", counted("0")),
                ("not", kinds(&mixed)),
                ("not", kinds("noqueue")),
                ("not", kinds("")),
                ("not", vec![read("network.queue", [queue; 3])]),
                (
                    "not",
                    vec![read("network.queue", ["noqueue", queue, queue])],
                ),
                ("unknown", kinds("?")),
                (
                    "unknown",
                    vec![read("network.queue", ["?", queue, "noqueue"])],
                ),
                (
                    "unknown",
                    vec![read("network.queue", ["noqueue", queue, "?"])],
                ),
                ("unknown", vec![]),
            ],
        );
        judge(live.as_ref(), &[], &[("unknown", kinds(queue))]);
    }
}

#[test]
fn a_share_or_direction_that_is_none_is_refused() {
    for (name, config, key) in [
        ("network-loss", r#"{"percent":0}"#, "percent"),
        ("network-loss", r#"{"percent":100.5}"#, "percent"),
        ("network-bandwidth", r#"{"direction":"both"}"#, "direction"),
        ("network-disconnect", r#"{"network":"a b"}"#, "network"),
    ] {
        let errors = config_errors((named(name).parse)(config));
        assert_eq!(errors[0].path, key, "{name}");
    }
}
