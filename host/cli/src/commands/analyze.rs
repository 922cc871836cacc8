//! `blackstart analyze`: a results directory once more, with the plugins that are there now.

use std::path::PathBuf;

use clap::Args;

use super::load;
use crate::Outcome;
use crate::campaign::{analyze_dir, print_end};
use crate::exit::Exit;
use crate::output::out;
use crate::reporter::Reporter;

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
    print_end(&Reporter::new(), &plan, &end, &args.dir);
    out!("{}", args.dir.display());
    Ok(if end.valid {
        Exit::Valid
    } else {
        Exit::Invalid
    })
}
