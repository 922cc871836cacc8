//! `blackstart run`: a campaign.

use std::path::PathBuf;

use blackstart_require::campaign_names;
use clap::Args;

use crate::Outcome;
use crate::campaign::{Execution, execute, prepare, print_timeline};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::out;
use crate::reporter::Reporter;
use crate::require::Requirements;

/// `run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The campaign file
    file: PathBuf,
    /// Folder that gets the results directory
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Folder with plugin components, besides the bundled ones (may be given several times)
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<PathBuf>,
    /// Print the timeline of a run and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Number of runs instead of the file's (the published profile accepts only the pinned one)
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    #[command(flatten)]
    requirements: Requirements,
}

/// Runs the command. The results directory is the last line on stdout.
pub fn run(args: RunArgs) -> Outcome {
    args.requirements.check(&campaign_names())?;
    let prepared = prepare(&args.file, &args.plugin_dir, args.runs)?;
    let reporter = Reporter::new();
    for warning in &prepared.warnings {
        reporter.say(warning);
    }
    if args.dry_run {
        print_timeline(&prepared);
        return Ok(Exit::Valid);
    }
    let interrupt = Interrupt::watch()?;
    let (exit, dir) = execute(
        &prepared,
        &Execution {
            out: &args.out,
            reporter: &reporter,
            interrupt: &interrupt,
            requirements: &args.requirements,
        },
    )?;
    out!("{}", dir.display());
    Ok(exit)
}
