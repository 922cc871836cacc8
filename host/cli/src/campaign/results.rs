//! The results directory: made once, filled run by run, sealed by its manifest; and analysed again
//! whenever somebody asks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blackstart_analyze::{
    CampaignAnalysis, RunAnalysis, Validity, analyze_campaign, analyze_run, validity,
};
use blackstart_config::ConfigError;
use blackstart_load::Secret;
use blackstart_plan::{GrantPlan, Plan, RunPlan};
use blackstart_plugins::{GateTemplate, World};
use blackstart_record::{
    Boundaries, Event, EventKind, Finding, Manifest, ManifestHead, RunFiles, read_json,
    read_recorded, replace_files, seal_journal, write_json_atomic,
};
use blackstart_report::{CampaignReport, ReportInput, RunInput, RunReport};

use super::judge::judge;
use super::prepare::{Prepared, api_key};
use super::stored;
use crate::checks::check_unaltered;
use crate::exit::{Exit, Failure};
use crate::matching::match_replica_log;
use crate::plugins::{Plugins, identity};
use crate::reporter::harmless;
use crate::when;

/// Provenance of the host, kept from the run for a later analysis.
pub(super) const HOST_FILE: &str = "host.json";

/// What ended a campaign before its last run.
const STOPPED_FILE: &str = "stopped.json";
/// Longest reason that is kept.
const MAX_REASON_CHARS: usize = 2000;

/// What ended a campaign before its last run, as the terminal said it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Stopped {
    run: u32,
    reason: String,
}

/// Keeps why a run could not be carried out, for the report and for whoever analyses it again.
///
/// # Errors
/// When it cannot be written.
pub(super) fn note_stop(
    dir: &Path,
    plan: &Plan,
    run: u32,
    failure: &Failure,
) -> Result<(), Failure> {
    let reason = match failure.error.downcast_ref::<ConfigError>() {
        // Without the drawing.
        Some(error) => {
            let place = error.place.as_ref().map(|place| {
                let (line, column) = place.line_column();
                format!(":{line}:{column}")
            });
            let place = place.unwrap_or_default();
            format!("{}{place}: {}", error.file, error.message)
        }
        None => failure.text(),
    };
    // A server may have repeated the key in its refusal; results are shown around.
    let reason = match api_key(plan) {
        Ok(Some(key)) => Secret::new(key).redact(&reason),
        _ => reason,
    };
    let line: Vec<&str> = reason.split_whitespace().collect();
    let reason = harmless(&line.join(" "))
        .chars()
        .take(MAX_REASON_CHARS)
        .collect();
    write(&dir.join(STOPPED_FILE), &Stopped { run, reason })
}

/// What ended the campaign, as it was recorded.
pub(super) fn stopped(dir: &Path) -> Option<String> {
    let Stopped { run, reason } = read_json(&dir.join(STOPPED_FILE)).ok()?;
    Some(format!("run {run}: {reason}"))
}

/// A results directory under way.
pub struct Results {
    dir: PathBuf,
    runs: Vec<AnalysedRun>,
}

/// One run, analysed and judged.
#[derive(Clone)]
pub struct AnalysedRun {
    /// Its figures.
    pub analysis: RunAnalysis,
    /// What the gates said.
    pub findings: Vec<Finding>,
    /// Whether it counts.
    pub validity: Validity,
    /// What the matcher found.
    pub boundaries: Vec<Boundaries>,
}

/// What a finished campaign says in the end.
pub struct CampaignEnd {
    /// Whether every run counts.
    pub valid: bool,
    /// The figures.
    pub analysis: CampaignAnalysis,
    /// The report that holds them.
    pub report: CampaignReport,
    /// Whether it ended early.
    pub partial: bool,
}

