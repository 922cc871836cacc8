//! Runs that must not count, and figures that must not be claimed: a fault that cost nothing, a
//! control that lost service, a fault that never fired, accelerators that changed, a server that
//! was never started again.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use blackstart_analyze::*;
use blackstart_plan::{Accelerators, Plan, RunPlan};
use blackstart_record::*;
use common::*;

fn event(at_ns: i64, kind: EventKind) -> Event {
    Event { at_ns, kind }
}

/// Every request is good; the effect was executed and proven all the same.
fn undisturbed() -> RunRecords {
    let mut all = records();
    all.requests = (0..2100)
        .map(|i| request(i, (i as i64 + 1) * 50 * MS - 7 * MS))
        .collect();
    all.events.retain(|e| {
        !matches!(
            &e.kind,
            EventKind::Replica(_) | EventKind::Probe(ProbeOutcome { ok: false, .. })
        )
    });
    all.boundaries.clear();
    all
}

fn control() -> RunPlan {
    RunPlan {
        negative_control: true,
        ..run(2100)
    }
}

fn control_records() -> RunRecords {
    let mut all = undisturbed();
    all.events
        .retain(|e| !matches!(e.kind, EventKind::Effect(_) | EventKind::Proof { .. }));
    all
}

fn reasons(plan: &Plan, run: &RunPlan, records: &RunRecords) -> Vec<InvalidReason> {
    let a = analyze_run(plan, run, records).unwrap();
    validity(plan, &a, &[]).reasons
}

fn endpoint<'a>(campaign: &'a CampaignAnalysis, name: &str) -> &'a Endpoint {
    let mut all = campaign.endpoints.iter().chain(&campaign.segments);
    all.find(|e| e.name == name).unwrap()
}

#[test]
fn a_proven_fault_that_cost_nothing_has_no_recovery_time() {
    let plan = plan();
    let a = analyze_run(&plan, &run(2100), &undisturbed()).unwrap();
    assert_eq!(a.fault.proof, ProofSummary::Happened);
    assert_eq!(a.recovery.pre_fault.status, RecoveryStatus::NoOutage);
    assert_eq!(a.recovery.pre_fault.entry_ns, None);
    assert!(a.recovery.sensitivity.iter().all(|c| c.ttr_s.is_none()));
    assert_eq!(
        (a.ttr_pre_fault_s, a.ttr_equilibrium_s, a.ttr_censored_at_s),
        (None, None, None)
    );
    assert_eq!(a.integrated_goodput_deficit, None);
    assert_eq!(a.recovery.deficit.to_timeout, Some(0.0));
    assert_eq!((a.outage_s, a.outage_censored_at_s), (None, None));
    let note = a.ttr_pre_fault_note.clone().unwrap();
    assert!(note.contains("did not see it: no outage found"), "{note}");
    assert!(a.windows.iter().all(|w| !matches!(
        w.name,
        WindowName::FaultDegraded | WindowName::FaultRecovered
    )));
    // The run counts. It has no recovery time, and the campaign says whose is missing, and why.
    let campaign = analyze_campaign(&plan, &[a], &BTreeMap::new());
    assert_eq!(campaign.valid_runs, 1);
    for name in ["ttr_pre_fault_s", "integrated_goodput_deficit"] {
        let e = endpoint(&campaign, name);
        assert_eq!((e.contributing_n, e.dropped_runs), (0, 1), "{name}");
        assert_eq!((e.summary.n, e.summary.median), (0, None), "{name}");
        assert_eq!(e.dropped[0].run, 1);
        assert!(e.dropped[0].reason.contains("no outage found"), "{name}");
    }
}

