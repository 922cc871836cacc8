//! Effects on real processes: at their instant, bracketed, on nobody else, undone.

mod support;

use std::sync::{Arc, Mutex, OnceLock};

use blackstart_effects::watchdog::JournalStep;
use blackstart_effects::{Action, Mode, Notice, ScheduleError, Scheduler, Signal};
use support::*;

fn signal(replica: &str, role: &str, signal: Signal) -> Action {
    Action::Signal {
        replica: replica.to_owned(),
        role: role.to_owned(),
        signal,
    }
}

/// `before ≤ after`, and not before the plan.
fn assert_bracket(step: &blackstart_record::EffectStep) {
    let before = step.before_ns.expect("before");
    let after = step.after_ns.expect("after");
    assert!(before <= after, "{step:?}");
    assert!(before >= step.planned_ns, "{step:?}");
    assert_eq!(step.by, "instrument");
}

#[test]
fn a_kill_hits_its_victim_at_its_instant_and_nobody_else() {
    let nap = unique_sleep();
    let bench = Bench::new(vec![
        supervised("r0", &format!("sleep {nap} & wait; sleep {nap}")),
        supervised("r1", &format!("sleep {nap} & wait")),
    ]);
    let bystander = Child::run(&["sleep", &nap]);
    until("engines", || {
        bench.targets.resolve_role("r0", "engine").is_ok()
            && bench.targets.resolve_role("r1", "engine").is_ok()
    });
    let engine = bench.targets.resolve_role("r0", "engine").expect("engine");
    let api = bench.targets.resolve_role("r0", "api").expect("api");
    let others = ["api", "engine"].map(|r| bench.targets.resolve_role("r1", r).expect("r1"));
    let id = bench
        .timeline
        .schedule(signal("r0", "engine", Signal::Kill), bench.in_ms(400), None)
        .expect("scheduled");
    let step = bench.wait(id, "started");
    assert_bracket(&step);
    assert_eq!(step.action, "signal KILL to process engine of r0");
    assert_eq!(step.replica.as_deref(), Some("r0"));
    let detail = step.detail.expect("detail");
    assert!(
        detail.contains(&format!("pid {},", engine.pid())),
        "{detail}"
    );
    until("engine dead", || engine.has_ended());
    assert!(!api.has_ended());
    assert!(others.iter().all(|p| !p.has_ended()));
    assert_ne!(bystander.state(), '-');
    assert_eq!(bench.names(id), ["scheduled", "started"]);
    until("closed", || bench.timeline.scheduler().open_effects() == 0);
    let middle = (step.before_ns.expect("before") + step.after_ns.expect("after")) / 2;
    assert!(matches!(
        bench.notices().as_slice(),
        [(i, Notice::Started(at))] if *i == id && (at - middle).abs() <= 1
    ));
    // A kill cannot be undone: the watchdog has nothing to remember.
    assert!(
        !bench
            .journal()
            .iter()
            .any(|j| matches!(j, JournalStep::Registered { .. }))
    );
}

#[test]
fn a_freeze_is_registered_in_force_and_undone_at_its_end() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let at = bench.in_ms(300);
    let end = at + 300_000_000;
    let id = bench
        .timeline
        .schedule(signal("r0", "api", Signal::Stop), at, Some(end))
        .expect("scheduled");
    assert_bracket(&bench.wait(id, "started"));
    until("frozen", || victim.state() == 'T');
    let undone = bench.wait(id, "undone");
    assert_bracket(&undone);
    assert_eq!(undone.planned_ns, end);
    assert_eq!(undone.action, "signal CONT to process api of r0");
    assert!(
        undone
            .detail
            .as_deref()
            .is_some_and(|d| d.contains("state "))
    );
    assert_ne!(victim.state(), 'T');
    assert_eq!(bench.names(id), ["scheduled", "started", "undone"]);
    until("watchdog told", || {
        matches!(
            bench.journal().as_slice(),
            [JournalStep::Opened { .. }, JournalStep::Registered { key, .. }, JournalStep::Done { key: done }]
                if key == done
        )
    });
}

