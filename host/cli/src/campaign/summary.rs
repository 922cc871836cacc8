//! What a person sees of a campaign in the terminal: the timeline, the live line, each run's result,
//! and the end.

use std::path::Path;
use std::time::Instant;

use blackstart_analyze::precision::{self, seconds_text};
use blackstart_analyze::{EndpointKind, ProofSummary, RequestLosses, RunAnalysis};
use blackstart_load::Progress;
use blackstart_plan::{PhaseName, Plan, Profile, RunPlan};
use blackstart_record::GateVerdict;
use blackstart_report::gate_figures;

use super::fault_host::describe;
use super::prepare::Prepared;
use super::results::{AnalysedRun, CampaignEnd};
use crate::live;
use crate::output::out_text;
use crate::reporter::Reporter;
use crate::when::length;

/// Prints the timeline of a run: phases and effects. For `--dry-run`.
pub fn timeline(prepared: &Prepared) {
    let plan = &prepared.plan;
    out_text!(
        "campaign   {} ({} profile)",
        plan.campaign,
        profile(plan.profile)
    );
    for deviation in &plan.deviations {
        out_text!("           departs from the method: {deviation}");
    }
    out_text!(
        "load       {} req/s {} to {}{}, {} tokens each, client timeout {}",
        plan.load.rate_per_s,
        plan.load.arrivals,
        plan.load.base_url,
        plan.load.endpoint.path(),
        plan.load.max_tokens,
        length(plan.load.timeout_ns)
    );
    for replica in &plan.target.replicas {
        let roles: Vec<&str> = replica.process_roles.keys().map(String::as_str).collect();
        out_text!(
            "replica    {} at {} (processes: {})",
            replica.id,
            replica.base_url,
            roles.join(", ")
        );
    }
    if let Some(fault) = &plan.fault {
        out_text!(
            "fault      {}: {}",
            fault.variant,
            fault.statement.as_deref().unwrap_or("–")
        );
        let grant = &fault.grant;
        let granted: Vec<String> = [
            ("process", &grant.process),
            ("container", &grant.container),
            ("network", &grant.network),
            ("resources", &grant.resources),
            ("http", &grant.http),
        ]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(key, names)| format!("{key} = {names:?}"))
        .collect();
        out_text!("granted    {}", granted.join(", "));
    }
    out_text!(
        "gates      {}",
        plan.gates
            .iter()
            .map(|g| g.id.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    );
    for run in &plan.runs {
        out_text!(
            "run {:<6} seed {}, {} requests{}",
            run.run,
            run.seed,
            run.requests,
            if run.negative_control {
                " (negative control: the fault is withheld)"
            } else {
                ""
            }
        );
    }
    out_text!("\n{:>12}  event", "run time");
    let mut rows: Vec<(i64, String)> = vec![
        (0, "warm-up: load starts".to_owned()),
        (plan.phases.baseline_start_ns(), "baseline".to_owned()),
        (
            plan.phases.fault_window_end_ns(),
            "end of the fault window; cooldown".to_owned(),
        ),
        (
            plan.phases.load_end_ns(),
            "load ends; the run drains until each request has an outcome".to_owned(),
        ),
    ];
    if let Some(fault) = &prepared.fault {
        for (i, effect) in fault.effects.iter().enumerate() {
            rows.push((
                effect.at_ns,
                format!("effect {i}: {}", describe(&effect.action)),
            ));
            if let Some(until) = effect.until_ns {
                rows.push((
                    until,
                    format!("effect {i}: undone by the host (watched over by the watchdog)"),
                ));
            }
        }
    }
    rows.sort_by_key(|(at, _)| *at);
    for (at, text) in rows {
        out_text!("{:>10.3} s  {text}", at as f64 / 1e9);
    }
}

fn profile(profile: Profile) -> &'static str {
    match profile {
        Profile::Published => "published",
        Profile::Free => "free",
    }
}

