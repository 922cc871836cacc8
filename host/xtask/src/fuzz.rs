//! `cargo xtask fuzz`: the fuzz targets in `fuzz/`, one after the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::plugins;
use crate::process::{output_and_status, run, say};
use crate::tasks::cargo;

/// The version that is installed where there is none.
const CARGO_FUZZ_VERSION: &str = "0.13.2";
/// Longest that one build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// Memory of a target: a parser that takes more from so small an input is at fault.
const MEMORY_LIMIT_MB: u32 = 1024;
/// Longest that one input may take, in seconds.
const INPUT_LIMIT_S: u32 = 20;

/// The targets, each with what its inputs start from, in the repository.
const TARGETS: [(&str, &[&str]); 9] = [
    (
        "response",
        &[
            "host/load/tests/fixtures/vllm-http",
            "host/observe/tests/fixtures",
        ],
    ),
    ("events", &["host/load/tests/fixtures/sse"]),
    ("data_set", &[]),
    ("campaign_file", &["examples/demo", "examples/vllm-cpu"]),
    ("metrics", &["host/observe/tests/fixtures"]),
    ("log", &["plugins/match-vllm-core/tests/logs"]),
    ("foreign_report", &["host/analyze/tests/fixtures"]),
    ("journal", &[]),
    ("tables", &[]),
];

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub struct Args {
    /// How long each target runs, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only these targets.
    targets: Vec<String>,
}

/// Runs the targets; what they find stays in `fuzz/artifacts`, what covers more code in
/// `target/fuzz-corpus`.
///
/// # Errors
/// When a target finds an input that fails, cannot be built, or does not exist.
pub fn run_targets(args: &Args) -> Result<()> {
    let repository = plugins::repository()?;
    if let Some(unknown) = args
        .targets
        .iter()
        .find(|name| TARGETS.iter().all(|(known, _)| known != name))
    {
        let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        bail!(
            "there is no fuzz target {unknown}; there are {}",
            known.join(", ")
        );
    }
    provide_cargo_fuzz(&repository)?;
    let target_folder = plugins::target_folder()?;
    // Without a sanitizer, so that any toolchain can do it: panics, overflows, endless work and memory
    // are what safe Rust can do wrong.
    let common = |command: &mut std::process::Command| {
        command
            .args(["--fuzz-dir", "fuzz", "--sanitizer", "none", "--target-dir"])
            .arg(target_folder.join("fuzz"));
    };
    say("building the fuzz targets");
    let mut build = cargo(&repository);
    build.args(["fuzz", "build"]);
    common(&mut build);
    run(&mut build, BUILD_LIMIT)?;
    for (name, seeds) in TARGETS {
        if !args.targets.is_empty() && !args.targets.iter().any(|t| t == name) {
            continue;
        }
        say(format!("fuzzing {name} for {} s", args.seconds));
        let corpus = target_folder.join("fuzz-corpus").join(name);
        std::fs::create_dir_all(&corpus).with_context(|| format!("making {}", corpus.display()))?;
        let mut fuzz = cargo(&repository);
        fuzz.args(["fuzz", "run"]);
        common(&mut fuzz);
        fuzz.arg(name)
            .arg(&corpus)
            .args(existing(&repository, seeds));
        fuzz.args([
            "--".to_owned(),
            format!("-max_total_time={}", args.seconds),
            format!("-rss_limit_mb={MEMORY_LIMIT_MB}"),
            format!("-timeout={INPUT_LIMIT_S}"),
            "-print_final_stats=1".to_owned(),
            "-verbosity=0".to_owned(),
        ]);
        run(&mut fuzz, BUILD_LIMIT + Duration::from_secs(args.seconds))
            .with_context(|| format!("{name}: the input that fails is in fuzz/artifacts/{name}"))?;
    }
    Ok(())
}

/// Seeds that are there: a target does without.
fn existing(repository: &Path, seeds: &[&str]) -> Vec<PathBuf> {
    let all = seeds.iter().map(|folder| repository.join(folder));
    all.filter(|folder| folder.is_dir()).collect()
}

fn provide_cargo_fuzz(repository: &Path) -> Result<()> {
    let mut ask = cargo(repository);
    ask.args(["fuzz", "--version"])
        .stderr(std::process::Stdio::null());
    if output_and_status(&mut ask, BUILD_LIMIT).is_ok_and(|(status, _)| status.success()) {
        return Ok(());
    }
    say(format!("installing cargo-fuzz {CARGO_FUZZ_VERSION}"));
    run(
        cargo(repository).args([
            "install",
            "cargo-fuzz",
            "--version",
            CARGO_FUZZ_VERSION,
            "--locked",
        ]),
        BUILD_LIMIT,
    )
}
