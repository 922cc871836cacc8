//! What was lost: requests in flight at the fire, and requests that came during the outage.

use std::collections::BTreeMap;

use blackstart_analyze::{FlightPhases, InFlight, InFlightCounts, LossSplit, OutageOutcomes};

use crate::json::CampaignReport;

use super::markup::{absent, esc, figure, list, put};
use super::num::{count, percent_of, seconds, secs};
use super::table::{Table, number, text};
use super::words;

/// Every request in one group, so that the losses add up.
fn totals(report: &CampaignReport) -> String {
    let mut table = Table::new(
        "Every request of a run, by when it met the fault; lost = errored + censored, and the groups add up",
        &[
            text("run"),
            text("requests"),
            number("all"),
            number("completed"),
            number("errored"),
            number("censored"),
            number("lost"),
        ],
    );
    let mut why = Vec::new();
    for run in report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN) {
        let a = &run.analysis;
        let l = &a.losses;
        let mut row = |class: &str, what: &str, c: &InFlightCounts| {
            table.classed_row(
                class,
                &[
                    format!("run\u{a0}{}", a.run),
                    what.to_owned(),
                    count(c.total),
                    count(c.completed),
                    count(c.errored),
                    count(c.censored),
                    count(c.errored.saturating_add(c.censored)),
                ],
            );
        };
        row("", "all", &l.all);
        for (what, c) in l.split.iter().flat_map(LossSplit::groups) {
            row("sub", what, &c);
        }
        for (n, said) in [
            (
                l.never_sent,
                "were never sent, since the run was cut off before their time",
            ),
            (l.unrecorded, "have no record"),
        ] {
            if n > 0 {
                why.push(format!(
                    "Run {}: {} more of {} planned requests {said}.",
                    a.run,
                    count(n),
                    count(l.planned)
                ));
            }
        }
        if let Some(note) = &l.note {
            why.push(format!("Run {}: {note}.", a.run));
        }
    }
    let mut out = if table.is_empty() {
        String::new()
    } else {
        table.finish()
    };
    if !why.is_empty() {
        out.push_str(&list(&why));
    }
    out
}

/// All accountings of every drawn run.
pub(super) fn losses(report: &CampaignReport) -> String {
    let runs = || report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN);
    let mut flight = Table::new(
        "Requests in flight at the fire, by how they ended",
        &[
            text("run"),
            text("certainty"),
            number("all"),
            number("completed"),
            number("errored"),
            number("censored"),
            number("lost"),
            text("errors by class"),
        ],
    );
    let mut progress = Table::new(
        "How far the requests in flight had come at the fire, and what was lost with them",
        &[
            text("run"),
            number("no response yet"),
            number("accepted, no token"),
            number("streaming"),
            number("tokens received by lost ones"),
            number("tokens still owed"),
            text("by replica"),
        ],
    );
    let mut outage = Table::new(
        "Requests whose intended time falls in the outage",
        &[
            text("run"),
            number("all"),
            number("completed"),
            number("errored"),
            number("censored"),
            text("errors by class"),
            text("how far the censored ones came"),
        ],
    );
    let mut why = String::new();
    for run in runs() {
        let a = &run.analysis;
        match &a.in_flight {
            Some(f) => {
                flight_rows(&mut flight, a.run, f);
                progress_row(&mut progress, a.run, f);
                if let Some(zone) = a.fire.indeterminate_zone_ns {
                    put!(
                        why,
                        "<li>Run {}: the indeterminate zone reaches {} on either side of the fire.{}</li>",
                        a.run,
                        secs(seconds(zone)),
                        f.note
                            .as_deref()
                            .map_or_else(String::new, |n| format!(" {}.", esc(n)))
                    );
                }
            }
            None => put!(
                why,
                "<li>Run {}: in-flight accounting {}</li>",
                a.run,
                absent(a.in_flight_note.as_deref())
            ),
        }
        match &a.outage_outcomes {
            Some(o) => outage_row(&mut outage, a.run, o),
            None => put!(
                why,
                "<li>Run {}: outcomes of the outage {}</li>",
                a.run,
                absent(a.outage_outcomes_note.as_deref())
            ),
        }
    }
    let mut out = totals(report);
    for table in [flight, progress, outage] {
        if !table.is_empty() {
            out.push_str(&table.finish());
        }
    }
    put!(out, "<ul>{why}</ul>");
    let seen = classes(report);
    if !seen.is_empty() {
        out.push_str("<dl class=\"terms\">");
        for class in seen.into_iter().take(super::markup::MAX_LIST_ITEMS) {
            put!(
                out,
                "<div><dt><code>{}</code></dt><dd>{}</dd></div>",
                esc(class),
                words::error_class(class)
            );
        }
        out.push_str("</dl>");
    }
    out
}