/// A host that was starved past the effect's end must not begin what the watchdog has closed.
#[test]
fn a_freeze_whose_end_has_passed_is_not_fired() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let at = bench.in_ms(-2000);
    let id = bench
        .timeline
        .schedule(
            signal("r0", "api", Signal::Stop),
            at,
            Some(at + 1_000_000_000),
        )
        .expect("scheduled");
    let failed = bench.wait(id, "failed");
    assert!(
        failed
            .detail
            .as_deref()
            .is_some_and(|d| d.contains("end has passed")),
        "{:?}",
        failed.detail
    );
    assert_eq!(bench.names(id), ["scheduled", "failed"]);
    assert_ne!(victim.state(), 'T');
}

#[test]
fn cancel_drop_and_panic_undo_what_is_in_force() {
    for how in ["cancel", "drop", "panic"] {
        let victim = Child::run(&["sleep", "1000"]);
        let bench = Bench::new(vec![running("r0", victim.pid())]);
        let at = bench.in_ms(0);
        let minute = 60_000_000_000;
        let freeze = signal("r0", "api", Signal::Stop);
        let id = bench
            .timeline
            .schedule(freeze.clone(), at, Some(at + minute))
            .expect("scheduled");
        let later = bench
            .timeline
            .schedule(signal("r0", "api", Signal::Kill), at + minute, None)
            .expect("scheduled");
        bench.wait(id, "started");
        until("frozen", || victim.state() == 'T');
        match how {
            "cancel" => {
                bench.timeline.cancel();
                // Every step has been handed on when it returns.
                assert_eq!(bench.names(id), ["scheduled", "started", "undone"]);
                assert_eq!(bench.names(later), ["scheduled", "failed"]);
                assert!(matches!(
                    bench.timeline.schedule(freeze, at, Some(at + minute)),
                    Err(ScheduleError::Closed)
                ));
                bench.timeline.cancel();
            }
            "drop" => drop(bench),
            _ => {
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _held = bench;
                    panic!("on purpose");
                }));
                assert!(caught.is_err());
            }
        }
        assert_ne!(victim.state(), 'T', "after {how}");
        assert_ne!(victim.state(), '-', "after {how}");
    }
}

#[test]
fn a_negative_control_does_everything_but_the_operation() {
    let victim = Child::run(&["sleep", "1000"]);
    let server = Server::start(|_| OK);
    let bench = Bench::with(
        vec![running("r0", victim.pid())],
        Mode::NegativeControl,
        Arc::new(|_, _| {}),
    );
    let at = bench.in_ms(300);
    let freeze = bench
        .timeline
        .schedule(
            signal("r0", "api", Signal::Stop),
            at,
            Some(at + 200_000_000),
        )
        .expect("scheduled");
    let kill = bench
        .timeline
        .schedule(signal("r0", "api", Signal::Kill), at, None)
        .expect("scheduled");
    let request = bench
        .timeline
        .schedule(
            Action::Http {
                replica: Some("r0".to_owned()),
                request: blackstart_effects::HttpRequest::post(&format!("{}/fault", server.url)),
                on_expiry: Some(blackstart_effects::HttpRequest::post(&server.url)),
            },
            at,
            Some(at + 200_000_000),
        )
        .expect("scheduled");
    until("all ended", || {
        bench.timeline.scheduler().open_effects() == 0
    });
    bench.timeline.cancel();
    assert_eq!(bench.names(freeze), ["scheduled", "withheld", "withheld"]);
    assert_eq!(bench.names(kill), ["scheduled", "withheld"]);
    assert_eq!(bench.names(request), ["scheduled", "withheld", "withheld"]);
    for step in bench.steps().iter().filter(|s| s.step == "withheld") {
        assert_bracket(step);
    }
    assert_eq!(victim.state(), 'S');
    assert_eq!(server.got(), Vec::<String>::new());
    assert!(
        !bench
            .journal()
            .iter()
            .any(|j| matches!(j, JournalStep::Registered { .. }))
    );
}

