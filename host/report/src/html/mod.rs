//! `report.html`: one page that opens from disk, without a network and without a script.
//!
//! It shows what `report.json` holds and computes nothing beyond the scales of its drawings. Every
//! text from servers, plugins and configurations is escaped and bounded; every list, table and
//! drawing has a limit, so that a damaged or hostile report cannot make a page that no browser opens.

mod client;
mod comparison;
mod gates;
mod glossary;
mod headline;
mod incidence_chart;
mod losses;
mod markup;
mod num;
mod phases;
mod provenance;
mod recovery;
mod replicas;
mod run_chart;
mod run_drawing;
mod run_marks;
mod stats;
mod svg;
mod table;
mod windows;
mod words;

use crate::json::{CampaignReport, REPORT_SCHEMA_VERSION, RunPart};

pub use comparison::render_comparison;
use markup::{esc, put, section};
pub use words::phase as phase_words;

/// Most runs that the page shows in full; all of them are in `report.json`.
const MAX_RUNS_DRAWN: usize = 20;

/// What the page may load and run: its own inline styles, nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// The page's style.
const STYLE: &str = include_str!("style.css");

/// Why a page could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HtmlError {
    /// The comparison has another version than this page knows.
    #[error(
        "the comparison has schema_version {found}, but the page shows version {expected} only: compare again"
    )]
    ComparisonVersion {
        /// Its version.
        found: u32,
        /// [`blackstart_analyze::COMPARISON_SCHEMA_VERSION`].
        expected: u32,
    },
    /// The report has another version than this page knows.
    #[error(
        "the report has schema_version {found}, but report.html shows version {expected} only: make the report again with `blackstart report`"
    )]
    Version {
        /// Its version.
        found: u32,
        /// [`REPORT_SCHEMA_VERSION`].
        expected: u32,
    },
}

/// The page of a campaign: one self-contained HTML file.
///
/// # Errors
/// [`HtmlError::Version`] for a report of another version.
pub fn render_html(report: &CampaignReport) -> Result<String, HtmlError> {
    if report.schema_version != REPORT_SCHEMA_VERSION {
        return Err(HtmlError::Version {
            found: report.schema_version,
            expected: REPORT_SCHEMA_VERSION,
        });
    }
    let mut page = start("report", &report.campaign.config_name);
    // Shared by every drawing.
    page.push_str("<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect class=\"hatch-ground\" width=\"6\" height=\"6\"/><rect class=\"hatch-line\" width=\"2.4\" height=\"6\"/></pattern></defs></svg>");
    page.push_str("<a class=\"skip\" href=\"#verdict\">Skip to the verdict</a><main>");
    page.push_str(&headline::head(report));
    page.push_str(&navigation());
    if report.campaign.per_run.len() > MAX_RUNS_DRAWN {
        put!(
            page,
            "<p class=\"note\">The first {MAX_RUNS_DRAWN} of {} runs are shown; all are in report.json.</p>",
            report.campaign.per_run.len()
        );
    }
    for (id, title, lead, body) in sections(report) {
        page.push_str(&section(id, title, lead, &body));
    }
    put!(
        page,
        "<footer><p>Made by blackstart {} from report.json, which holds every figure of this page. Unmeasured is never zero.</p></footer></main></body></html>\n",
        esc(&report.instrument_version)
    );
    Ok(page)
}

/// The page up to its body: `kind` of page, and the name in its title.
fn start(kind: &str, name: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><meta name=\"referrer\" content=\"no-referrer\"><title>{} – Blackstart {kind}</title><link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head><body>",
        esc(name)
    )
}

/// Labels beside a run's title.
fn badges(run: &RunPart) -> String {
    let mut out = String::new();
    if run.analysis.negative_control {
        out.push_str(" <span class=\"badge\">negative control</span>");
    }
    if !run.valid {
        out.push_str(" <span class=\"badge bad\">does not count</span>");
    }
    if run.analysis.partial {
        out.push_str(" <span class=\"badge bad\">partial</span>");
    }
    for label in run
        .verdict
        .validity
        .labels
        .iter()
        .take(markup::MAX_LIST_ITEMS)
    {
        put!(out, " <span class=\"badge ok\">{}</span>", esc(label));
    }
    for label in run
        .verdict
        .validity
        .labels_lost
        .iter()
        .take(markup::MAX_LIST_ITEMS)
    {
        put!(out, " <span class=\"badge\">lost: {}</span>", esc(label));
    }
    out
}

/// Sections in page order: id, short title for the navigation, and heading.
const SECTIONS: [(&str, &str, &str); 10] = [
    ("runs", "Runs", "Second by second"),
    ("phases", "Phases", "Where the time went"),
    ("losses", "Losses", "What was lost"),
    ("gates", "Gates", "What was checked"),
    ("figures", "Figures", "Every run and the campaign"),
    ("windows", "Windows", "Windows and latencies"),
    ("recovery", "Recovery", "Recovery under other rules"),
    ("client", "Client", "Was the instrument fit?"),
    ("replicas", "Replicas", "Lives of the replicas"),
    ("provenance", "Provenance", "Provenance"),
];

fn navigation() -> String {
    let mut out = String::from("<nav aria-label=\"sections\"><ul>");
    for (id, short, _) in SECTIONS {
        put!(out, "<li><a href=\"#{id}\">{short}</a></li>");
    }
    out.push_str("<li><a href=\"#words\">Words</a></li></ul></nav>");
    out
}

/// Id, heading, lead and body of each section.
fn sections(report: &CampaignReport) -> Vec<(&'static str, &'static str, &'static str, String)> {
    let mut all: Vec<_> = SECTIONS
        .iter()
        .map(|(id, _, title)| {
            let (lead, body) = match *id {
                "runs" => ("Every second of the load by outcome, counted where each request was <em>meant</em> to be sent. Point at a second for its figures.", run_chart::charts(report)),
                "phases" => ("Only boundaries that were measured are claimed: in the server’s log, by inference probes, by the process supervisor, and in the load itself. What no boundary explains is hatched.", phases::phases(report)),
                "losses" => ("A request in flight at the fire was dispatched before it and had no end yet. It is <em>determinate</em> if its end lies clearly on one side of the fire, and <em>indeterminate</em> if it lies so close that the order cannot be told.", losses::losses(report)),
                "gates" => ("", gates::gates(report)),
                "figures" => ("Statistics are only those that a small sample carries: no bootstrap, no rank test, heavy-tailed figures by median and range.", stats::stats(report)),
                "windows" => ("A window holds the requests whose intended time falls in it. Percentiles are of completed requests only; the incidence beside them is of all.", windows::windows(report)),
                "recovery" => ("Recovery depends on a rule. The grid shows what other rules would have said.", recovery::recovery(report)),
                "client" => ("A late or busy client would show up as latency of the server. These figures say how much it can have added.", client::client(report)),
                "replicas" => ("", replicas::replicas(report)),
                _ => ("", provenance::provenance(report)),
            };
            (*id, *title, lead, body)
        })
        .collect();
    all.push(("words", "Words", "", glossary::glossary()));
    all
}
