//! Recovery under other rules: the sensitivity grid, components, both baselines.

use blackstart_analyze::{
    CrossCheck, Detection, RecoveryStatus, RunAnalysis, SensitivityCell, precision,
};

use crate::json::CampaignReport;

use super::markup::{absent, dense, esc, fold, put};
use super::num::{count, fixed, percent_of, seconds, secs_column};
use super::table::{Table, number, text};
use super::words;

/// Most cells of a grid.
const MAX_CELLS: usize = 512;

/// Most levels of a cross-check.
const MAX_LEVELS: usize = 32;

/// A fold-out for each drawn run.
pub(super) fn recovery(report: &CampaignReport) -> String {
    let mut out = String::new();
    for (i, run) in report
        .campaign
        .per_run
        .iter()
        .take(super::MAX_RUNS_DRAWN)
        .enumerate()
    {
        let a = &run.analysis;
        let body = format!(
            "{}{}{}",
            detections(a),
            cross_check(&a.recovery.cross_check),
            grid(&a.recovery.sensitivity, a.recovery.resolution_s)
        );
        out.push_str(&fold(
            &format!("Recovery of run {}{}", a.run, super::badges(run)),
            i == 0,
            &body,
        ));
    }
    out
}

fn detections(a: &RunAnalysis) -> String {
    let r = &a.recovery;
    let mut table = Table::new(
        "The detector on goodput and on its parts",
        &[
            text("what"),
            text("conclusion"),
            number("level"),
            number("after (s)"),
            number("dips"),
            number("re-degradations"),
            text("remark"),
        ],
    );
    let mut row = |what: String, d: &Detection| {
        let mut remark = d
            .note
            .as_deref()
            .map_or_else(String::new, |n| esc(n).to_string());
        if d.ended_degraded {
            remark.push_str(" The run ended below the exit threshold.");
        }
        table.row(&[
            what,
            status(d.status),
            dense(d.baseline, percent_of),
            dense(d.ttr_s, |v| secs_column(v, Some(r.resolution_s))),
            count(u64::from(d.dips)),
            count(u64::from(d.redegradations)),
            remark,
        ]);
    };
    row(
        "goodput, against the level before the fault".to_owned(),
        &r.pre_fault,
    );
    if let Some(d) = &r.equilibrium.detection {
        row("goodput, against the degraded level".to_owned(), d);
    }
    for c in r.components.iter().take(MAX_CELLS) {
        let what = match c.component.as_str() {
            "ttft_slo" => "TTFT within its threshold".to_owned(),
            "e2e_slo" => "end to end within its threshold".to_owned(),
            "error_free" => "free of errors".to_owned(),
            other => esc(other).to_string(),
        };
        row(what, &c.detection);
    }
    let mut out = table.finish();
    if r.equilibrium.detection.is_none() {
        put!(
            out,
            "<p>Degraded level: {}</p>",
            absent(r.equilibrium.note.as_deref())
        );
    }
    let deficit = &r.deficit;
    match (deficit.integrated_goodput_deficit, deficit.to_timeout) {
        (Some(v), _) => put!(
            out,
            "<p>Goodput deficit until recovery: {} seconds of full service.</p>",
            fixed(v, 2)
        ),
        (None, Some(v)) => put!(
            out,
            "<p>Goodput deficit: at least {} seconds of full service, up to the end of the watch.</p>",
            fixed(v, 2)
        ),
        (None, None) => put!(
            out,
            "<p>Goodput deficit: {}</p>",
            absent(deficit.note.as_deref())
        ),
    }
    out
}

