//! Records of one synthetic run.

use blackstart_plan::Plan;
use blackstart_record::*;

use super::{Dice, MS, S, Story};

const EPOCH_UNIX_NS: i64 = 1_790_000_000 * S;

/// Log lines after the fire: key, milliseconds, text.
const LOG: [(&str, i64, &str); 11] = [
    (
        "banner",
        640,
        "INFO [api_server.py] vLLM API server version 0.11.0",
    ),
    (
        "engine_init",
        1_050,
        "INFO [core.py] Initializing a V1 LLM engine (v0.11.0)",
    ),
    (
        "model_load_start",
        1_420,
        "INFO [gpu_model_runner.py] Starting to load model mock/model...",
    ),
    (
        "weights_loaded",
        4_060,
        "INFO [default_loader.py] Loading weights took 2.61 seconds",
    ),
    (
        "model_loaded",
        4_190,
        "INFO [gpu_model_runner.py] Model loading took 14.2 GiB and 2.77 seconds",
    ),
    (
        "torch_compile",
        4_900,
        "INFO [backends.py] torch.compile takes 0.71 s in total",
    ),
    (
        "kv_cache",
        5_080,
        "INFO [kv_cache_utils.py] GPU KV cache size: 212,336 tokens",
    ),
    (
        "graph_capture",
        5_600,
        "INFO [gpu_model_runner.py] Graph capturing finished in 1 secs",
    ),
    (
        "engine_ready",
        5_720,
        "INFO [core.py] init engine took 1.53 seconds",
    ),
    (
        "server_start",
        5_880,
        "INFO [api_server.py] Starting vLLM API server on http://0.0.0.0:8000",
    ),
    (
        "startup_complete",
        6_010,
        "INFO: Application startup complete.",
    ),
];

fn event(at_ns: i64, kind: EventKind) -> Event {
    Event { at_ns, kind }
}

