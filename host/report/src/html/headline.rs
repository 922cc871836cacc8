//! The top of the page: what happened, in sentences, and whether it may be trusted.

use std::collections::BTreeMap;

use blackstart_analyze::{Endpoint, EndpointKind, RecoveryStatus, RunAnalysis, Summary};

use crate::json::{CampaignReport, RunPart};

use super::markup::{absent, esc, list, put};
use super::num::{count, fixed, percent_of, plus_minus, range, secs, secs_at, secs_pm};
use super::words;

/// Runs whose counts are listed one by one in a sentence.
const MAX_RUNS_IN_A_SENTENCE: usize = 5;

/// Longest statement of a fault plugin that still reads as part of a sentence.
const MAX_STATEMENT_CHARS: usize = 160;

/// Headline, key figures, verdict, caveats.
pub(super) fn head(report: &CampaignReport) -> String {
    let campaign = &report.campaign;
    let mut out = String::from("<header class=\"top\">");
    put!(
        out,
        "<p class=\"kicker\">Blackstart campaign report <span aria-hidden=\"true\">·</span> {}</p>",
        esc(&campaign.config_name)
    );
    put!(out, "<h1>{}</h1>", title(report));
    put!(out, "<p class=\"headline\">{}</p>", sentences(report));
    out.push_str("</header>");
    out.push_str(&cards(report));
    out.push_str(&verdict(report));
    out
}

fn endpoint<'a>(report: &'a CampaignReport, name: &str) -> Option<&'a Endpoint> {
    report.campaign.endpoints.iter().find(|e| e.name == name)
}

/// Valid runs that had the fault.
fn counted(report: &CampaignReport) -> impl Iterator<Item = &RunPart> {
    report
        .campaign
        .per_run
        .iter()
        .filter(|r| r.valid && !r.analysis.negative_control)
}

/// What was done, as words that follow "after".
pub(super) fn fault_words(report: &CampaignReport) -> Option<String> {
    let variant = report.campaign.variant.as_deref()?;
    let mut runs = report.campaign.per_run.iter();
    let statement = report
        .campaign
        .statement
        .as_deref()
        .or_else(|| runs.find_map(|r| r.analysis.fault.statement.as_deref()))
        .filter(|s| !s.is_empty() && s.chars().count() <= MAX_STATEMENT_CHARS);
    Some(match statement {
        Some(said) => esc(said).to_string(),
        None => format!("the fault <code>{}</code>", esc(variant)),
    })
}

fn title(report: &CampaignReport) -> String {
    if let Some(controls) = Controls::of(report) {
        return controls.title();
    }
    match &report.campaign.variant {
        None => "Load without a fault".to_owned(),
        Some(_) => match endpoint(report, "outage_s").map(|e| (e, &e.summary)) {
            Some((e, s)) if e.censored.is_empty() => match (s.n, s.median) {
                (0, _) | (_, None) => "Outage not measured".to_owned(),
                (n, Some(median)) => {
                    let away = match (replicas(report), fell_again(report)) {
                        (None, 0) => "Away for".to_owned(),
                        (None, _) => "Away more than once, first for".to_owned(),
                        (Some(all), 0) => format!("One of {all} replicas away for"),
                        (Some(all), _) => {
                            format!("One of {all} replicas away more than once, first for")
                        }
                    };
                    let which = if n == 1 { "" } else { " (median)" };
                    format!("{away} {}{which}", secs_pm(median, e.uncertainty))
                }
            },
            Some((e, s)) => format!(
                "Not back in {} of {} runs",
                e.censored.len(),
                e.censored.len() as u64 + s.n
            ),
            None => "Outage not measured".to_owned(),
        },
    }
}

/// A campaign of negative controls only: nothing was to happen, and did or did not.
struct Controls {
    all: usize,
    /// Valid controls in which no outage was seen.
    passed: usize,
}

impl Controls {
    /// `None` where a run had its fault, or none was planned.
    fn of(report: &CampaignReport) -> Option<Self> {
        let runs = &report.campaign.per_run;
        report.campaign.variant.as_ref()?;
        if runs.is_empty() || runs.iter().any(|r| !r.analysis.negative_control) {
            return None;
        }
        let passed = |r: &&RunPart| r.valid && r.analysis.control_outage.is_none();
        Some(Self {
            all: runs.len(),
            passed: runs.iter().filter(passed).count(),
        })
    }