impl Results {
    /// Makes the directory and writes plan and campaign file into it.
    ///
    /// # Errors
    /// When it cannot be made or written (exit 3).
    pub fn create(out: &Path, prepared: &Prepared) -> Result<Self, Failure> {
        let name = format!(
            "{}-{}",
            prepared.plan.campaign,
            when::file_stamp(blackstart_clock::unix_ns())
        );
        let fail = |e: std::io::Error| {
            Failure::message(
                Exit::Configuration,
                format!("results directory {} is not writable: {e}", out.display()),
            )
            .help("give a folder that this user may write with --out")
        };
        std::fs::create_dir_all(out).map_err(fail)?;
        // Two campaigns of one name in one second must not share a directory.
        let mut dir = out.join(&name);
        let mut tries = 1;
        while let Err(e) = std::fs::create_dir(&dir) {
            const MOST: u32 = 100;
            if e.kind() != std::io::ErrorKind::AlreadyExists || tries >= MOST {
                return Err(fail(e));
            }
            tries += 1;
            dir = out.join(format!("{name}-{tries}"));
        }
        let this = Self {
            dir,
            runs: Vec::new(),
        };
        std::fs::write(this.dir.join("campaign.toml"), &prepared.file.source.text).map_err(fail)?;
        write(&this.dir.join("plan.json"), &prepared.plan)?;
        write(
            &this.dir.join(HOST_FILE),
            &blackstart_observe::host_facts(false),
        )?;
        Ok(this)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Folder of a run.
    pub fn run_dir(&self, run: u32) -> PathBuf {
        run_dir(&self.dir, run)
    }

    /// Matches, analyses and judges one run.
    ///
    /// # Errors
    /// When its records cannot be read or its plan defines no method.
    pub fn analyze_run(
        &mut self,
        prepared: &Prepared,
        planned: &RunPlan,
    ) -> Result<AnalysedRun, Failure> {
        let plan = Arc::new(prepared.plan.clone());
        let run = analyse_and_judge(
            &prepared.plugins,
            &prepared.gates,
            &plan,
            planned,
            &self.run_dir(planned.run),
        )?;
        // So that a campaign that is killed later leaves this run's figures.
        save(&run_files(&self.dir, &run)?)?;
        self.runs.push(run.clone());
        Ok(run)
    }

    /// Seals the records of a campaign that ran to its end, before anything is made of them: should
    /// that not be written (a full disk, a kill), they can be analysed as what they are.
    ///
    /// # Errors
    /// When the manifest cannot be written.
    pub fn seal_records(&self, plan: &Plan) -> Result<(), Failure> {
        seal(&self.dir, plan, host_facts(&self.dir), false)
    }

    /// Analyses the campaign and writes reports and manifest.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn finish(self, prepared: &Prepared, partial: bool) -> Result<CampaignEnd, Failure> {
        conclude(&self.dir, &prepared.plan, self.runs, partial)
    }
}

/// Analyses a results directory again, with the plugins that are there now.
///
/// # Errors
/// When the directory is no results directory, or its records cannot be read.
pub fn analyze_dir(dir: &Path, plugin_dirs: &[PathBuf]) -> Result<(Plan, CampaignEnd), Failure> {
    let mut plan = stored::read_plan(dir)?;
    if !plan.runs.iter().any(|r| has_records(&run_dir(dir, r.run))) {
        return Err(Failure::message(
            Exit::Configuration,
            format!("{} holds no run", dir.display()),
        )
        .help("give a results directory in which the load of a run has begun"));
    }
    let mut plugins = Plugins::open(plugin_dirs)?;
    let gates = reload(&mut plugins, &mut plan)?;
    let partial = match read_json::<Manifest>(&dir.join("manifest.json")) {
        Ok(manifest) => {
            // An analysis of other records would give them a fresh seal.
            check_unaltered(dir, &manifest, "records", |m| !is_derived(m.path()))?;
            manifest.partial
        }
        // A directory that was never sealed: its campaign was cut off.
        Err(_) => {
            stored::check_unsealed(dir, &plan)?;
            true
        }
    };
    let shared = Arc::new(plan.clone());
    let mut runs = Vec::new();
    for planned in &plan.runs {
        let run_dir = run_dir(dir, planned.run);
        if has_records(&run_dir) {
            runs.push(analyse_and_judge(
                &plugins, &gates, &shared, planned, &run_dir,
            )?);
        }
    }
    let end = conclude(dir, &plan, runs, partial)?;
    Ok((plan, end))
}

/// Whether an analysis writes this file itself, and so may find another there.
fn is_derived(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    [
        "boundaries.json",
        "analysis.json",
        "findings.json",
        "report.json",
        "report.html",
    ]
    .contains(&name)
}

/// Whether a run's folder holds anything to analyse.
pub(super) fn has_records(run_dir: &Path) -> bool {
    let files = RunFiles::new(run_dir);
    files.events().exists() && (files.journal().exists() || files.requests().exists())
}

