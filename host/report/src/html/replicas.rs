//! Lives of the replicas, and the effects that were executed on them.

use blackstart_analyze::{ReplicaExit, RunAnalysis};

use crate::json::CampaignReport;

use super::markup::{absent, dense, esc, put};
use super::num::{count, fixed, seconds};
use super::table::{Table, number, text};
use super::words;

/// Most rows and items of one run.
const MAX_ROWS: usize = 64;

/// Lives and effects of every drawn run.
pub(super) fn replicas(report: &CampaignReport) -> String {
    let mut lives = Table::new(
        "Lives of the replicas; times are seconds from the fire",
        &[
            text("run, replica"),
            text("what happened"),
            number("at (s)"),
            number("pid"),
            text("how"),
            text("processes that outlived it"),
        ],
    );
    let mut effects = Table::new(
        "Effects that were executed; times are seconds from the fire",
        &[
            text("run"),
            text("effect"),
            text("replica"),
            number("planned (s)"),
            number("started (s)"),
            number("± (µs)"),
            number("undone (s)"),
            text("detail"),
        ],
    );
    let mut notes = String::new();
    for run in report.campaign.per_run.iter().take(super::MAX_RUNS_DRAWN) {
        let a = &run.analysis;
        life_rows(&mut lives, a, &mut notes);
        effect_rows(&mut effects, a);
        if !a.fault.changed_facts.is_empty() {
            put!(notes, "<li>Run {}, facts that changed: ", a.run);
            for (i, fact) in a.fault.changed_facts.iter().take(MAX_ROWS).enumerate() {
                put!(
                    notes,
                    "{}<code>{}</code>",
                    if i > 0 { ", " } else { "" },
                    esc(fact)
                );
            }
            notes.push_str("</li>");
        }
    }
    let mut out = String::new();
    if lives.is_empty() {
        put!(
            out,
            "<p>Lives of the replicas: {}</p>",
            absent(Some("no start or end of a replica was seen"))
        );
    } else {
        out.push_str(&lives.finish());
    }
    if !effects.is_empty() {
        out.push_str(&effects.finish());
    }
    if !notes.is_empty() {
        put!(out, "<ul>{notes}</ul>");
    }
    out
}

fn life_rows(table: &mut Table, a: &RunAnalysis, notes: &mut String) {
    let zero = seconds(a.fire.actual_ns.unwrap_or(0));
    let at = |ns: i64| fixed(seconds(ns) - zero, 3);
    for life in a.replicas.iter().take(MAX_ROWS) {
        let who = format!("run\u{a0}{}, {}", a.run, esc(&life.replica));
        let mut rows: Vec<(i64, [String; 6])> = Vec::new();
        for (ns, pid) in life.starts.iter().take(MAX_ROWS) {
            rows.push((
                *ns,
                [
                    who.clone(),
                    "started".to_owned(),
                    at(*ns),
                    pid.to_string(),
                    String::new(),
                    String::new(),
                ],
            ));
        }
        for exit in life.exits.iter().take(MAX_ROWS) {
            let after = if exit.after_fire {
                "after the fire"
            } else {
                "before the fire"
            };
            rows.push((
                exit.at_ns,
                [
                    who.clone(),
                    format!("ended <small>{}, {after}</small>", esc(&exit.role)),
                    at(exit.at_ns),
                    exit.pid.to_string(),
                    how(exit),
                    orphans(exit, zero),
                ],
            ));
        }
        rows.sort_by_key(|(ns, _)| *ns);
        for (_, row) in &rows {
            table.row(row);
        }
        put!(
            notes,
            "<li>Run {}, {}: {} {} after the fire{}</li>",
            a.run,
            esc(&life.replica),
            count(life.restarts_after_fire),
            if life.restarts_after_fire == 1 {
                "start"
            } else {
                "starts"
            },
            life.not_restarted.as_deref().map_or_else(
                || ".".to_owned(),
                |why| format!("; not started again: {}", esc(why))
            )
        );
    }
}

fn how(exit: &ReplicaExit) -> String {
    match (exit.signal, exit.code) {
        (Some(number), _) => match words::signal(number) {
            Some(name) => format!("by {name} ({number})"),
            None => format!("by signal {number}"),
        },
        (None, Some(0)) => "exit code 0, in good order".to_owned(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => absent(Some("its exit status was not readable")),
    }
}

fn orphans(exit: &ReplicaExit, zero: f64) -> String {
    if exit.orphans.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = exit
        .orphans
        .iter()
        .take(MAX_ROWS)
        .map(|o| format!("<code>{}</code>", esc(o)))
        .collect();
    let fate = match (exit.orphans_gone_ns, exit.orphans_killed) {
        (Some(ns), Some(true)) => format!(
            "killed by the supervisor, gone at {} s",
            fixed(seconds(ns) - zero, 3)
        ),
        (Some(ns), _) => format!(
            "ended by themselves, gone at {} s",
            fixed(seconds(ns) - zero, 3)
        ),
        (None, _) => "not seen to end".to_owned(),
    };
    format!("{} <small>{fate}</small>", names.join(", "))
}

fn effect_rows(table: &mut Table, a: &RunAnalysis) {
    let zero = seconds(a.fire.actual_ns.unwrap_or(0));
    let at = |ns: i64| fixed(seconds(ns) - zero, 6);
    for e in a.fault.effects.iter().take(MAX_ROWS) {
        let mut detail = e
            .detail
            .as_deref()
            .map_or_else(String::new, |d| esc(d).to_string());
        if let Some(failure) = &e.failure {
            put!(
                detail,
                " <span class=\"bad\">failed: {}</span>",
                esc(failure)
            );
        }
        if let Some(by) = &e.undone_by {
            put!(detail, " <small>undone by {}</small>", esc(by));
        }
        table.row(&[
            format!("run\u{a0}{}", a.run),
            esc(&e.action).to_string(),
            e.replica
                .as_deref()
                .map_or_else(String::new, |r| esc(r).to_string()),
            dense(e.planned_ns, at),
            dense(e.started_ns, at),
            dense(e.started_half_width_ns, |ns| fixed(ns as f64 / 1e3, 1)),
            e.undone_ns
                .map_or_else(|| "nothing to undo, or never".to_owned(), at),
            detail,
        ]);
    }
}
