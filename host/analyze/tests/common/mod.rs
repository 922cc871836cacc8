//! A synthetic run whose truth is known: constant arrivals, a kill at a planned instant, a restart
//! with log lines at known times, probes every 100 ms.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;

use blackstart_plan::*;
use blackstart_record::*;

pub const S: i64 = 1_000_000_000;
pub const MS: i64 = 1_000_000;
pub const EPOCH_UNIX_NS: i64 = 1_790_000_000 * S;
pub const FIRE_NS: i64 = 40 * S;
/// Half-width of the bracket around the fire.
pub const HALF_NS: i64 = 20_000;
/// When the server answers again.
pub const BACK_NS: i64 = FIRE_NS + 12_340 * MS;
pub const TTFT_NS: i64 = 50 * MS;
pub const E2E_NS: i64 = 450 * MS;

/// Log lines after the fire: key, and milliseconds after it.
pub const LOG: [(&str, i64); 12] = [
    ("banner", 1_500),
    ("engine_init", 2_500),
    ("model_load_start", 3_500),
    ("weights_loaded", 6_500),
    ("model_loaded", 7_000),
    ("torch_compile", 8_000),
    ("kv_cache", 8_700),
    ("graph_capture", 9_500),
    ("engine_ready", 10_000),
    ("server_start", 11_000),
    ("startup_complete", 12_000),
    ("preempted", 20_000),
];

