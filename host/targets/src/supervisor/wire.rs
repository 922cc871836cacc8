//! What instrument and supervisor say to each other: JSON lines. Times are `CLOCK_MONOTONIC` in
//! nanoseconds, which both processes share.

use std::collections::BTreeMap;
use std::path::PathBuf;

use blackstart_plan::{OrphanPolicy, ProcessPlan, RestartPolicy};
use serde::{Deserialize, Serialize};

/// The first line on the supervisor's standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the replica.
    pub replica: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables added to the environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: Option<PathBuf>,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// Wait between its end and the next start.
    pub restart_delay_ns: i64,
    /// What happens to processes that outlive the main process.
    pub orphans: OrphanPolicy,
    /// How long an orderly stop may take before SIGKILL.
    pub stop_timeout_ns: i64,
    /// Where the log goes; created, or appended to.
    pub log_path: PathBuf,
    /// The instrument's clock, so that log stamps convert back to run time exactly.
    pub epoch_monotonic_ns: i64,
    /// The same instant on the wall clock.
    pub epoch_unix_ns: i64,
}

impl Config {
    /// The configuration of a replica's supervisor.
    pub fn new(
        replica: &str,
        plan: &ProcessPlan,
        log_path: PathBuf,
        clock: &blackstart_clock::RunClock,
    ) -> Self {
        Self {
            replica: replica.to_owned(),
            command: plan.command.clone(),
            env: plan.env.clone(),
            cwd: plan.cwd.as_ref().map(PathBuf::from),
            restart: plan.restart,
            restart_delay_ns: plan.restart_delay_ns.max(0),
            orphans: plan.orphans,
            stop_timeout_ns: plan.stop_timeout_ns.clamp(0, super::MAX_STOP_TIMEOUT_NS),
            log_path,
            epoch_monotonic_ns: clock.epoch_monotonic_ns(),
            epoch_unix_ns: clock.epoch_unix_ns(),
        }
    }
}

/// A later line on standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub enum Command {
    /// Stop the tree in good order and end.
    Stop,
}

/// A process that outlived its main process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// Its pid.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
    /// Its title or command line, bounded.
    pub title: String,
}

/// A line on the supervisor's standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WireEvent {
    /// The main process was started.
    Started {
        /// When.
        at: i64,
        /// Its pid.
        pid: u32,
        /// Its start time.
        start_time: u64,
        /// Starts before this one.
        restarts: u32,
    },
    /// The main process ended.
    Exited {
        /// When the supervisor saw it.
        at: i64,
        /// Its pid.
        pid: u32,
        /// Exit code, if it exited.
        code: Option<i32>,
        /// Signal, if one ended it.
        signal: Option<i32>,
        /// Descendants that outlived it.
        orphans: Vec<Orphan>,
    },
    /// The orphans of one main process are gone.
    OrphansGone {
        /// When the supervisor saw it.
        at: i64,
        /// How many there were.
        count: u32,
        /// Whether the supervisor killed them.
        killed: bool,
    },
    /// It is not started again.
    NotRestarted {
        /// When that was decided.
        at: i64,
        /// Why.
        reason: String,
    },
    /// The first start failed; the supervisor ends.
    LaunchFailed {
        /// When.
        at: i64,
        /// Why.
        reason: String,
    },
    /// The log can no longer be written; the server runs on.
    LogFailed {
        /// When.
        at: i64,
        /// Why.
        reason: String,
    },
    /// The supervisor stopped the tree and ends.
    Stopped {
        /// When.
        at: i64,
        /// Processes that did not end even after SIGKILL (in uninterruptible sleep).
        left: Vec<Orphan>,
    },
}
