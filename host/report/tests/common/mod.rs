//! Synthetic campaigns, analysed by the real analysis: Poisson-like load, a kill at a planned
//! instant, a restart with log lines, probes, metrics and a canary.

// Each test file uses a part of it.
#![allow(dead_code)]

pub mod records;

use std::collections::BTreeMap;

use blackstart_analyze::{analyze_campaign, analyze_run, validity};
use blackstart_plan::*;
use blackstart_record::*;
use blackstart_report::{CampaignReport, ReportInput, RunInput, campaign_report};

pub const S: i64 = 1_000_000_000;
pub const MS: i64 = 1_000_000;

/// What happens in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Story {
    /// Killed, and back after some seconds.
    Recovers,
    /// Killed, and never back.
    NeverBack,
    /// Killed and back, but a gate fails.
    GateFails,
    /// A negative control.
    Control,
    /// Killed, and cut off by the operator soon after.
    Interrupted,
    /// Killed, but 2.6 s after the planned instant: invalid.
    FiredLate,
    /// No event later than 12 s was recorded: the disk was full.
    RecordEnds,
    /// No fault in the plan.
    NoFault,
}

/// Lengths and rate of a campaign.
#[derive(Clone, Copy)]
pub struct Scale {
    pub warmup_s: i64,
    pub baseline_s: i64,
    pub fault_s: i64,
    pub cooldown_s: i64,
    pub rate_per_s: f64,
}

pub const SMALL: Scale = Scale {
    warmup_s: 4,
    baseline_s: 20,
    fault_s: 40,
    cooldown_s: 8,
    rate_per_s: 18.0,
};

/// The pinned lengths: 1020 s.
pub const PINNED: Scale = Scale {
    warmup_s: 60,
    baseline_s: 300,
    fault_s: 600,
    cooldown_s: 60,
    rate_per_s: 20.0,
};

/// A small generator, so that runs differ and are the same every time.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Between 0 and 1.
    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, lo: i64, hi: i64) -> i64 {
        lo + ((hi - lo) as f64 * self.unit()) as i64
    }
}

pub fn plan(scale: Scale, stories: &[Story]) -> Plan {
    let mut method = Method::pinned();
    method.recovery.window_buckets = 4;
    method.recovery.hold_buckets = 8;
    method.sensitivity = SensitivityGrid {
        entry_percent: vec![85, 90, 95],
        window_buckets: vec![2, 4, 8],
        hold_buckets: vec![4, 8, 16],
    };
    let fire_at_ns = (scale.warmup_s + scale.baseline_s) * S;
    let fault = FaultPlan {
        variant: "process-kill".into(),
        victims: vec!["vllm-0".into()],
        config: serde_json::Value::Null,
        grant: GrantPlan {
            process: vec!["vllm-0".into()],
            http: vec![],
            ..GrantPlan::default()
        },
        fire_at_ns,
        expire_at_ns: fire_at_ns + scale.fault_s * S,
        statement: Some("SIGKILL to the api process of vllm-0".into()),
        without_segments: BTreeMap::new(),
        labels: vec!["process-loss".into()],
    };
    Plan {
        schema_version: PLAN_SCHEMA_VERSION,
        campaign: "kill-the-api-process".into(),
        instrument_version: "0.1.0".into(),
        config_sha256: "0f".repeat(32),
        profile: Profile::Free,
        deviations: vec![
            "phases.baseline: 20 s (pinned 300 s)".into(),
            "method.recovery.window_buckets: 4 (pinned 10)".into(),
        ],
        phases: Phases {
            warmup_ns: scale.warmup_s * S,
            baseline_ns: scale.baseline_s * S,
            fault_window_ns: scale.fault_s * S,
            cooldown_ns: scale.cooldown_s * S,
        },
        load: LoadPlan {
            rate_per_s: scale.rate_per_s,
            arrivals: Arrivals::Poisson,
            endpoint: Endpoint::Chat,
            model: "mock/model".into(),
            max_tokens: 32,
            ignore_eos: true,
            prompt_words: 64,
            timeout_ns: 6 * S,
            idle_timeout_ns: None,
            first_token_timeout_ns: None,
            base_url: "http://127.0.0.1:8000".into(),
            headers: vec![],
            api_key_env: None,
            replica_header: None,
            threads: 2,
            real_time: true,
        },
        target: TargetPlan {
            replicas: vec![ReplicaPlan {
                id: "vllm-0".into(),
                base_url: "http://127.0.0.1:8000".into(),
                admin_url: None,
                runtime: RuntimePlan::Url {
                    log_file: None,
                    pid: None,
                    command_match: None,
                },
                process_roles: BTreeMap::new(),
            }],
            service_url: None,
            routing: Routing::Direct,
            accelerators: Accelerators::None,
        },
        fault: (!stories.contains(&Story::NoFault)).then_some(fault),
        gates: [
            ("G1", "share"),
            ("G2", "client"),
            ("G6", "baseline"),
            ("G7", "queue"),
        ]
        .map(|(id, title)| GatePlan {
            plugin: format!("gate-{title}"),
            id: id.into(),
            config: if id == "G7" {
                serde_json::json!({"max_mean_waiting": 4.0})
            } else {
                serde_json::Value::Null
            },
        })
        .into(),
        matcher: MatcherPlan {
            plugin: Some("match-vllm".into()),
            config: serde_json::Value::Null,
        },
        observe: ObservePlan {
            probe_interval_ns: S,
            probe_interval_outage_ns: 50 * MS,
            probe_timeout_ns: S,
            metrics_interval_ns: S,
            metrics_path: Some("/metrics".into()),
            waiting_metric: "vllm:num_requests_waiting".into(),
            canary: true,
        },
        method,
        runs: stories
            .iter()
            .enumerate()
            .map(|(i, story)| RunPlan {
                run: i as u32 + 1,
                seed: 41 + i as u64,
                requests: 0,
                schedule_sha256: "ab".repeat(32),
                negative_control: *story == Story::Control,
            })
            .collect(),
        plugins: BTreeMap::from([(
            "process-kill".into(),
            PluginIdentity {
                version: "0.1.0".into(),
                api: "0.1".into(),
                world: "fault-variant".into(),
                origin: "bundled".into(),
                sha256: "c4".repeat(32),
                imports: vec!["blackstart:plugin/process@0.1.0".into()],
            },
        )]),
    }
}

