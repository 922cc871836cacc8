use blackstart_sdk::config::parse;
use blackstart_sdk::gate::{Finding, ValidityGate, Verdict};
use blackstart_sdk::testing::FakeEvidence;

use crate::{Config, Queue};

fn run(means: &[f64]) -> FakeEvidence {
    let mut run = FakeEvidence::default();
    let ids: Vec<String> = (0..means.len()).map(|i| format!("vllm-{i}")).collect();
    run.replicas(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    for (id, mean) in ids.iter().zip(means) {
        run.set(&format!("waiting.mean.{id}"), *mean, "1")
            .set(&format!("waiting.samples.{id}"), 300.0, "1")
            .set(&format!("waiting.scrape_errors.{id}"), 2.0, "1");
    }
    run
}

fn judge(run: &FakeEvidence) -> Finding {
    Queue::evaluate(Config::default(), run).expect("a verdict")
}

#[test]
fn every_replica_must_be_within_the_limit() {
    for (means, verdict) in [
        (&[0.0][..], Verdict::Pass),
        (&[1.0], Verdict::Pass),
        (&[1.001], Verdict::Fail),
        (&[0.2, 1.0], Verdict::Pass),
        (&[0.2, 1.001], Verdict::Fail),
    ] {
        let finding = judge(&run(means));
        assert_eq!(finding.verdict, verdict, "{means:?}");
        assert_eq!(finding.measures.len(), 3 * means.len());
    }
    let finding = judge(&run(&[0.2, 1.001]));
    assert_eq!(
        finding.statement,
        "vllm-1: 1.001 requests waiting on average of 300 samples (2 failed scrapes), at most 1"
    );
}

#[test]
fn unobserved_never_passes() {
    for missing in [
        "waiting.mean.vllm-1",
        "waiting.samples.vllm-1",
        "waiting.scrape_errors.vllm-1",
    ] {
        let mut run = run(&[0.1, 0.1]);
        run.absent(missing, "the server has no such gauge");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::NotObserved, "{missing}");
        assert!(
            finding.statement.contains("no such gauge"),
            "{}",
            finding.statement
        );
    }
    let mut no_sample = run(&[0.0]);
    no_sample.set("waiting.samples.vllm-0", 0.0, "1");
    let finding = judge(&no_sample);
    assert_eq!(finding.verdict, Verdict::NotObserved);
    assert!(
        finding.statement.contains("no sample"),
        "{}",
        finding.statement
    );
    assert_eq!(
        judge(&FakeEvidence::default()).verdict,
        Verdict::NotObserved
    );
}

#[test]
fn failed_scrapes_are_told_and_decide_nothing() {
    let mut run = run(&[0.5]);
    run.set("waiting.scrape_errors.vllm-0", 40.0, "1");
    let finding = judge(&run);
    assert_eq!(finding.verdict, Verdict::Pass);
    assert!(
        finding.statement.contains("40 failed scrapes"),
        "{}",
        finding.statement
    );
}

#[test]
fn the_limit_comes_from_the_configuration() {
    let config = parse::<Config>(r#"{"max_mean_waiting":0.5}"#).expect("good");
    let verdict = |mean| {
        Queue::evaluate(config.clone(), &run(&[mean]))
            .expect("a verdict")
            .verdict
    };
    assert_eq!(verdict(0.5), Verdict::Pass);
    assert_eq!(verdict(0.51), Verdict::Fail);
    assert!(parse::<Config>(r#"{"max_mean_waiting":-1}"#).is_err());
}
