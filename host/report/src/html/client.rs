//! Whether the instrument itself can be trusted: its send times, CPU, stalls, and the receive path.

use blackstart_analyze::{ClientAnalysis, ReceivePath, RunAnalysis};

use crate::json::CampaignReport;

use super::markup::{absent, dense, esc, figure, list, put};
use super::num::{count, fixed, ms, percent, us};
use super::table::{Table, number, text};

/// Most rows of a table.
const MAX_ROWS: usize = 200;

/// Client figures and receive-path checks.
pub(super) fn client(report: &CampaignReport) -> String {
    let mut sends = Table::new(
        "The client: send skew is how late it was ready to write, after the intended time",
        &[
            text("run"),
            number("sent"),
            number("never sent"),
            number("skew p50 (µs)"),
            number("skew p99 (µs)"),
            number("skew max (µs)"),
            number("host CPU, busiest 5 s"),
            number("host CPU mean"),
            number("own CPU mean"),
            number("steal max"),
            number("stall p99 (µs)"),
            number("stall max (µs)"),
            text("real-time priority"),
        ],
    );
    let mut paths = Table::new(
        "Receive path by window: what the client adds to the latencies that it reports",
        &[
            text("run, window"),
            number("client TTFT mean (ms)"),
            number("n"),
            number("server TTFT mean (ms)"),
            number("n"),
            number("canary streams"),
            number("complete"),
            number("TTFT dev. p50 (µs)"),
            number("max"),
            number("gap dev. p50 (µs)"),
            number("p99"),
            number("max"),
            number("lag p99 (µs)"),
            number("max"),
        ],
    );
    let mut notes = Vec::new();
    for run in report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN) {
        let a = &run.analysis;
        sends.row(&client_row(a));
        client_notes(a.run, &a.client, &mut notes);
        for (window, path) in a.receive_path.iter().take(MAX_ROWS) {
            path_row(&mut paths, a, window, path);
            for (what, note) in [
                ("server TTFT", &path.server_ttft_note),
                ("canary", &path.canary_note),
            ] {
                if let Some(note) = note {
                    let said = format!("{what}: {note}");
                    if !notes.contains(&said) {
                        notes.push(said);
                    }
                }
            }
        }
    }
    let mut out = sends.finish();
    if !paths.is_empty() {
        out.push_str(&paths.finish());
        out.push_str("<p class=\"note\">The canary is a stream with known timing (first token after 20 ms, then one every 10 ms) from a separate process on the client’s host, read through the same path as the load. Its deviations bound what the client adds.</p>");
    }
    if !notes.is_empty() {
        out.push_str(&list(&notes));
    }
    put!(out, "{}", queues(report));
    out
}

fn client_row(a: &RunAnalysis) -> Vec<String> {
    let c = &a.client;
    vec![
        format!("run\u{a0}{}", a.run),
        count(c.dispatched),
        count(c.undispatched),
        dense(c.skew_us_p50, us),
        dense(c.skew_us_p99, us),
        dense(c.skew_us_max, us),
        dense(c.cpu_percent_max_5s, percent),
        dense(c.cpu_percent_mean, percent),
        dense(c.process_percent_mean, percent),
        dense(c.steal_percent_max, percent),
        dense(c.stall_us_p99, us),
        dense(c.stall_us_max, us),
        real_time(c),
    ]
}

fn real_time(c: &ClientAnalysis) -> String {
    if c.heartbeats.is_empty() {
        return absent(
            c.stall_note
                .as_deref()
                .or(Some("no heartbeat was recorded")),
        );
    }
    let granted = c.heartbeats.iter().filter(|h| h.real_time).count();
    let mut out = if granted == c.heartbeats.len() {
        format!("granted to all {granted} threads")
    } else {
        format!("granted to {granted} of {} threads", c.heartbeats.len())
    };
    if let Some(note) = c
        .heartbeats
        .iter()
        .find_map(|h| h.real_time_note.as_deref())
    {
        put!(out, "<small class=\"why\">{}</small>", esc(note));
    }
    out
}

fn client_notes(run: u32, c: &ClientAnalysis, notes: &mut Vec<String>) {
    for (what, note) in [("host CPU", &c.cpu_note), ("stalls", &c.stall_note)] {
        if let Some(note) = note {
            notes.push(format!("Run {run}, {what}: {note}"));
        }
    }
    if c.coalesced_requests > 0 {
        notes.push(format!(
            "Run {run}: {} requests had reads that delivered more than one content event at once; their gaps are coalesced",
            count(c.coalesced_requests)
        ));
    }
}

fn path_row(table: &mut Table, a: &RunAnalysis, window: &str, p: &ReceivePath) {
    let canary = p.canary.as_ref();
    let of = |value: Option<f64>| dense(value, us);
    table.row(&[
        format!("run\u{a0}{}, {}", a.run, esc(&window.replace('_', " "))),
        dense(p.client_ttft_mean_ms, ms),
        count(p.client_ttft_count),
        dense(p.server_ttft_mean_ms, ms),
        dense(p.server_ttft_count, count),
        dense(canary.map(|c| c.streams), count),
        dense(canary.map(|c| c.completed), count),
        of(canary.and_then(|c| c.ttft_dev_p50_us)),
        of(canary.and_then(|c| c.ttft_dev_max_us)),
        of(canary.and_then(|c| c.itl_dev_p50_us)),
        of(canary.and_then(|c| c.itl_dev_p99_us)),
        of(canary.and_then(|c| c.itl_dev_max_us)),
        of(canary.and_then(|c| c.event_lag_p99_us)),
        of(canary.and_then(|c| c.event_lag_max_us)),
    ]);
}

/// Waiting queues and routing shares over the baseline.
fn queues(report: &CampaignReport) -> String {
    let mut table = Table::new(
        "Waiting queue and routing share of each replica over the baseline",
        &[
            text("run, replica"),
            number("queue mean"),
            number("queue max"),
            number("samples"),
            number("expected"),
            number("scrape errors"),
            number("share of requests"),
        ],
    );
    for run in report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN) {
        let a = &run.analysis;
        for (replica, w) in a.waiting.iter().take(MAX_ROWS) {
            table.row(&[
                format!("run\u{a0}{}, {}", a.run, esc(replica)),
                figure(w.mean, |v| fixed(v, 3), w.note.as_deref()),
                dense(w.max, |v| fixed(v, 0)),
                count(w.samples),
                count(w.expected),
                count(w.scrape_errors),
                figure(
                    a.share.percent.get(replica).copied(),
                    percent,
                    a.share.note.as_deref(),
                ),
            ]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    table.finish()
}
