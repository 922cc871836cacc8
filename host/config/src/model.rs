//! The tables and keys of a campaign file. These doc comments are the file's reference.

use std::collections::BTreeMap;

use blackstart_plan::{Accelerators, Endpoint, OrphanPolicy, Profile, RestartPolicy, Routing};
use serde::Deserialize;

use crate::Duration;

/// A campaign file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the campaign; the results directory starts with it. Letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// `published` (default): every pinned number of the method holds, or the file does not load.
    /// `free`: other values are accepted, listed and stamped on every report.
    #[serde(default = "default_profile")]
    pub profile: Profile,
    /// Base seed; run k uses `seed + k − 1`.
    pub seed: u64,
    /// Repetitions (pinned: 5).
    #[serde(default = "default_runs")]
    pub runs: u32,
    /// Adds one run with everything as planned but the fault withheld: it must show no outage.
    #[serde(default)]
    pub negative_control: bool,
    /// Lengths of the phases.
    #[serde(default)]
    pub phases: PhasesConfig,
    /// The load.
    pub load: LoadConfig,
    /// The system under test.
    pub target: TargetConfig,
    /// The fault. Without it the run is a plain measurement.
    pub fault: Option<FaultConfig>,
    /// How logs are read.
    #[serde(default)]
    pub matcher: MatcherConfig,
    /// Gates by id. All bundled ones judge every run; a table here configures or adds one.
    #[serde(default)]
    pub gates: BTreeMap<String, GateConfig>,
    /// What is observed besides the load.
    #[serde(default)]
    pub observe: ObserveConfig,
    /// When a request is good (pinned).
    #[serde(default)]
    pub slo: SloConfig,
    /// When service counts as recovered (pinned).
    #[serde(default)]
    pub recovery: RecoveryConfig,
    /// Where else plugins are found.
    #[serde(default)]
    pub plugins: PluginsConfig,
}

fn default_profile() -> Profile {
    Profile::Published
}
fn default_runs() -> u32 {
    5
}

/// `[phases]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PhasesConfig {
    /// Discarded start of the load (pinned: 60 s).
    pub warmup: Duration,
    /// Service without the fault (pinned: 300 s). The fault fires at its end.
    pub baseline: Duration,
    /// From the fire (pinned: at most 600 s).
    pub fault_window: Duration,
    /// Load after the fault window (pinned: 60 s).
    pub cooldown: Duration,
}

impl Default for PhasesConfig {
    fn default() -> Self {
        Self {
            warmup: Duration::from_s(60),
            baseline: Duration::from_s(300),
            fault_window: Duration::from_s(600),
            cooldown: Duration::from_s(60),
        }
    }
}

/// `[load]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadConfig {
    /// Requests per second over the whole service.
    pub rate: f64,
    /// `poisson` (default) or `constant`.
    #[serde(default)]
    pub arrivals: ArrivalsConfig,
    /// `chat` (default) or `completions`.
    #[serde(default = "default_endpoint")]
    pub endpoint: Endpoint,
    /// Model name as the server knows it.
    pub model: String,
    /// Tokens per completion (pinned: 256).
    #[serde(default = "default_max_tokens")]
    pub max_tokens: u32,
    /// Sends `ignore_eos`, so that each completion has exactly `max_tokens` (default true; false
    /// for hosted targets, which refuse it).
    #[serde(default = "default_true")]
    pub ignore_eos: bool,
    /// Words in each prompt; the first are unique to the request, so that no cache serves it.
    #[serde(default = "default_prompt_words")]
    pub prompt_words: u32,
    /// A request without a terminal event by then is censored (pinned: 30 s).
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// Extra request headers. Do not put secrets here: the file is copied into the results.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Environment variable that holds the API key.
    pub api_key_env: Option<String>,
    /// Response header that names the replica which served a request.
    pub replica_header: Option<String>,
    /// Load threads.
    #[serde(default = "default_threads")]
    pub threads: u32,
    /// Asks for real-time priority; a refusal is reported, not an error.
    #[serde(default = "default_true")]
    pub real_time: bool,
}

/// Arrival process of the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalsConfig {
    /// Independent arrivals.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
}

fn default_endpoint() -> Endpoint {
    Endpoint::Chat
}
fn default_max_tokens() -> u32 {
    256
}
fn default_true() -> bool {
    true
}
fn default_prompt_words() -> u32 {
    256
}
fn default_timeout() -> Duration {
    Duration::from_s(30)
}
fn default_threads() -> u32 {
    1
}

