//! What a journal says is still in force, and its undoing.

use std::io;
use std::path::Path;

use super::journal::{Journal, JournalStep, read_journal};
use super::undo::Undo;
use blackstart_targets::ProcessRef;

/// An effect that was registered and of which nothing says that it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The effect's key in the journal.
    pub key: String,
    /// How it is undone, for people.
    pub undo: String,
    /// How it is undone; absent where the journal may not hold it.
    pub action: Option<Undo>,
    /// Why an earlier attempt failed.
    pub failed: Option<String>,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftovers {
    /// What is still in force, as far as the journal knows.
    pub effects: Vec<Leftover>,
    /// A watchdog that lives and will undo them itself.
    pub watchdog: Option<u32>,
    /// Whether the host was started anew since: then nothing of it can be in force.
    pub other_boot: bool,
}

/// Reads what a journal says is still in force.
///
/// # Errors
/// When the file cannot be read.
pub fn leftovers(journal: &Path) -> io::Result<Leftovers> {
    let mut effects: Vec<Leftover> = Vec::new();
    let mut opened = None;
    let mut closed = true;
    for entry in read_journal(journal)? {
        match entry.step {
            JournalStep::Opened {
                watchdog_pid,
                boot_id,
                ..
            } => {
                closed = false;
                opened = Some((watchdog_pid, boot_id, entry.unix_ns));
            }
            JournalStep::Registered {
                key, undo, action, ..
            } => {
                effects.retain(|e| e.key != key);
                effects.push(Leftover {
                    key,
                    undo,
                    action,
                    failed: None,
                });
            }
            JournalStep::Done { key }
            | JournalStep::Undone {
                key, error: None, ..
            } => effects.retain(|e| e.key != key),
            JournalStep::Undone { key, error, .. } => {
                for effect in effects.iter_mut().filter(|e| e.key == key) {
                    effect.failed.clone_from(&error);
                }
            }
            JournalStep::Closed => closed = true,
        }
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let boot = boot.map(|b| b.trim().to_owned());
    let other_boot = opened
        .as_ref()
        .is_some_and(|(_, recorded, _)| recorded.is_some() && boot.is_some() && *recorded != boot);
    let watchdog = opened
        .filter(|_| !closed && !other_boot)
        .map(|(pid, _, _)| pid)
        // Its pid may be another's by now: only a program that watches is one.
        .filter(|pid| {
            ProcessRef::open(*pid).is_ok()
                && blackstart_targets::proc::cmdline(*pid).is_some_and(|c| c.contains("__watchdog"))
        });
    Ok(Leftovers {
        effects,
        watchdog,
        other_boot,
    })
}

/// Undoes one, and writes it into the journal. What was seen afterwards.
///
/// # Errors
/// Why it could not be undone.
pub fn undo_leftover(journal: &Path, effect: &Leftover) -> Result<String, String> {
    let Some(action) = &effect.action else {
        return Err(
            "the journal may not hold this request (it can contain a secret): send it yourself"
                .to_owned(),
        );
    };
    let outcome = action.execute();
    let (error, state_after) = match &outcome {
        Ok(state) => (None, Some(state.clone())),
        Err(reason) => (Some(reason.clone()), None),
    };
    let written = Journal::open(journal).and_then(|mut j| {
        j.append(JournalStep::Undone {
            key: effect.key.clone(),
            because: "blackstart undo".to_owned(),
            undo: effect.undo.clone(),
            error,
            state_after,
            last_beat_ns_ago: 0,
        })
    });
    match written {
        Ok(()) => outcome,
        // It is undone; only the next list will name it again.
        Err(e) => outcome.map(|state| format!("{state} (the journal cannot be written: {e})")),
    }
}