/// The plan's gates, as they are now; the plan is told of changed digests.
pub(super) fn reload(plugins: &mut Plugins, plan: &mut Plan) -> Result<Vec<GateTemplate>, Failure> {
    let mut gates = Vec::new();
    for gate in &plan.gates {
        let recorded = plan.plugins.get(&gate.plugin);
        // A plugin that came from a file is taken from there again, unless a folder now has it.
        let path = recorded
            .filter(|p| {
                p.origin != "bundled"
                    && plugins
                        .registry
                        .get(&gate.plugin, World::ValidityGate)
                        .is_err()
            })
            .map(|p| PathBuf::from(&p.origin));
        let artifact = plugins.find(
            Some(&gate.plugin),
            path.as_deref(),
            None,
            World::ValidityGate,
        )?;
        gates.push(GateTemplate::new(&plugins.engine, &artifact)?);
        plan.plugins
            .insert(gate.plugin.clone(), identity(&artifact));
    }
    if let Some(name) = &plan.matcher.plugin {
        let recorded = plan.plugins.get(name);
        let path = recorded
            .filter(|p| {
                p.origin != "bundled" && plugins.registry.get(name, World::LogMatcher).is_err()
            })
            .map(|p| PathBuf::from(&p.origin));
        let artifact = plugins.find(Some(name), path.as_deref(), None, World::LogMatcher)?;
        plan.plugins.insert(name.clone(), identity(&artifact));
    }
    Ok(gates)
}

pub(super) fn run_dir(dir: &Path, run: u32) -> PathBuf {
    dir.join(format!("run-{run}"))
}

pub(super) fn write<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), Failure> {
    write_json_atomic(path, value).map_err(Failure::internal)
}

fn analyse_and_judge(
    plugins: &Plugins,
    gates: &[GateTemplate],
    plan: &Arc<Plan>,
    planned: &RunPlan,
    dir: &Path,
) -> Result<AnalysedRun, Failure> {
    let files = RunFiles::new(dir);
    if files.journal().exists() {
        // The instrument was killed before the journal was sealed; its records are whole.
        seal_journal(dir).map_err(Failure::records)?;
    }
    figures(plugins, gates, plan, planned, dir)
}

/// The wall-clock time at which a run's record ends: as long as its clock says after its epoch.
/// Without an epoch it is now.
fn ends_unix_ns(events: &[Event]) -> i64 {
    let epoch = events.iter().find_map(|e| match e.kind {
        EventKind::Epoch { unix_ns, .. } => Some(unix_ns),
        _ => None,
    });
    let last_ns = events.iter().map(|e| e.at_ns).max().unwrap_or(0);
    epoch.map_or_else(blackstart_clock::unix_ns, |epoch| {
        epoch.saturating_add(last_ns)
    })
}

/// Matches, analyses and judges what is recorded of a run. Writes nothing, and takes nothing from an
/// earlier analysis.
///
/// # Errors
/// When the records cannot be read, the plan defines no method, or this machine could not run a
/// plugin: what a plugin would have said is then not known, which is no verdict.
pub(super) fn figures(
    plugins: &Plugins,
    gates: &[GateTemplate],
    plan: &Arc<Plan>,
    planned: &RunPlan,
    dir: &Path,
) -> Result<AnalysedRun, Failure> {
    let (mut records, notes) = read_recorded(dir).map_err(Failure::records)?;
    let ends_unix_ns = ends_unix_ns(&records.events);
    records.boundaries = plan
        .target
        .replicas
        .iter()
        .map(|r| {
            match_replica_log(
                plugins,
                plan.matcher.plugin.as_deref(),
                &plan.matcher.config.to_string(),
                &r.id,
                &RunFiles::new(dir).server_log(&r.id),
                ends_unix_ns,
            )
        })
        .collect();
    let mut analysis = analyze_run(plan, planned, &records)
        .map_err(|e| Failure::internal(e).context(format!("analysing run {}", planned.run)))?;
    analysis.notes.extend(notes);
    let records = Arc::new(records);
    let findings = judge(gates, plan, &analysis, &records);
    if let Some(what) = plugins.engine.shortage() {
        return Err(Failure::message(
            Exit::Internal,
            format!("run {} could not be judged: {what}", planned.run),
        )
        .help("free memory, or raise the limit on address space (`ulimit -v`), and analyze again; no report was written"));
    }
    let validity = validity(plan, &analysis, &findings);
    Ok(AnalysedRun {
        analysis,
        findings,
        validity,
        boundaries: records.boundaries.clone(),
    })
}

/// What an analysis leaves in a run's folder.
fn run_files(dir: &Path, run: &AnalysedRun) -> Result<Vec<(PathBuf, Vec<u8>)>, Failure> {
    let dir = run_dir(dir, run.analysis.run);
    Ok(vec![
        document(RunFiles::new(&dir).boundaries(), &run.boundaries)?,
        document(dir.join("analysis.json"), &run.analysis)?,
        document(dir.join("findings.json"), &run.findings)?,
    ])
}

