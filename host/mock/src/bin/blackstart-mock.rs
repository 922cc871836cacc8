//! The mock server by itself, for tests of this crate; users run `blackstart mock`.

use std::process::ExitCode;

use blackstart_mock::{EngineArgs, MockArgs, run, run_engine};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the mock server.
    Mock(Box<MockArgs>),
    /// The engine process (started by `mock`).
    #[command(name = "__mock-engine", hide = true)]
    Engine(EngineArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Mock(args) => run(*args),
        Command::Engine(args) => run_engine(args),
    }
}
