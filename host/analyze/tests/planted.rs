//! A run with a planted outage: the analysis must find the truth, and say so where there is none.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use blackstart_analyze::*;
use blackstart_plan::Plan;
use blackstart_record::*;
use common::*;

fn analysed(plan: &Plan, records: &RunRecords) -> RunAnalysis {
    analyze_run(plan, &run(records.requests.len() as u64), records).unwrap()
}

#[test]
fn the_planted_outage_is_found() {
    let plan = plan();
    let a = analysed(&plan, &records());
    assert_eq!(a.fire.actual_ns, Some(FIRE_NS));
    assert_eq!(a.fire.fire_uncertainty_ns, Some(HALF_NS));
    assert_eq!(a.fire.indeterminate_zone_ns, Some(HALF_NS));
    assert_eq!(a.fire.fire_error_ms, Some(0.0));
    // Back at 52.34 s: the first probe sent after it goes at 52.34 s and answers 30 ms later.
    assert_eq!(a.outage_s, Some(12.37));
    assert_eq!(a.container_start_s, Some(0.5));
    // Buckets 40 to 51 are dead, 52 is partly; the leading window of 4 needs 90 %.
    let ttr = a.ttr_pre_fault_s.unwrap();
    assert!((ttr - 12.34).abs() <= 1.0, "{ttr}");
    assert_eq!(a.recovery.pre_fault.status, RecoveryStatus::Recovered);
    let deficit = a.integrated_goodput_deficit.unwrap();
    assert!((deficit - 12.34).abs() <= 1.0, "{deficit}");
    assert_eq!(a.recovery.equilibrium.goodput, None);
    assert!(a.equilibrium_note.unwrap().contains("one replica"));
    assert_eq!(a.recovery.sensitivity.len(), 27);
}

#[test]
fn in_flight_losses_are_exact_and_determinate() {
    let records = records();
    let truth = records
        .requests
        .iter()
        .filter(|r| r.dispatched_ns.unwrap() < FIRE_NS && r.intended_ns + E2E_NS > FIRE_NS)
        .count() as u64;
    let a = analysed(&plan(), &records);
    let flight = a.in_flight.unwrap();
    assert_eq!(truth, 9);
    assert_eq!(flight.determinate.total, truth);
    assert_eq!(flight.determinate.errored, truth);
    assert_eq!(flight.indeterminate.total, 0);
    assert_eq!(a.in_flight_loss_fraction, Some(1.0));
    assert_eq!(flight.errored_by_class["reset"], truth);
    assert_eq!(flight.by_replica["r0"].counts.errored, truth);
    assert_eq!(flight.tokens_lost, 4 * truth);
    assert_eq!(flight.tokens_undelivered, Some(6 * truth));
    let outage = a.outage_outcomes.unwrap();
    let refused = records
        .requests
        .iter()
        .filter(|r| r.error_class == Some(ErrorClass::Connect))
        .count() as u64;
    assert_eq!(outage.errored, refused);
    assert_eq!(outage.errored_by_class["connect"], refused);
    assert_eq!(
        outage.total,
        outage.completed + outage.errored + outage.censored
    );
}

#[test]
fn a_terminal_event_within_the_zone_is_indeterminate() {
    let mut records = records();
    let i = records
        .requests
        .iter()
        .position(|r| r.ended_ns == FIRE_NS + MS)
        .unwrap();
    records.requests[i].ended_ns = FIRE_NS + HALF_NS / 2;
    records.requests[i + 1].ended_ns = FIRE_NS - HALF_NS / 2;
    let a = analysed(&plan(), &records);
    assert_eq!(a.in_flight_indeterminate, Some(2));
    assert_eq!(a.in_flight_determinate.unwrap().total, 7);
    assert_eq!(a.in_flight_errored_by_class["reset"], 9);
    assert_eq!(a.in_flight_loss_fraction, Some(1.0));
}

