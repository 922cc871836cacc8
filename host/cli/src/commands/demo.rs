//! `blackstart demo`: the bundled example campaign against the bundled mock server.

use std::net::TcpListener;
use std::path::PathBuf;

use blackstart_config::{CampaignFile, Source};
use clap::Args;

use crate::Outcome;
use crate::campaign::{Execution, execute, free_port, prepare_file, print_timeline};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::out;
use crate::reporter::Reporter;
use crate::require::Requirements;

/// The campaign, as it stands in `examples/demo/`.
const CAMPAIGN: &str = include_str!("../../../../examples/demo/campaign.toml");
/// Port of the mock server in that file.
const PORT: u16 = 18431;

/// `demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Folder that gets the results directory
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Print the campaign file and stop: a start for one of your own
    #[arg(long)]
    print_config: bool,
    /// Print the timeline of a run and start nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub fn run(args: DemoArgs) -> Outcome {
    if args.print_config {
        out!("{}", CAMPAIGN.trim_end());
        return Ok(Exit::Valid);
    }
    let reporter = Reporter::new();
    let mut text = CAMPAIGN.to_owned();
    if TcpListener::bind(("127.0.0.1", PORT)).is_err() {
        let port = free_port().map_err(Failure::internal)?;
        reporter.say(format!(
            "port {PORT} is in use; the demo takes {port} instead"
        ));
        text = text.replace(&PORT.to_string(), &port.to_string());
    }
    let file = CampaignFile::parse(Source {
        name: "examples/demo/campaign.toml".to_owned(),
        text,
        base_dir: std::env::current_dir().map_err(Failure::internal)?,
    })?;
    let prepared = prepare_file(file, &[])?;
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
            requirements: &Requirements::default(),
        },
    )?;
    out!("{}", dir.display());
    Ok(exit)
}