fn request(index: u64, intended_ns: i64, dice: &mut Dice) -> RequestRecord {
    let ttft = dice.between(22 * MS, 60 * MS) + (dice.unit().powi(12) * 80e6) as i64;
    let e2e = ttft + 31 * 10 * MS + dice.between(0, 20 * MS);
    let skew = dice.between(8_000, 70_000);
    RequestRecord {
        index,
        intended_ns,
        admitted_ns: None,
        connect_started_ns: None,
        dispatched_ns: Some(intended_ns + skew),
        headers_ns: Some(intended_ns + 3 * MS),
        first_event_ns: Some(intended_ns + ttft),
        first_token_ns: Some(intended_ns + ttft),
        last_token_ns: Some(intended_ns + e2e),
        ended_ns: intended_ns + e2e,
        outcome: Outcome::Completed,
        error_class: None,
        censor_kind: None,
        http_status: Some(200),
        error_code: None,
        error_text: None,
        finish_reason: Some(FinishReason::Length),
        done_marker: true,
        content_events: 32,
        completion_tokens: Some(32),
        prompt_tokens: Some(64),
        body_bytes: 9_000,
        coalesced_reads: 0,
        gap_max_ns: Some(12 * MS),
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

fn unanswered(r: &mut RequestRecord) {
    r.content_events = 0;
    r.headers_ns = None;
    r.first_event_ns = None;
    r.first_token_ns = None;
    r.last_token_ns = None;
}

/// One run; its story decides what the fault does.
pub fn records(plan: &Plan, story: Story, seed: u64) -> RunRecords {
    let mut dice = Dice::new(seed);
    let late_ns = if story == Story::FiredLate {
        2_600 * MS
    } else {
        180_000
    };
    let fire_ns = plan.phases.fire_at_ns() + late_ns;
    let end_ns = plan.phases.load_end_ns();
    let killed = !matches!(story, Story::Control | Story::NoFault);
    let stretch = 0.98 + dice.unit() * 0.05;
    let after = |ms: i64| fire_ns + (ms as f64 * stretch * 1e6) as i64;
    let back_ns = match story {
        Story::NeverBack => i64::MAX,
        _ if killed => after(6_080),
        _ => fire_ns,
    };
    let stop_ns = if story == Story::Interrupted {
        fire_ns + 15 * S
    } else {
        end_ns
    };
    let mut records = RunRecords::default();
    let mut at_ns = 0_i64;
    let mut index = 0;
    loop {
        at_ns += (-(1.0 - dice.unit()).ln() / plan.load.rate_per_s * 1e9) as i64;
        if at_ns >= stop_ns {
            break;
        }
        let mut r = request(index, at_ns, &mut dice);
        index += 1;
        if killed {
            strike(&mut r, fire_ns, back_ns, plan.load.timeout_ns, &mut dice);
        }
        if r.outcome == Outcome::Completed {
            for _ in 0..31 {
                records
                    .gaps
                    .record(at_ns, 10 * MS + dice.between(-200_000, 200_000));
            }
        }
        records.requests.push(r);
    }
    events(
        plan,
        story,
        &mut records,
        fire_ns,
        back_ns,
        stop_ns,
        &after,
        &mut dice,
    );
    metrics(&mut records, stop_ns, fire_ns, back_ns);
    if killed && story != Story::NeverBack {
        records.boundaries.push(Boundaries {
            replica: "vllm-0".into(),
            matcher: Some("match-vllm 0.1.0".into()),
            server_version: Some("0.11.0".into()),
            coverage: LogCoverage::Measured {
                lines: 412,
                matched: 22,
            },
            boundaries: LOG
                .iter()
                .enumerate()
                .map(|(i, (key, ms, text))| Boundary {
                    line: 200 + i as u64,
                    life: 2,
                    key: (*key).into(),
                    process: Some("EngineCore_0".into()),
                    at_unix_ns: Some(EPOCH_UNIX_NS + after(*ms)),
                    stamp: StampSource::Capture,
                    resolution_ns: Some(1_000),
                    measures: vec![],
                    fields: vec![],
                    text: (*text).into(),
                })
                .collect(),
        });
    } else {
        records.boundaries.push(Boundaries {
            replica: "vllm-0".into(),
            matcher: None,
            server_version: None,
            coverage: LogCoverage::NotMeasured {
                reason: "no matcher knows this log".into(),
            },
            boundaries: vec![],
        });
    }
    records
}

/// What the kill does to a request.
fn strike(r: &mut RequestRecord, fire_ns: i64, back_ns: i64, timeout_ns: i64, dice: &mut Dice) {
    let at = r.intended_ns;
    if at < fire_ns && r.ended_ns > fire_ns {
        fail(r, fire_ns + dice.between(MS, 3 * MS), ErrorClass::Reset);
        r.content_events = 11;
    } else if (fire_ns..back_ns).contains(&at) {
        // Some land in the dying socket and hang until the client gives up.
        if at < fire_ns + 400 * MS && dice.unit() < 0.4 {
            r.outcome = Outcome::Censored;
            r.censor_kind = Some(CensorKind::Timeout);
            r.ended_ns = at + timeout_ns;
            r.done_marker = false;
            r.finish_reason = None;
            r.completion_tokens = None;
        } else {
            fail(r, at + MS, ErrorClass::Connect);
            r.error_text = Some("connection refused".into());
        }
        unanswered(r);
    } else if back_ns != i64::MAX && at >= back_ns && at < back_ns + S {
        // A cold server is slow at first.
        let slow = dice.between(700 * MS, 1_500 * MS);
        r.first_token_ns = r.first_token_ns.map(|t| t + slow);
        r.first_event_ns = r.first_token_ns;
        r.last_token_ns = r.last_token_ns.map(|t| t + slow);
        r.ended_ns += slow;
    }
}

#[allow(clippy::too_many_arguments)]
fn events(
    plan: &Plan,
    story: Story,
    records: &mut RunRecords,
    fire_ns: i64,
    back_ns: i64,
    stop_ns: i64,
    after: &impl Fn(i64) -> i64,
    dice: &mut Dice,
) {
    let all = &mut records.events;
    all.push(event(
        0,
        EventKind::Epoch {
            monotonic_ns: 0,
            unix_ns: EPOCH_UNIX_NS,
        },
    ));
    all.push(event(
        -5 * S,
        EventKind::Replica(ReplicaStep::Started {
            replica: "vllm-0".into(),
            pid: 4100,
            restarts: 0,
        }),
    ));
    let killed = !matches!(story, Story::Control | Story::NoFault);
    if killed {
        let planned_ns = plan.phases.fire_at_ns();
        kill_events(all, story, planned_ns, fire_ns, after);
    }
    if story == Story::Control {
        all.push(event(
            fire_ns + 2 * S,
            EventKind::Proof {
                verdict: ProofVerdict::DidNotHappen,
                statement: "pid 4100 runs with the same start time".into(),
            },
        ));
    }
    let mut sent = 40 * MS;
    while sent < stop_ns {
        let ok = sent + 30 * MS < fire_ns || sent >= back_ns;
        let took = if ok { 28 * MS } else { MS };
        all.push(event(
            sent + took,
            EventKind::Probe(ProbeOutcome {
                path: ProbePath::Direct,
                replica: Some("vllm-0".into()),
                sent_ns: sent,
                first_token_ns: ok.then_some(sent + took),
                ok,
                reason: (!ok).then(|| "connection refused".into()),
            }),
        ));
        sent += if ok {
            plan.observe.probe_interval_ns
        } else {
            50 * MS
        };
        if sent > fire_ns && sent < fire_ns + 60 * MS {
            sent = fire_ns + 60 * MS;
        }
    }
    for s in 1..stop_ns / S {
        all.push(event(
            s * S,
            EventKind::ClientCpu {
                interval_ns: S,
                host_percent: 12.0 + 4.0 * dice.unit(),
                steal_percent: 0.1,
                process_percent: 3.5,
            },
        ));
        if s % 2 == 0 {
            all.push(event(
                s * S + 400 * MS,
                EventKind::Canary(CanaryStream {
                    sent_ns: s * S,
                    completed: true,
                    ttft_dev_ns: Some(dice.between(20_000, 140_000)),
                    itl_dev_ns: (0..31).map(|_| dice.between(-60_000, 80_000)).collect(),
                    event_lag_ns: (0..32).map(|_| dice.between(10_000, 150_000)).collect(),
                }),
            ));
        }
    }
    for thread in 0..2 {
        all.push(event(
            stop_ns,
            EventKind::Heartbeat {
                thread,
                ticks: 70_000,
                late_ns_p50: 4_000,
                late_ns_p99: 61_000,
                late_ns_max: 740_000,
                real_time: if thread == 0 {
                    Ok(())
                } else {
                    Err("operation not permitted".into())
                },
            },
        ));
    }
    if story == Story::Interrupted {
        all.push(event(
            stop_ns,
            EventKind::Interrupted {
                signal: "SIGINT".into(),
            },
        ));
    } else {
        let n = records.requests.len() as u64;
        all.push(event(
            stop_ns + 6 * S,
            EventKind::LoadEnded {
                scheduled: n,
                recorded: n,
            },
        ));
    }
    records.events.sort_by_key(|e| e.at_ns);
    if story == Story::RecordEnds {
        records.events.retain(|e| e.at_ns <= 12 * S);
    }
}

fn kill_events(
    all: &mut Vec<Event>,
    story: Story,
    planned_ns: i64,
    fire_ns: i64,
    after: &impl Fn(i64) -> i64,
) {
    all.push(event(
        fire_ns,
        EventKind::Effect(EffectStep {
            effect: 1,
            step: "started".into(),
            action: "signal KILL to process api of vllm-0".into(),
            replica: Some("vllm-0".into()),
            planned_ns,
            before_ns: Some(fire_ns - 9_000),
            after_ns: Some(fire_ns + 9_000),
            detail: Some("pid 4100".into()),
            by: "instrument".into(),
        }),
    ));
    all.push(event(
        after(2),
        EventKind::Replica(ReplicaStep::Exited {
            replica: "vllm-0".into(),
            pid: 4100,
            code: None,
            signal: Some(9),
            orphans: vec!["4117 VLLM::EngineCore".into()],
        }),
    ));
    all.push(event(
        after(14),
        EventKind::Replica(ReplicaStep::OrphansGone {
            replica: "vllm-0".into(),
            count: 1,
            killed: true,
        }),
    ));
    if story == Story::NeverBack {
        all.push(event(
            after(16),
            EventKind::Replica(ReplicaStep::NotRestarted {
                replica: "vllm-0".into(),
                reason: "restart policy `no`".into(),
            }),
        ));
    } else {
        all.push(event(
            after(520),
            EventKind::Replica(ReplicaStep::Started {
                replica: "vllm-0".into(),
                pid: 4390,
                restarts: 1,
            }),
        ));
    }
    all.push(event(
        after(12_000),
        EventKind::Proof {
            verdict: ProofVerdict::Happened,
            statement: "pid 4100 is gone, killed by signal 9".into(),
        },
    ));
}

fn metrics(records: &mut RunRecords, stop_ns: i64, fire_ns: i64, back_ns: i64) {
    for name in [
        "vllm:num_requests_waiting",
        "vllm:time_to_first_token_seconds_sum",
        "vllm:time_to_first_token_seconds_count",
    ] {
        records.metrics.series.push(("vllm-0".into(), name.into()));
    }
    for s in 0..stop_ns / S {
        let at_ns = s * S + 100 * MS;
        if (fire_ns..back_ns).contains(&at_ns) {
            continue;
        }
        let served = (if at_ns < fire_ns {
            s
        } else {
            (at_ns - back_ns) / S
        }) as f64
            * 18.0;
        for (series, value) in [(0, 0.0), (1, served * 0.038), (2, served)] {
            records.metrics.samples.push(MetricSample {
                at_ns,
                series,
                value,
            });
        }
    }
    records.metrics.samples.sort_by_key(|m| m.series);
}
