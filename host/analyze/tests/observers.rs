//! Figures from the observers: canary, metrics, CPU, heartbeats, shares, a frozen process.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod common;

use blackstart_analyze::*;
use blackstart_plan::Routing;
use blackstart_record::*;
use common::*;

fn event(at_ns: i64, kind: EventKind) -> Event {
    Event { at_ns, kind }
}

#[test]
fn canary_figures_by_window() {
    let mut records = records();
    for k in 0..20 {
        records.events.push(event(
            10 * S + k * 300 * MS,
            EventKind::Canary(CanaryStream {
                sent_ns: 10 * S + k * 300 * MS,
                completed: k != 3,
                ttft_dev_ns: Some(1_000 * (k + 1)),
                itl_dev_ns: vec![-2_000, 1_000],
                event_lag_ns: vec![1_000 * (k + 1), 500],
            }),
        ));
    }
    let a = analyze_run(&plan(), &run(2100), &records).unwrap();
    let canary = a.receive_path["baseline"].canary.as_ref().unwrap();
    assert_eq!((canary.streams, canary.completed), (20, 19));
    assert_eq!(canary.ttft_dev_p50_us, Some(10.0));
    assert_eq!(canary.ttft_dev_max_us, Some(20.0));
    assert_eq!(
        (canary.itl_dev_p50_us, canary.itl_dev_max_us),
        (Some(1.0), Some(2.0))
    );
    assert_eq!(canary.event_lag_max_us, Some(20.0));
    assert!(a.receive_path["fault"].canary.is_none());
    assert!(a.receive_path["fault"].canary_note.is_some());
    assert_eq!(a.receive_path["baseline"].client_ttft_mean_ms, Some(50.0));
}

#[test]
fn server_histogram_and_waiting_queue() {
    let mut records = records();
    let names = [
        "vllm:time_to_first_token_seconds_sum{m=\"x\"}",
        "vllm:time_to_first_token_seconds_count{m=\"x\"}",
        "vllm:num_requests_waiting{m=\"x\"}",
    ];
    records.metrics.series = names
        .iter()
        .map(|n| ("r0".to_owned(), (*n).to_owned()))
        .collect();
    for s in 0..100_i64 {
        // The restart at 41 s sets the counters back.
        let count = if s < 41 { s * 10 } else { (s - 41) * 10 } as f64;
        for (series, value) in [count * 0.04, count, (s % 2) as f64]
            .into_iter()
            .enumerate()
        {
            records.metrics.samples.push(MetricSample {
                at_ns: s * S + 3 * MS,
                series: series as u32,
                value,
            });
        }
    }
    records.events.push(event(
        20 * S,
        EventKind::ScrapeError {
            replica: "r0".into(),
            reason: "timeout".into(),
        },
    ));
    let a = analyze_run(&plan(), &run(2100), &records).unwrap();
    let base = &a.receive_path["baseline"];
    assert_eq!(base.server_ttft_count, Some(290));
    assert!((base.server_ttft_mean_ms.unwrap() - 40.0).abs() < 1e-6);
    let fault = &a.receive_path["fault"];
    assert!(fault.server_ttft_note.as_ref().unwrap().contains("restart"));
    assert_eq!(fault.server_ttft_count, Some(480));
    let queue = &a.waiting["r0"];
    assert_eq!(
        (queue.samples, queue.expected, queue.scrape_errors),
        (30, 30, 1)
    );
    assert_eq!((queue.mean, queue.max), (Some(0.5), Some(1.0)));
}

#[test]
fn client_cpu_and_heartbeats() {
    let mut records = records();
    for s in 1..=10 {
        records.events.push(event(
            s * S,
            EventKind::ClientCpu {
                interval_ns: S,
                host_percent: if s > 5 { 80.0 } else { 20.0 },
                steal_percent: 1.0,
                process_percent: 5.0,
            },
        ));
    }
    for (thread, late) in [(0, 50_000), (1, 900_000)] {
        records.events.push(event(
            105 * S,
            EventKind::Heartbeat {
                thread,
                ticks: 100,
                late_ns_p50: 10_000,
                late_ns_p99: late,
                late_ns_max: late * 2,
                real_time: Err("not permitted".into()),
            },
        ));
    }
    let plan = plan();
    let a = analyze_run(&plan, &run(2100), &records).unwrap();
    assert_eq!(
        (a.client.cpu_windows, a.client.cpu_percent_max_5s),
        (6, Some(80.0))
    );
    let all = scalars(&plan, &a);
    assert_eq!(all.value("client.stall_us_p99"), Some(900.0));
    assert_eq!(all.value("client.cpu_percent_max_5s"), Some(80.0));
    assert_eq!(all.value("client.cpu_windows"), Some(6.0));
}

