//! Plain types of the gate world. Times are nanoseconds since the run epoch; what
//! was not measured is `None`, never zero.

use crate::types::{Field, Measure, PluginInfo};

/// What a failing gate does to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Failing or unobserved makes the run invalid.
    InvalidatesRun,
    /// Failing or unobserved strips a label.
    StripsLabel,
    /// For information.
    Advisory,
}

/// What a gate says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateInfo {
    /// Name, version, summary and configuration schema.
    pub plugin: PluginInfo,
    /// Stable id (`G1`).
    pub id: String,
    /// Title for people.
    pub title: String,
    /// What failing does.
    pub severity: Severity,
    /// With [`Severity::StripsLabel`]: the label it decides.
    pub label: Option<String>,
    /// Scalars it reads.
    pub needs: Vec<String>,
}

/// A gate's answer; all but a pass carry one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The rule holds.
    Pass,
    /// It does not.
    Fail(String),
    /// The evidence is missing; never a pass.
    NotObserved(String),
    /// The rule does not apply to this run.
    NotApplicable(String),
}

/// A verdict and the numbers it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers.
    pub measures: Vec<Measure>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Completed,
    /// With an error.
    Errored,
    /// Not within the time it had.
    Censored,
}

/// One request of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Its place in the schedule.
    pub index: u64,
    /// When it was due.
    pub intended_at_ns: i64,
    /// When its first byte was written.
    pub dispatched_at_ns: Option<i64>,
    /// When its first token arrived.
    pub first_token_at_ns: Option<i64>,
    /// Terminal event, or the instant of censoring.
    pub ended_at_ns: i64,
    /// How it ended.
    pub outcome: Outcome,
    /// Class of its error.
    pub error_class: Option<String>,
    /// Content events seen.
    pub content_events: u32,
    /// Tokens by the server's count.
    pub completion_tokens: Option<u32>,
    /// Replica that served it.
    pub replica: Option<String>,
}

/// A named stretch of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Its name.
    pub name: String,
    /// Its start.
    pub start_ns: i64,
    /// Its end.
    pub end_ns: i64,
}

/// A fault as it was planned and seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRecord {
    /// Name of the fault plugin.
    pub variant_name: String,
    /// Whom it harmed.
    pub victims: Vec<String>,
    /// Planned instant.
    pub planned_fire_at_ns: i64,
    /// Instant seen.
    pub observed_fire_at_ns: Option<i64>,
    /// End seen.
    pub observed_expiry_at_ns: Option<i64>,
}

/// One sample of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// When.
    pub at_ns: i64,
    /// What.
    pub value: f64,
}

/// A boundary that a matcher found in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent {
    /// When, on the run clock.
    pub at_ns: i64,
    /// Whose log.
    pub replica: String,
    /// The boundary's key.
    pub kind: String,
    /// Its fields.
    pub fields: Vec<Field>,
}

/// The evidence of one run, lent to a gate.
pub trait Evidence: Send + Sync {
    /// A named figure of the analysis; `None` = not measured.
    fn scalar(&self, name: &str) -> Option<Measure>;
    /// Why a figure is absent, in one sentence.
    fn scalar_absence(&self, name: &str) -> Option<String>;
    /// Named stretches of the run.
    fn windows(&self) -> Vec<Window>;
    /// Faults of the run.
    fn faults(&self) -> Vec<FaultRecord>;
    /// Replicas of the system under test.
    fn replicas(&self) -> Vec<String>;
    /// Requests of a window by intended time, at most `limit` from `offset`.
    fn requests(&self, window: &str, offset: u64, limit: u32) -> Vec<RequestRecord>;
    /// How many requests a window has.
    fn request_count(&self, window: &str) -> u64;
    /// A sampled series; `None` = not collected.
    fn series(&self, name: &str) -> Option<Vec<Point>>;
    /// Log events of a window by time, at most `limit` from `offset`.
    fn log_events(&self, window: &str, offset: u64, limit: u32) -> Vec<LoggedEvent>;
}
