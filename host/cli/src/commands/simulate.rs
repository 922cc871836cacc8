//! `blackstart simulate`: runs with planted truth, as a results directory or by the thousand.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use blackstart_simulate::table::{self, Block, Kind, Sum};
use blackstart_simulate::{RunCheck, SCENARIOS, Scenario, Settings, check_run, scenario};
use clap::Args;

use crate::Outcome;
use crate::campaign::{print_end, simulate_dir};
use crate::exit::{Exit, Failure};
use crate::output::out;
use crate::reporter::Reporter;

/// `simulate`
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// What is planted; without it, and without --check, the scenarios are listed
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Successive seeds: runs of the campaign (default 1), with --check runs of each scenario
    /// (default 500)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seeds: Option<u32>,
    /// New folder that becomes the results directory (default: results/simulated-SCENARIO-SEED)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Mean arrivals per second
    #[arg(long, value_name = "R", default_value_t = Settings::TABLE.rate_per_s)]
    rate: f64,
    /// Share of requests that fail without any fault, 0 to 0.5
    #[arg(long, value_name = "P", default_value_t = Settings::TABLE.noise)]
    noise: f64,
    /// Analyse every run in memory and compare with the truth: a table on stdout, a line for each seed
    /// that fails, exit code 2 if one does
    #[arg(long, conflicts_with_all = ["out", "write_docs"])]
    check: bool,
    /// Make the tables of a page (docs/truth.md) anew
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "scenario", "seeds"])]
    write_docs: Option<PathBuf>,
    /// Folder with plugin components, besides the bundled ones (may be given several times)
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<PathBuf>,
}

/// Seeds of each scenario that `--check` takes: with all scenarios more than 10 000 runs.
const CHECKED_SEEDS: u32 = 500;
/// Most seeds that fail which are named.
const MOST_NAMED: usize = 20;
/// Rates at which a run stays small enough to be held in memory many times over.
const MOST_PER_S: f64 = 1_000.0;

/// One run to check.
type Job = (&'static Scenario, Settings, u64);

/// Runs the command.
pub fn run(args: SimulateArgs) -> Outcome {
    let settings = settings(&args)?;
    let named = args.scenario.as_deref().map(find).transpose()?;
    if let Some(page) = &args.write_docs {
        return write_docs(page);
    }
    if args.check {
        let seeds = u64::from(args.seeds.unwrap_or(CHECKED_SEEDS));
        return check(named, settings, args.seed, seeds);
    }
    let Some(scenario) = named else {
        for s in &SCENARIOS {
            out!("{:<18} {}", s.name, s.about);
        }
        return Ok(Exit::Valid);
    };
    let dir = args.out.clone().unwrap_or_else(|| {
        Path::new("results").join(format!("simulated-{}-{}", scenario.name, args.seed))
    });
    let seeds: Vec<u64> = (0..u64::from(args.seeds.unwrap_or(1)))
        .map(|k| args.seed.wrapping_add(k))
        .collect();
    let (plan, end) = simulate_dir(&dir, scenario, settings, &seeds, &args.plugin_dir)?;
    print_end(&Reporter::new(), &plan, &end, &dir);
    out!("{}", dir.display());
    Ok(if end.valid {
        Exit::Valid
    } else {
        Exit::Invalid
    })
}

fn settings(args: &SimulateArgs) -> Result<Settings, Failure> {
    let wrong =
        |what: String, help: &str| Err(Failure::message(Exit::Configuration, what).help(help));
    if !(args.rate > 0.0 && args.rate <= MOST_PER_S) {
        return wrong(
            format!("a rate of {} requests per second", args.rate),
            "choose --rate above 0 and up to 1000",
        );
    }
    if !(0.0..=0.5).contains(&args.noise) {
        return wrong(
            format!("a noise of {}", args.noise),
            "choose --noise between 0 and 0.5: it is a share of the requests",
        );
    }
    Ok(Settings {
        rate_per_s: args.rate,
        noise: args.noise,
    })
}

fn find(name: &str) -> Result<&'static Scenario, Failure> {
    scenario(name).ok_or_else(|| {
        let names: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
        Failure::message(
            Exit::Configuration,
            format!("no scenario is called `{name}`"),
        )
        .help(format!("choose one of {}", names.join(", ")))
    })
}