/// A JSON document as the results directory has them: indented, since people read and diff it.
fn document<T: serde::Serialize>(path: PathBuf, value: &T) -> Result<(PathBuf, Vec<u8>), Failure> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| Failure::internal(e).context(format!("writing {}", path.display())))?;
    bytes.push(b'\n');
    Ok((path, bytes))
}

fn save(files: &[(PathBuf, Vec<u8>)]) -> Result<(), Failure> {
    replace_files(files.iter().map(|(p, b)| (p.as_path(), b.as_slice()))).map_err(Failure::internal)
}

/// Provenance of the host, as it was recorded.
pub(super) fn host_facts(dir: &Path) -> BTreeMap<String, String> {
    read_json(&dir.join(HOST_FILE)).unwrap_or_default()
}

/// The campaign's report and each run's.
pub(super) fn reports(
    plan: &Plan,
    runs: &[AnalysedRun],
    campaign: &CampaignAnalysis,
    host: &BTreeMap<String, String>,
    partial: bool,
    stopped: Option<&str>,
) -> (CampaignReport, Vec<RunReport>) {
    let input = ReportInput {
        plan,
        runs: runs
            .iter()
            .map(|r| RunInput {
                analysis: &r.analysis,
                findings: &r.findings,
                // The campaign's verdict also knows what only all runs together show.
                validity: campaign
                    .runs
                    .iter()
                    .find(|v| v.run == r.analysis.run)
                    .map_or(&r.validity, |v| &v.validity),
                boundaries: &r.boundaries,
            })
            .collect(),
        campaign,
        host,
        partial,
        stopped,
    };
    let run_reports = input
        .runs
        .iter()
        .map(|run| blackstart_report::run_report(plan, run))
        .collect();
    (blackstart_report::campaign_report(&input), run_reports)
}

/// Campaign figures, reports and manifest, from analysed runs.
fn conclude(
    dir: &Path,
    plan: &Plan,
    runs: Vec<AnalysedRun>,
    partial: bool,
) -> Result<CampaignEnd, Failure> {
    let analyses: Vec<RunAnalysis> = runs.iter().map(|r| r.analysis.clone()).collect();
    let findings: BTreeMap<u32, Vec<Finding>> = runs
        .iter()
        .map(|r| (r.analysis.run, r.findings.clone()))
        .collect();
    let analysis = analyze_campaign(plan, &analyses, &findings);
    let host = host_facts(dir);
    let stopped = stopped(dir);
    let (report, run_reports) = reports(plan, &runs, &analysis, &host, partial, stopped.as_deref());
    let html = blackstart_report::render_html(&report).map_err(Failure::internal)?;
    // Everything there is to say is known now: a report that is there already is replaced as a whole.
    let mut files = vec![
        document(dir.join("plan.json"), plan)?,
        document(dir.join("analysis.json"), &analysis)?,
        document(dir.join("report.json"), &report)?,
        (dir.join("report.html"), html.into_bytes()),
    ];
    for (run, report) in runs.iter().zip(&run_reports) {
        files.extend(run_files(dir, run)?);
        let path = run_dir(dir, run.analysis.run).join("report.json");
        files.push(document(path, report)?);
    }
    save(&files)?;
    seal(dir, plan, host, partial)?;
    let valid = !partial
        && analysis.runs.len() == plan.runs.len()
        && analysis.runs.iter().all(|r| r.validity.valid);
    Ok(CampaignEnd {
        valid,
        analysis,
        report,
        partial,
    })
}

/// Writes the manifest over everything that is in the directory now.
pub(super) fn seal(
    dir: &Path,
    plan: &Plan,
    host: BTreeMap<String, String>,
    partial: bool,
) -> Result<(), Failure> {
    let manifest = Manifest::build(dir, manifest_head(plan, host, partial));
    let manifest = manifest.map_err(Failure::internal)?;
    write(&dir.join("manifest.json"), &manifest)
}

/// What the manifest says besides the files.
pub(super) fn manifest_head(
    plan: &Plan,
    host: BTreeMap<String, String>,
    partial: bool,
) -> ManifestHead {
    let grants = plan
        .fault
        .iter()
        .map(|f| (f.variant.clone(), f.grant.clone()))
        .collect::<BTreeMap<String, GrantPlan>>();
    ManifestHead {
        instrument_version: plan.instrument_version.clone(),
        campaign: plan.campaign.clone(),
        config_sha256: plan.config_sha256.clone(),
        seeds: plan.runs.iter().map(|r| r.seed).collect(),
        plugins: plan.plugins.clone(),
        grants,
        host,
        partial,
    }
}
