//! `report.json`.

use std::collections::BTreeMap;

use blackstart_analyze::{CampaignAnalysis, Endpoint, RunAnalysis, RunVerdict, Validity};
use blackstart_plan::{Plan, Profile};
use blackstart_record::{Boundaries, Finding, GateSeverity, LogCoverage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caveats::caveats;
use crate::gate_figures::{LimitRow, gate_figures, limit_rows};

/// Version of `report.json`. The predecessor's published reports are version 1.
pub const REPORT_SCHEMA_VERSION: u32 = 2;

/// What a campaign's report is made of.
pub struct ReportInput<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The runs, in order.
    pub runs: Vec<RunInput<'a>>,
    /// The campaign's figures.
    pub campaign: &'a CampaignAnalysis,
    /// Provenance of the client's host.
    pub host: &'a BTreeMap<String, String>,
    /// Whether the campaign ended early.
    pub partial: bool,
    /// What ended it, where it was not the operator.
    pub stopped: Option<&'a str>,
}

/// What a run's report is made of.
pub struct RunInput<'a> {
    /// Its figures.
    pub analysis: &'a RunAnalysis,
    /// What the gates said.
    pub findings: &'a [Finding],
    /// Whether it counts.
    pub validity: &'a Validity,
    /// What the matcher found in each replica's log.
    pub boundaries: &'a [Boundaries],
}

/// A campaign's report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CampaignReport {
    /// [`REPORT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the instrument.
    pub instrument_version: String,
    /// SHA-256 of the campaign file.
    pub config_sha256: String,
    /// What must be said beside every figure.
    pub caveats: Vec<String>,
    /// The campaign.
    pub campaign: CampaignPart,
    /// One table of gates for each run, in run order.
    pub validity_gates: Vec<GateTable>,
    /// What made it.
    pub provenance: Provenance,
}

/// The campaign's part of the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CampaignPart {
    /// Fault variant.
    pub variant: Option<String>,
    /// Name of the campaign.
    pub config_name: String,
    /// Whether the campaign ended early.
    pub partial: bool,
    /// Planned runs, controls apart.
    pub repetitions: u64,
    /// Runs that count.
    pub valid_runs: u64,
    /// Runs that do not.
    pub invalid_runs: u64,
    /// Planned runs without an analysis.
    pub missing_runs: Vec<u32>,
    /// What the fault plugin said it would do.
    pub statement: Option<String>,
    /// The runs.
    pub per_run: Vec<RunPart>,
    /// Endpoints over the valid runs.
    pub endpoints: Vec<Endpoint>,
    /// Lengths of segments and phases over the valid runs, in seconds.
    pub segments: Vec<Endpoint>,
    /// What this sample cannot carry, and why.
    pub refusals: BTreeMap<String, String>,
}

/// One run's part of the report: every figure of its analysis, and whether it counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPart {
    /// Whether it counts.
    pub valid: bool,
    /// Why, and which labels it carries.
    pub verdict: RunVerdict,
    /// How much of each replica's log was read: replica → sentence.
    pub logs: BTreeMap<String, String>,
    /// Its figures.
    #[serde(flatten)]
    pub analysis: RunAnalysis,
}

/// One run's report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// [`REPORT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name of the campaign.
    pub campaign: String,
    /// The run.
    pub run: RunPart,
    /// Its gates.
    pub validity_gates: GateTable,
}

/// The gates of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateTable {
    /// The run.
    pub run: u32,
    /// The gates.
    pub gates: Vec<GateRow>,
    /// Whether every applicable gate that can invalidate passed.
    pub all_pass: bool,
    /// Fault variant.
    pub variant: Option<String>,
    /// Labels that the run carries.
    pub labels: Vec<String>,
}

