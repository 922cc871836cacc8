//! What a results directory from disk must be before it is analysed again.

use std::collections::BTreeSet;
use std::path::Path;

use blackstart_plan::{PLAN_SCHEMA_VERSION, Plan};
use blackstart_record::{RunFiles, read_events, read_json};
use serde_json::Value;

use crate::exit::{Exit, Failure};

/// Most findings of a kind that are named.
const MOST_NAMED: usize = 8;

/// Whether a folder is a campaign's at all.
///
/// # Errors
/// When it is not there, is no folder, or holds something else (exit 3).
pub fn check_is_campaign(dir: &Path) -> Result<(), Failure> {
    let wrong =
        |what: &str| Failure::message(Exit::Configuration, format!("{}: {what}", dir.display()));
    const GIVE: &str = "give a results directory of `run` (it holds plan.json and run-1, run-2, …) or a folder of \
                        `load --out` (it holds load.json)";
    if dir.join("plan.json").is_file() {
        return Ok(());
    }
    if dir.join("load.json").is_file() {
        return Err(wrong("holds a load, not a campaign")
            .help("its figures are in summary.json; give a results directory of `run` here"));
    }
    if let Err(e) = std::fs::metadata(dir) {
        return Err(match e.kind() {
            std::io::ErrorKind::NotFound => wrong("there is no such folder").help(GIVE),
            _ => wrong(&e.to_string()).help(GIVE),
        });
    }
    if !dir.is_dir() {
        return Err(wrong("is no folder").help(GIVE));
    }
    // One level too high, or too low.
    let below: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("plan.json").is_file() || path.join("load.json").is_file())
        .map(|path| path.display().to_string())
        .take(MOST_NAMED)
        .collect();
    let above = dir
        .parent()
        .filter(|above| above.join("plan.json").is_file())
        .map(|above| above.display().to_string());
    let failure = wrong("holds no results: there is neither a plan.json nor a load.json");
    Err(match (above, below.is_empty()) {
        (Some(above), _) => failure.help(format!("this is a part of a campaign; give {above}")),
        (None, false) => failure.help(format!("give one of those in it: {}", below.join(", "))),
        (None, true) => failure.help(GIVE),
    })
}

/// The plan of a results directory.
///
/// # Errors
/// When there is none, it cannot be read, or another version of the instrument wrote it (exit 3).
pub fn read_plan(dir: &Path) -> Result<Plan, Failure> {
    check_is_campaign(dir)?;
    let path = dir.join("plan.json");
    let unreadable = |e: blackstart_record::RecordError| {
        Failure::new(Exit::Configuration, e)
            .help("restore it from a copy: the records mean nothing without their plan")
    };
    // The version first: a plan of another one is told by its number, not by the first key that
    // happens to differ.
    let found: Value = read_json(&path).map_err(unreadable)?;
    let version = found.get("schema_version").and_then(Value::as_u64);
    if version.is_some_and(|v| v != u64::from(PLAN_SCHEMA_VERSION)) {
        let by = found
            .get("instrument_version")
            .and_then(Value::as_str)
            .unwrap_or("of another version");
        return Err(Failure::message(
            Exit::Configuration,
            format!(
                "{} has schema version {}, written by blackstart {by}; this one reads version {PLAN_SCHEMA_VERSION}",
                path.display(),
                version.unwrap_or_default()
            ),
        )
        .help(format!("use blackstart {by} for this directory")));
    }
    let plan: Plan = read_json(&path).map_err(unreadable)?;
    check_figures(&plan).map_err(|why| {
        Failure::message(
            Exit::Invalid,
            format!("{}: {why}: no instrument wrote that", path.display()),
        )
        .help("restore it from a copy: the records mean nothing without their plan")
    })?;
    Ok(plan)
}

/// Figures from which a schedule is made: an altered plan must be told, not calculated with.
fn check_figures(plan: &Plan) -> Result<(), String> {
    plan.phases.check()?;
    let rate = plan.load.rate_per_s;
    if !(rate.is_finite() && rate > 0.0) {
        return Err(format!("load.rate_per_s = {rate} is no rate"));
    }
    // The schedules differ by nothing but their seeds.
    if let Some(run) = plan.runs.first() {
        plan.schedule(run)
            .map_err(|e| format!("no schedule follows from it ({e})"))?;
    }
    let runs: BTreeSet<u32> = plan.runs.iter().map(|r| r.run).collect();
    if runs.len() != plan.runs.len() {
        return Err("a run stands in it twice".to_owned());
    }
    Ok(())
}

/// A campaign that was cut off has no manifest to hold its records to. What no run can have written
/// is found all the same: an analysis would seal it.
///
/// # Errors
/// When the directory holds folders that are no run of the plan, or events stand there twice (exit 2).
pub fn check_unsealed(dir: &Path, plan: &Plan) -> Result<(), Failure> {
    let mut strange = Vec::new();
    let runs: BTreeSet<String> = plan.runs.iter().map(|r| format!("run-{}", r.run)).collect();
    let entries = std::fs::read_dir(dir)
        .map_err(|e| Failure::internal(e).context(format!("reading {}", dir.display())))?;
    let mut folders: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|e| e.file_type().is_ok_and(|t| !t.is_file()))
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| !runs.contains(name))
        .collect();
    folders.sort_unstable();
    strange.extend(
        folders
            .iter()
            .take(MOST_NAMED)
            .map(|name| format!("{name} is no run of the plan")),
    );
    for run in &runs {
        let path = RunFiles::new(&dir.join(run)).events();
        if !path.exists() {
            continue;
        }
        let repeats = read_events(&path).map_err(Failure::records)?.repeats();
        strange.extend(
            repeats.iter().take(MOST_NAMED).map(|(line, first)| {
                format!("{run}/events.jsonl: line {line} repeats line {first}")
            }),
        );
        if repeats.len() > MOST_NAMED {
            strange.push(format!(
                "{run}/events.jsonl: {} repeated lines in all",
                repeats.len()
            ));
        }
    }
    if strange.is_empty() {
        return Ok(());
    }
    Err(Failure::message(
        Exit::Invalid,
        format!(
            "{} was never sealed and holds what no run of it wrote: {}",
            dir.display(),
            strange.join(", ")
        ),
    )
    .help("restore the directory from a copy, or move what does not belong there away"))
}
