//! What a run saw: requests, gaps, events, boundaries, metrics, findings, and the files that hold them.
//!
//! Records are raw: no figure that a formula of the method produces is stored here. Times are run
//! time in nanoseconds unless a name says otherwise. Absent is `None`, never 0.

mod boundary;
mod event;
mod finding;
mod gaps;
mod manifest;
mod metrics;
mod request;

pub use boundary::{Boundaries, Boundary, LogCoverage, Measure, StampSource};
pub use event::{
    CanaryStream, ClockSample, EffectStep, Event, EventKind, Fact, ProbeOutcome, ProbePath,
    ProofVerdict, ReplicaStep,
};
pub use finding::{Finding, GateSeverity, GateVerdict};
pub use gaps::{GAP_BUCKET_NS, GapHistograms, SIGNIFICANT_FIGURES, pinned_histogram};
pub use manifest::{ArtifactEntry, MANIFEST_SCHEMA_VERSION, Manifest};
pub use metrics::{MetricSample, MetricTable};
pub use request::{CensorKind, ErrorClass, FinishReason, Outcome, RequestRecord};

/// Everything that one run recorded, as the analysis reads it.
#[derive(Debug, Clone, Default)]
pub struct RunRecords {
    /// One record per scheduled request, ascending by index.
    pub requests: Vec<RequestRecord>,
    /// Inter-chunk gaps, by bucket of the request's intended time.
    pub gaps: GapHistograms,
    /// Events, ascending by time.
    pub events: Vec<Event>,
    /// What the matcher found in each replica's log.
    pub boundaries: Vec<Boundaries>,
    /// Scraped metrics.
    pub metrics: MetricTable,
}