#[test]
fn segments_and_partition_follow_the_log() {
    let a = analysed(&plan(), &records());
    let d = &a.decomposition;
    let names: Vec<&str> = d.segments.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "reschedule",
            "container_start",
            "log_bringup",
            "engine_init",
            "weight_download",
            "weight_load",
            "torch_compile",
            "profile_kv_capture",
            "engine_ready",
            "server_ready",
            "replica_ready",
            "traffic_restored",
            "routing_propagation",
            "goodput_restored"
        ]
    );
    let length = |name: &str| {
        d.segments
            .iter()
            .find(|s| s.name == name)
            .and_then(|s| s.duration_s)
    };
    assert_eq!(length("log_bringup"), Some(9.5));
    assert_eq!(length("engine_init"), Some(2.5));
    assert_eq!(length("weight_load"), Some(3.0));
    assert_eq!(length("torch_compile"), Some(1.0));
    assert_eq!(length("profile_kv_capture"), Some(1.5));
    assert_eq!(length("server_ready"), Some(12.0));
    for (name, reason) in [
        ("reschedule", "no scheduler"),
        ("weight_download", "local cache"),
        ("traffic_restored", "no service"),
        ("routing_propagation", "no service"),
    ] {
        let s = d.segments.iter().find(|s| s.name == name).unwrap();
        assert!(!s.measured && s.start_ns.is_none() && s.duration_s.is_none());
        assert!(
            s.note.as_ref().unwrap().contains(reason),
            "{name}: {:?}",
            s.note
        );
    }
    // Figures are those of the second life, which began after the fire.
    assert_eq!(d.log_figures["weights_loaded_s"], 2.0);
    let p = d.partition.as_ref().unwrap();
    assert_eq!(p.phases[0].start_ns, p.start_ns);
    assert_eq!(p.phases.last().unwrap().end_ns, p.end_ns);
    for pair in p.phases.windows(2) {
        assert_eq!(pair[0].end_ns, pair[1].start_ns);
    }
    let sum: f64 = p.phases.iter().map(|p| p.share_percent).sum();
    assert!((sum - 100.0).abs() < 1e-9);
    assert_eq!(p.unexplained_s, 0.0, "{:#?}", p.phases);
    assert_eq!(p.end, "replica_ready");
}

#[test]
fn without_a_log_the_time_is_unexplained_and_said() {
    let mut records = records();
    records.boundaries[0].coverage = LogCoverage::NotMeasured {
        reason: "the log could not be read".into(),
    };
    let a = analysed(&plan(), &records);
    let load = a
        .decomposition
        .segments
        .iter()
        .find(|s| s.name == "weight_load")
        .unwrap();
    assert_eq!(load.note.as_deref(), Some("the log could not be read"));
    let p = a.decomposition.partition.unwrap();
    assert!((p.unexplained_s - 11.87).abs() < 1e-9, "{:#?}", p.phases);
    assert!(p.unexplained_percent > 90.0);
}

#[test]
fn a_missing_boundary_leaves_a_hole_that_is_named() {
    let mut records = records();
    records.boundaries[0]
        .boundaries
        .retain(|b| b.key != "model_load_start");
    let a = analysed(&plan(), &records);
    let p = a.decomposition.partition.unwrap();
    let hole = p.phases.iter().find(|p| !p.explained).unwrap();
    assert_eq!(hole.name, "unexplained");
    assert_eq!(
        (hole.from.as_str(), hole.to.as_str()),
        ("engine_init", "weights_loaded")
    );
    assert!(hole.note.as_ref().unwrap().contains("model_load_start"));
}

#[test]
fn windows_partition_and_add_up() {
    let a = analysed(&plan(), &records());
    let w = |name| a.windows.iter().find(|w| w.name == name).unwrap();
    let (base, guard) = (w(WindowName::Baseline), w(WindowName::Guard));
    assert_eq!((base.start_ns, base.end_ns), (5 * S, 35 * S));
    assert_eq!((guard.start_ns, guard.end_ns), (35 * S, FIRE_NS));
    let (fault, bad, good) = (
        w(WindowName::Fault),
        w(WindowName::FaultDegraded),
        w(WindowName::FaultRecovered),
    );
    assert_eq!(fault.start_ns, bad.start_ns);
    assert_eq!(bad.end_ns, good.start_ns);
    assert_eq!(good.end_ns, fault.end_ns);
    assert_eq!(
        fault.counts.scheduled,
        bad.counts.scheduled + good.counts.scheduled
    );
    for w in &a.windows {
        let c = &w.counts;
        assert_eq!(c.scheduled, c.completed + c.errored + c.censored);
        assert_eq!(c.errored, c.errored_by_class.values().sum::<u64>());
        assert_eq!(w.e2e_ms.count, c.completed);
        assert_eq!(w.incidence.n, c.scheduled);
    }
    assert_eq!(base.slo.goodput, Some(1.0));
    assert!(fault.incidence.curve_required && !base.incidence.curve_required);
    let t: u64 = a.timeline.iter().map(|s| s.scheduled).sum();
    assert_eq!(t, 2100);
    assert_eq!(a.timeline[45].ttft_ms_p50, None);
    assert_eq!(a.timeline[20].ttft_ms_p50, Some(50.0));
}

