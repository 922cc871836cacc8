//! What made the report: everything needed to do it again.

use std::collections::BTreeMap;

use crate::json::CampaignReport;

use super::markup::{MAX_LIST_ITEMS, esc, fold, list, put};
use super::num::fixed;
use super::table::{Table, number, text};

/// Configuration, seeds, plugins, grants, host, load, phases, method.
pub(super) fn provenance(report: &CampaignReport) -> String {
    let p = &report.provenance;
    let mut out = format!(
        "<dl class=\"terms\"><div><dt>instrument</dt><dd>blackstart {}</dd></div><div><dt>profile</dt><dd>{}</dd></div><div><dt>campaign file, SHA-256</dt><dd>{}</dd></div></dl>",
        esc(&report.instrument_version),
        esc(&p.profile),
        digest(&report.config_sha256)
    );
    if !p.deviations.is_empty() {
        put!(
            out,
            "<h3>Departures from the published method</h3>{}",
            list(&p.deviations)
        );
    }
    out.push_str("<div class=\"columns\">");
    out.push_str(&pairs("Load", &p.load));
    out.push_str(&pairs("Method", &p.method));
    out.push_str(&phases(&p.phases_s));
    out.push_str(&pairs("Client’s host", &p.host));
    out.push_str("</div>");
    out.push_str(&plugins(report));
    out.push_str(&fold(
        "Seeds and schedules of the runs",
        false,
        &runs(report),
    ));
    out
}

/// A digest, which may break anywhere.
fn digest(hex: &str) -> String {
    format!("<code class=\"digest\">{}</code>", esc(hex))
}

fn pairs(title: &str, all: &BTreeMap<String, String>) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(title, &[text("key"), text("value")]).class("pairs");
    for (key, value) in all.iter().take(MAX_LIST_ITEMS) {
        table.row(&[format!("<code>{}</code>", esc(key)), esc(value).to_string()]);
    }
    table.finish()
}

/// The plan's phases, in the order in which they run.
fn phases(all: &BTreeMap<String, f64>) -> String {
    let mut table =
        Table::new("Phases of a run", &[text("phase"), number("length (s)")]).class("pairs");
    for (key, name) in [
        ("warmup", "warm-up (discarded)"),
        ("baseline", "baseline"),
        ("fault_window", "fault window"),
        ("cooldown", "cooldown"),
    ] {
        if let Some(length) = all.get(key) {
            table.row(&[name.to_owned(), fixed(*length, 1)]);
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.finish()
    }
}

fn plugins(report: &CampaignReport) -> String {
    let p = &report.provenance;
    let mut table = Table::new(
        "Plugins: WebAssembly components that decided; a component can do nothing beyond its imports",
        &[
            text("plugin"),
            text("version"),
            text("world"),
            text("origin"),
            text("imports"),
            text("SHA-256"),
        ],
    );
    for (name, facts) in p.plugins.iter().take(MAX_LIST_ITEMS) {
        let fact = |key: &str| {
            facts
                .get(key)
                .map_or_else(String::new, |v| esc(v).to_string())
        };
        table.row(&[
            format!("<code>{}</code>", esc(name)),
            format!("{} <small>API {}</small>", fact("version"), fact("api")),
            fact("world"),
            fact("origin"),
            fact("imports"),
            facts.get("sha256").map_or_else(String::new, |d| digest(d)),
        ]);
    }
    let mut out = if table.is_empty() {
        "<p>No plugin was used.</p>".to_owned()
    } else {
        table.finish()
    };
    for (capability, patterns) in p.grants.iter().take(MAX_LIST_ITEMS) {
        let all: Vec<String> = patterns
            .iter()
            .take(MAX_LIST_ITEMS)
            .map(|g| format!("<code>{}</code>", esc(g)))
            .collect();
        let granted = if all.is_empty() {
            "nothing".to_owned()
        } else {
            all.join(", ")
        };
        put!(
            out,
            "<p>Granted to the fault plugin, {}: {granted}.</p>",
            esc(capability)
        );
    }
    out
}

fn runs(report: &CampaignReport) -> String {
    let p = &report.provenance;
    let mut table = Table::new(
        "Seeds and digests of the schedules, in plan order",
        &[number("run"), number("seed"), text("schedule, SHA-256")],
    );
    for (i, seed) in p.seeds.iter().take(MAX_LIST_ITEMS).enumerate() {
        table.row(&[
            (i + 1).to_string(),
            seed.to_string(),
            p.schedules.get(i).map_or_else(String::new, |d| digest(d)),
        ]);
    }
    table.finish()
}
