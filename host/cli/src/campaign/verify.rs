//! `verify DIR` of a campaign: every hash of the manifest, the plan from the campaign file, the
//! schedule from its seed, and every figure from the raw records.
//!
//! Each document is made once more and compared leaf by leaf, so that a forger who also makes the
//! manifest anew is found. What nothing else says once more are the raw records themselves (requests,
//! gaps, events, metrics, logs, the host's facts, the campaign file): their hashes hold them.

use std::path::Path;
use std::sync::Arc;

use blackstart_analyze::{RunAnalysis, analyze_campaign};
use blackstart_config::MAX_CONFIG_BYTES;
use blackstart_plan::Plan;
use blackstart_record::{Manifest, RunFiles, read_bounded, read_requests_parquet};
use blackstart_require::{Figures, campaign_figures, campaign_names};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::replan::replan;
use super::results::{
    HOST_FILE, figures, has_records, host_facts, manifest_head, reload, reports, run_dir, stopped,
};
use super::stored;
use crate::Outcome;
use crate::checks::Checks;
use crate::exit::{Exit, Failure};
use crate::plugins::Plugins;
use crate::require::Requirements;

/// Checks a results directory.
///
/// # Errors
/// When it is none.
pub fn verify_dir(dir: &Path, json: bool, requirements: &Requirements) -> Outcome {
    // What was altered may be any file; with one of these two it is a results directory all the same.
    if !dir.join("manifest.json").exists() {
        stored::check_is_campaign(dir)?;
    }
    requirements.check(&campaign_names())?;
    let mut checks = Checks::default();
    // Hashes first: they say what was altered even where nothing can be read any more.
    let manifest = checks.artifacts(dir)?;
    let mut report = None;
    match stored::read_plan(dir) {
        Ok(plan) => match recompute(&mut checks, dir, &plan, manifest.as_ref()) {
            Ok(found) => report = found,
            // Altered files may be anything; what was found wrong before says why this failed.
            Err(e) if checks.hold() || e.exit == Exit::Internal => return Err(e),
            Err(e) => checks.check("recomputation", "possible", e.text(), "plan.json"),
        },
        Err(e) => checks.check("plan", "readable", e.text(), "plan.json"),
    }
    for (what, why) in [
        (
            "records of the runs (requests, gaps, events, metrics, logs)",
            "they are what everything is computed from",
        ),
        (HOST_FILE, "it is what the host said of itself"),
        ("campaign.toml", "it is what was asked for"),
    ] {
        checks.only_hashed(what, why);
    }
    if run_dir(dir, 1).join("truth.json").exists() {
        checks.only_hashed(
            "truth.json of a simulated run",
            "it is what was planted; `blackstart simulate` with the same scenario and seed makes it again",
        );
    }
    let exit = checks.print(json, dir, requirements, report.as_ref())?;
    Ok(requirements.conclude(exit, report.as_ref()))
}