#[test]
fn a_server_that_never_returns_is_censored() {
    let mut records = records();
    for r in &mut records.requests {
        if r.intended_ns >= FIRE_NS {
            r.outcome = Outcome::Errored;
            r.error_class = Some(ErrorClass::Connect);
        }
    }
    for e in &mut records.events {
        if let EventKind::Probe(p) = &mut e.kind
            && p.sent_ns > FIRE_NS
        {
            p.ok = false;
            p.first_token_ns = None;
        }
    }
    records
        .events
        .retain(|e| !matches!(e.kind, EventKind::Replica(ReplicaStep::Started { .. })));
    records.boundaries[0].boundaries.retain(|b| b.life == 1);
    let plan = plan();
    let a = analysed(&plan, &records);
    assert_eq!((a.outage_s, a.ttr_pre_fault_s), (None, None));
    assert_eq!(a.ttr_censored_at_s, Some(50.0));
    assert!(a.outage_censored_at_s.unwrap() > 59.0);
    assert_eq!(a.integrated_goodput_deficit, None);
    assert_eq!(a.decomposition.partition.as_ref().unwrap().end, "timeout");
    let campaign = analyze_campaign(&plan, &[a], &BTreeMap::new());
    let ttr = campaign
        .endpoints
        .iter()
        .find(|e| e.name == "ttr_pre_fault_s")
        .unwrap();
    assert_eq!(ttr.censored.len(), 1);
    assert_eq!((ttr.dropped_runs, ttr.km_median), (0, None));
    assert!(ttr.summary.headline.contains("not reached"));
    assert_eq!(campaign.valid_runs, 1);
}

#[test]
fn a_run_without_a_fault_has_no_outage() {
    let mut plan = plan();
    let mut records = RunRecords::default();
    for i in 0..2100 {
        records
            .requests
            .push(request(i, (i as i64 + 1) * 50 * MS - 7 * MS));
    }
    records.events.push(Event {
        at_ns: 106 * S,
        kind: EventKind::LoadEnded {
            scheduled: 2100,
            recorded: 2100,
        },
    });
    let mut control = run(2100);
    control.negative_control = true;
    let a = analyze_run(&plan, &control, &records).unwrap();
    assert_eq!(a.ttr_pre_fault_note.as_deref(), Some("no outage found"));
    assert_eq!(
        (a.ttr_pre_fault_s, a.outage_s, a.in_flight_determinate),
        (None, None, None)
    );
    assert!(validity(&plan, &a, &[]).valid);
    // The same records without the promise of a control: the fault never fired.
    let broken = analysed(&plan, &records);
    let why = validity(&plan, &broken, &[]);
    assert_eq!(why.reasons[0].code, "never_fired");
    plan.fault = None;
    let a = analysed(&plan, &records);
    assert_eq!(a.windows.len(), 2);
    assert_eq!(a.recovery.pre_fault.status, RecoveryStatus::NoOutage);
    assert!(validity(&plan, &a, &[]).valid);
    assert!(
        a.decomposition
            .segments
            .iter()
            .all(|s| !s.measured && !s.applicable)
    );
}

