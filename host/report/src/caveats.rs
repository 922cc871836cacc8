//! What must be said beside every figure of a report.

use blackstart_plan::{Profile, Routing};

use crate::json::ReportInput;

/// The caveats of a campaign, the weightiest first.
pub(crate) fn caveats(input: &ReportInput<'_>) -> Vec<String> {
    let plan = input.plan;
    let mut all = Vec::new();
    if input.partial {
        let why = input.stopped.map_or_else(String::new, |why| {
            format!(" ({})", why.trim_end_matches('.'))
        });
        all.push(format!(
            "Partial: the campaign ended early{why}; figures describe what was recorded until then."
        ));
    }
    if plan.profile == Profile::Free {
        all.push(format!(
            "Free profile: {} settings depart from the published method, so these figures do not compare with published ones.",
            plan.deviations.len()
        ));
    }
    let invalid: Vec<String> = input
        .runs
        .iter()
        .filter(|r| !r.validity.valid)
        .map(|r| r.analysis.run.to_string())
        .collect();
    if !invalid.is_empty() {
        all.push(format!(
            "Invalid runs ({}) are shown and feed no campaign figure.",
            invalid.join(", ")
        ));
    }
    if let Some(fault) = &plan.fault {
        all.push(format!(
            "An injected `{}` stands for the mechanism it uses, not for every cause of such an outage.",
            fault.variant
        ));
    }
    if plan.target.routing == Routing::Direct {
        all.push("One replica, addressed directly: nothing here speaks of a load balancer or of surviving replicas.".to_owned());
    }
    if input.runs.len() < 5 {
        all.push(format!(
            "{} runs: intervals are wide, and no rank or sign test can reach p < 0.05.",
            input.runs.len()
        ));
    }
    for run in &input.runs {
        if let Some(said) = &run.analysis.recovery_cross_check {
            all.push(format!(
                "Run {}: recovery_cross_check: {said}",
                run.analysis.run
            ));
        }
        for note in &run.analysis.notes {
            all.push(format!("Run {}: {note}", run.analysis.run));
        }
    }
    all
}
