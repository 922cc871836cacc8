//! The windows of each run: outcomes, goodput, latencies, incidence, the SLO sweep.

use blackstart_analyze::{Incidence, QuantileRefusal, RunAnalysis, WindowAnalysis};

use crate::json::CampaignReport;

use super::incidence_chart;
use super::losses::by_class;
use super::markup::{absent, dense, esc, fold, put};
use super::num::{count, fixed, ms, percent_of, seconds, secs};
use super::table::{Column, Table, number, text};
use super::words;

/// Most windows and cells that one run shows.
const MAX_ROWS: usize = 64;

/// A fold-out for each drawn run.
pub(super) fn windows(report: &CampaignReport) -> String {
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
            "{}{}{}{}{}{}",
            outcomes(a),
            latencies(a),
            quantiles(a),
            incidence_chart::charts(a),
            sweep(a),
            tails_and_modes(a)
        );
        out.push_str(&fold(
            &format!("Windows of run {}{}", a.run, super::badges(run)),
            i == 0,
            &body,
        ));
    }
    out
}

fn name(w: &WindowAnalysis) -> String {
    let (words, help) = words::window(w.name);
    format!("<span title=\"{help}\">{words}</span>")
}

fn outcomes(a: &RunAnalysis) -> String {
    let mut table = Table::new(
        "Outcomes and goodput of the requests intended in each window; times are seconds from the fire",
        &[
            text("window"),
            number("from (s)"),
            number("to (s)"),
            number("scheduled"),
            number("completed"),
            number("errored"),
            number("censored"),
            number("good"),
            number("goodput"),
            number("good/s"),
            number("completed/s"),
            text("errors by class"),
        ],
    );
    let zero = seconds(a.fire.actual_ns.unwrap_or(0));
    for w in a.windows.iter().take(MAX_ROWS) {
        table.row(&[
            name(w),
            fixed(seconds(w.start_ns) - zero, 2),
            fixed(seconds(w.end_ns) - zero, 2),
            count(w.counts.scheduled),
            count(w.counts.completed),
            count(w.counts.errored),
            count(w.counts.censored),
            count(w.slo.good),
            dense(w.slo.goodput, percent_of),
            rate(w, w.slo.good_per_s),
            rate(w, w.throughput_per_s),
            by_class(&w.counts.errored_by_class),
        ]);
    }
    table.finish()
}

/// A window of no length has no rate.
fn rate(w: &WindowAnalysis, value: f64) -> String {
    dense((w.duration_s > 0.0).then_some(value), |v| fixed(v, 2))
}

fn latencies(a: &RunAnalysis) -> String {
    let gaps = match a.inter_chunk_is_inter_token {
        Some(true) => "inter-token\u{a0}gap",
        _ => "inter-chunk\u{a0}gap",
    };
    let mut table = Table::new(
        "Latencies in milliseconds, from the intended send time; conditional on completion: errored and censored requests are in none of them",
        &[
            text("window"),
            text("latency"),
            number("n"),
            number("mean"),
            number("p50"),
            number("p90"),
            number("p95"),
            number("p99"),
            number("max"),
            text("remark"),
        ],
    );
    for w in a.windows.iter().take(MAX_ROWS) {
        for (i, (what, d)) in [
            ("TTFT", &w.ttft_ms),
            ("end\u{a0}to\u{a0}end", &w.e2e_ms),
            (gaps, &w.inter_chunk_ms),
        ]
        .into_iter()
        .enumerate()
        {
            let none = d.count == 0;
            let note = if none {
                absent(d.note.as_deref().or(Some("no sample")))
            } else if w.incidence.curve_required && i == 0 {
                "over 5 % did not complete: read with the incidence below".to_owned()
            } else {
                String::new()
            };
            table.classed_row(
                if i == 0 { "" } else { "sub" },
                &[
                    name(w),
                    what.to_owned(),
                    count(d.count),
                    dense(d.mean, ms),
                    dense(d.p50, ms),
                    dense(d.p90, ms),
                    dense(d.p95, ms),
                    dense(d.p99, ms),
                    dense(d.max, ms),
                    note,
                ],
            );
        }
    }
    let mut out = table.finish();
    let verified = count(a.token_verified_requests);
    match a.inter_chunk_is_inter_token {
        Some(true) => put!(out, "<p class=\"note\">Gaps are inter-token: content events equal the server’s own token count in all {verified} requests that report one.</p>"),
        Some(false) => put!(out, "<p class=\"note\">Gaps are between chunks, not tokens: content events differ from the server’s own token count in some of {verified} requests.</p>"),
        None => out.push_str("<p class=\"note\">Gaps are between chunks: no completed request reports the server’s own token count, so that nothing verifies one token a chunk.</p>"),
    }
    out
}

