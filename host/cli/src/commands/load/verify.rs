//! `verify DIR` of a load: every hash of the manifest, the schedule from its seed, and every figure of
//! the summary from the raw records.

use std::path::Path;

use blackstart_plan::{LoadSpec, Schedule, Share};
use blackstart_record::{
    Event, Manifest, RecordError, RequestRecord, RunFiles, for_each_request, journal_in_use,
    read_events,
};
use blackstart_report::LoadReport;
use blackstart_require::{Figures, load_figures, load_names};

use super::{
    MANIFEST_FILE, SPEC_FILE, SUMMARY_FILE, killed, read_spec, seal, show, summarise, was_cut_off,
};
use crate::Outcome;
use crate::checks::Checks;
use crate::exit::{Exit, Failure};
use crate::reporter::Reporter;
use crate::require::Requirements;

/// Checks a load's folder.
///
/// # Errors
/// When it cannot be read.
pub fn verify(dir: &Path, json: bool, requirements: &Requirements) -> Outcome {
    requirements.check(&load_names())?;
    let journal = RunFiles::new(dir).journal();
    // What was sealed has none: there it is a stranger like any other file.
    if journal.exists() && !dir.join(MANIFEST_FILE).exists() {
        let (what, help) = if journal_in_use(&journal).map_err(Failure::records)? {
            ("the load is still running", "stop it or wait".to_owned())
        } else {
            (
                "its instrument was killed, and nothing is summed up yet",
                format!("run `blackstart analyze {}` first", dir.display()),
            )
        };
        let what = format!("{}: {what}", dir.display());
        return Err(Failure::message(Exit::Configuration, what).help(help));
    }
    let mut checks = Checks::default();
    // Hashes first: they say what was altered even where nothing can be read any more.
    let manifest = checks.artifacts(dir)?;
    let mut figures = None;
    match read_spec(dir) {
        Ok(spec) => match recompute(&mut checks, dir, &spec, manifest.as_ref()) {
            Ok(found) => figures = found,
            Err(e) if checks.hold() || e.exit == Exit::Internal => return Err(e),
            Err(e) => checks.check("recomputation", "possible", e.text(), SPEC_FILE),
        },
        Err(e) => checks.check("load", "readable", e.text(), SPEC_FILE),
    }
    for (what, why) in [
        (
            "records (requests, gaps, events)",
            "they are what everything is computed from",
        ),
        (SPEC_FILE, "it is what was asked for"),
        ("summary.out", "it says where the records lay then"),
    ] {
        checks.only_hashed(what, why);
    }
    let exit = checks.print(json, dir, requirements, figures.as_ref())?;
    Ok(requirements.conclude(exit, figures.as_ref()))
}

/// Everything that follows from the load's description and the raw records.
fn recompute(
    checks: &mut Checks,
    dir: &Path,
    spec: &LoadSpec,
    manifest: Option<&Manifest>,
) -> Result<Option<Figures>, Failure> {
    let files = RunFiles::new(dir);
    let events: Vec<Event> = match read_events(&files.events()) {
        Ok(log) => log.events,
        Err(e) => {
            checks.check("events", "readable", e, "events.jsonl");
            return Ok(None);
        }
    };
    if let Err(e) = times(checks, spec, &files) {
        checks.check("records", "readable", e, "requests.parquet");
        return Ok(None);
    }
    let partial = was_cut_off(&events);
    // Where the records lay when they were summed up; a copy lies elsewhere.
    let published: Option<LoadReport> = checks.readable("summary", dir, SUMMARY_FILE);
    let out = published.and_then(|summary| summary.out);
    let summary = match summarise(spec, dir, &events, partial, out) {
        Ok(summary) => summary,
        Err(e) if e.exit == Exit::Internal => return Err(e),
        Err(e) => {
            checks.check("records", "readable", e.text(), "gaps.hlog.zst");
            return Ok(None);
        }
    };
    let reporter = Reporter::new();
    for line in summary.figures.killed.iter().flat_map(show::killed) {
        reporter.say(line);
    }
    checks.file("summary", &summary, dir, SUMMARY_FILE)?;
    if manifest.is_some() {
        let sealed = Manifest::build(dir, seal::head(spec, dir, partial)?);
        checks.file(
            "manifest",
            &sealed.map_err(Failure::internal)?,
            dir,
            MANIFEST_FILE,
        )?;
    }
    Ok(Some(load_figures(&summary)))
}

/// Holds the times of the requests to the schedule: that of the seed, where `load.json` says all of it,
/// else to its hash.
fn times(checks: &mut Checks, spec: &LoadSpec, files: &RunFiles) -> Result<(), RecordError> {
    let planned = killed::seeded(spec);
    let Some(sha256) = &spec.schedule_sha256 else {
        // A closed loop has no schedule.
        return for_each_request(&files.requests(), |_| {});
    };
    let mut times: Vec<(u64, i64)> = Vec::new();
    let note = |r: &RequestRecord| times.push((r.index, r.intended_ns));
    for_each_request(&files.requests(), note)?;
    times.sort_unstable();
    let whole = spec.share == Share::WHOLE && (0..).zip(&times).all(|(i, (index, _))| i == *index);
    match &planned {
        Some(planned) => {
            checks.check(
                "schedule_sha256",
                planned.schedule.sha256(),
                sha256,
                SPEC_FILE,
            );
            let at = |index: u64| {
                planned
                    .schedule
                    .intended_ns
                    .get(usize::try_from(index).ok()?)
            };
            let stray = times.iter().find(|(index, ns)| at(*index) != Some(ns));
            checks.check(
                "intended_times",
                "as scheduled",
                stray.map_or_else(
                    || "as scheduled".to_owned(),
                    |(index, _)| format!("request {index} at another time"),
                ),
                "requests.parquet",
            );
        }
        // The times of a data set are in its file; all of them together have the hash.
        None if whole => {
            let found = Schedule {
                intended_ns: times.iter().map(|(_, ns)| *ns).collect(),
            };
            checks.check(
                "schedule_sha256",
                sha256,
                found.sha256(),
                "requests.parquet",
            );
        }
        None => checks.only_hashed(
            "the schedule",
            "its times are in the data set, and not all of them in this part",
        ),
    }
    Ok(())
}
