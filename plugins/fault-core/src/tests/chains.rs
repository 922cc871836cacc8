//! Faults that go on when a victim is back.

use blackstart_sdk::Error;
use blackstart_sdk::fault::{Condition, EffectEvent, Fact, NetworkRule, Signal};
use blackstart_sdk::testing::{FakeHost, SECOND, Sent};

use super::{another_process, config_errors, drive, host, judge, kind, named, read, same_process};

/// Who got a signal when, in seconds.
fn signals(host: &FakeHost) -> Vec<(String, i64)> {
    let all = host.signals.iter();
    all.map(|s| (s.replica.clone(), s.when.at / SECOND))
        .collect()
}

fn owned(all: &[(&str, i64)]) -> Vec<(String, i64)> {
    all.iter()
        .map(|(victim, s)| ((*victim).to_owned(), *s))
        .collect()
}

#[test]
fn each_link_waits_until_the_victim_before_serves_again() {
    for (name, config, signal) in [
        (
            "cascade",
            r#"{"process":"engine","delay_ms":2000}"#,
            Signal::Kill,
        ),
        (
            "rolling-restart",
            r#"{"process":"engine","pause_ms":2000}"#,
            Signal::Term,
        ),
    ] {
        let (mut live, mut host) = named(name).armed(config);
        assert_eq!(signals(&host), owned(&[("vllm-0", 20)]), "{name}");
        let (victim, wait, when) = &host.others[0];
        assert_eq!(
            (victim.as_str(), wait),
            ("vllm-0", &Sent::Watch(Condition::ServingAgain))
        );
        assert_eq!((when.at, when.until), (20 * SECOND, Some(140 * SECOND)));
        // The signal itself leads to nothing.
        live.observe(0, &EffectEvent::Started(20 * SECOND), &mut host);
        assert_eq!(host.needs.len(), 2);
        host.now = 50 * SECOND;
        live.observe(1, &EffectEvent::Started(49 * SECOND), &mut host);
        assert_eq!(
            signals(&host),
            owned(&[("vllm-0", 20), ("vllm-1", 52)]),
            "{name}"
        );
        assert_eq!(host.signals[1].signal, signal);
        assert_eq!(host.signals[1].role, "engine");
        // Nobody waits for the last.
        assert_eq!(host.others.len(), 1);
        live.observe(2, &EffectEvent::Started(52 * SECOND), &mut host);
        assert_eq!(host.needs.len(), 3);
    }
}

#[test]
fn a_chain_is_proven_when_every_victim_was_hit() {
    for name in ["cascade", "rolling-restart"] {
        let (mut live, mut host) = named(name).armed("{}");
        let mut both = another_process("vllm-0");
        both.extend(another_process("vllm-1"));
        // One that only the first victim's signal was sent of.
        live.observe(0, &EffectEvent::Started(20 * SECOND), &mut host);
        let proof = live.prove(&both);
        assert_eq!(kind(&proof), "not", "{name}: {proof:?}");
        live.observe(1, &EffectEvent::Started(30 * SECOND), &mut host);
        live.observe(2, &EffectEvent::Started(31 * SECOND), &mut host);
        let proof = live.prove(&both);
        assert_eq!(kind(&proof), "happened", "{name}: {proof:?}");
        let proof = live.prove(&another_process("vllm-0"));
        assert_eq!(kind(&proof), "unknown", "{name}: {proof:?}");
        let survivor = same_process().into_iter().map(|fact| Fact {
            replica: "vllm-1".to_owned(),
            ..fact
        });
        let mut facts = another_process("vllm-0");
        facts.extend(survivor);
        assert_eq!(kind(&live.prove(&facts)), "not", "{name}");
    }
}

