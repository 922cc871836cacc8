//! What instrument and watchdog say to each other: JSON lines, each request with its answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::undo::Undo;

/// From the instrument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) seq: u64,
    #[serde(flatten)]
    pub(super) op: Op,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Op {
    /// First: where the journal is.
    Open { journal: PathBuf },
    /// Remember how to undo `key`, at the latest at a monotonic instant. Again: replaces it.
    Register {
        key: String,
        deadline_ns: i64,
        action: Undo,
    },
    /// It was undone, or never happened.
    Done { key: String },
    /// The instrument lives.
    Beat,
    /// Farewell. What is still registered is undone.
    Bye,
}

/// From the watchdog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}