/// Says that a run begins.
pub fn run_starts(reporter: &Reporter, prepared: &Prepared, run: &RunPlan) {
    reporter.say(format!(
        "\nrun {}/{}    seed {}, {} requests{}",
        run.run,
        prepared.plan.runs.len(),
        run.seed,
        run.requests,
        if run.negative_control {
            ", negative control: the fault is withheld"
        } else {
            ""
        }
    ));
}

/// The line that moves while a run is under way; plain lines where nobody watches a terminal.
pub struct LiveLine<'a> {
    reporter: &'a Reporter,
    plan: &'a Plan,
    phase: Option<PhaseName>,
    spoken: Instant,
}

impl<'a> LiveLine<'a> {
    /// Shows it.
    pub fn new(reporter: &'a Reporter, plan: &'a Plan, _run: &RunPlan) -> Self {
        reporter
            .start_bar(u64::try_from(plan.phases.load_end_ns() / 1_000_000).unwrap_or_default());
        Self {
            reporter,
            plan,
            phase: None,
            spoken: Instant::now(),
        }
    }

    /// Moves it.
    pub fn show(&mut self, now_ns: i64, progress: &Progress) {
        let (phase, ends) = self.plan.phases.at(now_ns);
        let name = match phase {
            PhaseName::Warmup => "warm-up",
            PhaseName::Baseline => "baseline",
            PhaseName::Fault => "FAULT",
            PhaseName::Cooldown => "cooldown",
            PhaseName::Drain => "drain",
        };
        let fire_in = self.plan.phases.fire_at_ns() - now_ns;
        let countdown = if self.plan.fault.is_some() && fire_in > 0 {
            format!(" · fault in {:.0} s", fire_in as f64 / 1e9)
        } else {
            String::new()
        };
        let place = format!(
            "{name:<8} {:>5.1} s left{countdown}",
            ends.map_or(0.0, |e| (e - now_ns) as f64 / 1e9)
        );
        if self.reporter.is_terminal() {
            self.reporter.progress(
                u64::try_from(now_ns.max(0) / 1_000_000).unwrap_or_default(),
                format!("{place} · {}", live::moving(progress)),
            );
        } else if self.phase != Some(phase) || self.spoken.elapsed() >= live::PLAIN_INTERVAL {
            self.spoken = Instant::now();
            self.reporter.say(format!(
                "{:>7.1} s  {place} · {}",
                now_ns as f64 / 1e9,
                live::plain(progress)
            ));
        }
        self.phase = Some(phase);
    }

    /// Takes it away.
    pub fn end(self) {
        self.reporter.end_bar();
    }
}

/// Says what a run found.
pub fn run_ends(reporter: &Reporter, prepared: &Prepared, run: &AnalysedRun) {
    let a = &run.analysis;
    if prepared.plan.fault.is_some() {
        fault(reporter, a);
    } else {
        reporter.say_hanging(11, format!("  lost     {}", lost(&a.losses)));
    }
    for finding in &run.findings {
        let (mark, word) = match finding.verdict {
            GateVerdict::Pass => ("✓", "pass"),
            GateVerdict::Fail => ("✗", "FAIL"),
            GateVerdict::NotObserved => ("✗", "NOT OBSERVED"),
            GateVerdict::NotApplicable => ("–", "not applicable"),
        };
        let figures = gate_figures(&prepared.plan, finding);
        let (detail, below) = match (finding.detail.as_str(), figures) {
            ("", figures) => (figures, String::new()),
            (detail, figures) => (detail.to_owned(), figures),
        };
        reporter.say_hanging(8, format!("  {mark} {:<3} {word}: {detail}", finding.id));
        if !below.is_empty() {
            reporter.say_hanging(8, format!("        {below}"));
        }
    }
    if run.validity.valid {
        reporter.say(format!("  run {} is valid", a.run));
    } else {
        reporter.say(format!("  run {} is INVALID", a.run));
        for reason in &run.validity.reasons {
            reporter.say_hanging(6, format!("    {}: {}", reason.code, reason.detail));
        }
    }
}