#[test]
fn what_makes_a_run_invalid_is_named() {
    let plan = plan();
    let codes = |records: &RunRecords| -> Vec<String> {
        let a = analysed(&plan, records);
        let v = validity(&plan, &a, &[]);
        v.reasons.into_iter().map(|r| r.code).collect()
    };
    assert!(codes(&records()).is_empty());
    let mut r = records();
    r.events
        .retain(|e| !matches!(e.kind, EventKind::Proof { .. }));
    assert_eq!(codes(&r), ["fault_not_proven"]);
    let mut r = records();
    for e in &mut r.events {
        if let EventKind::Effect(s) = &mut e.kind {
            s.before_ns = Some(FIRE_NS + 600 * MS);
            s.after_ns = Some(FIRE_NS + 600 * MS);
        }
    }
    assert_eq!(codes(&r), ["fire_error"]);
    let mut r = records();
    r.events.push(Event {
        at_ns: 1,
        kind: EventKind::Clock(ClockSample {
            phase: "arm".into(),
            offset_ns: 5,
            bound_ns: 5,
            samples: 9,
        }),
    });
    assert_eq!(codes(&r), ["clock_offset_unmeasured"]);
    let mut r = records();
    r.events.push(Event {
        at_ns: 107 * S,
        kind: EventKind::Interrupted {
            signal: "SIGINT".into(),
        },
    });
    assert_eq!(codes(&r), ["partial"]);
    let a = analyze_run(&plan, &run(2101), &records()).unwrap();
    assert_eq!(validity(&plan, &a, &[]).reasons[0].code, "records_missing");
}

#[test]
fn scalars_carry_a_value_or_a_reason() {
    let plan = plan();
    let a = analysed(&plan, &records());
    let all = scalars(&plan, &a);
    for (name, scalar) in &all.scalars {
        assert_eq!(scalar.value.is_none(), scalar.absence.is_some(), "{name}");
        assert!(scalar.absence.as_deref() != Some(""), "{name}");
        assert!(!scalar.unit.is_empty(), "{name}");
    }
    assert_eq!(all.value("share.r0"), Some(100.0));
    assert_eq!(all.value("share.replicas_seen"), Some(1.0));
    assert_eq!(all.value("routing.per_request"), None);
    assert_eq!(all.value("client.skew_us_p99"), Some(30.0));
    assert_eq!(all.value("client.undispatched"), Some(0.0));
    assert_eq!(all.value("client.cpu_percent_max_5s"), None);
    assert_eq!(all.value("client.cpu_windows"), Some(0.0));
    assert_eq!(all.value("inflight.victim_errored"), Some(9.0));
    assert_eq!(all.value("goodput.baseline"), Some(1.0));
    assert_eq!(all.value("waiting.mean.r0"), None);
    assert_eq!(all.value("fire.error_ms"), Some(0.0));
    assert_eq!(all.value("staleness.window_s"), None);
}

#[test]
fn analyses_survive_their_json_and_damaged_times_are_refused() {
    let a = analysed(&plan(), &records());
    let json = serde_json::to_string(&a).unwrap();
    assert_eq!(serde_json::from_str::<RunAnalysis>(&json).unwrap(), a);
    let schema = serde_json::to_value(schemars::schema_for!(RunAnalysis)).unwrap();
    assert!(schema["properties"]["outage_s"].is_object());
    let campaign = analyze_campaign(&plan(), &[a], &BTreeMap::new());
    let json = serde_json::to_string(&campaign).unwrap();
    assert_eq!(
        serde_json::from_str::<CampaignAnalysis>(&json).unwrap(),
        campaign
    );
    let mut r = records();
    r.requests[3].ended_ns = i64::MAX;
    let error = analyze_run(&plan(), &run(2100), &r)
        .unwrap_err()
        .to_string();
    assert!(error.contains("request 3: ended_ns"), "{error}");
}