#[test]
fn service_must_hold_in_a_negative_control() {
    let plan = plan();
    assert_eq!(reasons(&plan, &control(), &control_records()), []);

    // Goodput fell: the detector saw it, no probe did.
    let mut lost = control_records();
    for r in &mut lost.requests {
        if (FIRE_NS + 5 * S..FIRE_NS + 12 * S).contains(&r.intended_ns) {
            r.outcome = Outcome::Errored;
            r.error_class = Some(ErrorClass::Connect);
        }
    }
    let why = reasons(&plan, &control(), &lost);
    assert_eq!(why.len(), 1, "{why:?}");
    assert_eq!(why[0].code, "control_outage");
    assert!(why[0].detail.contains("detector"), "{}", why[0].detail);

    // A probe saw what the load did not.
    let failed = |at_ns| {
        let probe = ProbeOutcome {
            path: ProbePath::Direct,
            replica: Some("r0".into()),
            sent_ns: at_ns - MS,
            first_token_ns: None,
            ok: false,
            reason: Some("refused".into()),
        };
        event(at_ns, EventKind::Probe(probe))
    };
    let mut probed = control_records();
    probed.events.push(failed(FIRE_NS + 7 * S));
    probed.events.push(failed(FIRE_NS + 8 * S));
    let why = reasons(&plan, &control(), &probed);
    assert_eq!(why[0].code, "control_outage");
    assert!(
        why[0]
            .detail
            .ends_with("2 direct probes failed, the first at 47.000 s of the run (r0): refused"),
        "{}",
        why[0].detail
    );

    let mut ended = control_records();
    let exited = |at_ns| {
        let step = ReplicaStep::Exited {
            replica: "r0".into(),
            pid: 10,
            code: Some(1),
            signal: None,
            orphans: vec![],
        };
        event(at_ns, EventKind::Replica(step))
    };
    ended.events.push(exited(FIRE_NS + 7 * S));
    let why = reasons(&plan, &control(), &ended);
    assert_eq!(why[0].code, "control_outage");
    assert!(why[0].detail.contains("main process of r0 ended at 47.000"));

    // Outside the fault window nothing is asked: a warm-up, the stop after the run.
    let mut outside = control_records();
    outside.events.insert(0, failed(S));
    outside.events.push(exited(106 * S));
    assert_eq!(reasons(&plan, &control(), &outside), []);
    // In a run with a fault the same is what is measured.
    let mut fault = undisturbed();
    fault.events.push(failed(FIRE_NS + 7 * S));
    assert_eq!(reasons(&plan, &run(2100), &fault), []);
}

#[test]
fn a_fault_that_never_fired_says_why() {
    let mut records = undisturbed();
    for e in &mut records.events {
        if let EventKind::Effect(step) = &mut e.kind {
            step.step = "failed".into();
            step.detail = Some("no process `engine` of r0 was found".into());
        }
    }
    let why = reasons(&plan(), &run(2100), &records);
    assert_eq!(why.len(), 1, "{why:?}");
    assert_eq!(why[0].code, "never_fired");
    assert_eq!(
        why[0].detail,
        "no effect of the fault was started: effect 1 (signal KILL to process main of r0) failed: \
         no process `engine` of r0 was found"
    );
}

/// A run that read these accelerators before and after.
fn read(number: u32, before: &[&str], after: &[&str]) -> RunAnalysis {
    let mut records = records();
    for (phase, texts) in [("before", before), ("after", after)] {
        records.events.push(event(
            106 * S,
            EventKind::Fingerprint {
                replica: "r0".into(),
                phase: phase.into(),
                accelerators: Ok(texts.iter().map(|t| (*t).to_owned()).collect()),
            },
        ));
    }
    let mut a = analyze_run(&declaring(), &run(2100), &records).unwrap();
    a.run = number;
    a
}

fn declaring() -> Plan {
    let mut plan = plan();
    plan.target.accelerators = Accelerators::NvidiaLocal;
    plan
}