/// A figure, or why there is none.
fn or_note(value: Option<String>, note: &Option<String>) -> String {
    value.unwrap_or_else(|| {
        format!(
            "not measured: {}",
            note.as_deref().unwrap_or("no reason recorded")
        )
    })
}

/// What the fault did: proof, outage, goodput, losses, phases.
fn fault(reporter: &Reporter, a: &RunAnalysis) {
    // Of what was withheld a plugin can only say that it did not come about.
    let said = if a.negative_control && !a.fire.fired && a.fault.proof != ProofSummary::Happened {
        "no effect was executed"
    } else {
        a.fault.proof_statement.as_deref().unwrap_or("no statement")
    };
    reporter.say_hanging(11, format!("  fault    {}: {said}", proof(a)));
    if a.negative_control && !a.fire.fired {
        // There is no outage of a fault that was withheld; what a control shows is that service held.
        let held = a.control_outage.as_deref().map_or_else(
            || "service held".to_owned(),
            |seen| format!("service did NOT hold: {seen}"),
        );
        reporter.say(format!("  control  {held}"));
        reporter.say_hanging(11, format!("  lost     {}", lost(&a.losses)));
        return;
    }
    let outage = a.outage_s.map(|s| seconds_text(s, a.outage_uncertainty_s));
    reporter.say_hanging(
        11,
        format!("  outage   {}", or_note(outage, &a.outage_note)),
    );
    let back = a.ttr_pre_fault_s.map(|s| {
        format!(
            "back after {}",
            seconds_text(s, a.ttr_pre_fault_uncertainty_s)
        )
    });
    reporter.say_hanging(
        11,
        format!("  goodput  {}", or_note(back, &a.ttr_pre_fault_note)),
    );
    if let Some(lead) = &a.goodput_lead_note {
        reporter.say_hanging(11, format!("           ({lead})"));
    }
    if let Some(said) = &a.recovery_cross_check {
        reporter.say_hanging(11, format!("  check    recovery_cross_check: {said}"));
    }
    reporter.say_hanging(11, format!("  lost     {}", lost(&a.losses)));
    match &a.in_flight_determinate {
        Some(d) => reporter.say(format!(
            "           in flight at the fire: {} errored, {} left hanging, {} completed of {} for certain; {} ended too close to it to tell",
            d.errored,
            d.censored,
            d.completed,
            d.total,
            a.in_flight_indeterminate.map_or_else(|| "–".to_owned(), |n| n.to_string())
        )),
        None => reporter.say(format!(
            "           in flight at the fire: {}",
            or_note(None, &a.in_flight_note)
        )),
    }
    if let Some(partition) = &a.decomposition.partition {
        for phase in &partition.phases {
            reporter.say(format!(
                "  {:<28} {:>14}  {:>5.1} %{}",
                blackstart_report::phase_words(&phase.name),
                seconds_text(phase.duration_s, Some(phase.uncertainty_s)),
                phase.share_percent,
                match (phase.explained, phase.resolved()) {
                    (true, true) => "",
                    (true, false) => "  (order not resolved)",
                    (false, true) => "  (no boundary explains it)",
                    (false, false) => "  (no boundary explains it; order not resolved)",
                }
            ));
        }
    }
}

/// The word for what is known of the fault.
fn proof(a: &RunAnalysis) -> &'static str {
    match a.fault.proof {
        ProofSummary::Happened if a.negative_control => "EXECUTED, though it was to be withheld",
        ProofSummary::Happened => "proven",
        _ if a.negative_control && !a.fire.fired => "withheld (negative control)",
        _ if a.fire.unobserved => "NOT OBSERVED",
        _ => "NOT PROVEN",
    }
}