#[test]
fn two_replicas_behind_a_service() {
    let mut plan = plan();
    let mut second = plan.target.replicas[0].clone();
    second.id = "r1".into();
    plan.target.replicas.push(second);
    plan.target.routing = Routing::PerRequest;
    plan.target.service_url = Some("http://127.0.0.1:2".into());
    let mut records = records();
    for r in &mut records.requests {
        let id = if r.index % 4 == 0 { "r0" } else { "r1" };
        r.replica = r.headers_ns.map(|_| id.to_owned());
    }
    records.events.push(event(
        55 * S,
        EventKind::Probe(ProbeOutcome {
            path: ProbePath::Service,
            replica: Some("r0".into()),
            sent_ns: 54 * S,
            first_token_ns: Some(54 * S + 30 * MS),
            ok: true,
            reason: None,
        }),
    ));
    let a = analyze_run(&plan, &run(2100), &records).unwrap();
    assert_eq!(a.share.replicas_seen, Some(2));
    assert!(
        (a.share.percent["r0"] - 25.0).abs() < 0.2,
        "{:?}",
        a.share.percent
    );
    assert!(a.survivor_p95_ms.is_some() && !a.survivor_cohort_absent);
    let segment = |name: &str| {
        a.decomposition
            .segments
            .iter()
            .find(|s| s.name == name)
            .unwrap()
    };
    assert_eq!(segment("traffic_restored").duration_s, Some(14.03));
    assert_eq!(segment("routing_propagation").duration_s, Some(1.66));
    let all = scalars(&plan, &a);
    assert_eq!(all.value("routing.per_request"), Some(1.0));
    let victim = a.in_flight.as_ref().unwrap().by_replica["r0"]
        .counts
        .errored;
    assert_eq!(all.value("inflight.victim_errored"), Some(victim as f64));
    // A dead endpoint sends no header: staleness cannot be measured, and says so.
    assert_eq!(all.value("staleness.window_s"), None);
    assert!(a.staleness_note.unwrap().contains("response header"));
}

/// A frozen process ends no life and prints no line: the time is explained by the undo.
#[test]
fn a_freeze_is_explained_by_its_undo() {
    let mut plan = plan();
    if let Some(fault) = &mut plan.fault {
        fault
            .without_segments
            .insert("weight_load".into(), "the process is not restarted".into());
    }
    let mut records = records();
    records
        .events
        .retain(|e| !matches!(e.kind, EventKind::Replica(_)));
    records.boundaries[0].boundaries.retain(|b| b.life == 1);
    // The instrument stops the server that it launched when the run is over.
    records.events.push(event(
        plan.phases.load_end_ns() + 2 * S,
        EventKind::Replica(ReplicaStep::Exited {
            replica: "r0".into(),
            pid: 100,
            code: Some(0),
            signal: None,
            orphans: Vec::new(),
        }),
    ));
    let undo = FIRE_NS + 12 * S;
    records.events.push(event(
        undo,
        EventKind::Effect(EffectStep {
            effect: 1,
            step: "undone".into(),
            action: "signal CONT to process main of r0".into(),
            replica: Some("r0".into()),
            planned_ns: undo,
            before_ns: Some(undo - 1_000),
            after_ns: Some(undo + 1_000),
            detail: None,
            by: "instrument".into(),
        }),
    ));
    let a = analyze_run(&plan, &run(2100), &records).unwrap();
    assert_eq!(a.fault.expired_ns, Some(undo));
    let p = a.decomposition.partition.as_ref().unwrap();
    let names: Vec<&str> = p.phases.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["fault_in_effect", "service_return"]);
    assert_eq!(p.unexplained_s, 0.0);
    let load = a
        .decomposition
        .segments
        .iter()
        .find(|s| s.name == "weight_load")
        .unwrap();
    assert!(!load.applicable && !load.measured);
    assert!(load.note.as_ref().unwrap().contains("not restarted"));
    let start = a
        .decomposition
        .segments
        .iter()
        .find(|s| s.name == "container_start")
        .unwrap();
    let note = start.note.as_ref().unwrap();
    assert!(note.contains("no new main process was started"), "{note}");
    assert!(!start.measured);
}
