//! Per-run figures side by side, and the few statistics that a small sample carries.

use blackstart_analyze::{Endpoint, EndpointKind, precision};

use crate::json::CampaignReport;

use super::markup::{absent, dense, esc, fold, list, put};
use super::num::{count, fixed, in_unit, percent_of, secs_column};
use super::svg::Scale;
use super::table::{Table, number, text};
use super::words;

/// Most endpoints, and most values of one, that the page shows.
const MAX_ROWS: usize = 120;

/// Per-run table, campaign statistics, phases over the runs, refusals.
pub(super) fn stats(report: &CampaignReport) -> String {
    let campaign = &report.campaign;
    let mut out = per_run(report);
    out.push_str(&summaries(
        "Endpoints of the campaign, over the runs that count",
        &campaign.endpoints,
    ));
    if !campaign.segments.is_empty() {
        out.push_str(&fold(
            "Segments and phases over the runs that count",
            false,
            &summaries("Lengths of segments and phases", &campaign.segments),
        ));
    }
    if !campaign.refusals.is_empty() {
        let all: Vec<String> = campaign
            .refusals
            .iter()
            .map(|(k, v)| format!("{k}: {v}"))
            .collect();
        put!(out, "<h3>What this sample cannot carry</h3>{}", list(&all));
    }
    out
}

/// A figure of a run, or why there is none.
fn per_run(report: &CampaignReport) -> String {
    let mut table = Table::new(
        "Every run: its own figures, with no more digits than their uncertainty leaves",
        &[
            text("run"),
            text("counts"),
            number("requests"),
            number("lost"),
            number("outage (s)"),
            number("process start (s)"),
            number("goodput back (s)"),
            number("vs. degraded (s)"),
            number("in-flight loss"),
            number("deficit (s)"),
            number("e2e p95 in fault window (ms)"),
            number("survivors’ p95 (ms)"),
        ],
    );
    let s = |v: f64| fixed(v, 3);
    let mut why = Vec::new();
    for run in report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN) {
        let a = &run.analysis;
        let at_least =
            |value: Option<f64>, uncertainty: Option<f64>, bound: Option<f64>| match (value, bound)
            {
                (None, Some(bound)) => format!("≥ {}", s(bound)),
                (value, _) => dense(value, |v| secs_column(v, uncertainty)),
            };
        for (name, missing, note) in [
            ("outage", a.outage_s.is_none(), &a.outage_note),
            (
                "process start",
                a.container_start_s.is_none(),
                &a.container_start_note,
            ),
            ("goodput back", true, &a.ttr_pre_fault_note),
            ("vs. degraded", true, &a.equilibrium_note),
            ("in-flight loss", true, &a.in_flight_loss_note),
            ("deficit", true, &a.integrated_goodput_deficit_note),
            (
                "e2e p95",
                a.fault_window_e2e_p95_ms.is_none(),
                &a.fault_window_e2e_p95_note,
            ),
            (
                "survivors’ p95",
                a.survivor_p95_ms.is_none(),
                &a.survivor_p95_note,
            ),
        ] {
            if let (true, Some(note)) = (missing, note) {
                why.push(format!("Run {}, {name}: {note}", a.run));
            }
        }
        table.row(&[
            format!("run\u{a0}{}", a.run),
            match (run.valid, a.negative_control) {
                (_, true) => "control".to_owned(),
                (true, false) => "<span class=\"ok\">✓</span> yes".to_owned(),
                (false, false) => "<span class=\"bad\">✗</span> no".to_owned(),
            },
            count(a.requests_recorded),
            count(a.losses.lost),
            at_least(a.outage_s, a.outage_uncertainty_s, a.outage_censored_at_s),
            at_least(
                a.container_start_s,
                a.container_start_uncertainty_s,
                a.container_start_censored_at_s,
            ),
            at_least(
                a.ttr_pre_fault_s,
                a.ttr_pre_fault_uncertainty_s,
                a.ttr_censored_at_s,
            ),
            at_least(
                a.ttr_equilibrium_s,
                a.ttr_equilibrium_uncertainty_s,
                a.ttr_equilibrium_censored_at_s,
            ),
            dense(a.in_flight_loss_fraction, percent_of),
            at_least(
                a.integrated_goodput_deficit,
                None,
                a.ttr_censored_at_s.and(a.recovery.deficit.to_timeout),
            ),
            dense(a.fault_window_e2e_p95_ms, |v| fixed(v, 0)),
            dense(a.survivor_p95_ms, |v| fixed(v, 0)),
        ]);
    }
    let mut out = table.finish();
    if !why.is_empty() {
        out.push_str(&fold(
            &format!("Reasons of dashes and remarks ({})", why.len()),
            false,
            &list(&why),
        ));
    }
    out
}