/// Error classes that occur anywhere in the report.
fn classes(report: &CampaignReport) -> Vec<&str> {
    let mut all: Vec<&str> = report
        .campaign
        .per_run
        .iter()
        .flat_map(|r| {
            let outage = r.analysis.outage_outcomes.iter();
            r.analysis
                .counts
                .errored_by_class
                .keys()
                .chain(r.analysis.in_flight_errored_by_class.keys())
                .chain(outage.flat_map(|o| o.errored_by_class.keys()))
        })
        .map(String::as_str)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// "connect 12, reset 3".
pub(super) fn by_class(classes: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = classes
        .iter()
        .take(super::markup::MAX_LIST_ITEMS)
        .map(|(class, n)| format!("{} {}", esc(class), count(*n)))
        .collect();
    all.join(", ")
}

fn flight_rows(table: &mut Table, run: u32, f: &InFlight) {
    let mut row = |name: &str, class: &str, c: &InFlightCounts, lost: String, classes: String| {
        table.classed_row(
            class,
            &[
                format!("run\u{a0}{run}"),
                name.to_owned(),
                count(c.total),
                count(c.completed),
                count(c.errored),
                count(c.censored),
                lost,
                classes,
            ],
        );
    };
    row(
        "all",
        "",
        &f.all,
        figure(f.loss_fraction, percent_of, f.note.as_deref()),
        by_class(&f.errored_by_class),
    );
    row(
        "determinate",
        "sub",
        &f.determinate,
        String::new(),
        String::new(),
    );
    row(
        "indeterminate",
        "sub",
        &f.indeterminate,
        String::new(),
        String::new(),
    );
}

fn progress_row(table: &mut Table, run: u32, f: &InFlight) {
    let replicas: Vec<String> = f
        .by_replica
        .iter()
        .take(super::markup::MAX_LIST_ITEMS)
        .map(|(replica, g)| {
            format!(
                "{}: {} ({} errored, {} censored)",
                esc(replica),
                count(g.counts.total),
                count(g.counts.errored),
                count(g.counts.censored)
            )
        })
        .collect();
    table.row(&[
        format!("run\u{a0}{run}"),
        count(f.at_fire.no_response),
        count(f.at_fire.accepted_no_token),
        count(f.at_fire.streaming),
        count(f.tokens_lost),
        figure(
            f.tokens_undelivered,
            count,
            Some("the length of an answer is not fixed without ignore_eos"),
        ),
        replicas.join("; "),
    ]);
}

fn outage_row(table: &mut Table, run: u32, o: &OutageOutcomes) {
    table.row(&[
        format!("run\u{a0}{run}"),
        count(o.total),
        count(o.completed),
        count(o.errored),
        count(o.censored),
        by_class(&o.errored_by_class),
        if o.censored == 0 {
            "none".to_owned()
        } else {
            progress_text(&o.censored_by_phase)
        },
    ]);
}

fn progress_text(p: &FlightPhases) -> String {
    format!(
        "{} without a response, {} accepted without a token, {} streaming",
        count(p.no_response),
        count(p.accepted_no_token),
        count(p.streaming)
    )
}