    fn title(&self) -> String {
        if self.passed == self.all {
            format!("Control passed: no outage in {}", all_runs(self.all as u64))
        } else {
            format!(
                "Control not passed in {} of {} {}",
                self.all - self.passed,
                self.all,
                runs(self.all as u64)
            )
        }
    }

    fn sentence(&self, report: &CampaignReport, fault: &str) -> String {
        let mut out = format!(
            "Everything went as for {fault}, but the fault was withheld: no outage may be seen, and none was in {} of {} {}.",
            self.passed,
            self.all,
            runs(self.all as u64)
        );
        for run in &report.campaign.per_run {
            if let Some(seen) = &run.analysis.control_outage {
                put!(out, " Run {}: {}.", run.analysis.run, esc(seen));
            } else if !run.valid {
                put!(
                    out,
                    " Run {} does not count, so it shows nothing.",
                    run.analysis.run
                );
            }
        }
        out
    }
}

/// The number of replicas where there are several.
fn replicas(report: &CampaignReport) -> Option<usize> {
    let first = report.campaign.per_run.first()?;
    Some(first.analysis.replicas.len()).filter(|n| *n > 1)
}

/// Who the outage is of: with one replica it is the service; with several only the victim was away.
fn who(report: &CampaignReport) -> String {
    let Some(all) = replicas(report) else {
        return "service".to_owned();
    };
    let victims = report
        .campaign
        .per_run
        .first()
        .map(|r| &r.analysis.fault.victims);
    match victims.map(Vec::as_slice) {
        Some([one]) => format!("replica {} (one of {all})", esc(one)),
        _ => format!("the first victim (of {all} replicas)"),
    }
}

fn sentences(report: &CampaignReport) -> String {
    let Some(fault) = fault_words(report) else {
        return no_fault(report);
    };
    if let Some(controls) = Controls::of(report) {
        return controls.sentence(report, &fault);
    }
    if counted(report).next().is_none() {
        return format!(
            "The campaign was to measure what follows {fault}, but no run counts: see the reasons below. Figures of single runs are shown for diagnosis only."
        );
    }
    let who = who(report);
    let open = counted(report).all(|r| r.analysis.ttr_censored_at_s.is_none() || is_unconfirmed(r));
    let not_back = if open {
        "goodput was not confirmed to be back"
    } else {
        "goodput did not come back"
    };
    let mut out = format!(
        "After {fault}, {}; {}.",
        duration(
            report,
            "outage_s",
            &format!("{who} was away for"),
            &format!("{who} did not answer again")
        ),
        duration(
            report,
            "ttr_pre_fault_s",
            "goodput was back after",
            not_back
        )
    );
    for said in [
        unconfirmed(report),
        late(report),
        again(report),
        lead(report),
    ]
    .into_iter()
    .flatten()
    {
        put!(out, " {said}");
    }
    if let Some(lost) = lost(report) {
        put!(out, " {lost}");
    }
    if let Some(phase) = largest_phase(report) {
        put!(out, " {phase}");
    }
    out
}

fn no_fault(report: &CampaignReport) -> String {
    let runs: Vec<String> = counted(report)
        .take(MAX_RUNS_IN_A_SENTENCE)
        .filter_map(|r| {
            let baseline = r.analysis.windows.first()?;
            Some(format!(
                "run {}: {}",
                r.analysis.run,
                percent_of(baseline.slo.goodput?)
            ))
        })
        .collect();
    if runs.is_empty() {
        return "No fault was planned, and no valid run measured goodput.".to_owned();
    }
    format!(
        "No fault was planned. Goodput of the baseline window was {}.",
        runs.join(", ")
    )
}