fn summaries(caption: &str, endpoints: &[Endpoint]) -> String {
    let mut table = Table::new(
        caption,
        &[
            text("figure"),
            text("values"),
            number("n"),
            number("median"),
            number("mean"),
            number("min"),
            number("max"),
            number("95 % t-interval"),
            text("to publish"),
        ],
    )
    .class("stats");
    for e in endpoints.iter().take(MAX_ROWS) {
        let s = &e.summary;
        let show = |v: f64| match e.uncertainty {
            Some(_) => fixed(v, precision::decimals(e.uncertainty)),
            None => in_unit_plain(v, &e.unit),
        };
        let interval = match (s.t_interval_lo, s.t_interval_hi) {
            (Some(lo), Some(hi)) if e.uncertainty.is_some() => {
                match precision::ends(lo, hi, e.uncertainty) {
                    Some((lo, hi)) => format!("{lo} to {hi}"),
                    None => format!(
                        "<span title=\"the values are known to ±{u} each, which is more\">narrower than ±{u}</span>",
                        u = e
                            .uncertainty
                            .and_then(precision::rounded_up)
                            .unwrap_or_default()
                    ),
                }
            }
            (Some(lo), Some(hi)) => format!("{} to {}", show(lo), show(hi)),
            _ => "<span class=\"absent\" title=\"this sample carries none\">–</span>".to_owned(),
        };
        table.row(&[
            name(e),
            strip(e),
            count(e.contributing_n),
            dense(s.median.or(e.km_median), show),
            dense(s.mean, show),
            dense(s.min, show),
            dense(s.max, show),
            interval,
            remark(e),
        ]);
    }
    table.finish()
}

/// A value without its unit, which stands beside the name.
fn in_unit_plain(value: f64, unit: &str) -> String {
    match unit {
        "ms" => fixed(value, 0),
        _ => fixed(value, 3),
    }
}

fn name(e: &Endpoint) -> String {
    let unit = if e.unit == "1" { "fraction" } else { &e.unit };
    let kind = match e.endpoint {
        EndpointKind::Primary => "primary",
        EndpointKind::Secondary => "secondary",
        EndpointKind::Exploratory => "exploratory",
        EndpointKind::NotApplicable => "not applicable",
    };
    let words = match words::endpoint(&e.name) {
        Some((words, help)) => format!("<span title=\"{help}\">{words}</span>"),
        None => {
            let plain = e.name.strip_suffix("_s").unwrap_or(&e.name);
            let (group, key) = plain.split_once('.').unwrap_or(("", plain));
            format!("{} <small>{}</small>", esc(words::phase(key)), esc(group))
        }
    };
    format!(
        "{words} ({})<small class=\"span\">{kind} · <code>{}</code></small>",
        esc(unit),
        esc(&e.name)
    )
}

