//! Tasks that join the build steps: `build`, `demo`, `test`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::plugins;
use crate::process::{run, say};

/// Longest that one step may take: a cold build on a slow machine.
const STEP_LIMIT: Duration = Duration::from_secs(3600);

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct DemoArgs {
    /// Passed on to `blackstart demo`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct TestArgs {
    /// Passed on to `cargo test` of the host workspace.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Builds the bundled plugins and the binary that holds them.
///
/// # Errors
/// When a step fails.
pub fn build() -> Result<()> {
    plugins::run_default()?;
    say("building blackstart (release); a cold build takes several minutes");
    run(
        cargo(&plugins::repository()?).args(["build", "--release", "--package", "blackstart"]),
        STEP_LIMIT,
    )
}

/// Builds everything and runs the demo, whose exit code becomes ours.
///
/// # Errors
/// When a step fails.
pub fn demo(args: &DemoArgs) -> Result<i32> {
    build()?;
    let binary = plugins::target_folder()?.join("release").join("blackstart");
    say(format!("running {} demo", binary.display()));
    let status = Command::new(&binary)
        .arg("demo")
        .args(&args.rest)
        .status()
        .with_context(|| format!("starting {}", binary.display()))?;
    Ok(status.code().unwrap_or(1))
}

/// Builds the bundled plugins and runs every test: the guests' natively, then the host's.
///
/// # Errors
/// When a step fails.
pub fn test(args: &TestArgs) -> Result<()> {
    plugins::run_default()?;
    let repository = plugins::repository()?;
    say("testing the guests' logic natively");
    run(
        cargo(&repository.join("plugins"))
            .env(
                "CARGO_TARGET_DIR",
                plugins::target_folder()?.join("guest-tests"),
            )
            .args(["test", "--release", "--workspace"]),
        STEP_LIMIT,
    )?;
    say("testing the host");
    run(
        cargo(&repository)
            .args(["test", "--release", "--workspace"])
            .args(&args.rest),
        STEP_LIMIT,
    )
}

/// The cargo that runs this task, in a folder.
pub fn cargo(dir: &Path) -> Command {
    // Not whichever is first on the path: a chosen toolchain stays chosen.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(dir);
    command
}

/// The exit code as one of ours; codes outside `u8` do not exist on Unix.
pub fn exit_code(code: i32) -> Result<u8> {
    let Ok(code) = u8::try_from(code) else {
        bail!("exit code {code} is not one");
    };
    Ok(code)
}
