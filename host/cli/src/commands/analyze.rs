//! `blackstart analyze`: a results directory once more, with the plugins that are there now.

use std::path::PathBuf;

use clap::Args;

use super::load;
use crate::Outcome;
use crate::campaign::{analyze_dir, print_end};
use crate::exit::Exit;
use crate::output::out;
use crate::reporter::{Reporter, harmless};

/// `analyze`
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// A results directory
    dir: PathBuf,
    /// Folder with plugin components, besides the bundled ones (may be given several times)
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: AnalyzeArgs) -> Outcome {
    if load::is_load(&args.dir) {
        return load::analyze(&args.dir);
    }
    let (plan, end) = analyze_dir(&args.dir, &args.plugin_dir)?;
    let reporter = Reporter::new();
    for run in end.analysis.runs.iter().filter(|r| !r.validity.valid) {
        reporter.say(format!("run {} is INVALID", run.run));
        for reason in &run.validity.reasons {
            reporter.say_hanging(
                6,
                harmless(&format!("    {}: {}", reason.code, reason.detail)),
            );
        }
    }
    print_end(&reporter, &plan, &end, &args.dir);
    out!("{}", args.dir.display());
    Ok(if end.valid {
        Exit::Valid
    } else {
        Exit::Invalid
    })
}
