use blackstart_sdk::gate::{Finding, ValidityGate, Verdict};
use blackstart_sdk::testing::FakeEvidence;

use crate::{Config, Silence};

fn judge(variant: &str, errored: Option<f64>, config: Config) -> Finding {
    let mut run = FakeEvidence::default();
    run.fault(variant);
    match errored {
        Some(value) => run.set("inflight.victim_errored", value, "1"),
        None => run.absent("inflight.victim_errored", "replicas were not attributed"),
    };
    Silence::evaluate(config, &run).expect("a verdict")
}

#[test]
fn a_silent_victim_passes_and_an_error_fails() {
    for variant in ["black-hole", "network-black-hole"] {
        assert_eq!(
            judge(variant, Some(0.0), Config::default()).verdict,
            Verdict::Pass
        );
        let finding = judge(variant, Some(1.0), Config::default());
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(
            finding.statement.starts_with("1 requests"),
            "{}",
            finding.statement
        );
        assert_eq!(finding.measures[0].name, "inflight.victim_errored");
    }
}

#[test]
fn unobserved_never_passes() {
    let finding = judge("black-hole", None, Config::default());
    assert_eq!(finding.verdict, Verdict::NotObserved);
    assert!(
        finding.statement.contains("not attributed"),
        "{}",
        finding.statement
    );
}

#[test]
fn other_faults_and_no_fault_are_not_its_business() {
    for variant in ["process-kill", "black-hole-2", ""] {
        let finding = judge(variant, Some(0.0), Config::default());
        assert_eq!(finding.verdict, Verdict::NotApplicable, "{variant}");
    }
    let mut run = FakeEvidence::default();
    run.set("inflight.victim_errored", 0.0, "1");
    let finding = Silence::evaluate(Config::default(), &run).expect("a verdict");
    assert_eq!(finding.verdict, Verdict::NotApplicable);
}

#[test]
fn the_limit_can_be_moved() {
    let config = Config {
        max_victim_errored: 2,
    };
    assert_eq!(
        judge("black-hole", Some(2.0), config.clone()).verdict,
        Verdict::Pass
    );
    assert_eq!(
        judge("black-hole", Some(3.0), config).verdict,
        Verdict::Fail
    );
}
