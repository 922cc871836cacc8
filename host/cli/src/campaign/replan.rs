//! A campaign's plan once more, from its file and its plugins: what `plan.json` must say.

use std::path::{Path, PathBuf};

use blackstart_config::{CampaignFile, MAX_CONFIG_BYTES};
use blackstart_plan::{Plan, RuntimePlan};
use blackstart_record::read_bounded;

use super::prepare::{InstrumentFacts, plan_file};
use super::simulated;
use crate::checks::Checks;
use crate::exit::Failure;
use crate::plugins::Plugins;

/// What stands for the instrument in a command of the campaign file.
const INSTRUMENT: &str = "${blackstart}";
/// The name of a results directory's copy of the campaign file.
const CAMPAIGN_FILE: &str = "campaign.toml";

/// Plans the campaign of a results directory again. What names files of the machine that ran it is
/// taken from the plan as it was recorded, where it fits the campaign file, and `checks` is told so.
///
/// # Errors
/// When the campaign file or a plugin is not there any more, or is refused.
pub fn replan(checks: &mut Checks, dir: &Path, recorded: &Plan) -> Result<Plan, Failure> {
    let path = dir.join(CAMPAIGN_FILE);
    let mut plugins = Plugins::open(&[])?;
    let files: Vec<&str> = recorded
        .plugins
        .values()
        .map(|p| p.origin.as_str())
        .filter(|origin| *origin != "bundled")
        .collect();
    for origin in &files {
        plugins.registry.add_file(Path::new(origin), None)?;
    }
    let text = read_bounded(&path, MAX_CONFIG_BYTES).map_err(Failure::records)?;
    if let Some(plan) = simulated::replan(&String::from_utf8_lossy(&text), &plugins)? {
        return Ok(Plan {
            instrument_version: recorded.instrument_version.clone(),
            ..plan
        });
    }
    let mut file = CampaignFile::read(&path)?;
    // As many runs as `--runs` asked for; that they are those of the file's seeds follows.
    let runs = recorded.runs.iter().filter(|r| !r.negative_control).count();
    file.config.runs = u32::try_from(runs).unwrap_or(u32::MAX);
    // Folders and paths count from where the campaign file lay then.
    file.config.plugins.dirs.clear();
    let there = |path: &mut Option<String>| {
        if let Some(path) = path
            && let Some(origin) = files.iter().find(|o| Path::new(o).ends_with(&*path))
        {
            (*origin).clone_into(path);
        }
    };
    if let Some(fault) = &mut file.config.fault {
        there(&mut fault.path);
    }
    there(&mut file.config.matcher.path);
    for gate in file.config.gates.values_mut() {
        there(&mut gate.path);
    }
    let instrument = InstrumentFacts {
        version: recorded.instrument_version.clone(),
        path: instrument_path(&file, recorded),
    };
    let mut plan = plan_file(file.clone(), plugins, instrument, |_, _| Ok(()))?.plan;
    let why = "it names a file of the machine that ran the campaign";
    let replicas = plan
        .target
        .replicas
        .iter_mut()
        .zip(&recorded.target.replicas);
    for (i, ((planned, recorded), config)) in replicas.zip(&file.config.target.replica).enumerate()
    {
        let at = |key: &str| format!("plan.target.replicas[{i}].runtime.{key}");
        match (&mut planned.runtime, &recorded.runtime) {
            (RuntimePlan::Process(planned), RuntimePlan::Process(recorded)) => {
                let cwd = config.process.as_ref().and_then(|p| p.cwd.as_deref());
                if takes_place(&mut planned.cwd, &recorded.cwd, cwd) {
                    checks.only_hashed(at("cwd"), why);
                }
                let command = config.process.iter().flat_map(|p| &p.command);
                if command.into_iter().any(|arg| arg.contains(INSTRUMENT)) {
                    checks.only_hashed(format!("{INSTRUMENT} in {}", at("command")), why);
                }
            }
            (
                RuntimePlan::Url {
                    log_file: planned, ..
                },
                RuntimePlan::Url {
                    log_file: recorded, ..
                },
            ) => {
                let log = config.running.as_ref().and_then(|r| r.log_file.as_deref());
                if log.is_some() && takes_place(planned, recorded, log) {
                    checks.only_hashed(at("log_file"), why);
                }
            }
            _ => {}
        }
    }
    Ok(plan)
}

/// Puts a recorded path in the place of a planned one, if it may be what the campaign file's relative
/// path (or none) meant then.
fn takes_place(
    planned: &mut Option<String>,
    recorded: &Option<String>,
    configured: Option<&str>,
) -> bool {
    let configured = Path::new(configured.unwrap_or_default());
    let fits = configured.is_relative()
        && recorded
            .as_deref()
            .is_some_and(|recorded| Path::new(recorded).ends_with(configured));
    if fits {
        planned.clone_from(recorded);
    }
    fits
}

/// What stood for the instrument in the recorded commands.
fn instrument_path(file: &CampaignFile, recorded: &Plan) -> PathBuf {
    for (config, replica) in file
        .config
        .target
        .replica
        .iter()
        .zip(&recorded.target.replicas)
    {
        let (Some(process), RuntimePlan::Process(recorded)) = (&config.process, &replica.runtime)
        else {
            continue;
        };
        for (written, recorded) in process.command.iter().zip(&recorded.command) {
            let path = written
                .split_once(INSTRUMENT)
                .and_then(|(before, after)| recorded.strip_prefix(before)?.strip_suffix(after));
            if let Some(path) = path {
                return PathBuf::from(path);
            }
        }
    }
    PathBuf::new()
}
