//! What a campaign will do, before it does it: phases, arrivals, victims, grants, gates. Pure.
//!
//! A [`Plan`] is everything that the later stages may know about the configuration: `load`,
//! `analyze` and `report` see the plan, never the campaign file. It is written to `plan.json`
//! before the first request, so that a finished run can be judged against what was intended.

mod arrivals;
mod gates;
mod load_spec;
mod method;
mod phases;
mod share;

pub use arrivals::{
    Arrivals, ArrivalsError, ConversationSchedule, Conversations, DEFAULT_THINK_TIME,
    MAX_BURSTINESS, MAX_RATE_SEGMENTS, MAX_SCHEDULED_REQUESTS, MAX_THINK_NS, MAX_TURNS,
    MIN_BURSTINESS, RateProfile, RateSegment, Schedule, ThinkTime, Turn, conversation_schedule,
    portable_ln,
};
pub use gates::{GateLimit, SHARE_BAND_REPLICAS, Side, gate_limits, method_limits};
pub use load_spec::{LOAD_SPEC_SCHEMA_VERSION, LoadSpec, Pace, PromptSpec, TlsSpec, schedule};
pub use method::{Method, RecoveryRule, SensitivityGrid, SloSweep, SloThresholds, Threshold};
pub use phases::{PhaseName, Phases};
pub use share::Share;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of `plan.json`, raised whenever a plan of before cannot be read any more. Other files name
/// their own format: the request journal in its first bytes.
pub const PLAN_SCHEMA_VERSION: u32 = 1;

/// Which limits a configuration is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Every pinned number of the method holds; a looser configuration does not load.
    Published,
    /// Other values are accepted, listed in [`Plan::deviations`], and stamped on every report.
    Free,
}

/// A campaign: the same plan, repeated with successive seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name of the campaign, from the configuration.
    pub campaign: String,
    /// Version of the instrument that made the plan.
    pub instrument_version: String,
    /// SHA-256 of the campaign file's bytes.
    pub config_sha256: String,
    /// Which limits the configuration was held to.
    pub profile: Profile,
    /// Where a free profile departs from a pinned number: `key: value (pinned value)`.
    pub deviations: Vec<String>,
    /// Phases of one run.
    pub phases: Phases,
    /// The load.
    pub load: LoadPlan,
    /// The system under test.
    pub target: TargetPlan,
    /// The fault; `None` in a run without one.
    pub fault: Option<FaultPlan>,
    /// Judges of every run, in order.
    pub gates: Vec<GatePlan>,
    /// How logs are read.
    pub matcher: MatcherPlan,
    /// Observers' parameters.
    pub observe: ObservePlan,
    /// The method's parameters.
    pub method: Method,
    /// The repetitions.
    pub runs: Vec<RunPlan>,
    /// Plugins that this plan uses, by name.
    pub plugins: BTreeMap<String, PluginIdentity>,
}

/// One repetition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPlan {
    /// From 1.
    pub run: u32,
    /// `base seed + run index` (the first run has index 0).
    pub seed: u64,
    /// Number of requests in the schedule.
    pub requests: u64,
    /// SHA-256 over the schedule's intended times as little-endian `i64` nanoseconds.
    pub schedule_sha256: String,
    /// A negative control: everything as planned, but no effect is executed.
    pub negative_control: bool,
}

/// The load of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPlan {
    /// Mean arrival rate over the whole service, in requests per second.
    pub rate_per_s: f64,
    /// The arrival process.
    pub arrivals: Arrivals,
    /// Which API is called.
    pub endpoint: Endpoint,
    /// Model name sent in each request.
    pub model: String,
    /// `max_tokens` of each request.
    pub max_tokens: u32,
    /// Whether `ignore_eos` is sent. With it, a completion is exactly `max_tokens` long and a
    /// shorter one is a failure.
    pub ignore_eos: bool,
    /// Words in each synthetic prompt; the first ones are unique to the request.
    pub prompt_words: u32,
    /// Client timeout in nanoseconds: a request without a terminal event by then is censored.
    pub timeout_ns: i64,
    /// A request for which no byte came for this long is censored, in nanoseconds.
    #[serde(default)]
    pub idle_timeout_ns: Option<i64>,
    /// A request without content this long after its intended time is censored, in nanoseconds.
    #[serde(default)]
    pub first_token_timeout_ns: Option<i64>,
    /// Where load is sent: the service, or the only replica. `http://host:port`.
    pub base_url: String,
    /// Extra request headers, without secrets.
    pub headers: Vec<(String, String)>,
    /// Name of the environment variable that holds the API key; the key itself is never stored.
    pub api_key_env: Option<String>,
    /// Response header whose value names the replica that served a request.
    pub replica_header: Option<String>,
    /// Load threads.
    pub threads: u32,
    /// Whether real-time priority is asked for.
    pub real_time: bool,
}

/// The API that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Endpoint {
    /// Path of the API below the base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// The system under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetPlan {
    /// The replicas, as the configuration names them.
    pub replicas: Vec<ReplicaPlan>,
    /// The address in front of several replicas, where there is one.
    pub service_url: Option<String>,
    /// How the service chooses a replica.
    pub routing: Routing,
    /// Whether the configuration declares accelerators (gates the fingerprint).
    pub accelerators: Accelerators,
}

/// Accelerators of the system under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerators {
    /// The configuration declares that there is none.
    None,
    /// NVIDIA GPUs on the instrument's host, fingerprinted by `nvidia-smi`.
    NvidiaLocal,
}