/// One gate of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRow {
    /// Stable id.
    pub id: String,
    /// Title.
    pub name: String,
    /// Plugin `name version`.
    pub plugin: String,
    /// Whether the rule applies.
    pub applicable: bool,
    /// Whether there was evidence.
    pub observed: bool,
    /// Whether it passed; a gate that does not apply, or was not observed, did not.
    pub pass: bool,
    /// Whether it decides a label instead of validity.
    pub label_determining: bool,
    /// Whether a failure costs nothing: neither validity nor a label.
    pub advisory: bool,
    /// The sentence with the figures.
    pub detail: String,
    /// The figures: name → value and UCUM unit.
    pub measures: BTreeMap<String, (f64, String)>,
    /// The limits that figures were held to. Empty for a gate whose limits only it knows.
    pub limits: Vec<LimitRow>,
}

/// What made a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// `published` or `free`.
    pub profile: String,
    /// Where a free profile departs from the method.
    pub deviations: Vec<String>,
    /// Seeds by run.
    pub seeds: Vec<u64>,
    /// SHA-256 of each run's schedule.
    pub schedules: Vec<String>,
    /// Plugins: name → version, world, origin, digest, imports.
    pub plugins: BTreeMap<String, BTreeMap<String, String>>,
    /// Capabilities granted to the fault plugin.
    pub grants: BTreeMap<String, Vec<String>>,
    /// The client's host.
    pub host: BTreeMap<String, String>,
    /// The load, for people: key → value.
    pub load: BTreeMap<String, String>,
    /// The plan's phases in seconds.
    pub phases_s: BTreeMap<String, f64>,
    /// The method's parameters, for people: key → value.
    pub method: BTreeMap<String, String>,
}

/// A campaign's report.
pub fn campaign_report(input: &ReportInput<'_>) -> CampaignReport {
    let plan = input.plan;
    let campaign = input.campaign;
    CampaignReport {
        schema_version: REPORT_SCHEMA_VERSION,
        instrument_version: plan.instrument_version.clone(),
        config_sha256: plan.config_sha256.clone(),
        caveats: caveats(input),
        campaign: CampaignPart {
            variant: campaign.variant.clone(),
            config_name: campaign.campaign.clone(),
            partial: input.partial,
            repetitions: campaign.repetitions,
            valid_runs: campaign.valid_runs,
            invalid_runs: campaign.invalid_runs,
            missing_runs: campaign.missing_runs.clone(),
            statement: plan.fault.as_ref().and_then(|f| f.statement.clone()),
            per_run: input.runs.iter().map(run_part).collect(),
            endpoints: campaign.endpoints.clone(),
            segments: campaign.segments.clone(),
            refusals: campaign.refusals.clone(),
        },
        validity_gates: input.runs.iter().map(|r| gate_table(plan, r)).collect(),
        provenance: provenance(plan, input.host),
    }
}

/// One run's report.
pub fn run_report(plan: &Plan, run: &RunInput<'_>) -> RunReport {
    RunReport {
        schema_version: REPORT_SCHEMA_VERSION,
        campaign: plan.campaign.clone(),
        run: run_part(run),
        validity_gates: gate_table(plan, run),
    }
}

/// JSON Schema of [`CampaignReport`].
pub fn report_schema() -> serde_json::Value {
    schemars::schema_for!(CampaignReport).to_value()
}

fn run_part(run: &RunInput<'_>) -> RunPart {
    RunPart {
        valid: run.validity.valid,
        verdict: RunVerdict {
            run: run.analysis.run,
            negative_control: run.analysis.negative_control,
            validity: run.validity.clone(),
        },
        logs: run
            .boundaries
            .iter()
            .map(|log| {
                let sentence = match &log.coverage {
                    LogCoverage::Measured { lines, matched } => format!(
                        "{lines} lines, {matched} matched by {}{}",
                        log.matcher.as_deref().unwrap_or("a matcher without a name"),
                        log.server_version
                            .as_ref()
                            .map_or_else(String::new, |v| format!(", release {v}"))
                    ),
                    LogCoverage::NotMeasured { reason } => format!("not measured: {reason}"),
                };
                (log.replica.clone(), sentence)
            })
            .collect(),
        analysis: run.analysis.clone(),
    }
}