/// Service that flaps to the end reaches neither level: both times are right-censored.
#[test]
fn a_plateau_that_is_never_held_is_censored_too() {
    let mut plan = plan();
    let mut second = plan.target.replicas[0].clone();
    second.id = "r1".into();
    plan.target.replicas.push(second);
    let mut records = records();
    for r in records
        .requests
        .iter_mut()
        .filter(|r| r.intended_ns >= FIRE_NS)
    {
        *r = request(r.index, r.intended_ns);
        if (r.intended_ns - FIRE_NS) / (6 * S) % 2 == 0 {
            r.outcome = Outcome::Errored;
            r.error_class = Some(ErrorClass::Reset);
        }
    }
    let a = analysed(&plan, &records);
    let against = a.recovery.equilibrium.detection.as_ref().unwrap();
    assert_eq!(against.status, RecoveryStatus::NotRecovered);
    assert_eq!((a.ttr_pre_fault_s, a.ttr_equilibrium_s), (None, None));
    assert_eq!(a.ttr_censored_at_s, Some(50.0));
    assert_eq!(a.ttr_equilibrium_censored_at_s, Some(50.0));
    let goodput = a.decomposition.segments.last().unwrap();
    assert_eq!(goodput.name, "goodput_restored");
    assert_eq!(
        (goodput.measured, goodput.censored_at_s),
        (false, Some(50.0))
    );

    // Beside runs that came back it counts as at least, in endpoints and segments alike.
    let mut back = a.clone();
    back.ttr_equilibrium_s = Some(12.0);
    back.ttr_equilibrium_censored_at_s = None;
    let campaign = analyze_campaign(&plan, &[a, back], &BTreeMap::new());
    let valid = campaign.runs.iter().filter(|r| r.validity.valid).count();
    let e = campaign
        .endpoints
        .iter()
        .find(|e| e.name == "ttr_equilibrium_s")
        .unwrap();
    if valid == 2 {
        assert_eq!((e.contributing_n, e.censored.len()), (2, 1));
        assert_eq!((e.summary.mean, e.km_median), (None, Some(12.0)));
    } else {
        panic!("{:?}", campaign.runs);
    }
}

/// Stamps of a second cannot order what happens within one: it is said, and no order is claimed.
#[test]
fn an_order_within_the_stamps_resolution_is_not_resolved() {
    let mut records = records();
    for b in &mut records.boundaries[0].boundaries {
        b.resolution_ns = Some(S);
        if b.life == 2 && b.key == "weights_loaded" {
            // 10 ms before `model_load_start`.
            b.at_unix_ns = Some(EPOCH_UNIX_NS + FIRE_NS + 3_490 * MS);
        }
    }
    let a = analysed(&plan(), &records);
    let segment = |name: &str| {
        let mut all = a.decomposition.segments.iter();
        all.find(|s| s.name == name).unwrap()
    };
    let load = segment("weight_load");
    assert_eq!((load.measured, load.duration_s), (false, None));
    let note = load.note.as_deref().unwrap();
    assert!(note.starts_with("order not resolved"), "{note}");
    assert!(note.contains("0.010000 s before"), "{note}");
    let compile = segment("torch_compile");
    assert_eq!(
        (compile.duration_s, compile.uncertainty_s),
        (Some(1.0), Some(2.0))
    );
    assert!(
        compile
            .note
            .as_deref()
            .unwrap()
            .starts_with("order not resolved")
    );
    let partition = a.decomposition.partition.as_ref().unwrap();
    let swapped = partition
        .phases
        .iter()
        .find(|p| p.to == "model_load_start")
        .unwrap();
    assert!(!swapped.explained && !swapped.resolved());
    let note = swapped.note.as_deref().unwrap();
    assert!(
        note.contains("not the usual order; order not resolved"),
        "{note}"
    );
}

/// The cross-check is beside the figure, in the run and in the campaign, and does not touch it.
#[test]
fn a_cross_check_that_disagrees_is_a_flag() {
    let a = analysed(&plan(), &records());
    let check = &a.recovery.cross_check;
    assert_eq!(
        (check.agrees, check.status),
        (Some(true), RecoveryStatus::Recovered)
    );
    assert_eq!(check.back_s, Some(13.0));
    assert_eq!(a.recovery_cross_check, None);

    let mut again = records();
    for r in &mut again.requests {
        if (75 * S..85 * S).contains(&r.intended_ns) {
            r.outcome = Outcome::Errored;
            r.error_class = Some(ErrorClass::Reset);
        }
    }
    let b = analysed(&plan(), &again);
    assert_eq!(b.ttr_pre_fault_s, a.ttr_pre_fault_s);
    let said = b.recovery_cross_check.clone().unwrap();
    assert!(
        said.contains("fell again 35.000 s after the anchor"),
        "{said}"
    );
    let campaign = analyze_campaign(&plan(), &[b], &BTreeMap::new());
    assert!(
        campaign
            .caveats
            .iter()
            .any(|c| c.contains("run 1: recovery_cross_check") && c.contains("fell again")),
        "{:?}",
        campaign.caveats
    );
}
