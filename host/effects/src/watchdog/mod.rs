//! The dead-man's switch: a process of its own that undoes faults when the instrument cannot.
//!
//! Every effect that can be undone is registered with it, and acknowledged, before it fires. It
//! undoes all that is registered when its pipe from the instrument ends without a farewell (the
//! instrument died), and each entry at its absolute deadline plus [`GRACE_NS`] (the instrument
//! hangs). Undoing twice does no harm. What it did, and the state that it saw afterwards, stands
//! in a journal.

mod client;
mod journal;
mod leftovers;
mod run;
mod undo;
mod wire;

pub use client::{Watchdog, WatchdogError};
pub use journal::{JournalEntry, JournalStep, read_journal};
pub use leftovers::{Leftover, Leftovers, leftovers, undo_leftover};
pub use run::run;
pub use undo::Undo;

use blackstart_clock::{NS_PER_MS, NS_PER_S};

/// How long after its deadline an entry is undone by the watchdog: the instrument comes first.
pub const GRACE_NS: i64 = 500 * NS_PER_MS;
/// How often the instrument shows that it lives.
pub const BEAT_NS: i64 = 500 * NS_PER_MS;
/// How long the instrument waits for an acknowledgement (it includes a write to disk).
pub const ACK_TIMEOUT_NS: i64 = 5 * NS_PER_S;
/// How long the instrument waits for the watchdog's end after the farewell.
pub const BYE_TIMEOUT_NS: i64 = 15 * NS_PER_S;
/// Most entries at a time.
pub const MAX_ENTRIES: usize = 4096;
/// Most bytes of one line of the protocol (an HTTP body of 1 MiB as JSON numbers).
pub const MAX_LINE_BYTES: usize = 8 << 20;
