//! A plain load: no fault, no phases. What `blackstart load` will do, before it does it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Arrivals, ArrivalsError, Conversations, LoadPlan, RateProfile, Schedule, Share, SloThresholds,
};

/// Version of `load.json`.
pub const LOAD_SPEC_SCHEMA_VERSION: u32 = 2;

/// A load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// [`LOAD_SPEC_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the instrument that made it.
    pub instrument_version: String,
    /// Requests and where they go. `rate_per_s` is the mean of the whole load, 0 in a closed loop.
    pub load: LoadPlan,
    /// What releases them.
    pub pace: Pace,
    /// Seed of arrivals and prompts.
    pub seed: u64,
    /// When a request is good.
    pub slo: SloThresholds,
    /// SHA-256 of the schedule, in an open loop.
    pub schedule_sha256: Option<String>,
    /// What the requests ask.
    pub prompts: PromptSpec,
    /// The conversations that the arrivals begin; `None` where every request stands alone. The rates of
    /// an open loop are then those of conversations.
    #[serde(default)]
    pub conversations: Option<Conversations>,
    /// Which part of the schedule this is.
    pub share: Share,
    /// Whom an `https://` address is believed; absent with `http://`.
    pub tls: Option<TlsSpec>,
    /// Whether every gap between content events is kept, besides their histograms.
    #[serde(default)]
    pub every_gap: bool,
}

/// How a load verified its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// Whether nothing was verified: the answers may be anyone's.
    pub insecure: bool,
    /// SHA-256 of the file of certificates that were trusted besides the platform's.
    pub ca_file_sha256: Option<String>,
}

/// What the requests of a load ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PromptSpec {
    /// Made up from the seed.
    Synthetic {
        /// Words that all prompts begin with.
        shared_words: u32,
    },
    /// One text behind unique words.
    Text {
        /// SHA-256 of the file.
        sha256: String,
    },
    /// A data set.
    DataSet {
        /// SHA-256 of the file.
        sha256: String,
        /// Its requests.
        requests: u64,
    },
}

/// What releases the requests of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pace {
    /// A schedule, whatever the server does.
    Open {
        /// The rate over time.
        profile: RateProfile,
        /// Most requests; the schedule ends with the first of both.
        requests: Option<u64>,
        /// Most requests under way at a time.
        concurrency: Option<u32>,
    },
    /// The times of a recorded trace.
    Trace {
        /// When the last request is sent, in nanoseconds of run time.
        length_ns: i64,
        /// Requests.
        requests: u64,
        /// Most requests under way at a time.
        concurrency: Option<u32>,
    },
    /// The ends of earlier requests.
    Closed {
        /// Requests under way at all times.
        concurrency: u32,
        /// Most requests.
        requests: u64,
        /// When no more are started, in nanoseconds of run time.
        length_ns: i64,
    },
}

impl Pace {
    /// When no more requests are started, in run time.
    pub fn length_ns(&self) -> i64 {
        match self {
            Self::Open { profile, .. } => profile.length_ns(),
            Self::Closed { length_ns, .. } | Self::Trace { length_ns, .. } => *length_ns,
        }
    }
}

/// The schedule of an open loop with a bound on its requests.
///
/// # Errors
/// See [`ArrivalsError`].
pub fn schedule(
    arrivals: Arrivals,
    profile: &RateProfile,
    requests: Option<u64>,
    seed: u64,
) -> Result<Schedule, ArrivalsError> {
    let mut schedule = arrivals.schedule_profile(profile, seed)?;
    schedule.truncate(requests);
    Ok(schedule)
}