/// How a service chooses the replica of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// One replica, addressed directly: no service.
    Direct,
    /// A layer-7 balancer chooses for each request.
    PerRequest,
    /// A layer-4 balancer chooses for each connection.
    PerConnection,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPlan {
    /// Name (`r0`, `vllm-0`).
    pub id: String,
    /// Its own address, `http://host:port`.
    pub base_url: String,
    /// Where its admin API is, if it has one (the bundled mock server has).
    pub admin_url: Option<String>,
    /// How it runs.
    pub runtime: RuntimePlan,
    /// Processes that a signal can name: role → how to find it.
    pub process_roles: BTreeMap<String, ProcessSelector>,
}

/// How a replica runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RuntimePlan {
    /// Launched and supervised by the instrument.
    Process(ProcessPlan),
    /// Already running; the instrument did not start it and will not stop it.
    Url {
        /// Where the server's log is, if it can be read.
        log_file: Option<String>,
        /// Pid of the main process, if the configuration gives it.
        pid: Option<u32>,
        /// Regular expression that the main process's command line matches, if the
        /// configuration gives it; it must match exactly one process tree.
        command_match: Option<String>,
    },
}

/// A supervised process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessPlan {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables added to the environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: Option<String>,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// Wait between its end and the next start, in nanoseconds.
    pub restart_delay_ns: i64,
    /// What happens to processes that outlive the main process.
    pub orphans: OrphanPolicy,
    /// How long a start may take until the first successful inference, in nanoseconds.
    pub start_timeout_ns: i64,
    /// How long an orderly stop may take before SIGKILL, in nanoseconds.
    pub stop_timeout_ns: i64,
}

/// When a supervised process is started again, in the terms of container runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Never.
    No,
    /// When it ended by a signal or with a non-zero exit code. A server that shuts down in good
    /// order after its engine died exits with 0 and is *not* restarted.
    OnFailure,
    /// Always.
    Always,
}

/// What happens to processes that outlive a supervised main process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrphanPolicy {
    /// Killed before the next start, and recorded. What a pid namespace does.
    Kill,
    /// Left alone, and recorded. What a plain supervisor does; they keep their memory.
    Leave,
}

/// How one process of a replica's tree is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProcessSelector {
    /// The process that was launched (or named by pid or match).
    Main,
    /// The first descendant whose title or command line contains the text.
    Contains {
        /// The text.
        text: String,
    },
}

/// The fault of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Name of the plugin, which is the fault variant's name.
    pub variant: String,
    /// Replicas that the configuration names as victims.
    pub victims: Vec<String>,
    /// The plugin's own configuration.
    pub config: serde_json::Value,
    /// Capabilities granted to it.
    pub grant: GrantPlan,
    /// Planned fire time, run time in nanoseconds.
    pub fire_at_ns: i64,
    /// When effects that the host undoes must have ended at the latest.
    pub expire_at_ns: i64,
    /// What the plugin said it will do (filled when it is armed).
    pub statement: Option<String>,
    /// Segments that cannot occur under this fault: name → reason (filled from the plugin).
    pub without_segments: BTreeMap<String, String>,
    /// Labels the run may carry (filled from the plugin).
    pub labels: Vec<String>,
}

/// Capabilities granted to a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantPlan {
    /// Replicas to whose processes it may send signals; `*` matches any run of characters.
    #[serde(default)]
    pub process: Vec<String>,
    /// Replicas on whose containers it may run operations of the container engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container: Vec<String>,
    /// Replicas on whose packets it may set rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
    /// Replicas on whose use of their host it may set limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// URLs to which it may send requests; `*` in the path matches any run of characters.
    #[serde(default)]
    pub http: Vec<String>,
}

/// A judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatePlan {
    /// Name of the plugin.
    pub plugin: String,
    /// Stable id (`G1`).
    pub id: String,
    /// The plugin's own configuration.
    pub config: serde_json::Value,
}

/// How logs are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatcherPlan {
    /// Name of the plugin, or `None` to let the matchers' probes decide.
    pub plugin: Option<String>,
    /// The plugin's own configuration.
    pub config: serde_json::Value,
}

/// Parameters of the observers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservePlan {
    /// Interval of inference probes before the fire, in nanoseconds.
    pub probe_interval_ns: i64,
    /// Interval of inference probes from the fire until the path works again.
    pub probe_interval_outage_ns: i64,
    /// How long one probe may take.
    pub probe_timeout_ns: i64,
    /// Interval of `/metrics` scrapes.
    pub metrics_interval_ns: i64,
    /// Path of the metrics below the replica's address, or `None` to scrape nothing.
    pub metrics_path: Option<String>,
    /// Name of the gauge of waiting requests (gate G7), as the server exports it.
    pub waiting_metric: String,
    /// Whether the canary runs.
    pub canary: bool,
}

/// Which plugin was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginIdentity {
    /// Version from its stamp.
    pub version: String,
    /// API version from its stamp.
    pub api: String,
    /// Its world (`fault-variant`, `log-matcher`, `validity-gate`).
    pub world: String,
    /// `bundled`, or the path it was loaded from.
    pub origin: String,
    /// SHA-256 of the component.
    pub sha256: String,
    /// Interfaces that it imports.
    pub imports: Vec<String>,
}

impl Plan {
    /// The schedule of one run, computed again from its seed.
    ///
    /// # Errors
    /// When the arrival process cannot produce a schedule (see [`ArrivalsError`]).
    pub fn schedule(&self, run: &RunPlan) -> Result<Schedule, ArrivalsError> {
        self.load
            .arrivals
            .schedule(self.load.rate_per_s, self.phases.load_end_ns(), run.seed)
    }

    /// The replica of that name.
    pub fn replica(&self, id: &str) -> Option<&ReplicaPlan> {
        self.target.replicas.iter().find(|r| r.id == id)
    }

    /// Whether load goes straight to the only replica.
    pub fn addressed_directly(&self) -> bool {
        self.target.routing == Routing::Direct
    }
}
