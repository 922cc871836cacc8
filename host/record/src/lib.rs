//! What a run saw: requests, gaps, events, boundaries, metrics, findings, and the files that hold them.
//!
//! Records are raw: no figure that a formula of the method produces is stored here. Times are run
//! time in nanoseconds unless a name says otherwise. Absent is `None`, never 0.

mod boundary;
mod error;
mod event;
mod finding;
mod gaps;
mod io;
mod manifest;
mod metrics;
mod names;
mod request;
#[cfg(test)]
mod testing;

pub use boundary::{Boundaries, Boundary, LogCoverage, Measure, StampSource};
pub use error::RecordError;
pub use event::{
    CanaryStream, ClockSample, EffectStep, Event, EventKind, Fact, ProbeOutcome, ProbePath,
    ProofVerdict, ReplicaStep,
};
pub use finding::{Finding, GateSeverity, GateVerdict};
pub use gaps::{
    GAP_BUCKET_NS, Gap, GapHistograms, MAX_GAP_US, SIGNIFICANT_FIGURES, pinned_histogram,
};
pub use io::{
    ArtifactMismatch, EventLog, EventWriter, GAPS_SCHEMA, GapLogWriter, GapParquetWriter,
    JournalEntry, MAX_ARTIFACTS, MAX_EVENT_LINE_BYTES, MAX_EVENTS, MAX_FRAME_BYTES, MAX_FRAME_GAPS,
    MAX_GAP_BUCKETS, MAX_JSON_BYTES, MAX_METRIC_ROWS, ManifestHead, PART_SUFFIX, REQUESTS_SCHEMA,
    RequestJournalReader, RequestJournalWriter, RequestParquetWriter, RunFiles, SealSummary,
    for_each_gap, for_each_request, journal_in_use, open_regular, read_bounded, read_events,
    read_gaps, read_json, read_metrics_parquet, read_recorded, read_requests_parquet, read_run,
    read_run_noting, replace_files, seal_journal, seal_journal_with, sha256_file, unlocked_because,
    write_atomic, write_gaps, write_json_atomic, write_metrics_parquet, write_requests_parquet,
};
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