/// Every request that was lost, by when it met the fault. The groups add up to the whole.
fn lost(losses: &RequestLosses) -> String {
    let mut text = format!("{} of {} requests", losses.lost, losses.all.total);
    if let Some(split) = &losses.split {
        let groups: Vec<String> = split
            .groups()
            .into_iter()
            .filter(|(_, c)| c.total > 0)
            .map(|(what, c)| format!("{} of {} {what}", c.lost(), c.total))
            .collect();
        text.push_str(&format!(": {}", groups.join(", ")));
    }
    for (n, what) in [
        (losses.never_sent, "never sent (the run was cut off)"),
        (losses.unrecorded, "without a record"),
    ] {
        if n > 0 {
            text.push_str(&format!("; {n} more {what}"));
        }
    }
    text
}

/// Says what the campaign found.
pub fn campaign_ends(reporter: &Reporter, plan: &Plan, end: &CampaignEnd, dir: &Path) {
    let analysis = &end.analysis;
    reporter.say(format!(
        "\ncampaign   {}: {} valid, {} invalid of {} runs{}",
        plan.campaign,
        analysis.valid_runs,
        analysis.invalid_runs,
        analysis.repetitions,
        if end.partial {
            " (ended early: partial)"
        } else {
            ""
        }
    ));
    for endpoint in &analysis.endpoints {
        match endpoint.endpoint {
            EndpointKind::NotApplicable => reporter.say(format!(
                "  {:<28} not applicable: {}",
                endpoint.name,
                endpoint
                    .dropped_reason
                    .as_deref()
                    .unwrap_or("it cannot occur here")
            )),
            _ if endpoint.contributing_n == 0 => reporter.say(format!(
                "  {:<28} no value: {}",
                endpoint.name,
                endpoint
                    .dropped_reason
                    .as_deref()
                    .or(endpoint.km_note.as_deref())
                    .unwrap_or("no run contributes one")
            )),
            _ => reporter.say(format!(
                "  {:<28} {}",
                endpoint.name, endpoint.summary.headline
            )),
        }
    }
    let phases: Vec<String> = analysis
        .segments
        .iter()
        .filter_map(|e| {
            let name = e.name.strip_prefix("phase.")?.strip_suffix("_s")?;
            let decimals = precision::decimals(e.uncertainty).min(2);
            let words = blackstart_report::phase_words(name);
            Some(format!(
                "{words} {}",
                precision::plain(e.summary.median?, decimals)
            ))
        })
        .collect();
    if !phases.is_empty() {
        reporter.say(format!(
            "  phases, median seconds       {}",
            phases.join(" · ")
        ));
    }
    for caveat in &analysis.caveats {
        if caveat.contains("recovery_cross_check") {
            reporter.say_hanging(4, format!("  {caveat}"));
        }
    }
    if plan.profile == Profile::Free {
        reporter.say(format!(
            "  free profile: {} settings depart from the published method (listed in the report)",
            plan.deviations.len()
        ));
    }
    reporter.say(format!("report     {}", dir.join("report.html").display()));
}

#[cfg(test)]
mod tests {
    use blackstart_analyze::{InFlightCounts, LossSplit};

    use super::*;

    fn counts(completed: u64, errored: u64, censored: u64) -> InFlightCounts {
        InFlightCounts {
            total: completed + errored + censored,
            completed,
            errored,
            censored,
        }
    }

    #[test]
    fn losses_are_named_group_by_group_and_add_up() {
        let losses = RequestLosses {
            planned: 130,
            all: counts(80, 15, 5),
            lost: 20,
            never_sent: 30,
            unrecorded: 0,
            split: Some(LossSplit {
                in_flight: counts(0, 4, 1),
                before_fire: counts(50, 0, 0),
                waiting_at_fire: counts(0, 0, 0),
                during_outage: counts(0, 11, 3),
                after_outage: counts(30, 0, 1),
            }),
            note: None,
        };
        assert_eq!(
            lost(&losses),
            "20 of 100 requests: 0 of 50 before the fire, 5 of 5 in flight at the fire, \
             14 of 14 during the outage, 1 of 31 after it; 30 more never sent (the run was cut off)"
        );
    }
}