fn check(
    named: Option<&'static Scenario>,
    settings: Settings,
    first_seed: u64,
    seeds: u64,
) -> Outcome {
    let jobs: Vec<Job> = SCENARIOS
        .iter()
        .filter(|s| named.is_none_or(|n| n == *s))
        .flat_map(|s| (0..seeds).map(move |k| (s, settings, first_seed.wrapping_add(k))))
        .collect();
    let checks = all(&jobs)?;
    out!("{}", table::scenarios(&checks).trim_end());
    let sum = Sum::of(&checks);
    Reporter::new().say(format!(
        "{} runs with {} requests: {} as planted, {} not",
        sum.runs,
        sum.requests,
        sum.runs - sum.failed,
        sum.failed
    ));
    Ok(failures(&checks, settings))
}

/// Names the seeds that fail, one line each with the command that shows it again.
fn failures(checks: &[RunCheck], settings: Settings) -> Exit {
    let failed = || checks.iter().filter(|c| !c.mismatches.is_empty());
    for check in failed().take(MOST_NAMED) {
        let others = if settings == Settings::TABLE {
            String::new()
        } else {
            format!(" --rate {} --noise {}", settings.rate_per_s, settings.noise)
        };
        out!(
            "blackstart simulate --check --scenario {} --seed {} --seeds 1{others}  # {}",
            check.scenario,
            check.seed,
            check
                .mismatches
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        );
    }
    let more = failed().count().saturating_sub(MOST_NAMED);
    if more > 0 {
        out!("… and {more} more seeds fail");
    }
    if failed().next().is_some() {
        Exit::Invalid
    } else {
        Exit::Valid
    }
}

/// Checks every run, on all cores; the results are in the order of the jobs.
fn all(jobs: &[Job]) -> Result<Vec<RunCheck>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((scenario, settings, seed)) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed)).copied()
                {
                    let done = check_run(scenario, settings, seed);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push(((scenario.name, seed), done));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let place = |name: &str| SCENARIOS.iter().position(|s| s.name == name);
    found.sort_by_key(|((name, seed), _)| (place(name), *seed));
    found
        .into_iter()
        .map(|(_, done)| done.map_err(|e| Failure::new(Exit::Configuration, e)))
        .collect()
}

/// Makes the tables of a page anew, in their places. A page is only written where every run is as
/// planted.
fn write_docs(page: &Path) -> Outcome {
    let fail = |e: std::io::Error| {
        Failure::message(Exit::Configuration, format!("{}: {e}", page.display()))
            .help("give a page that holds tables of simulated runs, such as docs/truth.md")
    };
    let mut text = std::fs::read_to_string(page).map_err(fail)?;
    let mut blocks = table::blocks(&text);
    if blocks.is_empty() {
        return Err(fail(std::io::Error::other("no table of simulated runs")));
    }
    let mut exit = Exit::Valid;
    // From the last one on, so that the places of the others stay.
    blocks.reverse();
    for block in blocks {
        Reporter::new().say(format!("{:?}, {} seeds", block.kind, block.seeds));
        let (table, judged) = make(&block)?;
        if judged != Exit::Valid {
            exit = judged;
        }
        text.replace_range(block.place, &table);
    }
    if exit == Exit::Valid {
        std::fs::write(page, text).map_err(fail)?;
        out!("{}", page.display());
    }
    Ok(exit)
}

fn make(block: &Block) -> Result<(String, Exit), Failure> {
    let jobs_of = |scenario: &'static Scenario, settings: Settings| -> Vec<Job> {
        (1..=block.seeds)
            .map(|seed| (scenario, settings, seed))
            .collect()
    };
    if block.kind == Kind::Scenarios {
        let jobs: Vec<Job> = SCENARIOS
            .iter()
            .flat_map(|s| jobs_of(s, Settings::TABLE))
            .collect();
        let checks = all(&jobs)?;
        return Ok((
            table::scenarios(&checks),
            failures(&checks, Settings::TABLE),
        ));
    }
    let mut exit = Exit::Valid;
    let mut cells = Vec::new();
    for settings in table::noise_cells() {
        let mut of = |name: &str| -> Result<Vec<RunCheck>, Failure> {
            let checks = all(&jobs_of(find(name)?, settings))?;
            if failures(&checks, settings) != Exit::Valid {
                exit = Exit::Invalid;
            }
            Ok(checks)
        };
        let (crash, control) = (of("crash")?, of("control")?);
        cells.push((settings, crash, control));
    }
    Ok((table::noise(&cells), exit))
}