#[test]
fn accelerators_must_be_the_same_over_all_runs() {
    let plan = declaring();
    let invalid = |runs: &[RunAnalysis]| -> Vec<u32> {
        let found = campaign_validity(&plan, runs);
        let campaign = analyze_campaign(&plan, runs, &BTreeMap::new());
        let judged: Vec<u32> = campaign
            .runs
            .iter()
            .filter(|r| !r.validity.valid)
            .map(|r| r.run)
            .collect();
        assert_eq!(judged, found.keys().copied().collect::<Vec<_>>());
        assert_eq!(campaign.invalid_runs, judged.len() as u64);
        for run in &judged {
            let dropped = &endpoint(&campaign, "outage_s").dropped;
            assert!(
                dropped
                    .iter()
                    .any(|d| d.run == *run && d.reason == "invalid run: fingerprint_differs")
            );
        }
        judged
    };
    let one = |n, text: &str| read(n, &[text], &[text]);
    assert_eq!(invalid(&[one(1, "A"), one(2, "A")]), [0; 0]);
    assert_eq!(invalid(&[one(1, "B"), one(2, "A"), one(3, "A")]), [1]);
    assert_eq!(invalid(&[one(1, "A"), one(2, "B")]), [2], "ties: the first");
    // One more of the same is a difference too.
    assert_eq!(
        invalid(&[one(1, "A"), read(2, &["A", "A"], &["A", "A"])]),
        [2]
    );
    // A run without a reading is judged by its gate, not here.
    assert_eq!(invalid(&[one(1, "A"), read(2, &[], &[])]), [0; 0]);
    let found = campaign_validity(&plan, &[one(1, "A"), one(2, "A"), one(3, "B")]);
    assert!(
        found[&3][0]
            .detail
            .contains("had B, while 2 of 3 runs had A")
    );
    // Nothing is declared: nothing to compare.
    assert!(campaign_validity(&common::plan(), &[one(1, "A"), one(2, "B")]).is_empty());
}

#[test]
fn every_reading_is_counted_and_every_accelerator_compared() {
    let plan = declaring();
    let figures = |a: &RunAnalysis| {
        let all = scalars(&plan, a);
        ["expected", "sources", "distinct"].map(|n| all.value(&format!("fingerprint.{n}")))
    };
    assert_eq!(
        figures(&read(1, &["A", "A"], &["A", "A"])),
        [Some(2.0), Some(2.0), Some(1.0)]
    );
    let two_kinds = read(1, &["A", "B"], &["A", "B"]);
    assert_eq!(figures(&two_kinds), [Some(2.0), Some(2.0), Some(2.0)]);
    let changed = read(1, &["A", "A"], &["A"]);
    assert_eq!(figures(&changed), [Some(2.0), Some(2.0), Some(2.0)]);
    assert_eq!(changed.fingerprint.fingerprints, ["2 × A", "A"]);
    let half = read(1, &["A"], &[]);
    assert_eq!(figures(&half), [Some(2.0), Some(1.0), Some(1.0)]);
    assert!(half.fingerprint.failures[0].starts_with("r0 after: "));
    let never = analyze_run(&plan, &run(2100), &records()).unwrap();
    assert_eq!(figures(&never), [Some(2.0), None, None]);
    let note = never.fingerprint.note.unwrap();
    assert!(
        note.contains("r0 before: not read; r0 after: not read"),
        "{note}"
    );
    let undeclared = analyze_run(&common::plan(), &run(2100), &records()).unwrap();
    assert_eq!(
        scalars(&common::plan(), &undeclared).value("fingerprint.expected"),
        None
    );
}

