//! What a log matcher found in a replica's log.

use serde::{Deserialize, Serialize};

/// All boundaries of one log, with how much of it was understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boundaries {
    /// The replica whose log it is.
    pub replica: String,
    /// The matcher: `name version`.
    pub matcher: Option<String>,
    /// Release that the banner or the matcher's probe showed.
    pub server_version: Option<String>,
    /// How much of the log was read.
    pub coverage: LogCoverage,
    /// The boundaries, in file order.
    pub boundaries: Vec<Boundary>,
}

/// How much of a log was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum LogCoverage {
    /// All of it.
    Measured {
        /// Physical lines.
        lines: u64,
        /// Lines that gave at least one boundary.
        matched: u64,
    },
    /// Nothing is known, and why (no log, no matcher, the matcher was quarantined).
    NotMeasured {
        /// Why.
        reason: String,
    },
}

/// One boundary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boundary {
    /// Physical line, from 1; a carriage return does not end a line.
    pub line: u64,
    /// Which server start of the file it belongs to, from 1.
    pub life: u32,
    /// Key as in `wit/matcher.wit`.
    pub key: String,
    /// The printing process as the log names it.
    pub process: Option<String>,
    /// When, in nanoseconds since the Unix epoch on the stamping host's wall clock.
    pub at_unix_ns: Option<i64>,
    /// Whose clock stamped it.
    pub stamp: StampSource,
    /// Resolution of the stamp.
    pub resolution_ns: Option<i64>,
    /// Figures in the line.
    pub measures: Vec<Measure>,
    /// Labelled texts in the line.
    pub fields: Vec<(String, String)>,
    /// The line itself, bounded in length.
    pub text: String,
}

/// Whose clock stamped a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampSource {
    /// The instrument, when it captured the line.
    Capture,
    /// Whoever put RFC 3339 before the line: a container runtime, or something that writes the same
    /// (the instrument's own captured logs, when they are read as files of unknown origin).
    Docker,
    /// The kubelet (RFC 3339 before the line, with stream and flag, or `kubectl logs --timestamps`).
    Kubernetes,
    /// The line itself.
    Line,
    /// Nobody.
    None,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Name with its unit last (`model_loaded_gib`).
    pub name: String,
    /// Value.
    pub value: f64,
    /// UCUM unit.
    pub unit: String,
}
