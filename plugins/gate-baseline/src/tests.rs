use blackstart_sdk::config::parse;
use blackstart_sdk::gate::{Finding, ValidityGate, Verdict};
use blackstart_sdk::testing::FakeEvidence;

use crate::{Baseline, Config};

fn judge(goodput: f64, config: Config) -> Finding {
    let mut run = FakeEvidence::default();
    run.set("goodput.baseline", goodput, "1");
    Baseline::evaluate(config, &run).expect("a verdict")
}

#[test]
fn the_limit_is_a_pass_and_below_it_a_failure() {
    for (goodput, verdict) in [
        (1.0, Verdict::Pass),
        (0.99, Verdict::Pass),
        (99.0 / 100.0, Verdict::Pass),
        (0.989_999, Verdict::Fail),
        (0.0, Verdict::Fail),
    ] {
        let finding = judge(goodput, Config::default());
        assert_eq!(finding.verdict, verdict, "{goodput}");
        assert!(
            finding.statement.contains("at least 0.99"),
            "{}",
            finding.statement
        );
        assert_eq!(finding.measures[0].value, goodput);
    }
}

#[test]
fn unobserved_never_passes() {
    let mut run = FakeEvidence::default();
    run.absent("goodput.baseline", "no request falls in the baseline");
    let finding = Baseline::evaluate(Config::default(), &run).expect("a verdict");
    assert_eq!(finding.verdict, Verdict::NotObserved);
    assert!(
        finding
            .statement
            .contains("no request falls in the baseline")
    );
    assert_eq!(
        judge(f64::NAN, Config::default()).verdict,
        Verdict::NotObserved
    );
}

#[test]
fn the_limit_comes_from_the_configuration() {
    let config = parse::<Config>(r#"{"min_goodput":0.9}"#).expect("good");
    assert_eq!(judge(0.9, config).verdict, Verdict::Pass);
    for bad in [
        r#"{"min_goodput":1.01}"#,
        r#"{"min_goodput":-0.1}"#,
        r#"{"min_goodput":"all"}"#,
    ] {
        assert!(parse::<Config>(bad).is_err(), "{bad}");
    }
}
