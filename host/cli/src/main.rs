//! `blackstart`: measures how LLM serving survives.
//!
//! This crate joins the others along the one data path: configuration → plan → records → analysis →
//! findings → report. It owns the command line, the exit codes and the text that people read; it
//! computes nothing that a report shows.

mod campaign;
mod checks;
mod commands;
mod exit;
mod glyphs;
mod interrupt;
mod keys;
mod live;
mod matching;
mod output;
mod plugins;
mod reporter;
mod require;
mod when;
mod wrap;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Failure;

/// Measures how LLM serving survives: an open-loop streaming load, a fault at a planned instant, and
/// proof of what was lost, what degraded, and which phase of the recovery cost the time.
///
/// Exit codes: 0 valid · 1 internal · 2 run invalid or check failed · 3 configuration · 4 plugin ·
/// 5 target unreachable · 6 an objective of --require not met · 130 interrupted, after undoing every
/// effect.
#[derive(Debug, Parser)]
#[command(name = "blackstart", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a campaign: the same fault, several times, each with its own seed
    Run(commands::run::RunArgs),
    /// Load a server without any fault: the quick look before anything else
    Load(Box<commands::load::LoadArgs>),
    /// Join the parts of one load that several machines sent
    Merge(commands::merge::MergeArgs),
    /// Run the bundled example campaign against the bundled mock server
    Demo(commands::demo::DemoArgs),
    /// Analyse a results directory again: matchers, method, gates, report
    Analyze(commands::analyze::AnalyzeArgs),
    /// Compare two campaigns: differences, what the samples carry, and no winner that they do not
    Compare(commands::compare::CompareArgs),
    /// Read server logs: every start with its phases, figures and failures
    Logs(commands::logs::LogsArgs),
    /// Check a published report from its own evidence
    Verify(commands::verify::VerifyArgs),
    /// Simulate runs with planted truth, and check that the analysis finds it
    Simulate(commands::simulate::SimulateArgs),
    /// List and undo what a dead instrument left in force
    Undo(commands::undo::UndoArgs),
    /// Look at plugins
    #[command(subcommand)]
    Plugin(commands::plugin::PluginCommand),
    /// Run the mock server
    Mock(Box<blackstart_mock::MockArgs>),
    /// Supervisor of one server process; started by the instrument
    #[command(name = "__supervise", hide = true)]
    Supervise {
        /// Variable whose value is kept out of the server's log
        #[arg(long)]
        mask_env: Option<String>,
    },
    /// Undoes effects when the instrument dies; started by the instrument
    #[command(name = "__watchdog", hide = true)]
    Watchdog,
    /// Takes memory of a control group until the kernel ends someone in it; started by the instrument
    #[command(name = "__balloon", hide = true)]
    Balloon {
        /// Folder of the control group
        group: std::path::PathBuf,
    },
    /// Engine process of the mock server; started by `mock`
    #[command(name = "__mock-engine", hide = true)]
    MockEngine(blackstart_mock::EngineArgs),
}

fn main() -> ExitCode {
    interrupt::survive_file_size_limits();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if glyphs::unicode() {
                let _ = error.print();
            } else {
                let text = error.render().to_string();
                let text = glyphs::shown(&text);
                let _ = if error.use_stderr() {
                    std::io::stderr().write_all(text.as_bytes())
                } else {
                    std::io::stdout().write_all(text.as_bytes())
                };
            }
            // Help and version are no mistakes.
            let code = if error.use_stderr() {
                exit::Exit::Configuration
            } else {
                exit::Exit::Valid
            };
            return code.into();
        }
    };
    if !matches!(
        cli.command,
        Command::Supervise { .. }
            | Command::Watchdog
            | Command::Balloon { .. }
            | Command::MockEngine(_)
    ) {
        diagnostics();
        if !matches!(cli.command, Command::Mock(_)) {
            blackstart_load::provide_basic_files();
        }
    }
    let outcome = match cli.command {
        // These are whole programs of their own, with their own exit codes.
        Command::Mock(args) => return blackstart_mock::run(*args),
        Command::MockEngine(args) => return blackstart_mock::run_engine(args),
        Command::Supervise { mask_env } => {
            return blackstart_targets::supervisor::run(mask_env.as_deref());
        }
        Command::Watchdog => return blackstart_effects::watchdog::run(),
        Command::Balloon { group } => return blackstart_effects::run_balloon(&group),
        Command::Undo(args) => commands::undo::run(args),
        Command::Run(args) => commands::run::run(args),
        Command::Load(args) => commands::load::run(*args),
        Command::Merge(args) => commands::merge::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Analyze(args) => commands::analyze::run(args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Logs(args) => commands::logs::run(args),
        Command::Verify(args) => commands::verify::run(args),
        Command::Simulate(args) => commands::simulate::run(args),
        Command::Plugin(command) => commands::plugin::run(command),
    };
    match outcome {
        Ok(_) if output::failure().is_some() => {
            let why = output::failure().unwrap_or_default();
            let failure = Failure::message(exit::Exit::Internal, format!("standard output: {why}"));
            reporter::print_failure(&failure);
            failure.exit.into()
        }
        Ok(code) => code.into(),
        Err(failure) => {
            reporter::print_failure(&failure);
            failure.exit.into()
        }
    }
}

/// Diagnostics (plugins' log lines among them) go to stderr; `BLACKSTART_LOG=debug` shows more.
fn diagnostics() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BLACKSTART_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    // A second subscriber in one process (tests) is no reason to fail.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A file or a pipe wants text, not colours.
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .try_init();
}

/// What every command returns.
type Outcome = Result<exit::Exit, Failure>;