pub fn plan() -> Plan {
    let timeout_ns = 5 * S;
    let mut method = Method::pinned();
    method.recovery = RecoveryRule {
        bucket_ns: S,
        window_buckets: 4,
        hold_buckets: 8,
        entry_percent: 90,
        exit_percent: 85,
    };
    Plan {
        schema_version: PLAN_SCHEMA_VERSION,
        campaign: "planted".into(),
        instrument_version: "0".into(),
        config_sha256: String::new(),
        profile: Profile::Free,
        deviations: vec![],
        phases: Phases {
            warmup_ns: 5 * S,
            baseline_ns: 35 * S,
            fault_window_ns: 50 * S,
            cooldown_ns: 15 * S,
        },
        load: LoadPlan {
            rate_per_s: 20.0,
            arrivals: Arrivals::Constant,
            endpoint: Endpoint::Chat,
            model: "m".into(),
            max_tokens: 10,
            ignore_eos: true,
            prompt_words: 8,
            timeout_ns,
            idle_timeout_ns: None,
            first_token_timeout_ns: None,
            base_url: "http://127.0.0.1:1".into(),
            headers: vec![],
            api_key_env: None,
            replica_header: None,
            threads: 1,
            real_time: false,
        },
        target: TargetPlan {
            replicas: vec![ReplicaPlan {
                id: "r0".into(),
                base_url: "http://127.0.0.1:1".into(),
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
        fault: Some(FaultPlan {
            variant: "process-kill".into(),
            victims: vec!["r0".into()],
            config: serde_json::Value::Null,
            grant: GrantPlan::default(),
            fire_at_ns: FIRE_NS,
            expire_at_ns: 90 * S,
            statement: None,
            without_segments: BTreeMap::new(),
            labels: vec![],
        }),
        gates: vec![],
        matcher: MatcherPlan {
            plugin: None,
            config: serde_json::Value::Null,
        },
        observe: ObservePlan {
            probe_interval_ns: S,
            probe_interval_outage_ns: 100 * MS,
            probe_timeout_ns: S,
            metrics_interval_ns: S,
            metrics_path: Some("/metrics".into()),
            waiting_metric: "vllm:num_requests_waiting".into(),
            canary: true,
        },
        method,
        runs: vec![run(2100)],
        plugins: BTreeMap::new(),
    }
}

pub fn run(requests: u64) -> RunPlan {
    RunPlan {
        run: 1,
        seed: 1,
        requests,
        schedule_sha256: String::new(),
        negative_control: false,
    }
}

pub fn request(index: u64, intended_ns: i64) -> RequestRecord {
    RequestRecord {
        index,
        intended_ns,
        admitted_ns: None,
        connect_started_ns: None,
        dispatched_ns: Some(intended_ns + 30_000),
        headers_ns: Some(intended_ns + 10 * MS),
        first_event_ns: Some(intended_ns + TTFT_NS),
        first_token_ns: Some(intended_ns + TTFT_NS),
        last_token_ns: Some(intended_ns + E2E_NS),
        ended_ns: intended_ns + E2E_NS,
        outcome: Outcome::Completed,
        error_class: None,
        censor_kind: None,
        http_status: Some(200),
        error_code: None,
        error_text: None,
        finish_reason: Some(FinishReason::Length),
        done_marker: true,
        content_events: 10,
        completion_tokens: Some(10),
        prompt_tokens: Some(8),
        body_bytes: 100,
        coalesced_reads: 0,
        gap_max_ns: Some(50 * MS),
        connection_reused: true,
        replica: None,
        first_token_kernel_ns: None,
        ended_kernel_ns: None,
        read_lag_max_ns: None,
        conversation: None,
        turn: None,
    }
}

fn fail(r: &mut RequestRecord, ended_ns: i64, class: ErrorClass) {
    r.outcome = Outcome::Errored;
    r.error_class = Some(class);
    r.ended_ns = ended_ns;
    r.done_marker = false;
    r.finish_reason = None;
    r.completion_tokens = None;
}

fn probe(sent_ns: i64, ok: bool) -> Event {
    let took = if ok { 30 * MS } else { MS };
    Event {
        at_ns: sent_ns + took,
        kind: EventKind::Probe(ProbeOutcome {
            path: ProbePath::Direct,
            replica: Some("r0".into()),
            sent_ns,
            first_token_ns: ok.then_some(sent_ns + took),
            ok,
            reason: (!ok).then(|| "refused".into()),
        }),
    }
}

/// The run: killed at `FIRE_NS`, back at `BACK_NS`. In between every connection is refused.
pub fn records() -> RunRecords {
    let mut records = RunRecords::default();
    for i in 0..2100_u64 {
        let intended_ns = (i as i64 + 1) * 50 * MS - 7 * MS;
        let mut r = request(i, intended_ns);
        if intended_ns < FIRE_NS && r.ended_ns > FIRE_NS {
            fail(&mut r, FIRE_NS + MS, ErrorClass::Reset);
            r.content_events = 4;
        } else if (FIRE_NS..BACK_NS).contains(&intended_ns) {
            fail(&mut r, intended_ns + MS, ErrorClass::Connect);
            r.content_events = 0;
            r.headers_ns = None;
            r.first_event_ns = None;
            r.first_token_ns = None;
            r.last_token_ns = None;
        }
        records.requests.push(r);
    }
    let event = |at_ns, kind| Event { at_ns, kind };
    records.events.push(event(
        0,
        EventKind::Epoch {
            monotonic_ns: 0,
            unix_ns: EPOCH_UNIX_NS,
        },
    ));
    records.events.push(event(
        FIRE_NS,
        EventKind::Effect(EffectStep {
            effect: 1,
            step: "started".into(),
            action: "signal KILL to process main of r0".into(),
            replica: Some("r0".into()),
            planned_ns: FIRE_NS,
            before_ns: Some(FIRE_NS - HALF_NS),
            after_ns: Some(FIRE_NS + HALF_NS),
            detail: Some("pid 10".into()),
            by: "instrument".into(),
        }),
    ));
    records.events.push(event(
        FIRE_NS + 2 * MS,
        EventKind::Replica(ReplicaStep::Exited {
            replica: "r0".into(),
            pid: 10,
            code: None,
            signal: Some(9),
            orphans: vec!["11 EngineCore".into()],
        }),
    ));
    records.events.push(event(
        FIRE_NS + 5 * MS,
        EventKind::Replica(ReplicaStep::OrphansGone {
            replica: "r0".into(),
            count: 1,
            killed: true,
        }),
    ));
    records.events.push(event(
        FIRE_NS + 500 * MS,
        EventKind::Replica(ReplicaStep::Started {
            replica: "r0".into(),
            pid: 20,
            restarts: 1,
        }),
    ));
    for k in 0..1000 {
        let sent = k * 100 * MS + 40 * MS;
        records
            .events
            .push(probe(sent, sent + 30 * MS < FIRE_NS || sent >= BACK_NS));
    }
    records.events.push(event(
        FIRE_NS + 20 * S,
        EventKind::Proof {
            verdict: ProofVerdict::Happened,
            statement: "pid 10 is gone".into(),
        },
    ));
    records.events.push(event(
        106 * S,
        EventKind::LoadEnded {
            scheduled: 2100,
            recorded: 2100,
        },
    ));
    records.events.sort_by_key(|e| e.at_ns);
    let mut boundaries = Vec::new();
    for (life, base) in [(1, -20 * S), (2, FIRE_NS)] {
        for (line, (key, ms)) in LOG.iter().enumerate() {
            boundaries.push(Boundary {
                line: (life as u64 - 1) * 100 + line as u64 + 1,
                life,
                key: (*key).into(),
                process: None,
                at_unix_ns: Some(EPOCH_UNIX_NS + base + ms * MS),
                stamp: StampSource::Capture,
                resolution_ns: Some(1),
                measures: if *key == "weights_loaded" {
                    vec![Measure {
                        name: "weights_loaded_s".into(),
                        value: f64::from(life),
                        unit: "s".into(),
                    }]
                } else {
                    vec![]
                },
                fields: vec![],
                text: format!("{key} line"),
            });
        }
    }
    records.boundaries.push(Boundaries {
        replica: "r0".into(),
        matcher: Some("vllm 0".into()),
        server_version: None,
        coverage: LogCoverage::Measured {
            lines: 300,
            matched: 24,
        },
        boundaries,
    });
    records
}