/// The engine is killed, the API process winds up in good order and exits with 0, and the policy
/// `on-failure` does not start it again.
fn engine_killed(number: u32) -> (RunPlan, RunRecords) {
    let mut all = records();
    for r in &mut all.requests {
        if r.intended_ns >= FIRE_NS {
            r.outcome = Outcome::Errored;
            r.error_class = Some(ErrorClass::Connect);
            r.ended_ns = r.intended_ns + MS;
            (r.first_token_ns, r.last_token_ns) = (None, None);
        }
    }
    all.events
        .retain(|e| !matches!(e.kind, EventKind::Replica(_)));
    for e in &mut all.events {
        match &mut e.kind {
            EventKind::Probe(p) if p.sent_ns > FIRE_NS => {
                p.ok = false;
                p.first_token_ns = None;
                p.reason = Some("refused".into());
            }
            EventKind::Effect(step) => step.action = "signal KILL to process engine of r0".into(),
            _ => {}
        }
    }
    let lives = [
        ReplicaStep::Exited {
            replica: "r0".into(),
            pid: 10,
            code: Some(0),
            signal: None,
            orphans: vec![],
        },
        ReplicaStep::NotRestarted {
            replica: "r0".into(),
            reason: "exit code 0 is no failure under `restart = \"on-failure\"`".into(),
        },
    ];
    for (step, ms) in lives.into_iter().zip([400, 401]) {
        let at_ns = FIRE_NS + ms * MS;
        all.events.push(event(at_ns, EventKind::Replica(step)));
    }
    all.events.sort_by_key(|e| e.at_ns);
    all.boundaries[0].boundaries.retain(|b| b.life == 1);
    let plan = RunPlan {
        run: number,
        ..run(2100)
    };
    (plan, all)
}

#[test]
fn a_server_that_is_not_started_again_never_recovers_and_the_campaign_says_so() {
    let mut plan = plan();
    plan.runs = (1..=5).map(|n| engine_killed(n).0).collect();
    let runs: Vec<RunAnalysis> = (1..=5)
        .map(|n| {
            let (run, records) = engine_killed(n);
            analyze_run(&plan, &run, &records).unwrap()
        })
        .collect();
    let a = &runs[0];
    assert_eq!(a.recovery.pre_fault.status, RecoveryStatus::NotRecovered);
    let segment = |name: &str| {
        let mut all = a.decomposition.segments.iter();
        all.find(|s| s.name == name).unwrap()
    };
    let start = segment("container_start");
    assert!(!start.measured && start.applicable);
    assert_eq!(
        start.note.as_deref(),
        Some(
            "r0 was not started again: exit code 0 is no failure under `restart = \"on-failure\"`"
        )
    );
    // The log has no second life: its segments say that there was none, not only that lines lack.
    for name in ["engine_init", "weight_load", "server_ready", "log_bringup"] {
        let s = segment(name);
        assert!(!s.measured, "{name}");
        assert!(
            s.note
                .as_ref()
                .unwrap()
                .contains("not started again: exit code 0"),
            "{name}: {:?}",
            s.note
        );
    }
    assert_eq!(
        (a.outage_s, a.ttr_pre_fault_s, a.container_start_s),
        (None, None, None)
    );
    assert!(a.outage_censored_at_s.unwrap() > 59.0);
    assert_eq!(a.ttr_censored_at_s, Some(50.0));
    assert_eq!(a.container_start_censored_at_s, Some(50.0));
    let partition = a.decomposition.partition.as_ref().unwrap();
    assert_eq!(partition.end, "timeout");
    assert_eq!(partition.phases[0].to, "process_exited");

    let campaign = analyze_campaign(&plan, &runs, &BTreeMap::new());
    assert_eq!(campaign.valid_runs, 5, "{:?}", campaign.runs);
    for name in ["outage_s", "container_start_s", "ttr_pre_fault_s"] {
        let e = endpoint(&campaign, name);
        assert_eq!((e.censored.len(), e.dropped_runs), (5, 0), "{name}");
        assert_eq!(
            (e.summary.median, e.summary.mean, e.km_median),
            (None, None, None)
        );
        assert_eq!(
            e.summary.headline, "median not reached: 5 of 5 runs never got there",
            "{name}"
        );
    }
    // Nor are the segments left out whose ends never came.
    for name in ["container_start", "replica_ready", "goodput_restored"] {
        let mut all = campaign.segments.iter();
        let e = all.find(|e| e.name == format!("segment.{name}_s")).unwrap();
        assert_eq!((e.censored.len(), e.dropped_runs), (5, 0), "{name}");
    }
}
