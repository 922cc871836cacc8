//! What may be claimed: how well a figure is known, what was not watched, what was not recorded.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use blackstart_analyze::*;
use blackstart_plan::{Plan, RunPlan};
use blackstart_record::*;
use common::*;

fn analysed(plan: &Plan, records: &RunRecords) -> RunAnalysis {
    analyze_run(plan, &run(2100), records).unwrap()
}

fn close(got: Option<f64>, want: f64) -> bool {
    got.is_some_and(|g| (g - want).abs() < 1e-6)
}

fn segment<'a>(a: &'a RunAnalysis, name: &str) -> &'a Segment {
    let mut all = a.decomposition.segments.iter();
    all.find(|s| s.name == name).unwrap()
}

/// The run is cut off this long after the fire: what was not finished is censored there, and what was
/// meant for later has a record that nobody sent.
fn cut(records: &mut RunRecords, cut_ns: i64) {
    for r in &mut records.requests {
        if r.intended_ns >= cut_ns || r.ended_ns > cut_ns {
            r.outcome = Outcome::Censored;
            r.error_class = None;
            r.censor_kind = Some(CensorKind::RunEnd);
            r.ended_ns = cut_ns;
            r.first_token_ns = None;
            if r.intended_ns >= cut_ns {
                r.dispatched_ns = None;
            }
        }
    }
    records
        .events
        .retain(|e| e.at_ns <= cut_ns || matches!(e.kind, EventKind::LoadEnded { .. }));
    // The instrument winds up: it ends the servers, and says so.
    let event = |at_ns, kind| Event { at_ns, kind };
    records.events.push(event(
        cut_ns + S,
        EventKind::Replica(ReplicaStep::Exited {
            replica: "r0".into(),
            pid: 20,
            code: Some(0),
            signal: None,
            orphans: vec![],
        }),
    ));
    records.events.push(event(
        cut_ns + 2 * S,
        EventKind::Interrupted {
            signal: "SIGINT".into(),
        },
    ));
}

#[test]
fn a_figure_is_known_no_better_than_its_probes_and_buckets() {
    let plan = plan();
    let a = analysed(&plan, &records());
    // The last probe that failed went at 52.24 s, the first that was answered was at 52.37 s.
    let half = HALF_NS as f64 / 1e9;
    assert!(
        close(a.outage_uncertainty_s, 0.13 + half),
        "{:?}",
        a.outage_uncertainty_s
    );
    let ready = segment(&a, "replica_ready");
    assert_eq!(ready.uncertainty_s, a.outage_uncertainty_s);
    // The detector sees whole buckets of 1 s.
    assert!(close(a.ttr_pre_fault_uncertainty_s, 1.0));
    assert!(close(
        segment(&a, "goodput_restored").uncertainty_s,
        1.0 + half
    ));
    assert!(close(a.container_start_uncertainty_s, half));
    let p = a.decomposition.partition.as_ref().unwrap();
    let last = p
        .phases
        .iter()
        .find(|p| p.name == "first_inference")
        .unwrap();
    assert!((last.uncertainty_s - 0.13).abs() < 1e-6, "{last:?}");
    assert!((p.total_uncertainty_s - 0.13 - half).abs() < 1e-6);
    assert!(
        a.decomposition
            .boundaries
            .values()
            .all(|b| b.uncertainty_ns == 1)
    );

    // A probe that hangs widens it: sent at 51 s, it fails only at 52.3 s.
    let mut slow = records();
    slow.events.retain(
        |e| !matches!(&e.kind, EventKind::Probe(p) if !p.ok && p.sent_ns > FIRE_NS + 11 * S),
    );
    let mut hanging = slow
        .events
        .iter()
        .find_map(|e| match &e.kind {
            EventKind::Probe(p) if !p.ok => Some(p.clone()),
            _ => None,
        })
        .unwrap();
    hanging.sent_ns = FIRE_NS + 11 * S;
    slow.events.push(Event {
        at_ns: FIRE_NS + 12_300 * MS,
        kind: EventKind::Probe(hanging),
    });
    let a = analysed(&plan, &slow);
    assert!(
        close(a.outage_uncertainty_s, 1.37 + half),
        "{:?}",
        a.outage_uncertainty_s
    );

    // The campaign's sentence has no more digits than that, and names it.
    let campaign = analyze_campaign(&plan, &[analysed(&plan, &records())], &BTreeMap::new());
    let headline = |name: &str| {
        let mut all = campaign.endpoints.iter().chain(&campaign.segments);
        all.find(|e| e.name == name)
            .unwrap()
            .summary
            .headline
            .clone()
    };
    assert!(
        headline("outage_s").starts_with("12.37 ±0.13 "),
        "{}",
        headline("outage_s")
    );
    assert!(headline("ttr_pre_fault_s").starts_with("12 ±1 "));
    assert!(headline("phase.first_inference_s").starts_with("0.37 ±0.13 "));
    assert!(headline("container_start_s").starts_with("0.500 "));
}

