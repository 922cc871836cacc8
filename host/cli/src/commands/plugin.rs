//! `blackstart plugin`: what plugins there are.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::Outcome;
use crate::exit::{Exit, Failure};
use crate::output::{out, out_text};
use crate::plugins::{Plugins, origin};
use crate::reporter::Reporter;
use crate::wrap::{columns, wrap};

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
        let width = columns(std::io::stdout());
        out_text!("{}", line(&HEADER.map(str::to_owned), "imports", width));
        for row in &rows {
            let cells = [
                row.name,
                row.version,
                row.world,
                &row.api,
                &row.sha256[..12],
                row.origin,
            ];
            let imports = row.imports.join(", ");
            out_text!("{}", line(&cells.map(str::to_owned), &imports, width));
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

const HEADER: [&str; 6] = ["name", "version", "world", "api", "sha256", "origin"];
const WIDTHS: [usize; 6] = [18, 9, 14, 7, 13, 10];
/// Narrowest column that is left to the imports; they go below the rest where there is less.
const LEAST_IMPORTS: usize = 24;
/// How far they are then indented.
const BELOW: usize = 4;

/// A row of the list, broken to the terminal's width where there is a terminal.
fn line(cells: &[String; 6], imports: &str, width: Option<usize>) -> String {
    let mut fixed = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        fixed.push_str(&format!("{cell:<width$} "));
    }
    let all = format!("{fixed}{imports}");
    let Some(width) = width else { return all };
    let indent = fixed.chars().count();
    if indent + LEAST_IMPORTS <= width {
        return wrap(&all, width, indent);
    }
    let first = wrap(fixed.trim_end(), width, BELOW);
    if imports.is_empty() {
        return first;
    }
    let below = format!("{:BELOW$}{imports}", "");
    format!("{first}\n{}", wrap(&below, width, BELOW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_fits_its_terminal_and_is_one_line_a_row_elsewhere() {
        let cells = [
            "process-kill",
            "0.1.0",
            "fault-variant",
            "1.0.0",
            "0123456789ab",
            "bundled",
        ]
        .map(str::to_owned);
        let imports =
            "blackstart:plugin/host, blackstart:plugin/effect-process, blackstart:plugin/log";
        for width in [60, 80, 100, 120, 300] {
            let text = line(&cells, imports, Some(width));
            for row in text.lines() {
                assert!(row.chars().count() <= width, "{width}: {row:?}");
            }
            let words = |text: &str| {
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(words(&text), words(&line(&cells, imports, None)));
        }
        assert_eq!(line(&cells, imports, None).lines().count(), 1);
    }
}
