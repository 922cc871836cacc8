//! How effects are undone: by the instrument, by the watchdog, or later by the journal. Everything an
//! undo needs stands in it, and each checks that what it is about to touch is still the same thing.

use std::path::PathBuf;

use blackstart_targets::{ProcessRef, Signal};
use serde::{Deserialize, Serialize};

use crate::http::{HttpRequest, Sender};
use crate::operation::{network, resources};

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
    /// Removes a table of packet rules.
    Table {
        /// Inode of the network namespace.
        namespace: u64,
        /// A process that lived in it.
        pid: u32,
        /// The table.
        table: String,
    },
    /// Removes queues from devices.
    Queues {
        /// Inode of the network namespace.
        namespace: u64,
        /// A process that lived in it.
        pid: u32,
        /// The devices.
        devices: Vec<String>,
        /// Kind of the queue; another kind is left alone.
        kind: String,
    },
    /// Writes the earlier limit of a control group back.
    Group {
        /// The group's folder.
        dir: PathBuf,
        /// Its inode; a group that was made anew is left alone.
        inode: u64,
        /// The limit.
        file: String,
        /// Its earlier value.
        value: String,
    },
}

impl Undo {
    /// For people and the journal, without secrets.
    pub fn describe(&self) -> String {
        match self {
            Self::Cont { pid, start_time } => {
                format!("signal CONT to process {pid} (start time {start_time})")
            }
            Self::Http(request) => request.describe(),
            Self::Table {
                namespace, table, ..
            } => format!("remove packet rules `{table}` from network namespace {namespace}"),
            Self::Queues {
                namespace,
                devices,
                kind,
                ..
            } => format!(
                "remove queue `{kind}` from {} of network namespace {namespace}",
                devices.join(", ")
            ),
            Self::Group {
                dir, file, value, ..
            } => format!("write `{value}` to {}", dir.join(file).display()),
        }
    }

    /// What the journal may hold: a request whose headers may be secrets is not kept.
    pub(crate) fn without_secrets(&self) -> Option<Self> {
        match self {
            Self::Http(request) if !request.headers.is_empty() || !request.body.is_empty() => None,
            other => Some(other.clone()),
        }
    }

    /// Whether a server's answer or a tool's end is waited for.
    pub(crate) fn waits(&self) -> bool {
        !matches!(self, Self::Cont { .. } | Self::Group { .. })
    }

    /// Undoes; harmless when it was undone before. What was seen afterwards.
    ///
    /// # Errors
    /// Why it could not be undone, for people.
    pub fn execute(&self) -> Result<String, String> {
        match self {
            Self::Cont { pid, start_time } => match ProcessRef::open_same(*pid, *start_time) {
                // A process that ended needs no continuing.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok("gone".to_owned()),
                Err(e) => Err(e.to_string()),
                Ok(held) => {
                    held.send(Signal::Cont).map_err(|e| e.to_string())?;
                    Ok(held
                        .state()
                        .map_or_else(|| "gone".to_owned(), |s| s.to_string()))
                }
            },
            Self::Http(request) => Sender::new()
                .and_then(|s| s.send_undo(request, 0).result.map_err(|e| e.to_string()))
                .map(|status| status.to_string()),
            Self::Table {
                namespace,
                pid,
                table,
            } => network::remove_table(*namespace, *pid, table),
            Self::Queues {
                namespace,
                pid,
                devices,
                kind,
            } => network::remove_queues(*namespace, *pid, devices, kind),
            Self::Group {
                dir,
                inode,
                file,
                value,
            } => resources::restore(dir, *inode, file, value),
        }
    }
}
