//! Whether a run counts.

use blackstart_plan::Plan;
use blackstart_record::{Finding, GateSeverity, GateVerdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FireClock, ProofSummary, RunAnalysis};

/// One reason why a run does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InvalidReason {
    /// Stable code: a gate's id, or `fault_not_proven`, `fire_error`, `never_fired`,
    /// `unexpected_effect`, `effect_failed`, `records_missing`, `partial`, `clock_offset_unmeasured`, `no_requests`.
    pub code: String,
    /// The sentence.
    pub detail: String,
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Validity {
    /// Whether the run counts.
    pub valid: bool,
    /// Every reason why not.
    pub reasons: Vec<InvalidReason>,
    /// Labels that the run may carry after the gates that decide them.
    pub labels: Vec<String>,
    /// Labels that it lost, with the gate's id.
    pub labels_lost: Vec<String>,
}

/// Judges a run: by its gates' findings, and by what no gate sees.
pub fn validity(plan: &Plan, run: &RunAnalysis, findings: &[Finding]) -> Validity {
    let mut reasons = Vec::new();
    let mut invalid = |code: &str, detail: String| {
        reasons.push(InvalidReason {
            code: code.to_owned(),
            detail,
        });
    };
    for finding in findings.iter().filter(|f| f.invalidates()) {
        let state = match finding.verdict {
            GateVerdict::NotObserved => "not observed",
            _ => "failed",
        };
        invalid(
            &finding.id,
            format!(
                "gate {} ({}) {state}: {}",
                finding.id, finding.title, finding.detail
            ),
        );
    }
    for gate in &plan.gates {
        if !findings.iter().any(|f| f.id == gate.id) {
            invalid(
                &gate.id,
                format!("gate {} is planned but has no finding", gate.id),
            );
        }
    }
    if run.partial {
        invalid(
            "partial",
            run.partial_note
                .clone()
                .unwrap_or_else(|| "the run ended early".to_owned()),
        );
    }
    if run.requests_recorded != run.requests_planned {
        invalid(
            "records_missing",
            format!(
                "{} requests were scheduled, {} have a record",
                run.requests_planned, run.requests_recorded
            ),
        );
    }
    if run.requests_recorded == 0 {
        invalid("no_requests", "the run has no request records".to_owned());
    }
    if run.fire.clock == FireClock::Unmeasured {
        invalid(
            "clock_offset_unmeasured",
            "the offset of the clock that bracketed the fire was not measured at arm time and again afterwards".to_owned(),
        );
    }
    if plan.fault.is_some() {
        fault(plan, run, &mut invalid);
    }
    let (labels, labels_lost) = labels(plan, findings);
    Validity {
        valid: reasons.is_empty(),
        reasons,
        labels,
        labels_lost,
    }
}

fn fault(plan: &Plan, run: &RunAnalysis, invalid: &mut impl FnMut(&str, String)) {
    let said = run
        .fault
        .proof_statement
        .as_deref()
        .unwrap_or("no statement");
    if run.negative_control {
        if run.fire.fired || run.fault.proof == ProofSummary::Happened {
            invalid(
                "unexpected_effect",
                format!(
                    "a negative control must not harm anything, but an effect was executed or proven: {said}"
                ),
            );
        }
        return;
    }
    if !run.fire.fired {
        invalid(
            "never_fired",
            "no effect of the fault was started".to_owned(),
        );
        return;
    }
    match run.fault.proof {
        ProofSummary::Happened => {}
        ProofSummary::DidNotHappen => {
            invalid(
                "fault_not_proven",
                format!("the fault did not happen: {said}"),
            );
        }
        ProofSummary::CannotTell => {
            invalid(
                "fault_not_proven",
                format!("the facts do not decide whether the fault happened: {said}"),
            );
        }
        ProofSummary::NotRecorded | ProofSummary::NotApplicable => {
            invalid(
                "fault_not_proven",
                "no verdict on the fault was recorded".to_owned(),
            );
        }
    }
    for effect in &run.fault.effects {
        if let Some(failure) = &effect.failure {
            invalid(
                "effect_failed",
                format!(
                    "effect {} ({}) failed: {failure}",
                    effect.effect, effect.action
                ),
            );
        }
    }
    let limit_ms = plan.method.fire_error_max_ns as f64 / 1e6;
    match run.fire.fire_error_ms {
        Some(error) if error.abs() > limit_ms => invalid(
            "fire_error",
            format!("fired {error:.3} ms from the plan, more than {limit_ms:.3} ms"),
        ),
        None if run.fire.clock != FireClock::Unmeasured => invalid(
            "fire_error",
            "the distance between planned and actual fire is not measured".to_owned(),
        ),
        _ => {}
    }
}

fn labels(plan: &Plan, findings: &[Finding]) -> (Vec<String>, Vec<String>) {
    let mut kept = plan
        .fault
        .as_ref()
        .map(|f| f.labels.clone())
        .unwrap_or_default();
    let mut lost = Vec::new();
    for finding in findings {
        if finding.severity == GateSeverity::StripsLabel
            && matches!(
                finding.verdict,
                GateVerdict::Fail | GateVerdict::NotObserved
            )
            && let Some(label) = &finding.label
            && kept.contains(label)
        {
            kept.retain(|l| l != label);
            lost.push(format!("{label} ({})", finding.id));
        }
    }
    (kept, lost)
}
