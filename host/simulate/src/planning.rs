//! The plan of a simulated campaign.

use std::collections::BTreeMap;

use blackstart_plan::{
    Accelerators, Arrivals, ArrivalsError, Endpoint, FaultPlan, GrantPlan, LoadPlan, MatcherPlan,
    Method, ObservePlan, OrphanPolicy, PLAN_SCHEMA_VERSION, Phases, Plan, ProcessPlan,
    ProcessSelector, Profile, ReplicaPlan, RestartPolicy, Routing, RunPlan, RuntimePlan, SloSweep,
    SloThresholds, TargetPlan,
};

use crate::Scenario;
use crate::scenario::Kind;

pub(crate) const S: i64 = 1_000_000_000;
pub(crate) const MS: i64 = 1_000_000;
pub(crate) const US: i64 = 1_000;

/// Wall clock at the epoch of every simulated run, nanoseconds since the Unix epoch: virtual, and in
/// the past of whoever reads the records.
pub const EPOCH_UNIX_NS: i64 = 1_760_000_000 * S;

/// Tokens of each answer, one an event.
pub(crate) const TOKENS: u32 = 8;

/// What a simulation varies besides the seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Mean arrivals per second (Poisson).
    pub rate_per_s: f64,
    /// Share of requests that fail or miss their TTFT without any fault, from 0 to 1.
    pub noise: f64,
}

impl Settings {
    /// What the table of scenarios is made with.
    pub const TABLE: Self = Self {
        rate_per_s: 50.0,
        noise: 0.002,
    };
}

/// The plan of a scenario with one run for each seed, numbered from 1. The recovery rule is the pinned
/// one; phases and timeouts are scaled, and the plan says so.
///
/// # Errors
/// When the rate gives no schedule.
pub fn plan(scenario: &Scenario, settings: Settings, seeds: &[u64]) -> Result<Plan, ArrivalsError> {
    let cooldown_ns = match scenario.kind {
        // Too short for a leading window and its hold.
        Kind::ShortWatch => 10 * S,
        _ => 45 * S,
    };
    let phases = Phases {
        warmup_ns: 2 * S,
        baseline_ns: 40 * S,
        fault_window_ns: 120 * S,
        cooldown_ns,
    };
    let mut method = Method::pinned();
    method.slo = SloThresholds {
        ttft_ms: 1000,
        e2e_ms: 5000,
    };
    method.slo_sweep = SloSweep {
        ttft_ms: vec![800, 1000, 1500],
        e2e_ms: vec![4000, 5000, 6000],
    };
    let several = scenario.replicas > 1;
    let service = "http://127.0.0.1:1".to_owned();
    let mut plan = Plan {
        schema_version: PLAN_SCHEMA_VERSION,
        campaign: format!("simulated-{}", scenario.name),
        instrument_version: env!("CARGO_PKG_VERSION").to_owned(),
        config_sha256: String::new(),
        profile: Profile::Free,
        deviations: [
            "target: simulated, no server was measured (pinned: a server)",
            "phases.warmup: 2s (pinned: 60s)",
            "phases.baseline: 40s (pinned: 300s)",
            "phases.fault_window: 120s (pinned: 600s)",
            "load.max_tokens: 8 (pinned: 256)",
            "load.timeout: 10s (pinned: 30s)",
            "slo.e2e: 5s (pinned: 14s)",
        ]
        .map(str::to_owned)
        .to_vec(),
        phases,
        load: LoadPlan {
            rate_per_s: settings.rate_per_s,
            arrivals: Arrivals::Poisson,
            endpoint: Endpoint::Chat,
            model: "simulated".to_owned(),
            max_tokens: TOKENS,
            ignore_eos: true,
            prompt_words: 8,
            timeout_ns: 10 * S,
            idle_timeout_ns: None,
            first_token_timeout_ns: None,
            base_url: service.clone(),
            headers: Vec::new(),
            api_key_env: None,
            replica_header: several.then(|| "x-replica".to_owned()),
            threads: 1,
            real_time: false,
        },
        target: TargetPlan {
            replicas: (0..scenario.replicas).map(replica).collect(),
            service_url: several.then(|| service.clone()),
            routing: if several {
                Routing::PerRequest
            } else {
                Routing::Direct
            },
            accelerators: Accelerators::None,
        },
        fault: scenario.plans_a_fault().then(|| FaultPlan {
            variant: "process-kill".to_owned(),
            victims: vec![replica_id(0)],
            config: serde_json::json!({}),
            grant: GrantPlan::default(),
            fire_at_ns: phases.fire_at_ns(),
            expire_at_ns: phases.fault_window_end_ns(),
            statement: Some(format!("a simulated fault ({})", scenario.about)),
            without_segments: BTreeMap::new(),
            labels: Vec::new(),
        }),
        gates: Vec::new(),
        matcher: MatcherPlan {
            plugin: None,
            config: serde_json::json!({}),
        },
        observe: ObservePlan {
            probe_interval_ns: S,
            probe_interval_outage_ns: 100 * MS,
            probe_timeout_ns: 3 * S,
            metrics_interval_ns: S,
            metrics_path: Some("/metrics".to_owned()),
            waiting_metric: "vllm:num_requests_waiting".to_owned(),
            canary: false,
        },
        method,
        runs: Vec::new(),
        plugins: BTreeMap::new(),
    };
    for (number, seed) in (1..).zip(seeds) {
        let mut run = RunPlan {
            run: number,
            seed: *seed,
            requests: 0,
            schedule_sha256: String::new(),
            negative_control: scenario.is_control(),
        };
        let schedule = plan.schedule(&run)?;
        run.requests = schedule.intended_ns.len() as u64;
        run.schedule_sha256 = schedule.sha256();
        plan.runs.push(run);
    }
    Ok(plan)
}

/// Name of a replica.
pub(crate) fn replica_id(number: u32) -> String {
    format!("r{number}")
}

fn replica(number: u32) -> ReplicaPlan {
    ReplicaPlan {
        id: replica_id(number),
        base_url: format!("http://127.0.0.1:{}", 2 + number),
        admin_url: None,
        runtime: RuntimePlan::Process(ProcessPlan {
            command: vec!["simulated".to_owned()],
            env: BTreeMap::new(),
            cwd: None,
            restart: RestartPolicy::Always,
            restart_delay_ns: 500 * MS,
            orphans: OrphanPolicy::Kill,
            start_timeout_ns: 60 * S,
            stop_timeout_ns: 5 * S,
        }),
        process_roles: BTreeMap::from([("main".to_owned(), ProcessSelector::Main)]),
    }
}