/// "service was away for a median of 6.21 s (range 6.18–6.25 s, 3 runs)".
fn duration(report: &CampaignReport, name: &str, said: &str, never: &str) -> String {
    let Some(e) = endpoint(report, name) else {
        return format!("{said} a time that is not measured");
    };
    let s = &e.summary;
    if e.endpoint == EndpointKind::NotApplicable || e.contributing_n == 0 {
        let reason = e.dropped_reason.as_deref().unwrap_or("no run measured it");
        return format!("{said} a time that is not measured ({})", esc(reason));
    }
    if e.censored.is_empty() {
        return format!("{said} {}", median_and_range(s, e.uncertainty));
    }
    let n = e.contributing_n;
    let watched = e
        .censored
        .iter()
        .map(|c| c.at_least)
        .reduce(f64::min)
        .map_or_else(String::new, secs);
    let mut out = format!(
        "{never} in {} of {n} {} within {watched}, at the least",
        e.censored.len(),
        runs(n)
    );
    if let Some(median) = e.km_median {
        put!(
            out,
            " (Kaplan–Meier median over all: <strong>{}</strong>)",
            secs(median)
        );
    }
    out
}

fn runs(n: u64) -> &'static str {
    if n == 1 { "run" } else { "runs" }
}

/// "both runs", "all 3 runs".
fn all_runs(n: u64) -> String {
    match n {
        1 => "the one run".to_owned(),
        2 => "both runs".to_owned(),
        _ => format!("all {n} runs"),
    }
}

fn median_and_range(s: &Summary, uncertainty: Option<f64>) -> String {
    let show = |v: f64| secs_at(v, uncertainty);
    let each = plus_minus(uncertainty).map_or_else(String::new, |u| format!(", each known to {u}"));
    match (s.n, s.median, s.min, s.max) {
        (1, Some(median), ..) => {
            format!(
                "<strong>{}</strong> (one run, so no range)",
                secs_pm(median, uncertainty)
            )
        }
        (n, Some(median), Some(min), Some(max)) if show(min) == show(max) => {
            format!("<strong>{}</strong> in {}{each}", show(median), all_runs(n))
        }
        (n, Some(median), Some(min), Some(max)) => format!(
            "a median of <strong>{}</strong> (range {}, {n} runs{each})",
            show(median),
            range(&show(min), &show(max))
        ),
        _ => "a time that is not measured".to_owned(),
    }
}

/// What was lost, run by run where the runs are few.
fn lost(report: &CampaignReport) -> Option<String> {
    let mut in_flight = Vec::new();
    let mut all = Vec::new();
    for run in counted(report) {
        let losses = &run.analysis.losses;
        all.push(format!(
            "{} of {}",
            count(losses.lost),
            count(losses.all.total)
        ));
        if let Some(split) = &losses.split {
            let c = split.in_flight;
            let lost = c.errored.saturating_add(c.censored);
            in_flight.push(format!("{} of {}", count(lost), count(c.total)));
        }
    }
    let said = |counts: &[String]| match counts.len() {
        0 => None,
        1 => Some(counts[0].clone()),
        2..=MAX_RUNS_IN_A_SENTENCE => Some(format!("{} (run by run)", counts.join(", "))),
        _ => None,
    };
    match (said(&in_flight), said(&all)) {
        (Some(flight), Some(all)) => Some(format!(
            "Of the requests in flight at the fire, {flight} were lost; of all requests of the run, {all}."
        )),
        (None, Some(all)) => Some(format!("Of all requests of the run, {all} were lost.")),
        _ => endpoint(report, "in_flight_loss_fraction")
            .and_then(|e| e.summary.mean)
            .map(|mean| {
                format!(
                    "Of the requests in flight at the fire, {} were lost on average.",
                    percent_of(mean)
                )
            }),
    }
}

/// Whether service seemed back when the load of a run ended.
fn is_unconfirmed(run: &RunPart) -> bool {
    run.analysis.recovery.pre_fault.status == RecoveryStatus::Unconfirmed
}

/// Service that seemed back when the load ended: neither a recovery nor the lack of one.
fn unconfirmed(report: &CampaignReport) -> Option<String> {
    let n = counted(report).filter(|r| is_unconfirmed(r)).count();
    (n > 0).then(|| {
        format!(
            "In {n} of {} service seemed back then, but the load ended before that could be confirmed.",
            of_runs(report)
        )
    })
}

