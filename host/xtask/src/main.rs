//! Build tasks: `cargo xtask <task>`. One module a task.

mod fuzz;
mod plugins;
mod process;
mod tasks;

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
    /// Build the plugins and the `blackstart` binary that holds them.
    Build,
    /// Build everything and run the demo campaign.
    Demo(tasks::DemoArgs),
    /// Build the plugins and run every test.
    Test(tasks::TestArgs),
    /// Fuzz everything that parses what others wrote.
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Plugins(args) => plugins::run(&args).map(|()| 0),
        Task::Build => tasks::build().map(|()| 0),
        Task::Demo(args) => tasks::demo(&args).and_then(tasks::exit_code),
        Task::Test(args) => tasks::test(&args).map(|()| 0),
        Task::Fuzz(args) => fuzz::run_targets(&args).map(|()| 0),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