#[test]
fn one_replica_has_no_equilibrium_whatever_the_plateau_serves() {
    let mut half_served = records();
    for r in &mut half_served.requests {
        if r.intended_ns > FIRE_NS + 2 * S && r.index % 2 == 0 {
            *r = request(r.index, r.intended_ns);
        }
    }
    let one = plan();
    let a = analysed(&one, &half_served);
    assert_eq!(
        (a.ttr_equilibrium_s, a.ttr_equilibrium_uncertainty_s),
        (None, None)
    );
    assert!(
        a.equilibrium_note
            .as_ref()
            .unwrap()
            .starts_with("not applicable: one replica")
    );
    let campaign = analyze_campaign(&one, &[a], &BTreeMap::new());
    let e = campaign
        .endpoints
        .iter()
        .find(|e| e.name == "ttr_equilibrium_s")
        .unwrap();
    assert_eq!(e.endpoint, EndpointKind::NotApplicable);

    let mut two = plan();
    let mut other = two.target.replicas[0].clone();
    other.id = "r1".into();
    two.target.replicas.push(other);
    let a = analysed(&two, &half_served);
    assert!(
        a.recovery.equilibrium.goodput.is_some(),
        "{:?}",
        a.equilibrium_note
    );
}

#[test]
fn goodput_before_readiness_is_explained() {
    let a = analysed(&plan(), &records());
    assert!(a.ttr_pre_fault_s.unwrap() < a.outage_s.unwrap());
    let note = a.goodput_lead_note.unwrap();
    assert!(note.contains("looks 4 s ahead and 90 %"), "{note}");
    let mut later = records();
    // Back for the probes at once, for the load only 3 s later.
    for r in &mut later.requests {
        if (BACK_NS..BACK_NS + 3 * S).contains(&r.intended_ns) {
            r.outcome = Outcome::Errored;
            r.error_class = Some(ErrorClass::HttpStatus);
        }
    }
    assert_eq!(analysed(&plan(), &later).goodput_lead_note, None);
}

fn adds_up(losses: &RequestLosses) {
    assert_eq!(
        losses.planned,
        losses.all.total + losses.never_sent + losses.unrecorded
    );
    assert_eq!(losses.lost, losses.all.errored + losses.all.censored);
    let groups = losses.split.as_ref().unwrap().groups();
    let sum = |f: fn(&InFlightCounts) -> u64| groups.iter().map(|(_, c)| f(c)).sum::<u64>();
    assert_eq!(sum(|c| c.total), losses.all.total);
    assert_eq!(sum(|c| c.completed), losses.all.completed);
    assert_eq!(sum(|c| c.errored), losses.all.errored);
    assert_eq!(sum(|c| c.censored), losses.all.censored);
}

#[test]
fn every_loss_is_in_one_group() {
    let mut all = records();
    // One that the client could not yet send at the fire, and one that failed in the warm-up.
    let waiting = all
        .requests
        .iter()
        .position(|r| r.intended_ns >= FIRE_NS)
        .unwrap()
        - 1;
    all.requests[waiting].dispatched_ns = Some(FIRE_NS + 2 * MS);
    all.requests[3].outcome = Outcome::Errored;
    all.requests[3].error_class = Some(ErrorClass::Reset);
    let truth = all
        .requests
        .iter()
        .filter(|r| r.outcome != Outcome::Completed)
        .count() as u64;
    let a = analysed(&plan(), &all);
    adds_up(&a.losses);
    assert_eq!((a.losses.lost, a.losses.all.total), (truth, 2100));
    let split = a.losses.split.unwrap();
    assert_eq!(split.in_flight, a.in_flight.unwrap().all);
    assert_eq!(split.in_flight.errored, 8);
    assert_eq!(split.before_fire.errored, 1);
    assert_eq!(
        (split.waiting_at_fire.total, split.waiting_at_fire.errored),
        (1, 1)
    );
    assert_eq!(split.during_outage.total, a.outage_outcomes.unwrap().total);
    assert_eq!(split.after_outage.lost(), 0);
    assert_eq!((a.losses.never_sent, a.losses.unrecorded), (0, 0));

    // A fault that no probe saw has no outage; its losses are still all there.
    let mut unseen = records();
    unseen.events.retain(|e| {
        !matches!(
            &e.kind,
            EventKind::Replica(_) | EventKind::Probe(ProbeOutcome { ok: false, .. })
        )
    });
    let a = analysed(&plan(), &unseen);
    adds_up(&a.losses);
    assert!(a.losses.note.unwrap().contains("no outage was measured"));
}

