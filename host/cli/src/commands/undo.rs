//! `blackstart undo`: what a dead instrument left in force, by its journal.

use std::path::{Path, PathBuf};

use blackstart_effects::watchdog::{Leftovers, leftovers, undo_leftover};
use clap::Args;
use serde_json::json;

use crate::Outcome;
use crate::exit::{Exit, Failure};
use crate::output::{out, out_text};

/// Journal of a results directory.
const JOURNAL: &str = "undo.jsonl";

/// Undoes nothing that the journal does not name, and nothing twice. A watchdog that still lives is left to
/// do its work.
#[derive(Debug, Args)]
pub struct UndoArgs {
    /// Results directories, or folders that hold some
    #[arg(default_value = "results")]
    dirs: Vec<PathBuf>,
    /// List only
    #[arg(long)]
    list: bool,
    /// One JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Runs the command: exit 0 when nothing is left in force, 2 when something is.
///
/// # Errors
/// When a folder cannot be read.
pub fn run(args: UndoArgs) -> Outcome {
    let mut journals = Vec::new();
    for dir in &args.dirs {
        journals.extend(journals_in(dir)?);
    }
    let mut left = 0_usize;
    let mut document = Vec::new();
    for journal in &journals {
        let found = leftovers(journal)
            .map_err(|e| Failure::internal(e).context(format!("reading {}", journal.display())))?;
        for effect in &found.effects {
            let (state, done) = handle(&found, journal, effect, args.list);
            left += usize::from(!done);
            if !args.json {
                out_text!("{}", journal.display());
                out_text!("  {}: {}", effect.undo, state);
            }
            document.push(json!({
                "journal": journal,
                "effect": effect.key,
                "undo": effect.undo,
                "state": state,
                "in_force": !done,
            }));
        }
    }
    if args.json {
        out!(
            "{}",
            json!({ "schema_version": 1, "journals": journals.len(), "effects": document })
        );
    } else if document.is_empty() {
        out_text!(
            "nothing is left in force ({} journals read)",
            journals.len()
        );
    }
    Ok(if left == 0 {
        Exit::Valid
    } else {
        Exit::Invalid
    })
}

/// What is said of one effect, and whether it is over.
fn handle(
    found: &Leftovers,
    journal: &Path,
    effect: &blackstart_effects::watchdog::Leftover,
    list: bool,
) -> (String, bool) {
    if found.other_boot {
        return ("over: the host was started anew since".to_owned(), true);
    }
    if let Some(pid) = found.watchdog {
        return (
            format!("its watchdog (pid {pid}) lives and undoes it"),
            false,
        );
    }
    if list {
        let state = effect.failed.as_ref().map_or_else(
            || "may be in force".to_owned(),
            |why| format!("may be in force; an earlier attempt failed: {why}"),
        );
        return (state, false);
    }
    match undo_leftover(journal, effect) {
        Ok(state) => (format!("undone ({state})"), true),
        Err(why) => (format!("NOT undone: {why}"), false),
    }
}

/// The journal of a results directory, or those of the directories in a folder.
fn journals_in(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let own = dir.join(JOURNAL);
    if own.is_file() {
        return Ok(vec![own]);
    }
    let listed = std::fs::read_dir(dir).map_err(|e| {
        Failure::message(Exit::Configuration, format!("{}: {e}", dir.display())).help(
            "name a results directory, or a folder that holds some (what `run --out` was given)",
        )
    })?;
    let mut journals: Vec<PathBuf> = listed
        .flatten()
        .map(|entry| entry.path().join(JOURNAL))
        .filter(|journal| journal.is_file())
        .collect();
    journals.sort();
    Ok(journals)
}