/// Service that held at the fire and fell later: its time to recovery is 0 by the rule, and tells
/// nothing of the fall.
fn late(report: &CampaignReport) -> Option<String> {
    let late = |r: &&RunPart| {
        let detection = &r.analysis.recovery.pre_fault;
        detection.status == RecoveryStatus::Recovered && detection.ttr_s == Some(0.0)
    };
    let n = counted(report).filter(late).count();
    (n > 0).then(|| {
        format!(
            "<strong>In {n} of {} service held at the fire and degraded only later</strong>: a time of 0 s tells nothing of that; the deficit and the timeline do.",
            of_runs(report)
        )
    })
}

/// Runs in which service fell again after it counted as back.
fn fell_again(report: &CampaignReport) -> usize {
    counted(report)
        .filter(|r| r.analysis.recovery.pre_fault.redegradations > 0)
        .count()
}

/// Outages after a recovery, which no time to recovery tells.
fn again(report: &CampaignReport) -> Option<String> {
    let n = fell_again(report);
    (n > 0).then(|| {
        format!(
            "<strong>Service fell again after it counted as back</strong> in {n} of {}: the times above end before that.",
            of_runs(report)
        )
    })
}

/// "1 run", "3 runs": those that count.
fn of_runs(report: &CampaignReport) -> String {
    let n = counted(report).count() as u64;
    format!("{n} {}", runs(n))
}

/// Why goodput can be back before the replica, where that happened in a run that counts.
fn lead(report: &CampaignReport) -> Option<String> {
    let mut notes = counted(report).filter_map(|r| r.analysis.goodput_lead_note.as_deref());
    let first = notes.next()?;
    let with = notes.count() + 1;
    let where_ = match counted(report).count() {
        1 => String::new(),
        all => format!(" (in {with} of {all} runs)"),
    };
    Some(format!("{}{where_}.", esc(&words::sentence_case(first))))
}

