//! The gates: what was checked, what was seen, and what a failure would mean.

use crate::json::{CampaignReport, GateRow, GateTable};

use super::markup::{absent, esc, fold, put};
use super::num::in_unit;
use super::table::{Table, text};
use super::words;

/// Most gates and figures that one table shows.
const MAX_ROWS: usize = 64;

/// A table for each drawn run.
pub(super) fn gates(report: &CampaignReport) -> String {
    let mut out = String::from(
        "<p class=\"legend-line\"><span class=\"ok\">✓</span> passed · <span class=\"bad\">✗</span> failed, or applicable but not observed (which never passes) · <span class=\"absent\">–</span> does not apply to this run (which is not a pass). Each figure stands beside its limit; one that the configuration loosened names the method’s own.</p>",
    );
    out.push_str(&overview(report));
    for (i, table) in report
        .validity_gates
        .iter()
        .take(super::MAX_RUNS_DRAWN)
        .enumerate()
    {
        out.push_str(&one(table, i == 0));
    }
    if report.validity_gates.iter().all(|t| t.gates.is_empty()) {
        out.push_str("<p>No gate was planned: nothing but the instrument’s own checks vouches for these runs.</p>");
    }
    out
}

/// Gates against runs, at a glance.
fn overview(report: &CampaignReport) -> String {
    let tables = || report.validity_gates.iter().take(super::MAX_RUNS_DRAWN);
    let mut ids: Vec<(&str, &str)> = Vec::new();
    for gate in tables().flat_map(|t| t.gates.iter().take(MAX_ROWS)) {
        let key = (gate.id.as_str(), gate.name.as_str());
        if ids.len() < MAX_ROWS && !ids.iter().any(|(id, _)| *id == key.0) {
            ids.push(key);
        }
    }
    if ids.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table, scrolls sideways\"><table class=\"matrix\"><caption>Every gate in every run</caption><thead><tr><th scope=\"col\">gate</th>",
    );
    for table in tables() {
        put!(out, "<th scope=\"col\">run\u{a0}{}</th>", table.run);
    }
    out.push_str("</tr></thead><tbody>");
    for (id, name) in ids {
        put!(
            out,
            "<tr><th scope=\"row\"><span class=\"gate-id\">{}</span> {}</th>",
            esc(id),
            esc(name)
        );
        for table in tables() {
            let gate = table.gates.iter().find(|g| g.id == id);
            put!(out, "<td>{}</td>", gate.map_or_else(String::new, mark));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// One run's gates in full; open where something failed.
fn one(gates: &GateTable, first: bool) -> String {
    if gates.gates.is_empty() {
        return format!(
            "<p>Run {}: {}</p>",
            gates.run,
            absent(Some("no gate has a finding"))
        );
    }
    let verdict = if gates.all_pass {
        "<span class=\"ok\">✓</span> no gate invalidates it"
    } else {
        "<span class=\"bad\">✗</span> a gate invalidates it"
    };
    let mut table = Table::new(
        "What each gate saw",
        &[
            text("gate"),
            text("verdict"),
            text("what was seen"),
            text("what it guards, and the price of failing"),
        ],
    )
    .class("gates");
    for gate in gates.gates.iter().take(MAX_ROWS) {
        table.row(&[
            format!(
                "<span class=\"gate-id\">{}</span> {}<small class=\"span\">{}</small>",
                esc(&gate.id),
                esc(&gate.name),
                esc(&gate.plugin)
            ),
            mark(gate),
            seen(gate),
            meaning(gate),
        ]);
    }
    let mut out = table.finish();
    if !gates.labels.is_empty() {
        let labels: Vec<String> = gates.labels.iter().map(|l| esc(l).to_string()).collect();
        put!(
            out,
            "<p>Labels that run {} carries: {}.</p>",
            gates.run,
            labels.join(", ")
        );
    }
    fold(
        &format!("Gates of run {}: {verdict}", gates.run),
        first || !gates.all_pass,
        &out,
    )
}

fn mark(gate: &GateRow) -> String {
    match (gate.applicable, gate.observed, gate.pass) {
        (false, ..) => "<span class=\"absent\"><b>–</b> not applicable</span>",
        (true, false, _) => "<span class=\"bad\"><b>✗</b> not observed</span>",
        (true, true, true) => "<span class=\"ok\"><b>✓</b> passed</span>",
        (true, true, false) => "<span class=\"bad\"><b>✗</b> failed</span>",
    }
    .to_owned()
}

fn seen(gate: &GateRow) -> String {
    // A gate without a sentence of its own has its figures as its detail: they are shown once.
    let repeats = gate.measures.keys().all(|name| gate.detail.contains(name));
    let mut out = if repeats && !gate.measures.is_empty() {
        String::new()
    } else {
        esc(&gate.detail).to_string()
    };
    if !gate.measures.is_empty() {
        out.push_str("<ul class=\"measures\">");
        for (name, (value, unit)) in gate.measures.iter().take(MAX_ROWS) {
            put!(out, "<li>{} {}", esc(name), esc(&in_unit(*value, unit)));
            for limit in gate.limits.iter().filter(|l| l.measure == *name).take(2) {
                let text = limit.text(&|v| in_unit(v, unit));
                let class = if limit.loosened {
                    "limit loosened"
                } else {
                    "limit"
                };
                put!(out, " <span class=\"{class}\">{}</span>", esc(&text));
            }
            out.push_str("</li>");
        }
        out.push_str("</ul>");
    }
    out
}

fn meaning(gate: &GateRow) -> String {
    let price = if gate.label_determining {
        "If it fails the run stays valid, but loses a label."
    } else if gate.advisory {
        "If it fails nothing is lost; it is advice."
    } else {
        "If it fails the run does not count."
    };
    format!("{} <small>{price}</small>", words::gate(&gate.id))
}
