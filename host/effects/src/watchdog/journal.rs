//! `undo.jsonl`: what was registered with the watchdog and what became of it. Append-only.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use blackstart_clock::{monotonic_ns, unix_ns};
use serde::{Deserialize, Serialize};

use super::undo::Undo;

/// Most bytes of a journal line that are read back.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// Most lines that are read back.
const MAX_LINES: usize = 1 << 20;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// `CLOCK_MONOTONIC` of this host's boot.
    pub monotonic_ns: i64,
    /// Wall clock.
    pub unix_ns: i64,
    /// What happened.
    #[serde(flatten)]
    pub step: JournalStep,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum JournalStep {
    /// A watchdog began.
    Opened {
        /// Its pid.
        watchdog_pid: u32,
        /// The instrument's pid.
        instrument_pid: u32,
        /// Which boot the monotonic clock, pids and start times belong to; `None` = not readable.
        boot_id: Option<String>,
    },
    /// An effect may fire from now on.
    Registered {
        /// The effect.
        key: String,
        /// When it must be undone at the latest, monotonic.
        deadline_ns: i64,
        /// How, for people.
        undo: String,
        /// How, for a later `blackstart undo`; absent where it may hold secrets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<Undo>,
    },
    /// The instrument undid it, or it never fired.
    Done {
        /// The effect.
        key: String,
    },
    /// The watchdog undid it.
    Undone {
        /// The effect.
        key: String,
        /// `instrument died`, `deadline passed`, `left at the farewell`, or `blackstart undo` where a
        /// person asked for it later.
        because: String,
        /// How.
        undo: String,
        /// Why it could not be undone.
        error: Option<String>,
        /// What was seen afterwards: the process's state, `gone`, or the HTTP status.
        state_after: Option<String>,
        /// How long before this the instrument last showed that it lived.
        last_beat_ns_ago: i64,
    },
    /// The watchdog ended.
    Closed,
}

/// Writes lines.
pub(super) struct Journal(File);

impl Journal {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(Self)
    }

    /// Appends one line; it is on the disk when this returns.
    pub(super) fn append(&mut self, step: JournalStep) -> io::Result<()> {
        let entry = JournalEntry {
            monotonic_ns: monotonic_ns(),
            unix_ns: unix_ns(),
            step,
        };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        self.0.sync_data()
    }
}

/// Reads a journal; lines that are not entries (a torn last one) are skipped.
///
/// # Errors
/// When the file cannot be read.
pub fn read_journal(path: &Path) -> io::Result<Vec<JournalEntry>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut entries = Vec::new();
    while entries.len() < MAX_LINES {
        let mut line = Vec::new();
        let count = file
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if count == 0 {
            break;
        }
        entries.extend(serde_json::from_slice(&line).ok());
    }
    Ok(entries)
}
