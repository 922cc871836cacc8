//! Whether a run counts.

use std::collections::BTreeMap;

use blackstart_plan::{Accelerators, Plan};
use blackstart_record::{Finding, GateSeverity, GateVerdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EffectSummary, FireClock, ProofSummary, RunAnalysis};

/// One reason why a run does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InvalidReason {
    /// Stable code: a gate's id, or `fault_not_proven`, `fire_error`, `never_fired`,
    /// `fire_unobserved`,
    /// `unexpected_effect`, `control_outage`, `effect_failed`, `fingerprint_differs`,
    /// `records_missing`, `partial`, `clock_offset_unmeasured`, `no_requests`.
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
    // A label says what the fault of a run stands for; a control has none.
    let (labels, labels_lost) = if run.negative_control {
        (Vec::new(), Vec::new())
    } else {
        labels(plan, findings)
    };
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
        if let Some(seen) = &run.control_outage {
            invalid(
                "control_outage",
                format!("service must hold in a negative control, but it did not: {seen}"),
            );
        }
        return;
    }
    if run.fire.unobserved {
        invalid(
            "fire_unobserved",
            run.fire
                .note
                .clone()
                .unwrap_or_else(|| "the record of events ends before the fire".to_owned()),
        );
        return;
    }
    if !run.fire.fired {
        let failures: Vec<String> = run.fault.effects.iter().filter_map(failure).collect();
        let why = if failures.is_empty() {
            String::new()
        } else {
            format!(": {}", failures.join("; "))
        };
        invalid(
            "never_fired",
            format!("no effect of the fault was started{why}"),
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
    for failure in run.fault.effects.iter().filter_map(failure) {
        invalid("effect_failed", failure);
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

/// What an effect was to do, and why it failed.
fn failure(effect: &EffectSummary) -> Option<String> {
    effect.failure.as_ref().map(|failure| {
        format!(
            "effect {} ({}) failed: {failure}",
            effect.effect, effect.action
        )
    })
}

/// What only the runs together show, by run: accelerators that are not those of the other runs.
///
/// The reference is the fingerprint that most runs agree on, among runs that have a single one; of
/// equally frequent ones the first. A run without a reading has nothing to compare, which gate G5
/// says by itself.
pub fn campaign_validity(plan: &Plan, runs: &[RunAnalysis]) -> BTreeMap<u32, Vec<InvalidReason>> {
    let mut found = BTreeMap::new();
    if plan.target.accelerators == Accelerators::None {
        return found;
    }
    let uniform = || {
        runs.iter()
            .map(|r| &r.fingerprint.fingerprints)
            .filter(|f| f.len() == 1)
    };
    let mut reference = None;
    let mut most = 0;
    for candidate in uniform() {
        let count = uniform().filter(|f| *f == candidate).count();
        if count > most {
            most = count;
            reference = Some(candidate);
        }
    }
    let Some(reference) = reference else {
        return found;
    };
    for run in runs {
        let own = &run.fingerprint.fingerprints;
        if !own.is_empty() && own != reference {
            found.insert(
                run.run,
                vec![InvalidReason {
                    code: "fingerprint_differs".to_owned(),
                    detail: format!(
                        "accelerators must be equal over all runs: this run had {}, while {most} of {} runs had {}",
                        own.join(" and "),
                        runs.len(),
                        reference.join(" and ")
                    ),
                }],
            );
        }
    }
    found
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
