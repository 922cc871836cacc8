//! A results directory whose records were simulated: the same files as a real campaign leaves, and
//! beside each run's records the truth that was planted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blackstart_plan::{GatePlan, Plan};
use blackstart_plugins::World;
use blackstart_record::{
    EventWriter, RunFiles, write_gaps, write_metrics_parquet, write_requests_parquet,
};
use blackstart_simulate::{Scenario, Settings, Simulated, simulate};
use sha2::{Digest, Sha256};

use super::results::{CampaignEnd, HOST_FILE, analyze_dir, run_dir, seal, write};
use crate::exit::{Exit, Failure};
use crate::plugins::{Plugins, identity};

/// Simulates a campaign into `dir` and analyses it as any other.
///
/// # Errors
/// When the directory holds something already (exit 3) or cannot be written, or the rate gives no
/// schedule (exit 3).
pub fn simulate_dir(
    dir: &Path,
    scenario: &Scenario,
    settings: Settings,
    seeds: &[u64],
    plugin_dirs: &[PathBuf],
) -> Result<(Plan, CampaignEnd), Failure> {
    let plugins = Plugins::open(plugin_dirs)?;
    let (plan, file) = plan(scenario, settings, seeds, &plugins)?;
    create(dir)?;
    let fail = |what: &Path, e: std::io::Error| {
        Failure::internal(e).context(format!("writing {}", what.display()))
    };
    let path = dir.join("campaign.toml");
    std::fs::write(&path, file).map_err(|e| fail(&path, e))?;
    write(&dir.join("plan.json"), &plan)?;
    let host = BTreeMap::from([("simulated".to_owned(), "no host was measured".to_owned())]);
    write(&dir.join(HOST_FILE), &host)?;
    for run in &plan.runs {
        let simulated = simulate(scenario, settings, &plan, run).map_err(Failure::internal)?;
        let folder = run_dir(dir, run.run);
        std::fs::create_dir(&folder).map_err(|e| fail(&folder, e))?;
        write_run(&folder, &simulated)?;
    }
    seal(dir, &plan, host, false)?;
    analyze_dir(dir, plugin_dirs)
}

/// The plan of a simulated campaign, and its campaign file: a comment that says how it was made.
fn plan(
    scenario: &Scenario,
    settings: Settings,
    seeds: &[u64],
    plugins: &Plugins,
) -> Result<(Plan, String), Failure> {
    let mut plan = blackstart_simulate::plan(scenario, settings, seeds)
        .map_err(|e| Failure::new(Exit::Configuration, e))?;
    add_plugins(&mut plan, plugins)?;
    let file = format!(
        "# Simulated: no server was measured. Scenario {}: {}.\n\
         {COMMAND} --scenario {} --seed {} --seeds {} --rate {} --noise {}\n",
        scenario.name,
        scenario.about,
        scenario.name,
        seeds.first().copied().unwrap_or_default(),
        seeds.len(),
        settings.rate_per_s,
        settings.noise,
    );
    plan.config_sha256 = hex::encode(Sha256::digest(file.as_bytes()));
    Ok((plan, file))
}

/// What a simulated campaign's file says of how it was made.
const COMMAND: &str = "# blackstart simulate";

/// The plan of a simulated campaign once more, from its campaign file; `None` where that is no such one.
///
/// # Errors
/// As [`simulate_dir`].
pub(super) fn replan(file: &str, plugins: &Plugins) -> Result<Option<Plan>, Failure> {
    let Some(command) = file.lines().find_map(|line| line.strip_prefix(COMMAND)) else {
        return Ok(None);
    };
    let words: Vec<&str> = command.split_whitespace().collect();
    let of = |name: &str| {
        let pair = words.chunks(2).find(|pair| pair.first() == Some(&name));
        pair.and_then(|pair| pair.get(1)).copied()
    };
    let read = || {
        let scenario = blackstart_simulate::scenario(of("--scenario")?)?;
        let seed: u64 = of("--seed")?.parse().ok()?;
        // As many as can be asked for.
        let seeds: u64 = of("--seeds")?.parse().ok().filter(|n| *n <= 1_000_000)?;
        let settings = Settings {
            rate_per_s: of("--rate")?.parse().ok()?,
            noise: of("--noise")?.parse().ok()?,
        };
        let seeds: Vec<u64> = (0..seeds).map(|k| seed.wrapping_add(k)).collect();
        Some((scenario, settings, seeds))
    };
    let Some((scenario, settings, seeds)) = read() else {
        return Ok(None);
    };
    plan(scenario, settings, &seeds, plugins).map(|(plan, _)| Some(plan))
}

/// The files of one run.
fn write_run(folder: &Path, run: &Simulated) -> Result<(), Failure> {
    let files = RunFiles::new(folder);
    write_requests_parquet(&files.requests(), &run.records.requests).map_err(Failure::internal)?;
    write_gaps(&files.gaps(), &run.records.gaps).map_err(Failure::internal)?;
    write_metrics_parquet(&files.metrics(), &run.records.metrics).map_err(Failure::internal)?;
    let mut events = EventWriter::create(&files.events()).map_err(Failure::internal)?;
    for event in &run.records.events {
        events.append(event).map_err(Failure::internal)?;
    }
    for (replica, log) in &run.logs {
        let path = files.server_log(replica);
        std::fs::write(&path, log)
            .map_err(|e| Failure::internal(e).context(format!("writing {}", path.display())))?;
    }
    write(&folder.join("truth.json"), &run.truth)
}

/// Makes the directory; one that holds anything is left alone.
fn create(dir: &Path) -> Result<(), Failure> {
    let fail = |e: std::io::Error| {
        Failure::message(
            Exit::Configuration,
            format!("results directory {} is not writable: {e}", dir.display()),
        )
        .help("give a folder that this user may write with --out")
    };
    std::fs::create_dir_all(dir).map_err(fail)?;
    if std::fs::read_dir(dir).map_err(fail)?.next().is_some() {
        return Err(Failure::message(
            Exit::Configuration,
            format!("{} is not empty", dir.display()),
        )
        .help("give a new folder with --out: nothing is overwritten"));
    }
    Ok(())
}

/// All gates judge a simulated run, and the matchers read its logs, as those of any campaign.
fn add_plugins(plan: &mut Plan, plugins: &Plugins) -> Result<(), Failure> {
    for (id, artifact) in plugins.gates()? {
        let name = artifact.label().name.clone();
        plan.plugins.insert(name.clone(), identity(&artifact));
        plan.gates.push(GatePlan {
            plugin: name,
            id,
            config: serde_json::json!({}),
        });
    }
    for artifact in plugins.registry.of_world(World::LogMatcher) {
        let name = artifact.label().name.clone();
        plan.plugins.insert(name, identity(artifact));
    }
    Ok(())
}
