//! Reports for people and machines from finished analyses. Computes nothing.
//!
//! `report.json` is the whole report as data; `report.html` shows the same data and nothing else.
//! Figures that mean the same as in the predecessor's published report keep its names and units.

mod caveats;
mod comparison;
mod gate_figures;
mod html;
mod json;
mod load;

pub use comparison::comparison_schema;
pub use gate_figures::{LimitRow, gate_figures};
pub use html::{HtmlError, phase_words, render_comparison, render_html};
pub use json::{
    CampaignPart, CampaignReport, GateRow, GateTable, Provenance, REPORT_SCHEMA_VERSION,
    ReportInput, RunInput, RunPart, RunReport, campaign_report, report_schema, run_report,
};
pub use load::{LoadReport, load_schema};
