//! Where the time went: the timeline from fire to goodput as a Gantt chart, and the method's segments.

use blackstart_analyze::{Partition, RunAnalysis, Segment, SegmentSource, precision};

use crate::json::{CampaignReport, RunPart};

use super::markup::{absent, esc, fold, list, put};
use super::num::{fixed, percent, seconds, secs, secs_column, secs_pm};
use super::table::{Table, number, text};
use super::words;

/// Most phases and segments that one run shows.
const MAX_ROWS: usize = 64;

/// Decimals of seconds in the tables, so that they align.
const DECIMALS: usize = 3;

/// The phase timelines of every drawn run.
pub(super) fn phases(report: &CampaignReport) -> String {
    let mut out = String::new();
    for (i, run) in report
        .campaign
        .per_run
        .iter()
        .take(super::MAX_RUNS_DRAWN)
        .enumerate()
    {
        put!(
            out,
            "<div class=\"run\"><h3>Run {}{}</h3>{}{}</div>",
            run.analysis.run,
            super::badges(run),
            gantt(&run.analysis),
            segments(run, i == 0)
        );
    }
    out
}

fn gantt(run: &RunAnalysis) -> String {
    let Some(partition) = &run.decomposition.partition else {
        let why = if run.fire.planned {
            run.fire
                .note
                .as_deref()
                .unwrap_or("no boundary after the fire was measured")
        } else {
            "the run has no fault"
        };
        return format!("<p>Phase timeline: {}</p>", absent(Some(why)));
    };
    let mut out = format!(
        "<p>From the fire to <strong>{}</strong>: {}. Explained by no boundary: {} ({}).</p>",
        esc(words::boundary(&partition.end)),
        secs_pm(partition.total_s, Some(partition.total_uncertainty_s)),
        secs(partition.unexplained_s),
        percent(partition.unexplained_percent)
    );
    out.push_str(&bars(partition));
    if !partition.notes.is_empty() {
        out.push_str(&list(&partition.notes));
    }
    out
}

/// The phases as a table whose bars share one scale.
fn bars(partition: &Partition) -> String {
    let mut table = Table::new(
        "Phases from the fire, in order; they touch each other and add up to the whole",
        &[
            text("phase"),
            text("timeline"),
            number("from (s)"),
            number("length (s)"),
            number("share"),
        ],
    )
    .class("gantt");
    let start = seconds(partition.start_ns);
    let total = seconds(partition.end_ns) - start;
    let longest = partition
        .phases
        .iter()
        .map(|p| p.duration_s)
        .fold(f64::NEG_INFINITY, f64::max);
    for phase in partition.phases.iter().take(MAX_ROWS) {
        let from = seconds(phase.start_ns) - start;
        let to = seconds(phase.end_ns) - start;
        let class = if !phase.explained {
            "unexplained"
        } else if phase.duration_s >= longest {
            "longest"
        } else {
            "phase"
        };
        let mut name = named(&phase.name);
        put!(
            name,
            "<small class=\"span\">{} → {}</small>",
            esc(words::boundary(&phase.from)),
            esc(words::boundary(&phase.to))
        );
        if let Some(note) = &phase.note {
            put!(name, "<small class=\"why\">{}</small>", esc(note));
        }
        table.row(&[
            name,
            bar(class, from, to, total),
            fixed(from, DECIMALS),
            secs_column(phase.duration_s, Some(phase.uncertainty_s)),
            percent(phase.share_percent),
        ]);
    }
    table.finish()
}

/// A bar on a scale from the fire to the end; it stretches with its cell.
fn bar(class: &str, from: f64, to: f64, total: f64) -> String {
    let part = |v: f64| {
        let part = v / total * 100.0;
        if part.is_finite() {
            part.clamp(0.0, 100.0)
        } else {
            0.0
        }
    };
    let (x, width) = (part(from), part(to) - part(from));
    format!(
        "<svg class=\"bar\" width=\"100%\" height=\"18\" aria-hidden=\"true\"><rect class=\"track\" x=\"0\" y=\"8\" width=\"100%\" height=\"2\"/><rect class=\"{class}\" x=\"{x:.2}%\" y=\"2\" width=\"{:.2}%\" height=\"14\" rx=\"2\"/></svg>",
        width.max(0.25)
    )
}

