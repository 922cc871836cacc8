use blackstart_sdk::config::parse;
use blackstart_sdk::gate::{Finding, ValidityGate, Verdict};
use blackstart_sdk::testing::FakeEvidence;

use crate::{Config, Staleness};

fn run(window_s: f64, requests: f64) -> FakeEvidence {
    let mut run = FakeEvidence::default();
    run.fault("black-hole")
        .set("staleness.window_s", window_s, "s")
        .set("staleness.victim_bound_requests", requests, "1");
    run
}

fn judge(run: &FakeEvidence) -> Finding {
    Staleness::evaluate(Config::default(), run).expect("a verdict")
}

#[test]
fn both_limits_must_hold() {
    for (window_s, requests, verdict) in [
        (20.0, 1.0, Verdict::Pass),
        (40.0, 300.0, Verdict::Pass),
        (19.999, 1.0, Verdict::Fail),
        (20.0, 0.0, Verdict::Fail),
    ] {
        let finding = judge(&run(window_s, requests));
        assert_eq!(finding.verdict, verdict, "{}", finding.statement);
        assert_eq!(finding.measures.len(), 2);
    }
    let finding = judge(&run(19.999, 1.0));
    assert!(
        finding.statement.contains("19.999 s, at least 20 s"),
        "{}",
        finding.statement
    );
}

#[test]
fn unobserved_never_passes() {
    for missing in ["staleness.window_s", "staleness.victim_bound_requests"] {
        let mut run = run(30.0, 5.0);
        run.absent(missing, "no balancer was watched");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::NotObserved, "{missing}");
        assert!(finding.statement.contains("no balancer was watched"));
    }
}

#[test]
fn other_faults_are_not_its_business() {
    let mut run = run(30.0, 5.0);
    run.faults[0].variant_name = "process-kill".into();
    assert_eq!(judge(&run).verdict, Verdict::NotApplicable);
    run.faults[0].variant_name = "network-black-hole".into();
    assert_eq!(judge(&run).verdict, Verdict::Pass);
    run.faults.clear();
    assert_eq!(judge(&run).verdict, Verdict::NotApplicable);
}

#[test]
fn limits_come_from_the_configuration() {
    let config = parse::<Config>(r#"{"min_window_s":5}"#).expect("good");
    let finding = Staleness::evaluate(config, &run(5.0, 1.0)).expect("a verdict");
    assert_eq!(finding.verdict, Verdict::Pass);
    assert!(parse::<Config>(r#"{"min_window_s":-1}"#).is_err());
    assert!(parse::<Config>(r#"{"min_requests":0}"#).is_err());
}
