//! One run, second by second: outcomes per second above, TTFT below, on one time axis.

use std::collections::BTreeMap;

use blackstart_analyze::{RunAnalysis, Second};

use crate::json::{CampaignReport, RunPart};

use super::markup::{esc, put};
use super::num::{count, seconds, secs, secs_pm};
use super::run_drawing::{self, Column};
use super::run_marks;
use super::words;

/// Columns of all charts of the page together: bounds its size.
const MAX_COLUMNS_PAGE: usize = 6_000;
/// Most columns of one chart; a longer run puts several seconds into one.
const MAX_COLUMNS: usize = 1_200;
/// Least time before the fire and after recovery in a close-up.
const CLOSE_UP_MARGIN_S: f64 = 10.0;
/// A close-up is drawn where the whole run is more than this many times as long.
const CLOSE_UP_RATIO: usize = 4;
/// Fewest columns that a chart is given, however many runs there are.
const MIN_COLUMNS: usize = 120;
/// The charts of every drawn run.
pub(super) fn charts(report: &CampaignReport) -> String {
    let runs = report
        .campaign
        .per_run
        .len()
        .clamp(1, super::MAX_RUNS_DRAWN);
    let limit = (MAX_COLUMNS_PAGE / runs).clamp(MIN_COLUMNS, MAX_COLUMNS);
    let slo_ms = report
        .provenance
        .method
        .get("slo_ttft_ms")
        .and_then(|v| v.parse::<f64>().ok())
        .filter(|v| v.is_finite() && *v > 0.0);
    let mut out = legend();
    for run in report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN) {
        out.push_str(&chart(run, &report.provenance.phases_s, slo_ms, limit));
    }
    out
}

fn legend() -> String {
    let mut out = String::from("<ul class=\"legend\" aria-label=\"legend\">");
    for (class, text) in [
        ("k-good", "good: complete within the thresholds"),
        ("k-late", "complete, but too late"),
        ("k-errored", "errored"),
        ("k-censored", "censored (no end seen)"),
        ("k-scheduled", "scheduled"),
        ("k-band", "fire → recovery"),
    ] {
        put!(out, "<li><span class=\"key {class}\"></span>{text}</li>");
    }
    out.push_str("</ul>");
    out
}

fn chart(
    run: &RunPart,
    phases_s: &BTreeMap<String, f64>,
    slo_ms: Option<f64>,
    limit: usize,
) -> String {
    let a = &run.analysis;
    let mut out = format!(
        "<figure class=\"run\" id=\"run-{}\"><figcaption><h3>Run {}{}</h3><p>{}</p></figcaption>",
        a.run,
        a.run,
        super::badges(run),
        summary(a)
    );
    let (columns, per) = columns(&a.timeline, limit);
    if columns.is_empty() {
        out.push_str("<p class=\"absent\">No chart: the run has no timeline.</p></figure>");
        return out;
    }
    out.push_str(&run_drawing::drawings(a, &columns, phases_s, slo_ms, ""));
    if let Some(near) = near_fault(a) {
        let (columns, _) = self::columns(near, limit);
        out.push_str("<p class=\"close-up\">Close-up around the fault</p>");
        out.push_str(&run_drawing::drawings(
            a,
            &columns,
            phases_s,
            slo_ms,
            ", close-up around the fault",
        ));
    }
    if per > 1 {
        put!(
            out,
            "<p class=\"note\">Each column holds {per} seconds: counts are per second over the column, TTFT is the largest of its seconds’ medians.</p>"
        );
    }
    out.push_str("</figure>");
    out
}

