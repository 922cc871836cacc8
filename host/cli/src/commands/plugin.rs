//! `blackstart plugin`: what plugins there are.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::Outcome;
use crate::exit::{Exit, Failure};
use crate::output::out;
use crate::plugins::{Plugins, origin};
use crate::reporter::Reporter;

/// Subcommands of `plugin`.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// List the bundled plugins and those of plugin folders
    List(ListArgs),
}

/// `plugin list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Folder with components, besides the bundled ones (may be given several times)
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<PathBuf>,
    /// One JSON array on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    version: &'a str,
    world: &'a str,
    api: String,
    origin: &'a str,
    sha256: String,
    imports: &'a [String],
}

/// Runs a subcommand.
pub fn run(command: PluginCommand) -> Outcome {
    match command {
        PluginCommand::List(args) => list(&args),
    }
}

fn list(args: &ListArgs) -> Outcome {
    let plugins = Plugins::open(&args.plugin_dir)?;
    let rows: Vec<Row<'_>> = plugins
        .registry
        .list()
        .iter()
        .map(|a| Row {
            name: &a.label().name,
            version: &a.label().version,
            world: a.world().name(),
            api: a.api().to_string(),
            origin: origin(a),
            sha256: a.sha256_hex(),
            imports: a.imports(),
        })
        .collect();
    if args.json {
        let text = serde_json::to_string_pretty(&rows).map_err(Failure::internal)?;
        out!("{text}");
    } else {
        out!(
            "{:<18} {:<9} {:<14} {:<7} {:<13} {:<10} imports",
            "name",
            "version",
            "world",
            "api",
            "sha256",
            "origin"
        );
        for row in &rows {
            out!(
                "{:<18} {:<9} {:<14} {:<7} {:<13} {:<10} {}",
                row.name,
                row.version,
                row.world,
                row.api,
                &row.sha256[..12],
                row.origin,
                row.imports.join(", ")
            );
        }
    }
    let reporter = Reporter::new();
    for error in plugins.registry.broken() {
        reporter.say(format!("warning: not usable: {error}"));
    }
    if rows.is_empty() {
        reporter.say(
            "no plugins: this build bundles none (build them with `cargo xtask plugins`, then build again), and no --plugin-dir was given",
        );
    }
    Ok(Exit::Valid)
}