#[test]
fn nothing_is_claimed_of_the_time_after_a_cut() {
    let plan = plan();
    let cut_ns = FIRE_NS + 6_500 * MS;
    let mut all = records();
    cut(&mut all, cut_ns);
    let a = analysed(&plan, &all);
    assert_eq!(a.cut_ns, Some(cut_ns));
    assert_eq!(a.recovery.pre_fault.status, RecoveryStatus::NotRecovered);
    assert_eq!(a.ttr_censored_at_s, Some(6.5), "not the whole window");
    let note = a.ttr_pre_fault_note.clone().unwrap();
    assert!(
        note.contains("when the run was cut off, 6.500 s after"),
        "{note}"
    );
    assert_eq!(a.timeline.len(), 47, "no second that was not watched");
    assert!(a.timeline.iter().all(|s| s.scheduled > 0));
    assert!(
        a.windows.iter().all(|w| w.end_ns <= cut_ns),
        "{:?}",
        a.windows
    );
    let fault = a
        .windows
        .iter()
        .find(|w| w.name == WindowName::Fault)
        .unwrap();
    assert_eq!(fault.counts.censored, 0, "what nobody sent is no loss");
    let p = a.decomposition.partition.as_ref().unwrap();
    assert_eq!((p.end.as_str(), p.end_ns), ("cut_off", cut_ns));
    adds_up(&a.losses);
    let later = all
        .requests
        .iter()
        .filter(|r| r.intended_ns >= cut_ns)
        .count() as u64;
    assert_eq!(a.losses.never_sent, later);
    // What the instrument ended itself is no end of the victim's second life.
    assert_eq!(a.replicas[0].exits.len(), 1);

    // Cut off in the baseline: there is no fault window at all.
    let mut early = records();
    cut(&mut early, 20 * S);
    early
        .events
        .retain(|e| !matches!(e.kind, EventKind::Effect(_)));
    let a = analysed(&plan, &early);
    let names: Vec<_> = a.windows.iter().map(|w| w.name).collect();
    assert_eq!(names, [WindowName::Baseline, WindowName::Guard]);
    assert_eq!(a.windows[0].end_ns, 20 * S);
    assert_eq!(a.ttr_censored_at_s, None);

    // A control that was cut off: its servers were ended by the instrument.
    let mut control = records();
    control.requests = (0..2100)
        .map(|i| request(i, (i as i64 + 1) * 50 * MS - 7 * MS))
        .collect();
    control.events.retain(|e| {
        !matches!(
            &e.kind,
            EventKind::Effect(_)
                | EventKind::Replica(_)
                | EventKind::Probe(ProbeOutcome { ok: false, .. })
        )
    });
    cut(&mut control, FIRE_NS + 20 * S);
    let planned = RunPlan {
        negative_control: true,
        ..run(2100)
    };
    let a = analyze_run(&plan, &planned, &control).unwrap();
    assert_eq!(a.control_outage, None);
}

