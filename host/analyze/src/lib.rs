//! The method: from plan and records to figures. Pure: no clock, no async, no network.
//!
//! Two entry points: [`analyze_run`] turns one run's records into a [`RunAnalysis`], and
//! [`analyze_campaign`] turns the runs' analyses and the gates' findings into a
//! [`CampaignAnalysis`]. [`scalars`] names the figures that gates read, [`validity`] judges a run
//! beyond its gates, and [`foreign`] checks a published report of the predecessor from its own
//! evidence.
//!
//! Invariants: nothing here reads a clock, a file or a socket; the same input gives the same output,
//! byte for byte; a figure that was not measured is `None` with a reason beside it, never 0.
//!
//! One module per concept of the method, so that a formula has one place.

mod buckets;
mod campaign;
mod client;
mod comparable;
mod compare;
mod control;
mod cross_check;
mod decomposition;
mod detector;
mod distribution;
mod effects;
mod error;
mod fingerprint;
mod fire;
pub mod foreign;
mod headline;
mod incidence;
mod inflight;
mod input;
mod load_summary;
mod losses;
mod partition;
mod permutation;
pub mod precision;
mod readiness;
mod receive_path;
mod recovery;
mod replicas;
mod run;
mod scalars;
mod segments;
mod share;
mod slo;
mod stats;
mod summary;
mod tails;
mod time;
mod timeline;
mod validity;
mod waiting;
mod watch;
mod windows;

pub use buckets::{LatencyBucket, MAX_LATENCY_BUCKETS};
pub use campaign::{
    CAMPAIGN_ANALYSIS_SCHEMA_VERSION, CampaignAnalysis, CensoredRun, DroppedRun, Endpoint,
    EndpointKind, RunVerdict, analyze_campaign, endpoint_names,
};
pub use client::{ClientAnalysis, HeartbeatSummary};
pub use comparable::{PlanDifference, plan_differences};
pub use compare::{
    COMPARISON_SCHEMA_VERSION, CampaignComparison, CompareError, CompareInput, ComparedEndpoint,
    ComparedSide, ComparedValue, EndpointSide, Interval, LEVEL, Leading, Noise, Pairing,
    PairingUsed, Verdict, compare, compared_names,
};
pub use cross_check::{CrossCheck, Level, MAX_CROSS_CHECK_BUCKETS, change_points};
pub use decomposition::{BoundaryMatch, Decomposition, Segment, SegmentSource};
pub use detector::{BucketCounts, Detection, RecoveryStatus, detect};
pub use distribution::Distribution;
pub use effects::{EffectSummary, FaultProof, ProofSummary};
pub use error::AnalyzeError;
pub use fingerprint::FingerprintAnalysis;
pub use fire::{ClockOffset, Fire, FireClock, fire_from_bracket};
pub use incidence::{
    CurvePoint, Incidence, IncidenceQuantile, Observation, QuantileRefusal, Terminal,
    aalen_johansen, kaplan_meier,
};
pub use inflight::{FlightPhases, InFlight, InFlightCounts, InFlightGroup, OutageOutcomes};
pub use load_summary::{
    KilledFigures, LOAD_SUMMARY_SCHEMA_VERSION, LatencyFigures, LoadAsked, LoadFigures,
    LoadFiguresBuilder, ReadLagFigures, SkewFigures, TokenFigures, TurnFigures,
};
pub use losses::{LossSplit, RequestLosses};
pub use partition::{Partition, Phase};
pub use permutation::{
    MAX_ARRANGEMENTS, PermutationTest, permutation_paired, permutation_unpaired, shift_paired,
    shift_unpaired,
};
pub use receive_path::{CanaryFigures, ReceivePath};
pub use recovery::{ComponentRecovery, Deficit, Equilibrium, Recovery, SensitivityCell};
pub use replicas::{ReplicaExit, ReplicaLives};
pub use run::{RUN_ANALYSIS_SCHEMA_VERSION, RunAnalysis, analyze_run};
pub use scalars::{Scalar, Scalars, scalars};
pub use share::ShareAnalysis;
pub use slo::{ModalDistance, SloFigures, SweepCell};
pub use stats::{holm, t_multiplier, t_quantile};
pub use summary::{Summary, summarize};
pub use tails::{TailInterval, tail_interval};
pub use timeline::Second;
pub use validity::{InvalidReason, Validity, campaign_validity, validity};
pub use waiting::WaitingAnalysis;
pub use windows::{OutcomeCounts, Span, WindowAnalysis, WindowName};