fn measure(name: &str, value: f64, unit: &str) -> Measure {
    Measure {
        name: name.into(),
        value,
        unit: unit.into(),
    }
}

fn findings(story: Story) -> Vec<Finding> {
    let finding = |id: &str, title: &str, severity, verdict, detail: &str| Finding {
        id: id.into(),
        title: title.into(),
        plugin: format!("gate-{title} 0.1.0"),
        severity,
        label: (severity == GateSeverity::StripsLabel).then(|| "process-loss".into()),
        verdict,
        detail: detail.into(),
        measures: vec![match title {
            "baseline" => measure("goodput.baseline", 1.0, "1"),
            "queue" => measure("waiting.mean.vllm-0", 0.02, "1"),
            _ => measure("client.skew_us_p99", 61.0, "us"),
        }],
    };
    use GateSeverity::*;
    use GateVerdict::*;
    let client = if story == Story::GateFails {
        finding(
            "G2",
            "client",
            InvalidatesRun,
            Fail,
            "send skew p99 8140 µs, at most 5000 allowed",
        )
    } else {
        finding("G2", "client", InvalidatesRun, Pass, "send skew p99 61 µs")
    };
    vec![
        finding(
            "G1",
            "share",
            InvalidatesRun,
            NotApplicable,
            "one replica, addressed directly",
        ),
        client,
        finding(
            "G4",
            "staleness",
            Advisory,
            NotObserved,
            "no route was watched",
        ),
        finding(
            "G6",
            "baseline",
            InvalidatesRun,
            Pass,
            "goodput 1.000, at least 0.990",
        ),
        finding(
            "G7",
            "queue",
            InvalidatesRun,
            Pass,
            "mean waiting 0.02, at most 1.0",
        ),
    ]
}

/// A campaign's report, made by the analysis from synthetic records.
pub fn campaign(scale: Scale, stories: &[Story]) -> CampaignReport {
    let mut plan = plan(scale, stories);
    let mut analyses = Vec::new();
    let mut all = BTreeMap::new();
    let mut boundaries = Vec::new();
    for (i, story) in stories.iter().enumerate() {
        let records = records::records(&plan, *story, 41 + i as u64);
        plan.runs[i].requests = if *story == Story::Interrupted {
            records.requests.len() as u64 + 100
        } else {
            records.requests.len() as u64
        };
        let run = plan.runs[i].clone();
        analyses.push(analyze_run(&plan, &run, &records).unwrap());
        all.insert(run.run, findings(*story));
        boundaries.push(records.boundaries);
    }
    let campaign = analyze_campaign(&plan, &analyses, &all);
    let validities: Vec<_> = analyses
        .iter()
        .map(|a| validity(&plan, a, &all[&a.run]))
        .collect();
    let runs = analyses
        .iter()
        .zip(&validities)
        .zip(&boundaries)
        .map(|((analysis, validity), boundaries)| RunInput {
            analysis,
            findings: &all[&analysis.run],
            validity,
            boundaries,
        })
        .collect();
    let host = BTreeMap::from([
        ("cpu_model".to_owned(), "Synthetic CPU".to_owned()),
        ("kernel".to_owned(), "6.1.0".to_owned()),
    ]);
    campaign_report(&ReportInput {
        stopped: None,
        plan: &plan,
        runs,
        campaign: &campaign,
        host: &host,
        partial: stories.contains(&Story::Interrupted),
    })
}