#[test]
fn a_run_that_never_came_back_measures_no_unexplained_phase() {
    let plan = plan();
    let never = |number| {
        let mut all = records();
        for r in &mut all.requests {
            if r.intended_ns >= FIRE_NS {
                r.outcome = Outcome::Errored;
                r.error_class = Some(ErrorClass::Connect);
            }
        }
        for e in &mut all.events {
            if let EventKind::Probe(p) = &mut e.kind
                && p.sent_ns > FIRE_NS
            {
                p.ok = false;
                p.first_token_ns = None;
            }
        }
        all.boundaries[0].boundaries.retain(|b| b.life == 1);
        let mut a = analysed(&plan, &all);
        a.run = number;
        a
    };
    let partition = never(1).decomposition.partition.unwrap();
    assert!(partition.unexplained_s > 49.0 && !partition.came_back());
    let name = "phase.unexplained_s";
    let campaign = analyze_campaign(&plan, &[never(1), never(2)], &BTreeMap::new());
    assert!(
        campaign.segments.iter().all(|e| e.name != name),
        "a watch is no phase"
    );
    // What it did measure still counts.
    let ended = campaign
        .segments
        .iter()
        .find(|e| e.name == "phase.process_end_s")
        .unwrap();
    assert_eq!(ended.contributing_n, 2);

    // Beside a run that has such a phase it is dropped, with the reason.
    let mut hole = records();
    hole.boundaries[0]
        .boundaries
        .retain(|b| b.key != "model_load_start");
    let back = analysed(&plan, &hole);
    let campaign = analyze_campaign(&plan, &[back, never(2)], &BTreeMap::new());
    let e = campaign.segments.iter().find(|e| e.name == name).unwrap();
    assert_eq!((e.summary.n, e.dropped.len()), (1, 1));
    assert!(
        e.dropped[0].reason.contains("did not come back"),
        "{:?}",
        e.dropped
    );
}

#[test]
fn a_phase_and_a_segment_of_one_name_are_one_length() {
    let mut all = records();
    let second = all.boundaries[0].boundaries.iter().find(|b| b.life == 2);
    let download = Boundary {
        key: "weight_download".into(),
        at_unix_ns: Some(EPOCH_UNIX_NS + FIRE_NS + 5_000 * MS),
        measures: vec![Measure {
            name: "weight_download_s".into(),
            value: 1.25,
            unit: "s".into(),
        }],
        ..second.unwrap().clone()
    };
    all.boundaries[0].boundaries.push(download);
    let a = analysed(&plan(), &all);
    let phases = &a.decomposition.partition.as_ref().unwrap().phases;
    let names: BTreeSet<&str> = phases.iter().map(|p| p.name.as_str()).collect();
    assert!(
        names.contains("weight_fetch") && names.contains("graph_capture"),
        "{names:?}"
    );
    assert!(segment(&a, "weight_download").measured);
    for phase in phases {
        let mut same = a
            .decomposition
            .segments
            .iter()
            .filter(|s| s.name == phase.name);
        if let Some(s) = same.next() {
            assert_eq!(s.duration_s, Some(phase.duration_s), "{}", phase.name);
        }
    }
}

#[test]
fn a_control_has_no_labels_to_keep_or_to_lose() {
    let mut plan = plan();
    plan.fault.as_mut().unwrap().labels = vec!["node-loss-representative".into()];
    let lost = Finding {
        id: "G3".into(),
        title: "silence".into(),
        plugin: "gate-silence 0".into(),
        severity: GateSeverity::StripsLabel,
        label: Some("node-loss-representative".into()),
        verdict: GateVerdict::NotObserved,
        detail: String::new(),
        measures: vec![],
    };
    let a = analysed(&plan, &records());
    let v = validity(&plan, &a, std::slice::from_ref(&lost));
    assert_eq!(v.labels_lost, ["node-loss-representative (G3)"]);
    let planned = RunPlan {
        negative_control: true,
        ..run(2100)
    };
    let control = analyze_run(&plan, &planned, &records()).unwrap();
    for findings in [&[][..], &[lost]] {
        let v = validity(&plan, &control, findings);
        assert!(v.labels.is_empty() && v.labels_lost.is_empty(), "{v:?}");
    }
}