/// Quantiles over all scheduled requests, or their refusals.
fn quantiles(a: &RunAnalysis) -> String {
    let mut table = Table::new(
        "Time by which a share of <em>all scheduled</em> requests had completed (Aalen–Johansen; errors compete)",
        &[
            text("window"),
            number("n"),
            number("p50"),
            number("p90"),
            number("p95"),
            number("p99"),
            number("completed at the horizon"),
            number("errored at the horizon"),
            text("why a quantile is refused"),
        ],
    );
    for w in a.windows.iter().take(MAX_ROWS) {
        let i = &w.incidence;
        let mut cells = vec![name(w), count(i.n)];
        for q in [0.5, 0.9, 0.95, 0.99] {
            cells.push(quantile(i, q));
        }
        if i.n == 0 {
            cells.extend([
                dense(None::<f64>, percent_of),
                dense(None::<f64>, percent_of),
            ]);
        } else {
            cells.extend([
                percent_of(i.final_incidence),
                percent_of(i.final_error_incidence),
            ]);
        }
        let mut notes: Vec<&str> = i
            .quantiles
            .iter()
            .filter_map(|q| q.note.as_deref())
            .collect();
        notes.dedup();
        cells.push(
            notes
                .into_iter()
                .take(MAX_ROWS)
                .map(|n| format!("<small class=\"why\">{}</small>", esc(n)))
                .collect(),
        );
        table.row(&cells);
    }
    table.finish()
}

fn quantile(i: &Incidence, q: f64) -> String {
    let Some(found) = i.quantiles.iter().find(|f| (f.q - q).abs() < 1e-9) else {
        return dense(None::<f64>, ms);
    };
    match (found.value_ms, found.refusal) {
        (Some(value), _) => secs(value / 1e3),
        (None, Some(QuantileRefusal::GreaterThanHorizon)) => {
            format!("> {}", secs(i.horizon_ms / 1e3))
        }
        (None, Some(QuantileRefusal::Unattainable)) => {
            "<span class=\"bad\">never</span>".to_owned()
        }
        (None, _) => dense(None::<f64>, ms),
    }
}

/// The sweep: goodput for every pair of thresholds. Columns come from the data.
fn sweep(a: &RunAnalysis) -> String {
    let Some(cells) = a
        .windows
        .first()
        .map(|w| &w.slo.sweep)
        .filter(|c| !c.is_empty())
    else {
        return String::new();
    };
    let mut columns: Vec<Column> = vec![text("TTFT / end to end, at most")];
    columns.extend(
        a.windows
            .iter()
            .take(MAX_ROWS)
            .map(|w| number(words::window(w.name).0)),
    );
    let mut table = Table::new(
        "SLO sweep: goodput of each window at other thresholds",
        &columns,
    );
    for (i, cell) in cells.iter().take(MAX_ROWS).enumerate() {
        let mut row = vec![format!(
            "{} ms / {} s",
            fixed(f64::from(cell.ttft_ms), 0),
            fixed(f64::from(cell.e2e_ms) / 1e3, 1)
        )];
        for w in a.windows.iter().take(MAX_ROWS) {
            let same = w
                .slo
                .sweep
                .get(i)
                .filter(|c| (c.ttft_ms, c.e2e_ms) == (cell.ttft_ms, cell.e2e_ms));
            row.push(dense(same.and_then(|c| c.goodput), percent_of));
        }
        table.row(&row);
    }
    table.finish()
}

fn tails_and_modes(a: &RunAnalysis) -> String {
    let mut tails = Table::new(
        "Tail percentiles of completed requests with order-statistic intervals (95 %)",
        &[
            text("window"),
            text("percentile"),
            number("n"),
            number("estimate (ms)"),
            number("from (ms)"),
            number("to (ms)"),
            text("remark"),
        ],
    );
    let mut modes = Table::new(
        "Distance of the most frequent latency from each threshold, in baseline standard deviations; negative = inside",
        &[
            text("window"),
            text("threshold"),
            number("mode (ms)"),
            number("baseline SD (ms)"),
            number("distance (SD)"),
            text("remark"),
        ],
    );
    for w in a.windows.iter().take(MAX_ROWS) {
        for t in w.tails.iter().take(MAX_ROWS) {
            tails.row(&[
                name(w),
                format!("{} p{}", esc(&t.component), fixed(t.q * 100.0, 0)),
                count(t.n),
                dense(t.estimate_ms, ms),
                dense(t.lo_ms, ms),
                dense(t.hi_ms, ms),
                t.note
                    .as_deref()
                    .map_or_else(String::new, |n| esc(n).to_string()),
            ]);
        }
        for m in w.slo.modal_distances.iter().take(MAX_ROWS) {
            let distance = match (m.distance_sd, m.infinite_sign) {
                (None, Some(1)) => "+∞".to_owned(),
                (None, Some(_)) => "−∞".to_owned(),
                (value, _) => dense(value, |v| fixed(v, 2)),
            };
            modes.row(&[
                name(w),
                format!(
                    "{} {} ms",
                    esc(&m.component),
                    fixed(f64::from(m.threshold_ms), 0)
                ),
                dense(m.mode_ms, ms),
                dense(m.baseline_sd_ms, ms),
                distance,
                m.note
                    .as_deref()
                    .map_or_else(String::new, |n| esc(n).to_string()),
            ]);
        }
    }
    let mut body = String::new();
    for table in [tails, modes] {
        if !table.is_empty() {
            body.push_str(&table.finish());
        }
    }
    if body.is_empty() {
        return body;
    }
    fold("Tail intervals and modal distances", false, &body)
}