#[test]
fn a_victim_that_is_not_there_is_a_failed_step_with_its_reason() {
    let mut victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![
        running("r0", victim.pid()),
        supervised("r1", "exec sleep 600"),
    ]);
    victim.0.kill().expect("killed");
    victim.0.wait().expect("reaped");
    let at = bench.in_ms(300);
    let gone = bench
        .timeline
        .schedule(
            signal("r0", "api", Signal::Stop),
            at,
            Some(at + 1_000_000_000),
        )
        .expect("scheduled");
    // The shell is replaced by its command: there is no descendant.
    let none = bench
        .timeline
        .schedule(signal("r1", "engine", Signal::Kill), at, None)
        .expect("scheduled");
    for (id, says) in [(gone, "has ended"), (none, "no descendant")] {
        let step = bench.wait(id, "failed");
        let detail = step.detail.expect("reason");
        assert!(
            detail.contains(says) && detail.contains("not found"),
            "{detail}"
        );
        assert_eq!(step.before_ns, None);
    }
    bench.timeline.cancel();
    assert_eq!(bench.names(gone), ["scheduled", "failed"]);
    assert!(matches!(&bench.notices()[0].1, Notice::Failed(_)));
}

#[test]
fn a_victim_that_dies_between_look_up_and_fire_is_a_failed_step() {
    // Two kills at one instant: the second finds a dead process in its hands.
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let at = bench.in_ms(300);
    let ids = [(); 2].map(|()| {
        bench
            .timeline
            .schedule(signal("r0", "api", Signal::Kill), at, None)
            .expect("scheduled")
    });
    bench.wait(ids[0], "started");
    // The signal is there at once, the death of its receiver may take a moment.
    until("second ended", || bench.names(ids[1]).len() == 2);
    if bench.names(ids[1])[1] == "failed" {
        let detail = bench.wait(ids[1], "failed").detail.expect("reason");
        // The last look, at the instant itself, finds nobody either.
        assert!(detail.contains("ended"), "{detail}");
    }
    until("dead", || victim.state() == 'Z');
    let late = bench
        .timeline
        .schedule(signal("r0", "api", Signal::Kill), bench.in_ms(0), None)
        .expect("scheduled");
    bench.wait(late, "failed");
}

#[test]
fn an_instant_that_is_past_fires_at_once() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let at = bench.in_ms(-5_000);
    let id = bench
        .timeline
        .schedule(signal("r0", "api", Signal::Kill), at, None)
        .expect("scheduled");
    let step = bench.wait(id, "started");
    assert_bracket(&step);
    assert_eq!(step.planned_ns, at);
}

#[test]
fn many_effects_fire_each_once_and_never_early() {
    const COUNT: i64 = 200;
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let first = bench.in_ms(500);
    let mut ids = Vec::new();
    for n in 0..COUNT {
        // SIGCONT to a running process changes nothing. Every fourth shares an instant.
        let at = first + (n - n % 4) * 10_000_000;
        let action = signal("r0", "api", Signal::Cont);
        ids.push(
            bench
                .timeline
                .schedule(action, at, None)
                .expect("scheduled"),
        );
    }
    until("all fired", || {
        bench.timeline.scheduler().open_effects() == 0
    });
    bench.timeline.cancel();
    let started: Vec<_> = bench
        .steps()
        .into_iter()
        .filter(|s| s.step == "started")
        .collect();
    // Sorted: on a machine too busy to prepare in time, a late one comes after its successors.
    let mut fired: Vec<u32> = started.iter().map(|s| s.effect).collect();
    fired.sort_unstable();
    assert_eq!(fired, ids);
    started.iter().for_each(assert_bracket);
    assert!(started.is_sorted_by_key(|s| s.before_ns));
    let mut late: Vec<i64> = started
        .iter()
        .map(|s| s.before_ns.expect("before") - s.planned_ns)
        .collect();
    late.sort_unstable();
    let mut width: Vec<i64> = started
        .iter()
        .map(|s| s.after_ns.expect("after") - s.before_ns.expect("before"))
        .collect();
    width.sort_unstable();
    // For people; speeds are not asserted here.
    println!(
        "fire error ns: p50 {} p99 {} max {}; bracket ns: p50 {} max {}; real time {:?}",
        late[100],
        late[198],
        late[199],
        width[100],
        width[199],
        bench.timeline.real_time()
    );
}