/// The largest phase of a run that came back, all stretches of one name together, and its share.
fn largest_of(run: &RunAnalysis) -> Option<(&str, f64)> {
    let partition = run.decomposition.partition.as_ref()?;
    run.recovery.pre_fault.entry_ns?;
    let mut shares = BTreeMap::<&str, f64>::new();
    for phase in &partition.phases {
        *shares.entry(&phase.name).or_default() += phase.share_percent;
    }
    shares.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What cost most on the way back.
enum Largest<'a> {
    /// The same phase in all of so many runs that came back, with its smallest and largest share.
    Same(&'a str, f64, f64, usize),
    /// Different ones: phase and number of runs.
    Differs(BTreeMap<&'a str, usize>),
}

fn largest(report: &CampaignReport) -> Option<Largest<'_>> {
    let all: Vec<(&str, f64)> = counted(report)
        .filter_map(|r| largest_of(&r.analysis))
        .collect();
    let (name, _) = *all.first()?;
    if all.iter().any(|(other, _)| *other != name) {
        let mut counts = BTreeMap::new();
        for (name, _) in all {
            *counts.entry(name).or_default() += 1;
        }
        return Some(Largest::Differs(counts));
    }
    let shares = || all.iter().map(|(_, share)| *share);
    let lo = shares().fold(f64::INFINITY, f64::min);
    let hi = shares().fold(f64::NEG_INFINITY, f64::max);
    Some(Largest::Same(name, lo, hi, all.len()))
}

fn shares(lo: f64, hi: f64) -> String {
    let (lo, hi) = (fixed(lo, 0), fixed(hi, 0));
    if lo == hi {
        format!("{hi}\u{a0}%")
    } else {
        format!("{lo}–{hi}\u{a0}%")
    }
}

fn largest_phase(report: &CampaignReport) -> Option<String> {
    Some(match largest(report)? {
        Largest::Same("unexplained", lo, hi, _) => format!(
            "The largest part of the way back ({}) is explained by no measured boundary.",
            shares(lo, hi)
        ),
        Largest::Same(name, lo, hi, _) => format!(
            "{} cost the largest part of the way back (<strong>{}</strong>).",
            esc(&words::sentence_case(words::phase(name))),
            shares(lo, hi)
        ),
        Largest::Differs(counts) => {
            let parts: Vec<String> = counts
                .iter()
                .take(MAX_RUNS_IN_A_SENTENCE)
                .map(|(name, n)| format!("{} in {n}", esc(words::phase(name))))
                .collect();
            format!(
                "The largest part of the way back differs from run to run: {}.",
                parts.join(", ")
            )
        }
    })
}

/// The key figures as cards.
fn cards(report: &CampaignReport) -> String {
    let campaign = &report.campaign;
    let mut out = String::from("<dl class=\"cards\">");
    if campaign.variant.is_some() {
        card_of(&mut out, report, "outage_s", "Outage", secs_at, secs_pm);
        card_of(
            &mut out,
            report,
            "ttr_pre_fault_s",
            "Goodput back",
            secs_at,
            secs_pm,
        );
        card_of(
            &mut out,
            report,
            "in_flight_loss_fraction",
            "In-flight loss",
            |v, _| percent_of(v),
            |v, _| percent_of(v),
        );
        match largest(report) {
            Some(Largest::Same(name, lo, hi, n)) => card(
                &mut out,
                "Largest phase",
                &esc(&words::sentence_case(words::phase(name))).to_string(),
                &format!(
                    "{} of the way back, in {} that came back",
                    shares(lo, hi),
                    all_runs(n as u64)
                ),
            ),
            Some(Largest::Differs(counts)) => card(
                &mut out,
                "Largest phase",
                "Differs",
                &format!("{} different ones: see the phases", counts.len()),
            ),
            None => card(
                &mut out,
                "Largest phase",
                &absent(None),
                "no run that counts came back with a phase timeline",
            ),
        }
    }
    let total = campaign.repetitions;
    card(
        &mut out,
        "Runs that count",
        &format!("{} of {total}", campaign.valid_runs),
        &match (campaign.invalid_runs, campaign.missing_runs.len()) {
            (0, 0) => "none invalid, none missing".to_owned(),
            (invalid, missing) => format!("{invalid} invalid, {missing} missing"),
        },
    );
    out.push_str("</dl>");
    out
}

fn card(out: &mut String, title: &str, value: &str, note: &str) {
    put!(
        out,
        "<div class=\"card\"><dt>{title}</dt><dd><span class=\"value\">{value}</span><small>{note}</small></dd></div>"
    );
}

fn card_of(
    out: &mut String,
    report: &CampaignReport,
    name: &str,
    title: &str,
    show: fn(f64, Option<f64>) -> String,
    lead_as: fn(f64, Option<f64>) -> String,
) {
    let Some(e) = endpoint(report, name) else {
        return card(out, title, &absent(None), "the report has no such endpoint");
    };
    let s = &e.summary;
    let n = e.contributing_n;
    let show = |v: f64| show(v, e.uncertainty);
    if n == 0 {
        let reason = e.dropped_reason.as_deref().unwrap_or("no run measured it");
        return card(out, title, &absent(None), &esc(reason).to_string());
    }
    if !e.censored.is_empty() {
        let value = e.km_median.map_or_else(|| "not reached".to_owned(), show);
        let open = match name {
            "ttr_pre_fault_s" => counted(report).filter(|r| is_unconfirmed(r)).count(),
            _ => 0,
        };
        let never = e.censored.len().saturating_sub(open);
        let mut said = Vec::new();
        if never > 0 {
            said.push(format!("{never} of {n} {} never got there", runs(n)));
        }
        if open > 0 {
            said.push(format!(
                "{open} of {n} {} seemed back, but the load ended before it could be confirmed",
                runs(n)
            ));
        }
        let note = said.join("; ");
        return card(out, title, &value, &note);
    }
    // Heavy-tailed figures lead with the median, the others with the mean.
    let (lead, kind) = if s.heavy_tailed {
        (s.median, "median")
    } else {
        (s.mean, "mean")
    };
    let range = match (s.min, s.max) {
        (Some(lo), Some(hi)) if n > 1 && show(lo) == show(hi) => {
            format!("the same in {}", all_runs(n))
        }
        (Some(lo), Some(hi)) if n > 1 => {
            format!("{kind}, range {} to {}, n = {n}", show(lo), show(hi))
        }
        _ => "one run".to_owned(),
    };
    let lead = lead.map_or_else(|| absent(None), |v| lead_as(v, e.uncertainty));
    card(out, title, &lead, &range);
}

/// Whether to trust it, in plain words; the stamp; the caveats.
fn verdict(report: &CampaignReport) -> String {
    let campaign = &report.campaign;
    let (class, mark, text) = match (campaign.valid_runs, campaign.repetitions) {
        (0, _) => (
            "bad",
            "✗",
            "No run counts. Do not use these figures as results.".to_owned(),
        ),
        (valid, all) if valid == all => (
            "ok",
            "✓",
            if all == 1 {
                "The run counts: every check that could disqualify it passed.".to_owned()
            } else {
                format!(
                    "{} count: every check that could disqualify one passed.",
                    words::sentence_case(&all_runs(all))
                )
            },
        ),
        (valid, all) => (
            "warn",
            "!",
            format!(
                "{valid} of {all} runs count; the others are shown but feed no campaign figure."
            ),
        ),
    };
    let mut out = format!(
        "<section class=\"verdict {class}\" id=\"verdict\" aria-labelledby=\"verdict-h\"><h2 id=\"verdict-h\"><span class=\"mark\" aria-hidden=\"true\">{mark}</span> May I trust it? {text}</h2>"
    );
    let mut reasons = Vec::new();
    for run in campaign.per_run.iter().filter(|r| !r.valid) {
        for reason in &run.verdict.validity.reasons {
            reasons.push(format!(
                "Run {} does not count ({}): {}",
                run.analysis.run, reason.code, reason.detail
            ));
        }
    }
    for run in &campaign.missing_runs {
        reasons.push(format!("Run {run} was planned but has no analysis."));
    }
    for run in campaign.per_run.iter().filter(|r| r.analysis.partial) {
        let note = run
            .analysis
            .partial_note
            .as_deref()
            .unwrap_or("no reason recorded");
        reasons.push(format!("Run {} is partial: {note}.", run.analysis.run));
    }
    if !reasons.is_empty() {
        out.push_str(&list(&reasons));
    }
    out.push_str(&proofs(report));
    if report.provenance.profile == "free" {
        put!(
            out,
            "<p class=\"stamp\"><strong>Free profile.</strong> {} of the method’s pinned settings were changed; these figures do not compare with published ones. The changes are under <a href=\"#provenance\">provenance</a>.</p>",
            report.provenance.deviations.len()
        );
    }
    if !report.caveats.is_empty() {
        put!(
            out,
            "<h3>What must be said beside every figure</h3>{}",
            list(&report.caveats)
        );
    }
    out.push_str("</section>");
    out
}

/// What proves that the fault happened, for each run.
fn proofs(report: &CampaignReport) -> String {
    use blackstart_analyze::ProofSummary::*;
    if report.campaign.variant.is_none() {
        return String::new();
    }
    let mut out = String::from("<ul class=\"proofs\">");
    for run in report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN) {
        let a = &run.analysis;
        let said = match a.fault.proof {
            Happened => "the fault is proven",
            DidNotHappen => "the fault did not happen",
            CannotTell => "the facts do not decide whether the fault happened",
            NotRecorded => "no verdict on the fault was recorded",
            NotApplicable => "no fault to prove",
        };
        // A control proves that nothing happened, which is what it is for.
        if a.negative_control && a.fault.proof != Happened && !a.fire.fired {
            put!(
                out,
                "<li>Run {}: negative control, the fault was withheld.</li>",
                a.run
            );
            continue;
        }
        put!(out, "<li>Run {}: {said}", a.run);
        if let Some(statement) = &a.fault.proof_statement {
            put!(out, " — {}", esc(statement));
        }
        if let Some(error) = a.fire.fire_error_ms {
            put!(out, "; fired {} from the plan", signed_ms(error));
        }
        if let Some(uncertainty) = a.fire_uncertainty_s {
            put!(out, ", known to ±{}", secs(uncertainty));
        }
        out.push_str(".</li>");
    }
    out.push_str("</ul>");
    out
}

fn signed_ms(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}\u{a0}ms", fixed(value, 3))
}