#[test]
fn a_chain_that_does_not_come_to_its_end_says_why() {
    for name in ["cascade", "rolling-restart"] {
        let mut both = another_process("vllm-0");
        both.extend(another_process("vllm-1"));
        let late = EffectEvent::Started(139 * SECOND + SECOND / 2);
        let never = EffectEvent::Failed("replica `vllm-0` did not get there in time".to_owned());
        for (event, why) in [(late, "too late"), (never, "did not get there in time")] {
            let (mut live, mut host) = named(name).armed("{}");
            live.observe(0, &EffectEvent::Started(20 * SECOND), &mut host);
            live.observe(1, &event, &mut host);
            assert_eq!(signals(&host), owned(&[("vllm-0", 20)]), "{name}");
            let proof = live.prove(&both);
            assert_eq!(kind(&proof), "not", "{name}: {proof:?}");
            let said = format!("{proof:?}");
            assert!(said.contains(why) && said.contains("1 of 2"), "{said}");
        }
    }
}

#[test]
fn a_cascade_needs_two_and_pauses_must_fit() {
    let cascade = named("cascade");
    let mut context = cascade.context();
    context.victims.truncate(1);
    let mut fake = host();
    let refused = (cascade.arm)("{}", &context, &mut fake).map(|(_, armed)| armed);
    assert!(matches!(refused, Err(Error::Other(_))), "{refused:?}");
    assert!(fake.needs.is_empty());
    // One victim of a rolling restart is a graceful stop.
    let rolling = named("rolling-restart");
    assert!((rolling.arm)("{}", &context, &mut fake).is_ok());
    assert_eq!(fake.needs.len(), 1);

    for (name, key, config, most) in [
        ("cascade", "delay_ms", r#"{"delay_ms":120001}"#, "120000"),
        (
            "rolling-restart",
            "pause_ms",
            r#"{"pause_ms":120001}"#,
            "120000",
        ),
        (
            "flapping",
            "pause_ms",
            r#"{"times":4,"pause_ms":40001}"#,
            "40000",
        ),
    ] {
        let variant = named(name);
        let mut host = host();
        let armed = (variant.arm)(config, &variant.context(), &mut host);
        let errors = config_errors(armed.map(|(_, armed)| armed));
        assert_eq!(errors[0].path, key);
        let help = errors[0].help.as_deref().unwrap_or_default();
        assert!(help.contains(most), "{name}: {help}");
        assert!(host.needs.is_empty());
    }
}

#[test]
fn flapping_kills_each_victim_at_its_own_pace() {
    let variant = named("flapping");
    let mut context = variant.context();
    context.victims.push("vllm-1".to_owned());
    let mut host = host();
    let config = r#"{"signal":"SEGV","times":3,"pause_ms":1000}"#;
    let (mut live, _) = (variant.arm)(config, &context, &mut host).expect("it arms");
    assert_eq!(signals(&host), owned(&[("vllm-0", 20), ("vllm-1", 20)]));
    host.now = 40 * SECOND;
    // The second one is back first: its wait is effect 3.
    live.observe(3, &EffectEvent::Started(40 * SECOND), &mut host);
    assert_eq!(signals(&host)[2..], owned(&[("vllm-1", 41)]));
    host.now = 60 * SECOND;
    live.observe(1, &EffectEvent::Started(60 * SECOND), &mut host);
    assert_eq!(signals(&host)[3..], owned(&[("vllm-0", 61)]));
    // An effect is done with once: told twice, it leads to nothing.
    live.observe(1, &EffectEvent::Started(60 * SECOND), &mut host);
    assert_eq!(host.signals.len(), 4);
    assert!(host.signals.iter().all(|s| s.signal == Signal::Segv));

    let (mut live, mut host) = variant.armed(r#"{"times":20}"#);
    drive(live.as_mut(), &mut host);
    assert_eq!(host.signals.len(), 20);
    assert_eq!(host.others.len(), 19);
}

#[test]
fn flapping_is_proven_by_as_many_restarts() {
    let (mut live, mut host) = named("flapping").armed(r#"{"times":3}"#);
    let count = |name: &str, before: &str, after: &str| vec![read(name, [before, "?", after])];
    let target = |before, after| count("target.restart-count", before, after);
    let anew = another_process("vllm-0");
    judge(live.as_ref(), &anew, &[("not", target("0", "3"))]);
    drive(live.as_mut(), &mut host);
    judge(
        live.as_ref(),
        &anew,
        &[
            ("happened", target("0", "3")),
            ("happened", target("2", "6")),
            ("happened", count("container.restart-count", "1", "4")),
            ("happened", vec![]),
            ("not", target("0", "2")),
            ("not", target("3", "3")),
            ("not", count("container.restart-count", "1", "3")),
        ],
    );
    // Not up again after the last.
    let down = [
        read("process.api.pid", ["10", "?", "?"]),
        read("process.api.start-time", ["7", "?", "?"]),
        read("process.api.state", ["S", "gone", "gone"]),
    ];
    judge(
        live.as_ref(),
        &down,
        &[("happened", target("0", "2")), ("not", target("0", "1"))],
    );
    judge(
        live.as_ref(),
        &[],
        &[
            ("unknown", target("0", "3")),
            ("not", {
                let mut facts = same_process();
                facts.extend(target("0", "3"));
                facts
            }),
        ],
    );
}

#[test]
fn weights_are_slowed_from_the_new_start_on() {
    let config = r#"{"bytes_per_s":50000,"duration_ms":30000}"#;
    let (mut live, mut host) = named("slow-weights").armed(config);
    assert_eq!(signals(&host), owned(&[("vllm-0", 20)]));
    assert_eq!(host.others[0].1, Sent::Watch(Condition::StartedAgain));
    let cap = |host: &FakeHost| {
        let (victim, rule, when) = &host.others[1];
        assert_eq!(victim, "vllm-0");
        assert_eq!(rule, &Sent::Network(NetworkRule::LimitReceive(50_000)));
        (when.at / SECOND, when.until.map(|u| u / SECOND))
    };
    live.observe(0, &EffectEvent::Started(20 * SECOND), &mut host);
    host.now = 25 * SECOND;
    live.observe(1, &EffectEvent::Started(25 * SECOND), &mut host);
    assert_eq!(cap(&host), (25, Some(55)));
    let facts = |dropped| {
        let mut facts = another_process("vllm-0");
        facts.push(read("network.dropped-packets", dropped));
        facts
    };
    let slowed = facts(["?", "7", "9"]);
    judge(live.as_ref(), &[], &[("not", slowed.clone())]);
    live.observe(2, &EffectEvent::Started(25 * SECOND), &mut host);
    judge(
        live.as_ref(),
        &[],
        &[
            ("happened", slowed.clone()),
            ("not", facts(["?", "0", "0"])),
            ("unknown", facts(["?", "0", "?"])),
            ("unknown", facts(["?"; 3])),
            ("not", {
                let mut facts = same_process();
                facts.push(read("network.dropped-packets", ["?", "7", "9"]));
                facts
            }),
        ],
    );

    // It comes late: the cap ends with the fault window.
    let (mut live, mut host) = named("slow-weights").armed(config);
    host.now = 130 * SECOND;
    live.observe(1, &EffectEvent::Started(130 * SECOND), &mut host);
    assert_eq!(cap(&host), (130, Some(140)));

    // Or not at all, or too late.
    for event in [
        EffectEvent::Failed("did not get there in time".to_owned()),
        EffectEvent::Started(140 * SECOND),
    ] {
        let (mut live, mut host) = named("slow-weights").armed(config);
        live.observe(1, &event, &mut host);
        assert_eq!(host.others.len(), 1);
        judge(live.as_ref(), &[], &[("not", slowed.clone())]);
    }
}

#[test]
fn a_stop_in_good_order_tells_the_exit_code() {
    let (live, host) = named("graceful-stop").armed("{}");
    assert_eq!(host.signals[0].signal, Signal::Term);
    let mut facts = another_process("vllm-0");
    facts.push(read("target.exit-code", ["?", "?", "0"]));
    let proof = format!("{:?}", live.prove(&facts));
    assert!(proof.contains("exit code is 0"), "{proof}");
    judge(
        live.as_ref(),
        &[],
        &[
            ("happened", another_process("vllm-0")),
            ("not", same_process()),
            ("unknown", vec![read("process.api.pid", ["10", "?", "?"])]),
        ],
    );
}
