//! Lives of the replicas: starts, ends, orphans, and starts that did not come.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An end of a main process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaExit {
    /// When.
    pub at_ns: i64,
    /// Its pid.
    pub pid: u32,
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
    /// Descendants that outlived it.
    pub orphans: Vec<String>,
    /// When those were gone.
    pub orphans_gone_ns: Option<i64>,
    /// Whether the supervisor killed them.
    pub orphans_killed: Option<bool>,
    /// Whether this end followed the fire.
    pub after_fire: bool,
    /// `victim` or `survivor`: an end of a survivor after the fire is a secondary failure.
    pub role: String,
}

/// One replica's lives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaLives {
    /// The replica.
    pub replica: String,
    /// Starts that were seen: run time and pid.
    pub starts: Vec<(i64, u32)>,
    /// Starts after the fire.
    pub restarts_after_fire: u64,
    /// Ends that were seen.
    pub exits: Vec<ReplicaExit>,
    /// Why it was not started again, if the policy said so.
    pub not_restarted: Option<String>,
}