#[test]
fn an_observer_schedules_more_from_its_callback() {
    let victim = Child::run(&["sleep", "1000"]);
    let scheduler: Arc<OnceLock<Scheduler>> = Arc::default();
    let added: Arc<Mutex<Vec<u32>>> = Arc::default();
    let (handle, ids) = (scheduler.clone(), added.clone());
    let bench = Bench::with(
        vec![running("r0", victim.pid())],
        Mode::Real,
        Arc::new(move |id, what| {
            if let (0, Notice::Undone(at)) = (id, what) {
                let scheduler = handle.get().expect("set before");
                let kill = signal("r0", "api", Signal::Kill);
                let id = scheduler.schedule(kill, at + 50_000_000, None);
                ids.lock().expect("lock").push(id.expect("scheduled"));
                panic!("a callback's panic must not stop the record");
            }
        }),
    );
    assert!(scheduler.set(bench.timeline.scheduler()).is_ok());
    let at = bench.in_ms(50);
    bench
        .timeline
        .schedule(
            signal("r0", "api", Signal::Stop),
            at,
            Some(at + 100_000_000),
        )
        .expect("scheduled");
    bench.wait(1, "started");
    assert_eq!(*added.lock().expect("lock"), [1]);
    until("killed", || victim.state() == 'Z');
}

#[test]
fn what_is_not_in_the_configuration_is_refused_when_scheduled() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let at = bench.in_ms(60_000);
    let refused = |action: Action, until: Option<i64>| {
        bench
            .timeline
            .schedule(action, at, until)
            .expect_err("refused")
            .to_string()
    };
    let text = refused(signal("r9", "api", Signal::Kill), None);
    assert!(text.contains("no replica `r9`"), "{text}");
    let text = refused(signal("r0", "gpu", Signal::Kill), None);
    assert!(text.contains("`api`, `engine`"), "{text}");
    let freeze = signal("r0", "api", Signal::Stop);
    bench
        .timeline
        .schedule(freeze.clone(), at, Some(at + 10))
        .expect("scheduled");
    let text = refused(freeze, Some(at + 5));
    assert!(text.contains("effect 0 is in force already"), "{text}");
    // Refusals leave no trace.
    bench.timeline.cancel();
    assert_eq!(bench.names(0), ["scheduled", "failed"]);
    assert_eq!(bench.steps().len(), 2);
    let steps = bench.steps();
    assert!(
        steps[1]
            .detail
            .as_deref()
            .is_some_and(|d| d.contains("cancelled"))
    );
}

#[test]
fn without_a_watchdog_a_freeze_does_not_fire() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let watchdog = blackstart_targets::ProcessRef::open(bench.watchdog.pid()).expect("lives");
    watchdog.send(Signal::Kill).expect("killed");
    let at = bench.in_ms(300);
    let id = bench
        .timeline
        .schedule(
            signal("r0", "api", Signal::Stop),
            at,
            Some(at + 100_000_000),
        )
        .expect("scheduled");
    let detail = bench.wait(id, "failed").detail.expect("reason");
    assert!(detail.contains("watchdog"), "{detail}");
    bench.timeline.cancel();
    assert_eq!(bench.names(id), ["scheduled", "failed"]);
    assert_eq!(victim.state(), 'S');
}

#[test]
fn the_watchdog_is_no_victim() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    let watchdog = blackstart_targets::ProcessRef::open(bench.watchdog.pid()).expect("lives");
    let error = bench
        .targets
        .authorize("r0", &watchdog)
        .expect_err("refused");
    assert!(error.to_string().contains("helper"), "{error}");
}