/// `[target]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// `direct` (one replica, default), `per_request` (layer-7 balancer) or `per_connection`.
    #[serde(default = "default_routing")]
    pub routing: Routing,
    /// The balancer's address, with `per_request` and `per_connection`.
    pub service_url: Option<String>,
    /// `nvidia_local` (default) or `none`. Fingerprints of declared accelerators must be equal over
    /// all runs, and unreadable ones make a run invalid.
    #[serde(default = "default_accelerators")]
    pub accelerators: Accelerators,
    /// The replicas.
    pub replica: Vec<ReplicaConfig>,
}

fn default_routing() -> Routing {
    Routing::Direct
}
fn default_accelerators() -> Accelerators {
    Accelerators::NvidiaLocal
}

/// `[[target.replica]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaConfig {
    /// Name used in `victims`, grants and reports.
    pub id: String,
    /// The replica's own address, `http://host:port`.
    pub base_url: String,
    /// Address of its admin API, if it has one (the bundled mock server has).
    pub admin_url: Option<String>,
    /// Launched and supervised by the instrument. Exactly one of `process` and `running`.
    pub process: Option<ProcessConfig>,
    /// Already running. Exactly one of `process` and `running`.
    pub running: Option<RunningConfig>,
    /// Processes that a signal can name. Default: `api` is the main process, `engine` the
    /// descendant titled `VLLM::EngineCore`, `worker` the one titled `VLLM::Worker`.
    #[serde(default = "default_roles")]
    pub roles: BTreeMap<String, RoleConfig>,
}

fn default_roles() -> BTreeMap<String, RoleConfig> {
    let titled = |text: &str| RoleConfig::Contains {
        contains: text.to_owned(),
    };
    BTreeMap::from([
        ("api".to_owned(), RoleConfig::Named(MainRole::Main)),
        ("engine".to_owned(), titled("VLLM::EngineCore")),
        ("worker".to_owned(), titled("VLLM::Worker")),
    ])
}

/// How a process is found: `"main"` or `{ contains = "text of its title or command line" }`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum RoleConfig {
    /// By a fixed name.
    Named(MainRole),
    /// By its title or command line.
    Contains {
        /// The text.
        contains: String,
    },
}

/// The main process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MainRole {
    /// The process that was launched, or named by pid or match.
    Main,
}

/// `[target.replica.process]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessConfig {
    /// Program and arguments. `${blackstart}` stands for the running instrument.
    pub command: Vec<String>,
    /// Variables added to its environment. Do not put secrets here.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory, relative to the campaign file (default: the file's folder).
    pub cwd: Option<String>,
    /// `always` (default), `on-failure` or `no`. A vLLM whose engine died exits with code 0, which
    /// `on-failure` does not restart.
    #[serde(default = "default_restart")]
    pub restart: RestartPolicy,
    /// Wait before it is started again (default 500 ms).
    #[serde(default = "default_restart_delay")]
    pub restart_delay: Duration,
    /// `kill` (default) or `leave` for processes that outlive the main process.
    #[serde(default = "default_orphans")]
    pub orphans: OrphanPolicy,
    /// How long a start may take until the first token (default 10 min).
    #[serde(default = "default_start_timeout")]
    pub start_timeout: Duration,
    /// How long an orderly stop may take (default 10 s).
    #[serde(default = "default_stop_timeout")]
    pub stop_timeout: Duration,
}

fn default_restart() -> RestartPolicy {
    RestartPolicy::Always
}
fn default_restart_delay() -> Duration {
    Duration::from_ms(500)
}
fn default_orphans() -> OrphanPolicy {
    OrphanPolicy::Kill
}
fn default_start_timeout() -> Duration {
    Duration::from_s(600)
}
fn default_stop_timeout() -> Duration {
    Duration::from_s(10)
}

/// `[target.replica.running]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningConfig {
    /// Pid of its main process, if a fault is to reach it.
    pub pid: Option<u32>,
    /// Regular expression that its main process's command line matches, instead of a pid.
    pub command_match: Option<String>,
    /// Its log file, if the instrument can read it.
    pub log_file: Option<String>,
}