/// The words for a name, with what it means on demand.
fn named(name: &str) -> String {
    match words::phase_help(name) {
        Some(help) => format!("<span title=\"{help}\">{}</span>", esc(words::phase(name))),
        None => esc(name).to_string(),
    }
}

fn source(source: SegmentSource) -> &'static str {
    match source {
        SegmentSource::Api => "runtime",
        SegmentSource::Log => "log",
        SegmentSource::Probe => "probe",
        SegmentSource::Client => "client",
    }
}

fn segments(run: &RunPart, open: bool) -> String {
    let a = &run.analysis;
    let all = &a.decomposition.segments;
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(
        "Segments of the method; times are seconds from the fire",
        &[
            text("segment"),
            text("source"),
            number("start (s)"),
            number("end (s)"),
            number("length (s)"),
            number("±"),
            text("remark"),
        ],
    );
    let zero = a.fire.actual_ns.map(seconds);
    for segment in all.iter().take(MAX_ROWS) {
        row(&mut table, segment, zero);
    }
    let measured = all.iter().filter(|s| s.measured).count();
    let mut body = table.finish();
    if !run.logs.is_empty() {
        let logs: Vec<String> = run.logs.iter().map(|(r, s)| format!("{r}: {s}")).collect();
        put!(body, "<p>Logs that were read:</p>{}", list(&logs));
    }
    if !a.decomposition.notes.is_empty() {
        body.push_str(&list(&a.decomposition.notes));
    }
    body.push_str(&evidence(a));
    fold(
        &format!(
            "Segments of run {} ({measured} of {} measured), with their evidence",
            a.run,
            all.len()
        ),
        open,
        &body,
    )
}

fn row(table: &mut Table, s: &Segment, zero: Option<f64>) {
    let name = format!(
        "{}<small class=\"span\"><code>{}</code></small>",
        named(&s.name),
        esc(&s.name)
    );
    let time = |at: Option<i64>| match (at, zero) {
        (Some(at), Some(zero)) => fixed(seconds(at) - zero, DECIMALS),
        _ => String::new(),
    };
    let note = s
        .note
        .as_deref()
        .map_or_else(String::new, |n| esc(n).to_string());
    let remark = match (s.measured, s.applicable) {
        (true, _) => note,
        (false, true) => absent(s.note.as_deref()),
        (false, false) => {
            format!("<span class=\"absent\">cannot occur <small>{note}</small></span>")
        }
    };
    let class = if s.measured { "" } else { "unmeasured" };
    table.classed_row(
        class,
        &[
            name,
            source(s.source).to_owned(),
            time(s.start_ns),
            time(s.end_ns),
            match (s.duration_s, s.censored_at_s) {
                (Some(v), _) => fixed(v, precision::decimals(s.uncertainty_s)),
                (None, Some(watched)) => format!("≥ {}", fixed(watched, DECIMALS)),
                (None, None) => String::new(),
            },
            s.uncertainty_s.map_or_else(String::new, secs),
            remark,
        ],
    );
}

/// The log lines that the boundaries rest on.
fn evidence(a: &RunAnalysis) -> String {
    let found = &a.decomposition.boundaries;
    if found.is_empty() {
        return String::new();
    }
    let mut table = Table::new(
        "Log lines behind the boundaries: the first match of each after the fire",
        &[
            text("boundary"),
            number("from fire (s)"),
            number("line"),
            text("stamp by"),
            text("text"),
        ],
    );
    let zero = a.fire.actual_ns.map(seconds);
    let mut all: Vec<_> = found.values().collect();
    all.sort_by_key(|b| b.at_ns);
    for b in all.into_iter().take(MAX_ROWS) {
        table.row(&[
            format!("<code>{}</code>", esc(&b.key)),
            zero.map_or_else(String::new, |z| fixed(seconds(b.at_ns) - z, DECIMALS)),
            b.line.to_string(),
            esc(&b.stamp).to_string(),
            format!("<code class=\"line\">{}</code>", esc(&b.text)),
        ]);
    }
    table.finish()
}