#[test]
fn a_fire_that_the_record_could_not_hold_is_unobserved_not_unfired() {
    let plan = plan();
    let codes = |records: &RunRecords| -> Vec<(String, String)> {
        let v = validity(&plan, &analysed(&plan, records), &[]);
        v.reasons.into_iter().map(|r| (r.code, r.detail)).collect()
    };
    // The disk was full at 30 s: every request is there, but no later event.
    let mut full = records();
    full.events.retain(|e| e.at_ns < 30 * S);
    let a = analysed(&plan, &full);
    assert!(a.fire.unobserved && !a.fire.fired);
    assert_eq!(a.cut_ns, None, "the load was recorded to its end");
    let why = codes(&full);
    assert_eq!(why[1].0, "fire_unobserved", "{why:?}");
    assert!(
        why[1].1.contains("ends at 29.") && why[1].1.contains("planned for 40.000 s"),
        "{why:?}"
    );
    assert!(a.ttr_pre_fault_note.unwrap().contains("not observed"));
    full.events.clear();
    assert!(codes(&full)[1].1.contains("no event was recorded"));
    // The record goes on past the fire and holds none: it was not fired.
    let mut unfired = records();
    unfired.events.retain(|e| {
        e.at_ns < 50 * S && !matches!(e.kind, EventKind::Effect(_) | EventKind::LoadEnded { .. })
    });
    let codes: Vec<String> = codes(&unfired).into_iter().map(|(code, _)| code).collect();
    assert!(codes.contains(&"never_fired".to_owned()), "{codes:?}");
}

#[test]
fn a_recovery_before_a_late_fire_is_no_recovery_from_it() {
    let mut late = records();
    let fire_ns = FIRE_NS + 20 * S;
    late.requests = (0..2100)
        .map(|i| request(i, (i as i64 + 1) * 50 * MS - 7 * MS))
        .collect();
    for r in &mut late.requests {
        if (fire_ns..fire_ns + 8 * S).contains(&r.intended_ns) {
            r.outcome = Outcome::Errored;
            r.error_class = Some(ErrorClass::Connect);
        }
    }
    for e in &mut late.events {
        if let EventKind::Effect(s) = &mut e.kind {
            s.before_ns = Some(fire_ns - HALF_NS);
            s.after_ns = Some(fire_ns + HALF_NS);
        }
    }
    let a = analysed(&plan(), &late);
    assert_eq!(a.fire.actual_ns, Some(fire_ns));
    assert_eq!(a.ttr_pre_fault_s, None);
    assert_eq!(a.recovery.pre_fault.status, RecoveryStatus::NotEstimable);
    assert!(
        a.ttr_pre_fault_note
            .unwrap()
            .contains("before the fire at 60.000 s")
    );
    assert!(
        a.windows
            .iter()
            .all(|w| w.name != WindowName::FaultDegraded)
    );
}

/// A stamp of another host is moved by the offset at arm time, and that host's clock may have moved
/// away from it since.
#[test]
fn a_clock_that_drifts_widens_what_its_stamps_say() {
    let sample = |phase: &str, offset_ns, bound_ns| Event {
        at_ns: 0,
        kind: EventKind::Clock(ClockSample {
            phase: phase.into(),
            offset_ns,
            bound_ns,
            samples: 9,
        }),
    };
    let mut records = records();
    records.events.insert(0, sample("arm", 0, 2 * MS));
    records.events.insert(1, sample("after", -7 * MS, 3 * MS));
    for b in &mut records.boundaries[0].boundaries {
        if b.key == "engine_ready" {
            b.stamp = StampSource::Docker;
            b.resolution_ns = Some(1);
        }
    }
    let a = analysed(&plan(), &records);
    assert_eq!(a.fire.clock, FireClock::Remote);
    let of = |key: &str| a.decomposition.boundaries[key].uncertainty_ns;
    assert_eq!(of("engine_ready"), 10 * MS + 1);
    // The instrument's own stamps are on its own clock.
    assert_eq!(of("engine_init"), 1);
}

/// uvicorn's lines carry no stamp: of a log that nobody captured nothing is known of their time, and
/// that is no absence of the line.
#[test]
fn a_line_without_a_stamp_is_not_called_absent() {
    let mut records = records();
    for b in &mut records.boundaries[0].boundaries {
        if b.key == "startup_complete" {
            b.at_unix_ns = None;
            b.stamp = StampSource::None;
            b.resolution_ns = None;
        }
    }
    let a = analysed(&plan(), &records);
    let note = segment(&a, "server_ready").note.clone().unwrap();
    assert!(note.contains("carries no usable stamp"), "{note}");
    records.boundaries[0]
        .boundaries
        .retain(|b| b.key != "startup_complete");
    let note = segment(&analysed(&plan(), &records), "server_ready")
        .note
        .clone();
    assert_eq!(note.unwrap(), "no `startup_complete` line after the fire");
}