fn gate_table(plan: &Plan, run: &RunInput<'_>) -> GateTable {
    GateTable {
        run: run.analysis.run,
        gates: run.findings.iter().map(|f| gate_row(plan, f)).collect(),
        all_pass: !run.findings.iter().any(Finding::invalidates),
        variant: plan.fault.as_ref().map(|f| f.variant.clone()),
        labels: run.validity.labels.clone(),
    }
}

fn gate_row(plan: &Plan, finding: &Finding) -> GateRow {
    let detail = if finding.detail.is_empty() {
        // The exact values stand among the measures; the sentence is for people.
        gate_figures(plan, finding)
    } else {
        finding.detail.clone()
    };
    GateRow {
        id: finding.id.clone(),
        name: finding.title.clone(),
        plugin: finding.plugin.clone(),
        applicable: finding.verdict.applicable(),
        observed: finding.verdict.observed(),
        pass: finding.verdict.passed(),
        label_determining: finding.severity == GateSeverity::StripsLabel,
        advisory: finding.severity == GateSeverity::Advisory,
        detail,
        measures: finding
            .measures
            .iter()
            .filter(|m| m.value.is_finite())
            .map(|m| (m.name.clone(), (m.value, m.unit.clone())))
            .collect(),
        limits: limit_rows(plan, finding),
    }
}

fn provenance(plan: &Plan, host: &BTreeMap<String, String>) -> Provenance {
    let seconds = |ns: i64| ns as f64 / 1e9;
    let text = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.clone()))
            .collect()
    };
    let m = &plan.method;
    Provenance {
        profile: match plan.profile {
            Profile::Published => "published".to_owned(),
            Profile::Free => "free".to_owned(),
        },
        deviations: plan.deviations.clone(),
        seeds: plan.runs.iter().map(|r| r.seed).collect(),
        schedules: plan
            .runs
            .iter()
            .map(|r| r.schedule_sha256.clone())
            .collect(),
        plugins: plan
            .plugins
            .iter()
            .map(|(name, p)| {
                let facts = text(&[
                    ("version", p.version.clone()),
                    ("api", p.api.clone()),
                    ("world", p.world.clone()),
                    ("origin", p.origin.clone()),
                    ("sha256", p.sha256.clone()),
                    ("imports", p.imports.join(", ")),
                ]);
                (name.clone(), facts)
            })
            .collect(),
        grants: plan.fault.as_ref().map_or_else(BTreeMap::new, |f| {
            BTreeMap::from([
                ("process".to_owned(), f.grant.process.clone()),
                ("http".to_owned(), f.grant.http.clone()),
            ])
        }),
        host: host.clone(),
        load: text(&[
            ("rate_per_s", plan.load.rate_per_s.to_string()),
            ("endpoint", plan.load.endpoint.path().to_owned()),
            ("model", plan.load.model.clone()),
            ("max_tokens", plan.load.max_tokens.to_string()),
            ("ignore_eos", plan.load.ignore_eos.to_string()),
            ("prompt_words", plan.load.prompt_words.to_string()),
            ("timeout_s", seconds(plan.load.timeout_ns).to_string()),
            ("base_url", plan.load.base_url.clone()),
        ]),
        phases_s: BTreeMap::from([
            ("warmup".to_owned(), seconds(plan.phases.warmup_ns)),
            ("baseline".to_owned(), seconds(plan.phases.baseline_ns)),
            (
                "fault_window".to_owned(),
                seconds(plan.phases.fault_window_ns),
            ),
            ("cooldown".to_owned(), seconds(plan.phases.cooldown_ns)),
        ]),
        method: text(&[
            ("slo_ttft_ms", m.slo.ttft_ms.to_string()),
            ("slo_e2e_ms", m.slo.e2e_ms.to_string()),
            (
                "recovery_window_s",
                seconds(m.recovery.bucket_ns * i64::from(m.recovery.window_buckets)).to_string(),
            ),
            (
                "recovery_hold_s",
                seconds(m.recovery.bucket_ns * i64::from(m.recovery.hold_buckets)).to_string(),
            ),
            (
                "recovery_entry_percent",
                m.recovery.entry_percent.to_string(),
            ),
            ("recovery_exit_percent", m.recovery.exit_percent.to_string()),
        ]),
    }
}
