use blackstart_sdk::config::parse;
use blackstart_sdk::gate::{Finding, ValidityGate, Verdict};
use blackstart_sdk::testing::FakeEvidence;

use crate::{Client, Config};

/// Every figure exactly at its limit.
const AT_LIMIT: [(&str, f64, &str); 6] = [
    ("client.skew_us_p99", 5_000.0, "us"),
    ("client.skew_us_max", 50_000.0, "us"),
    ("client.undispatched", 0.0, "1"),
    ("client.cpu_percent_max_5s", 70.0, "%"),
    ("client.cpu_windows", 1.0, "1"),
    ("client.stall_us_p99", 1_000.0, "us"),
];

fn at_limit() -> FakeEvidence {
    let mut run = FakeEvidence::default();
    for (name, value, unit) in AT_LIMIT {
        run.set(name, value, unit);
    }
    run
}

fn judge(run: &FakeEvidence) -> Finding {
    Client::evaluate(Config::default(), run).expect("a verdict")
}

#[test]
fn figures_at_their_limits_pass() {
    let finding = judge(&at_limit());
    assert_eq!(finding.verdict, Verdict::Pass, "{}", finding.statement);
    assert_eq!(finding.measures.len(), AT_LIMIT.len());
    for (name, value, _) in AT_LIMIT {
        assert!(
            finding
                .measures
                .iter()
                .any(|m| m.name == name && m.value == value),
            "{name}"
        );
    }
}

#[test]
fn each_figure_just_outside_fails_alone_and_says_so() {
    for (name, value, said) in [
        (
            "client.skew_us_p99",
            5_000.1,
            "send skew p99 5000.1 µs, at most 5000 µs",
        ),
        ("client.skew_us_max", 50_001.0, "send skew max 50001 µs"),
        ("client.undispatched", 1.0, "never dispatched 1 requests"),
        ("client.cpu_percent_max_5s", 70.01, "70.01 %, at most 70 %"),
        (
            "client.stall_us_p99",
            1_000.1,
            "scheduler stall p99 1000.1 µs",
        ),
    ] {
        let mut run = at_limit();
        run.set(name, value, "x");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::Fail, "{name}");
        assert!(finding.statement.contains(said), "{}", finding.statement);
    }
}

#[test]
fn each_figure_that_is_missing_keeps_the_gate_from_passing() {
    for (name, ..) in AT_LIMIT {
        let mut run = at_limit();
        run.absent(name, "the sampler did not start");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::NotObserved, "{name}");
        assert!(finding.statement.contains(name) && finding.statement.contains("did not start"));
    }
    assert_eq!(
        judge(&FakeEvidence::default()).verdict,
        Verdict::NotObserved
    );
}

#[test]
fn cpu_without_a_whole_window_is_unmeasured_whatever_the_figure_says() {
    for windows in [0.0, 0.5] {
        let mut run = at_limit();
        run.set("client.cpu_windows", windows, "1");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::NotObserved);
        assert!(
            finding.statement.contains("no whole 5 s window"),
            "{}",
            finding.statement
        );
    }
}

#[test]
fn a_figure_outside_fails_even_if_another_is_missing() {
    let mut run = at_limit();
    run.set("client.undispatched", 3.0, "1")
        .absent("client.stall_us_p99", "no heartbeat");
    let finding = judge(&run);
    assert_eq!(finding.verdict, Verdict::Fail);
    assert!(
        finding.statement.contains("no heartbeat"),
        "{}",
        finding.statement
    );
}

#[test]
fn limits_come_from_the_configuration() {
    let config = parse::<Config>(r#"{"max_cpu_percent":50,"max_undispatched":2}"#).expect("good");
    let mut run = at_limit();
    run.set("client.undispatched", 2.0, "1")
        .set("client.cpu_percent_max_5s", 50.0, "%");
    let judge = |run: &FakeEvidence| {
        Client::evaluate(config.clone(), run)
            .expect("a verdict")
            .verdict
    };
    assert_eq!(judge(&run), Verdict::Pass);
    run.set("client.cpu_percent_max_5s", 50.1, "%");
    assert_eq!(judge(&run), Verdict::Fail);
    for bad in [
        r#"{"max_skew_us_p99":-1}"#,
        r#"{"max_cpu_percent":101}"#,
        r#"{"max_cpu":1}"#,
    ] {
        assert!(parse::<Config>(bad).is_err(), "{bad}");
    }
}
