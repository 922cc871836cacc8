use blackstart_sdk::NoConfig;
use blackstart_sdk::gate::{Finding, ValidityGate, Verdict};
use blackstart_sdk::testing::FakeEvidence;

use crate::Fingerprint;

fn run(expected: f64, sources: f64, distinct: f64) -> FakeEvidence {
    let mut run = FakeEvidence::default();
    run.set("target.accelerators_declared", 1.0, "1")
        .set("fingerprint.expected", expected, "1")
        .set("fingerprint.sources", sources, "1")
        .set("fingerprint.distinct", distinct, "1");
    run
}

fn judge(run: &FakeEvidence) -> Finding {
    Fingerprint::evaluate(NoConfig {}, run).expect("a verdict")
}

#[test]
fn one_fingerprint_of_all_accelerators_passes() {
    assert_eq!(judge(&run(2.0, 2.0, 1.0)).verdict, Verdict::Pass);
    assert_eq!(judge(&run(4.0, 4.0, 1.0)).verdict, Verdict::Pass);
    let finding = judge(&run(2.0, 2.0, 2.0));
    assert_eq!(finding.verdict, Verdict::Fail);
    assert!(
        finding.statement.contains("2 different"),
        "{}",
        finding.statement
    );
    assert_eq!(finding.measures.len(), 4);
}

#[test]
fn without_accelerators_there_is_nothing_to_compare() {
    let mut run = FakeEvidence::default();
    run.set("target.accelerators_declared", 0.0, "1")
        .absent("fingerprint.distinct", "no accelerator");
    let finding = judge(&run);
    assert_eq!(finding.verdict, Verdict::NotApplicable);
    assert_eq!(
        finding.statement,
        "the configuration declares no accelerator"
    );
}

#[test]
fn unobserved_never_passes() {
    for missing in [
        "target.accelerators_declared",
        "fingerprint.expected",
        "fingerprint.sources",
        "fingerprint.distinct",
    ] {
        let mut run = run(2.0, 2.0, 1.0);
        run.absent(missing, "nvidia-smi is not there");
        let finding = judge(&run);
        assert_eq!(finding.verdict, Verdict::NotObserved, "{missing}");
        assert!(
            finding.statement.contains("nvidia-smi"),
            "{}",
            finding.statement
        );
    }
    // One of two was read: it is equal to itself, which says nothing of the other.
    let finding = judge(&run(2.0, 1.0, 1.0));
    assert_eq!(finding.verdict, Verdict::NotObserved);
    assert!(
        finding.statement.contains("1 of 2 readings"),
        "{}",
        finding.statement
    );
    assert_eq!(judge(&run(2.0, 3.0, 1.0)).verdict, Verdict::NotObserved);
    assert_eq!(judge(&run(2.0, 2.0, 0.0)).verdict, Verdict::NotObserved);
}

#[test]
fn a_difference_fails_also_when_not_all_were_read() {
    assert_eq!(judge(&run(3.0, 2.0, 2.0)).verdict, Verdict::Fail);
}