/// All values on one line, with the t-interval and the median behind them.
fn strip(e: &Endpoint) -> String {
    let s = &e.summary;
    let values = s.values.as_deref().unwrap_or(&[]);
    let ends = || {
        values
            .iter()
            .copied()
            .chain(e.censored.iter().map(|c| c.at_least))
            .chain(s.t_interval_lo)
            .chain(s.t_interval_hi)
            .filter(|v| v.is_finite())
    };
    let (Some(lo), Some(hi)) = (ends().reduce(f64::min), ends().reduce(f64::max)) else {
        return String::new();
    };
    let x = Scale::linear(lo, hi, 6.0, 154.0);
    // One value alone has no scale: it stands in the middle.
    let at = |v: f64| if hi > lo { x.map(v) } else { 80.0 };
    let mut out = format!(
        "<svg class=\"strip\" width=\"160\" height=\"24\" viewBox=\"0 0 160 24\" role=\"img\" aria-label=\"{} values from {} to {}\"><line class=\"axis\" x1=\"4\" x2=\"156\" y1=\"12\" y2=\"12\"/>",
        values.len() + e.censored.len(),
        esc(&in_unit(lo, &e.unit)),
        esc(&in_unit(hi, &e.unit))
    );
    if let (Some(lo), Some(hi)) = (s.t_interval_lo, s.t_interval_hi) {
        let (a, b) = (at(lo), at(hi));
        put!(
            out,
            "<rect class=\"interval\" x=\"{a:.1}\" y=\"9\" width=\"{:.1}\" height=\"6\"/>",
            (b - a).max(0.5)
        );
    }
    if let Some(median) = s.median {
        let m = at(median);
        put!(
            out,
            "<line class=\"median\" x1=\"{m:.1}\" x2=\"{m:.1}\" y1=\"3\" y2=\"21\"/>"
        );
    }
    for v in values.iter().take(MAX_ROWS) {
        put!(
            out,
            "<circle class=\"dot\" cx=\"{:.1}\" cy=\"12\" r=\"3.5\"><title>{}</title></circle>",
            at(*v),
            esc(&in_unit(*v, &e.unit))
        );
    }
    for c in e.censored.iter().take(MAX_ROWS) {
        let a = at(c.at_least);
        put!(
            out,
            "<path class=\"open\" d=\"M{:.1} 7l6 5l-6 5z\"><title>run {}: at least {}</title></path>",
            a - 3.0,
            c.run,
            esc(&in_unit(c.at_least, &e.unit))
        );
    }
    out.push_str("</svg>");
    out
}

fn remark(e: &Endpoint) -> String {
    let s = &e.summary;
    let mut out = String::new();
    if !s.headline.is_empty() {
        put!(out, "{}", esc(&s.headline));
    }
    if let Some(sd) = s.sample_sd {
        put!(
            out,
            "<small class=\"span\">sample SD {}",
            in_unit_plain(sd, &e.unit)
        );
        if let Some(cv) = s.coefficient_of_variation {
            put!(out, ", coefficient of variation {}", percent_of(cv.abs()));
        }
        if !s.at_pinned_df && s.df.is_some() {
            out.push_str(", not at the planned degrees of freedom");
        }
        out.push_str("</small>");
    }
    if e.endpoint == EndpointKind::NotApplicable {
        let why = e
            .dropped_reason
            .as_deref()
            .unwrap_or("it cannot occur in this campaign");
        put!(
            out,
            "<span class=\"absent\">not applicable <small>{}</small></span>",
            esc(why)
        );
        return out;
    }
    if e.contributing_n == 0 {
        out.push_str(&absent(e.dropped_reason.as_deref()));
        if e.dropped.len() < 2 {
            return out;
        }
    }
    for d in e.dropped.iter().take(MAX_ROWS) {
        put!(
            out,
            "<small class=\"why\">run {} dropped: {}</small>",
            d.run,
            esc(&d.reason)
        );
    }
    for c in e.censored.iter().take(MAX_ROWS) {
        put!(
            out,
            "<small class=\"why\">run {} censored: at least {}</small>",
            c.run,
            in_unit_plain(c.at_least, &e.unit)
        );
    }
    if let Some(note) = &e.km_note {
        put!(out, "<small class=\"why\">{}</small>", esc(note));
    }
    out
}
