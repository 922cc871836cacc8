//! Build tasks: `cargo xtask <task>`. One module a task.

mod plugins;
mod process;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Build tasks of the Blackstart workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the bundled plugins, or one crate, into WebAssembly components.
    Plugins(plugins::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Plugins(args) => plugins::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