/// Everything that follows from the campaign file and the raw records. Gives the figures that
/// requirements are held to, if all could be computed.
fn recompute(
    checks: &mut Checks,
    dir: &Path,
    plan: &Plan,
    manifest: Option<&Manifest>,
) -> Result<Option<Figures>, Failure> {
    // What is no file any more may be a pipe, which would never end.
    let config = match read_bounded(&dir.join("campaign.toml"), MAX_CONFIG_BYTES) {
        Ok(config) => config,
        Err(e) => {
            checks.check("campaign.toml", "readable", e, "campaign.toml");
            return Ok(None);
        }
    };
    checks.check(
        "config_sha256",
        hex::encode(Sha256::digest(&config)),
        &plan.config_sha256,
        "plan.json",
    );
    match replan(checks, dir, plan) {
        Ok(planned) => checks.file("plan", &planned, dir, "plan.json")?,
        Err(e) if e.exit == Exit::Internal => return Err(e),
        Err(e) => checks.check(
            "plan",
            "follows from campaign.toml",
            e.text(),
            "campaign.toml",
        ),
    }
    // The plugins of the run judge again; another digest is another judge, and said so.
    let mut plugins = Plugins::open(&[])?;
    let mut now = plan.clone();
    let gates = reload(&mut plugins, &mut now)?;
    for (name, recorded) in &plan.plugins {
        let found = now
            .plugins
            .get(name)
            .map_or("not there", |p| p.sha256.as_str());
        checks.check(
            format!("plugin {name}"),
            &recorded.sha256,
            found,
            "plan.json",
        );
    }
    strangers(checks, dir, plan)?;
    let shared = Arc::new(plan.clone());
    let mut runs = Vec::new();
    // Campaign figures need every run.
    let mut complete = true;
    for planned in &plan.runs {
        let run_dir = run_dir(dir, planned.run);
        if !has_records(&run_dir) {
            continue;
        }
        let name = format!("run-{}", planned.run);
        let schedule = plan.schedule(planned).map_err(Failure::internal)?;
        checks.check(
            format!("{name}.schedule_sha256"),
            schedule.sha256(),
            &planned.schedule_sha256,
            "plan.json",
        );
        let requests = RunFiles::new(&run_dir).requests();
        let as_scheduled = match read_requests_parquet(&requests) {
            Ok(requests) => requests
                .iter()
                .all(|r| schedule.intended_ns.get(r.index as usize) == Some(&r.intended_ns)),
            Err(e) => {
                checks.check(format!("{name}.records"), "readable", e, name);
                complete = false;
                continue;
            }
        };
        checks.check(
            format!("{name}.intended_times"),
            "as scheduled",
            if as_scheduled {
                "as scheduled"
            } else {
                "not as scheduled"
            },
            format!("{name}/requests.parquet"),
        );
        let run = match figures(&plugins, &gates, &shared, planned, &run_dir) {
            Ok(run) => run,
            // What could not be recomputed here says nothing about the results.
            Err(e) if plugins.engine.shortage().is_some() => return Err(e),
            Err(e) => {
                checks.check(format!("{name}.records"), "computable", e.text(), name);
                complete = false;
                continue;
            }
        };
        let file = |what: &str| format!("{name}/{what}.json");
        let id = |what: &str| format!("{name}.{what}");
        checks.file(&id("boundaries"), &run.boundaries, dir, &file("boundaries"))?;
        checks.file(&id("analysis"), &run.analysis, dir, &file("analysis"))?;
        checks.file(&id("findings"), &run.findings, dir, &file("findings"))?;
        runs.push(run);
    }
    if !complete {
        return Ok(None);
    }
    let analyses: Vec<RunAnalysis> = runs.iter().map(|r| r.analysis.clone()).collect();
    let findings = runs
        .iter()
        .map(|r| (r.analysis.run, r.findings.clone()))
        .collect();
    let campaign = analyze_campaign(plan, &analyses, &findings);
    checks.file("campaign.analysis", &campaign, dir, "analysis.json")?;
    // A campaign may have been ended between its last run and its report, which no record shows; one of
    // which a run is missing or was cut off is partial in any case.
    let cut_off = analyses.len() < plan.runs.len() || analyses.iter().any(|r| r.partial);
    let partial = cut_off || manifest.is_some_and(|m| m.partial);
    let host = host_facts(dir);
    let stopped = stopped(dir);
    let (report, run_reports) = reports(plan, &runs, &campaign, &host, partial, stopped.as_deref());
    checks.file("campaign.report", &report, dir, "report.json")?;
    for report in &run_reports {
        let name = format!("run-{}", report.run.analysis.run);
        checks.file(
            &format!("{name}.report"),
            report,
            dir,
            &format!("{name}/report.json"),
        )?;
    }
    let page = blackstart_report::render_html(&report).map_err(Failure::internal)?;
    let published = std::fs::read_to_string(dir.join("report.html")).unwrap_or_default();
    checks.check(
        "report.html",
        "as rendered",
        if page == published {
            "as rendered"
        } else {
            "another page"
        },
        "report.html",
    );
    if manifest.is_some() {
        let sealed =
            Manifest::build(dir, manifest_head(plan, host, partial)).map_err(Failure::internal)?;
        checks.file("manifest", &sealed, dir, "manifest.json")?;
    }
    Ok(Some(campaign_figures(&report)))
}

/// Folders that look like runs and are none of the plan: a manifest may list them.
fn strangers(checks: &mut Checks, dir: &Path, plan: &Plan) -> Result<(), Failure> {
    let entries = std::fs::read_dir(dir).map_err(Failure::internal)?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| !plan.runs.iter().any(|r| format!("run-{}", r.run) == *name))
        .collect();
    names.sort_unstable();
    for name in names {
        checks.check(name.clone(), "a run of the plan", "none of its runs", name);
    }
    // The host's facts go into report and manifest as text by key, whatever else the file holds.
    let _: Option<std::collections::BTreeMap<String, Value>> =
        checks.readable("host", dir, HOST_FILE);
    Ok(())
}