/// `[fault]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultConfig {
    /// Name of the fault plugin (`process-kill`).
    pub variant: String,
    /// The plugin's component, if it is neither bundled nor in a plugin folder.
    pub path: Option<String>,
    /// SHA-256 that the component must have.
    pub sha256: Option<String>,
    /// Replicas that may be harmed.
    pub victims: Vec<String>,
    /// The plugin's own configuration.
    #[serde(default)]
    pub config: toml::Table,
    /// Capabilities granted to the plugin; it gets no other.
    #[serde(default)]
    pub grant: GrantConfig,
}

/// `[fault.grant]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantConfig {
    /// Replicas to whose processes it may send signals; `*` matches any run of characters.
    #[serde(default)]
    pub process: Vec<String>,
    /// Replicas on whose containers it may run operations of the container engine.
    #[serde(default)]
    pub container: Vec<String>,
    /// Replicas on whose packets it may set rules.
    #[serde(default)]
    pub network: Vec<String>,
    /// Replicas on whose use of their host it may set limits.
    #[serde(default)]
    pub resources: Vec<String>,
    /// URLs to which it may send requests; `*` in the path matches any run of characters.
    #[serde(default)]
    pub http: Vec<String>,
}

/// `[matcher]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatcherConfig {
    /// Name of the log matcher; without it the matcher most certain of the log is taken.
    pub plugin: Option<String>,
    /// The plugin's component, if it is neither bundled nor in a plugin folder.
    pub path: Option<String>,
    /// SHA-256 that the component must have.
    pub sha256: Option<String>,
    /// The plugin's own configuration.
    #[serde(default)]
    pub config: toml::Table,
}

/// `[gates.ID]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateConfig {
    /// Name of the gate plugin, for a gate that is not bundled.
    pub plugin: Option<String>,
    /// The plugin's component, if it is neither bundled nor in a plugin folder.
    pub path: Option<String>,
    /// SHA-256 that the component must have.
    pub sha256: Option<String>,
    /// The plugin's own configuration (the published profile accepts none for bundled gates).
    #[serde(default)]
    pub config: toml::Table,
}

/// `[observe]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObserveConfig {
    /// Interval of one-token inference probes before the fire (default 1 s).
    pub probe_interval: Duration,
    /// The same from the fire until the path works again (default 100 ms).
    pub probe_interval_outage: Duration,
    /// How long one probe may take (default 2 s).
    pub probe_timeout: Duration,
    /// Interval of `/metrics` scrapes (default 1 s).
    pub metrics_interval: Duration,
    /// Path of the metrics; empty = none are scraped.
    pub metrics_path: String,
    /// Gauge of waiting requests, as the server exports it.
    pub waiting_metric: String,
    /// Whether the canary runs (default true).
    pub canary: bool,
}

impl Default for ObserveConfig {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_s(1),
            probe_interval_outage: Duration::from_ms(100),
            probe_timeout: Duration::from_s(2),
            metrics_interval: Duration::from_s(1),
            metrics_path: "/metrics".to_owned(),
            waiting_metric: "vllm:num_requests_waiting".to_owned(),
            canary: true,
        }
    }
}

/// `[slo]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SloConfig {
    /// Time to first token from the intended send time (pinned: 1 s).
    pub ttft: Duration,
    /// End to end from the intended send time (pinned: 14 s).
    pub e2e: Duration,
    /// TTFT thresholds of the sweep.
    pub sweep_ttft: Vec<Duration>,
    /// End-to-end thresholds of the sweep.
    pub sweep_e2e: Vec<Duration>,
}

impl Default for SloConfig {
    fn default() -> Self {
        Self {
            ttft: Duration::from_s(1),
            e2e: Duration::from_s(14),
            sweep_ttft: [800, 1000, 1500].map(Duration::from_ms).to_vec(),
            sweep_e2e: [12, 14, 18].map(Duration::from_s).to_vec(),
        }
    }
}

/// `[recovery]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecoveryConfig {
    /// R: length of the leading window, whole seconds (pinned: 10 s).
    pub window: Duration,
    /// H: window starts that must hold after the entry, whole seconds (pinned: 30 s).
    pub hold: Duration,
    /// Entry threshold, percent of the baseline's goodput (pinned: 90).
    pub entry_percent: u32,
    /// Exit threshold, percent of the baseline's goodput (pinned: 85).
    pub exit_percent: u32,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_s(10),
            hold: Duration::from_s(30),
            entry_percent: 90,
            exit_percent: 85,
        }
    }
}

/// `[plugins]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginsConfig {
    /// Folders searched for components, relative to the campaign file.
    #[serde(default)]
    pub dirs: Vec<String>,
}