/// One sentence under a run's title.
fn summary(a: &RunAnalysis) -> String {
    if !a.fire.planned {
        return "No fault in this run.".to_owned();
    }
    if !a.fire.fired {
        if a.negative_control && !a.fire.unobserved {
            return "Negative control: the fault was withheld.".to_owned();
        }
        let why = a.fire.note.as_deref().unwrap_or("no effect was started");
        let state = if a.fire.unobserved {
            "Fire not observed"
        } else {
            "Not fired"
        };
        return format!("{state}: {}.", esc(why));
    }
    let outage = match (a.outage_s, a.outage_censored_at_s) {
        (Some(s), _) => format!("Outage {}", secs_pm(s, a.outage_uncertainty_s)),
        (None, Some(s)) => format!("Replica not ready again within {}", secs(s)),
        (None, None) => format!(
            "Outage not measured ({})",
            esc(a.outage_note.as_deref().unwrap_or("no reason recorded"))
        ),
    };
    let goodput = match (a.ttr_pre_fault_s, a.ttr_censored_at_s) {
        (Some(s), _) => format!(
            "goodput back after {}{}",
            secs_pm(s, a.ttr_pre_fault_uncertainty_s),
            // The chart counts from the fire; the figure from the anchor, which a late fire leaves.
            if run_marks::is_far(&a.fire) && a.fire.anchor_ns == a.fire.planned_ns {
                " from the planned fire"
            } else {
                ""
            }
        ),
        (None, Some(s)) => format!("goodput not back within {}", secs(s)),
        (None, None) => format!(
            "time to recovery not measured ({})",
            esc(a
                .ttr_pre_fault_note
                .as_deref()
                .unwrap_or("no reason recorded"))
        ),
    };
    let lead = a
        .goodput_lead_note
        .as_deref()
        .map_or_else(String::new, |n| {
            format!(" {}.", esc(&words::sentence_case(n)))
        });
    let check = a
        .recovery_cross_check
        .as_deref()
        .map_or_else(String::new, |said| {
            format!(
                " <span class=\"bad\">Cross-check disagrees:</span> {}.",
                esc(said)
            )
        });
    format!(
        "{outage}; {goodput}. Lost: {} of {} requests.{lead}{check}",
        count(a.losses.lost),
        count(a.losses.all.total)
    )
}

/// The seconds around the fault, where they are a small part of a long run.
fn near_fault(a: &RunAnalysis) -> Option<&[Second]> {
    let fire_s = seconds(a.fire.actual_ns?);
    let back_s = seconds(a.recovery.pre_fault.entry_ns?);
    let margin_s = (back_s - fire_s).max(CLOSE_UP_MARGIN_S);
    let inside = |s: &&Second| (fire_s - margin_s..=back_s + margin_s).contains(&(s.at_s as f64));
    let first = a.timeline.iter().position(|s| inside(&s))?;
    let len = a.timeline[first..].iter().take_while(inside).count();
    let near = &a.timeline[first..first + len];
    (near.len() > 1 && near.len() * CLOSE_UP_RATIO < a.timeline.len()).then_some(near)
}

/// Puts seconds into at most `limit` columns; counts are added, the largest TTFT median is kept.
fn columns(timeline: &[Second], limit: usize) -> (Vec<Column>, usize) {
    let per = timeline.len().div_ceil(limit.max(1)).max(1);
    let all = timeline
        .chunks(per)
        .filter_map(|chunk| {
            let from_s = chunk.first()?.at_s as f64;
            let sum =
                |f: fn(&Second) -> u64| chunk.iter().fold(0_u64, |sum, s| sum.saturating_add(f(s)));
            Some(Column {
                from_s,
                to_s: chunk.last()?.at_s as f64 + 1.0,
                seconds: chunk.len() as u64,
                scheduled: sum(|s| s.scheduled),
                good: sum(|s| s.good),
                late: sum(|s| s.completed.saturating_sub(s.good)),
                errored: sum(|s| s.errored),
                censored: sum(|s| s.censored),
                ttft_ms: chunk
                    .iter()
                    .filter_map(|s| s.ttft_ms_p50)
                    .filter(|v| v.is_finite())
                    .reduce(f64::max),
            })
        })
        .collect();
    (all, per)
}
