//! What instrument and watchdog say to each other: JSON lines, each request with its answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::http::HttpRequest;

/// How an effect is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "snake_case", deny_unknown_fields)]
pub enum Undo {
    /// SIGCONT to exactly this process.
    Cont {
        /// Its pid.
        pid: u32,
        /// Its start time; another process with the pid is left alone.
        start_time: u64,
    },
    /// An HTTP request.
    Http(HttpRequest),
}

impl Undo {
    /// For people and the journal, without secrets.
    pub fn describe(&self) -> String {
        match self {
            Self::Cont { pid, start_time } => {
                format!("signal CONT to process {pid} (start time {start_time})")
            }
            Self::Http(request) => request.describe(),
        }
    }
}

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