/// What the change-points say of the same counts: a cross-check, and no figure of its own.
fn cross_check(check: &CrossCheck) -> String {
    let note = check.note.as_deref();
    let said = match check.agrees {
        None => absent(note),
        Some(true) => format!(
            "<span class=\"ok\">agrees</span>: {}{}",
            status(check.status),
            check.back_s.map_or_else(String::new, |s| {
                format!(
                    " after {} s (tolerance {} s)",
                    fixed(s, 0),
                    fixed(check.tolerance_s, 0)
                )
            })
        ),
        Some(false) => format!(
            "<span class=\"bad\">disagrees</span> (<code>recovery_cross_check</code>): {}",
            esc(note.unwrap_or("no reason recorded"))
        ),
    };
    let mut out = format!("<p>Cross-check by change-points: {said}.</p>");
    if !check.levels.is_empty() {
        let levels: Vec<String> = check
            .levels
            .iter()
            .take(MAX_LEVELS)
            .map(|l| {
                format!(
                    "{} to {} s: {}",
                    fixed(seconds(l.start_ns), 0),
                    fixed(seconds(l.end_ns), 0),
                    percent_of(l.goodput)
                )
            })
            .collect();
        put!(
            out,
            "<p><small>Its levels of goodput, in seconds of the run: {}.</small></p>",
            levels.join("; ")
        );
    }
    out
}

fn status(status: RecoveryStatus) -> String {
    let class = match status {
        RecoveryStatus::Recovered => "ok",
        RecoveryStatus::NotRecovered | RecoveryStatus::Unconfirmed => "bad",
        RecoveryStatus::NotEstimable | RecoveryStatus::NoOutage => "absent",
    };
    format!("<span class=\"{class}\">{}</span>", words::recovery(status))
}

/// Time to recovery for other thresholds, windows and holds, shaded by length.
fn grid(cells: &[SensitivityCell], resolution_s: f64) -> String {
    let cells = &cells[..cells.len().min(MAX_CELLS)];
    if cells.is_empty() {
        return String::new();
    }
    let mut holds: Vec<u32> = cells.iter().map(|c| c.hold_buckets).collect();
    let mut rows: Vec<(u32, u32)> = cells
        .iter()
        .map(|c| (c.entry_percent, c.window_buckets))
        .collect();
    holds.sort_unstable();
    holds.dedup();
    rows.sort_unstable();
    rows.dedup();
    let hi = cells
        .iter()
        .filter_map(|c| c.ttr_s)
        .fold(f64::NEG_INFINITY, f64::max);
    let mut out = String::from(
        "<p>Sensitivity: <em>entry</em> is the threshold in percent of the level before the fault, <em>R</em> the leading window and <em>H</em> the hold, both in buckets.</p><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table, scrolls sideways\"><table class=\"heat\"><caption>Seconds to recovery under other rules</caption><thead><tr><th scope=\"col\">entry</th><th scope=\"col\">R</th>",
    );
    for hold in &holds {
        put!(out, "<th scope=\"col\" class=\"n\">H = {hold}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for (entry, window) in rows {
        put!(
            out,
            "<tr><th scope=\"row\">{entry} %</th><th scope=\"row\">{window}</th>"
        );
        for hold in &holds {
            let cell = cells.iter().find(|c| {
                (c.entry_percent, c.window_buckets, c.hold_buckets) == (entry, window, *hold)
            });
            out.push_str(&grid_cell(cell, hi, resolution_s));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// Shades of the grid, from zero to the longest time.
const SHADES: f64 = 4.0;

fn grid_cell(cell: Option<&SensitivityCell>, hi: f64, resolution_s: f64) -> String {
    let Some(cell) = cell else {
        return "<td class=\"n\"></td>".to_owned();
    };
    let Some(ttr) = cell.ttr_s else {
        return format!("<td class=\"n\">{}</td>", status(cell.status));
    };
    let shade = (ttr / hi * SHADES).round();
    let shade = if shade.is_finite() {
        shade.clamp(0.0, SHADES)
    } else {
        0.0
    };
    let mut title = String::new();
    if cell.dips > 0 {
        put!(title, " <small>{} dips</small>", cell.dips);
    }
    if cell.redegradations > 0 {
        put!(title, " <small>{} re-degraded</small>", cell.redegradations);
    }
    format!(
        "<td class=\"n heat{shade:.0}\">{}{title}</td>",
        fixed(ttr, precision::decimals(Some(resolution_s)))
    )
}
