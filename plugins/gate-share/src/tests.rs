use blackstart_sdk::NoConfig;
use blackstart_sdk::config::parse;
use blackstart_sdk::gate::{Finding, ValidityGate, Verdict};
use blackstart_sdk::testing::FakeEvidence;

use crate::{Config, Share};

fn run(shares: &[f64], per_request: Option<f64>) -> FakeEvidence {
    let mut run = FakeEvidence::default();
    let ids: Vec<String> = (0..shares.len()).map(|i| format!("vllm-{i}")).collect();
    run.replicas(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    for (id, share) in ids.iter().zip(shares) {
        run.set(&format!("share.{id}"), *share, "%");
    }
    run.set("share.replicas_declared", shares.len() as f64, "1");
    run.set("share.replicas_seen", shares.len() as f64, "1");
    match per_request {
        Some(value) => run.set("routing.per_request", value, "1"),
        None => run.absent("routing.per_request", "replicas are addressed directly"),
    };
    run
}

fn judge(run: &FakeEvidence) -> Finding {
    Share::evaluate(Config::default(), run).expect("a verdict")
}

#[test]
fn the_band_is_enforced_per_request() {
    for (a, verdict) in [
        (50.0, Verdict::Pass),
        (45.0, Verdict::Pass),
        (55.0, Verdict::Pass),
        (44.99, Verdict::Fail),
        (55.01, Verdict::Fail),
    ] {
        let finding = judge(&run(&[a, 100.0 - a], Some(1.0)));
        assert_eq!(finding.verdict, verdict, "{a}: {}", finding.statement);
        assert!(
            finding
                .measures
                .iter()
                .any(|m| m.name == "share.vllm-0" && m.value == a)
        );
        assert!(
            finding.statement.contains("45 to 55 %"),
            "{}",
            finding.statement
        );
    }
}

#[test]
fn per_connection_the_shares_only_describe() {
    let finding = judge(&run(&[80.0, 20.0], Some(0.0)));
    assert_eq!(finding.verdict, Verdict::Pass);
    assert!(
        finding.statement.contains("only describe"),
        "{}",
        finding.statement
    );
}

#[test]
fn a_replica_that_was_never_seen_fails_in_either() {
    for per_request in [Some(0.0), Some(1.0), None] {
        let mut run = run(&[50.0, 50.0], per_request);
        run.set("share.replicas_seen", 1.0, "1");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(
            finding.statement.contains("1 of 2"),
            "{}",
            finding.statement
        );
    }
}

#[test]
fn unknown_routing_matters_only_outside_the_band() {
    assert_eq!(judge(&run(&[50.0, 50.0], None)).verdict, Verdict::Pass);
    let finding = judge(&run(&[60.0, 40.0], None));
    assert_eq!(finding.verdict, Verdict::NotObserved);
    assert!(
        finding.statement.contains("addressed directly"),
        "{}",
        finding.statement
    );
}

#[test]
fn one_replica_has_nothing_to_share() {
    let finding = judge(&run(&[100.0], Some(1.0)));
    assert_eq!(finding.verdict, Verdict::NotApplicable);
}

#[test]
fn unobserved_never_passes() {
    for missing in [
        "share.vllm-0",
        "share.vllm-1",
        "share.replicas_seen",
        "share.replicas_declared",
    ] {
        let mut run = run(&[50.0, 50.0], Some(1.0));
        run.absent(missing, "the records name no replica");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::NotObserved, "{missing}");
        assert!(finding.statement.contains("the records name no replica"));
    }
    let mut nan = run(&[50.0, 50.0], Some(1.0));
    nan.set("share.vllm-0", f64::NAN, "%");
    assert_eq!(judge(&nan).verdict, Verdict::NotObserved);
    assert_eq!(
        judge(&FakeEvidence::default()).verdict,
        Verdict::NotObserved
    );
    let mut nobody = run(&[50.0, 50.0], Some(1.0));
    nobody.replicas(&[]);
    assert_eq!(judge(&nobody).verdict, Verdict::NotObserved);
}

#[test]
fn limits_can_be_moved_but_not_crossed() {
    let config = parse::<Config>(r#"{"min_percent":30,"max_percent":36}"#).expect("good");
    let three = run(&[33.3, 33.3, 33.4], Some(1.0));
    let finding = Share::evaluate(config, &three).expect("a verdict");
    assert_eq!(finding.verdict, Verdict::Pass);
    assert!(parse::<Config>(r#"{"min_percent":60,"max_percent":40}"#).is_err());
    assert!(parse::<Config>(r#"{"max_percent":101}"#).is_err());
    assert!(parse::<NoConfig>(r#"{"max_percent":50}"#).is_err());
}

#[test]
fn of_more_than_two_replicas_the_methods_band_says_nothing() {
    for shares in [[33.3, 33.3, 33.4], [80.0, 10.0, 10.0]] {
        let finding = judge(&run(&shares, Some(1.0)));
        assert_eq!(finding.verdict, Verdict::NotApplicable);
        assert!(
            finding
                .statement
                .contains("two replicas, and 3 are declared"),
            "{}",
            finding.statement
        );
    }
    // A replica that was never seen fails however many there are.
    let mut unseen = run(&[50.0, 50.0, 0.0], Some(1.0));
    unseen.set("share.replicas_seen", 2.0, "1");
    assert_eq!(judge(&unseen).verdict, Verdict::Fail);
    // Unobserved never turns into not applicable.
    let mut unknown = run(&[33.3, 33.3, 33.4], Some(1.0));
    unknown.absent("share.replicas_seen", "the records name no replica");
    assert_eq!(judge(&unknown).verdict, Verdict::NotObserved);
    // Half a band that leaves no room for the method's other half is no band.
    let half = parse::<Config>(r#"{"min_percent":60}"#).expect("good");
    let finding = Share::evaluate(half, &run(&[50.0, 50.0], Some(1.0))).expect("a verdict");
    assert_eq!(finding.verdict, Verdict::NotObserved);
    // A band of the campaign's own is enforced.
    let config = parse::<Config>(r#"{"min_percent":30,"max_percent":36}"#).expect("good");
    let finding = Share::evaluate(config, &run(&[80.0, 10.0, 10.0], Some(1.0))).expect("a verdict");
    assert_eq!(finding.verdict, Verdict::Fail);
}
