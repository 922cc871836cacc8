//! One repetition: start the system under test, load it, fire, watch, and leave nothing behind.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, Urgency, monotonic_ns, request_real_time};
use blackstart_effects::{CANCEL_TIMEOUT_NS, Mode, Notice, Timeline, TimelineOptions, Watchdog};
use blackstart_load::{CanaryTarget, LoadHandle, LoadRun, OpenLoop, Pacing, Prompts, Secret};
use blackstart_observe::{CpuSource, EventSink, FireSignal, ObserveRun, Observers};
use blackstart_plan::RunPlan;
use blackstart_plugins::{EffectAction, EffectEvent, FaultPlugin};
use blackstart_record::{
    ClockSample, EventKind, ProbePath, RunFiles, unlocked_because, write_metrics_parquet,
};
use blackstart_targets::{Reexec, Targets};

use super::fault_host::{LiveHost, describe};
use super::prepare::{Prepared, api_key, arm_context};
use super::recorder::Recorder;
use super::service::{check_victims, target_failure, wait_for_service};
use super::stage::{Canary, Stage};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::reporter::Reporter;

/// Time between "everything is ready" and the run epoch: connections are opened in it.
const LEAD_NS: i64 = NS_PER_S;
/// How often the run's loop looks at clocks and flags.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// How long before the planned fire the victims' facts are read.
const FACTS_LEAD_NS: i64 = 500 * NS_PER_MS;
/// How long after the last client timeout the load may take to give every request its outcome.
const DRAIN_SLACK_NS: i64 = 10 * NS_PER_S;

/// What one repetition needs.
pub struct RunContext<'a> {
    /// The campaign.
    pub prepared: &'a Prepared,
    /// The repetition.
    pub planned: &'a RunPlan,
    /// Its folder.
    pub dir: &'a Path,
    /// The dead-man's switch.
    pub watchdog: &'a Arc<Watchdog>,
    /// Where people are told.
    pub reporter: &'a Reporter,
    /// Whether the operator asked to stop.
    pub interrupt: &'a Interrupt,
}

/// Runs one repetition. Whatever happens, effects are undone, launched processes are stopped, and
/// what was recorded is on disk when this returns.
///
/// # Errors
/// When the run could not be carried out; an interrupt is not an error here.
pub fn run_once(context: &RunContext<'_>) -> Result<(), Failure> {
    std::fs::create_dir_all(context.dir)
        .map_err(|e| Failure::internal(e).context(format!("creating {}", context.dir.display())))?;
    let files = RunFiles::new(context.dir);
    let recorder = Recorder::start(&files.events())?;
    let outcome = drive(context, &files, &recorder);
    let recorded = recorder.finish();
    outcome.and(recorded)
}

fn drive(context: &RunContext<'_>, files: &RunFiles, recorder: &Recorder) -> Result<(), Failure> {
    let plan = &context.prepared.plan;
    let provisional = RunClock::with_epoch(monotonic_ns());
    let early = recorder.provisional();
    let targets = {
        let early = early.clone();
        let sink: blackstart_targets::EventSink = Arc::new(move |e| early.send(e));
        let mut supervisor = Reexec::supervisor();
        if let Some(variable) = &plan.load.api_key_env {
            supervisor = supervisor.masking(variable);
        }
        let launched = Targets::launch(&plan.target, context.dir, provisional, &supervisor, sink);
        Arc::new(launched.map_err(|e| target_failure(context, &e))?)
    };
    drop(early);
    let canary = plan
        .observe
        .canary
        .then(|| Canary::launch(context.dir, provisional))
        .transpose()?;
    let api_key = api_key(plan)?;
    if !wait_for_service(context, &targets, api_key.as_deref())? {
        return Ok(());
    }
    check_victims(context, &targets)?;

    // Everything stands: the epoch can be chosen.
    let clock = {
        let epoch = monotonic_ns() + LEAD_NS;
        RunClock::from_recorded(
            epoch,
            provisional.epoch_unix_ns() + (epoch - provisional.epoch_monotonic_ns()),
        )
    };
    recorder.epoch(&provisional, &clock);
    let stage = Stage {
        context,
        targets: targets.clone(),
        recorder,
        clock,
    };
    stage.fingerprints("before");
    let fire = FireSignal::new();
    let armed = arm(&stage, &fire)?;

    let events = recorder.sender();
    let watched = armed.as_ref().map(|a| a.timeline.clone());
    let observers = Observers::start(ObserveRun {
        plan,
        clock,
        sink: EventSink::new(move |e| {
            if let (EventKind::Probe(probe), Some(timeline)) = (&e.kind, &watched)
                && let (ProbePath::Direct, Some(replica)) = (probe.path, &probe.replica)
            {
                timeline.probed(replica, probe.sent_ns, probe.first_token_ns);
            }
            events.send(e);
        }),
        fire: fire.clone(),
        api_key: api_key.as_deref(),
        cpu: CpuSource::default(),
    })
    .map_err(Failure::internal)?;
    let schedule = plan.schedule(context.planned).map_err(Failure::internal)?;
    let load = blackstart_load::start(LoadRun {
        plan: plan.load.clone(),
        pacing: Pacing::Open(OpenLoop::whole(schedule)),
        prompts: Prompts::UNIQUE,
        seed: context.planned.seed,
        clock,
        canary: canary.as_ref().map(|c| CanaryTarget::known(c.base_url())),
        dir: context.dir.to_path_buf(),
        request_id_prefix: format!("{}-{}", plan.campaign, context.planned.run),
        api_key: api_key.map(Secret::new),
        // A campaign file cannot ask for https.
        tls: None,
        good: plan.method.slo,
        every_gap: false,
    })
    .map_err(Failure::internal)?;

    if let Some(why) = unlocked_because(&files.journal()) {
        let warning = super::unlocked_warning(&files.journal(), &why);
        context.reporter.say(warning);
    }
    let recording = watch(&stage, &load, armed.as_ref());
    if (recording.is_err() || context.interrupt.raised())
        && let Some(armed) = &armed
    {
        // Nothing that happens from here on would be known, or is wanted: no fault may fire any more,
        // and none stays in force while the rest is taken down.
        cancel(context, armed);
    }

    let load_end = load.join();
    recording?;
    let metrics = observers.stop().metrics;
    write_metrics_parquet(&files.metrics(), &metrics).map_err(Failure::internal)?;
    if let Some(armed) = armed {
        stage.facts("after", &armed.timeline);
        stage.prove(&armed.plugin, context.interrupt.raised());
        cancel(context, &armed);
    }
    stage.fingerprints("after");
    stage.local_clock("after");
    for line in targets.stop() {
        recorder
            .sender()
            .emit(clock.now(), EventKind::Note { text: line });
    }
    if canary.is_some_and(|c| !c.is_running()) {
        let text = "the canary's endpoint ended during the run: what the client adds to latencies was not measured from then on".to_owned();
        recorder
            .sender()
            .emit(clock.now(), EventKind::Note { text });
    }
    let summary = load_end.map_err(Failure::internal)?;
    let events = recorder.sender();
    for event in summary.events {
        events.send(event);
    }
    if context.interrupt.raised() {
        events.emit(
            clock.now(),
            EventKind::Interrupted {
                signal: context.interrupt.signal_name().to_owned(),
            },
        );
    }
    events.emit(
        clock.now(),
        EventKind::LoadEnded {
            scheduled: summary.scheduled,
            recorded: summary.recorded,
        },
    );
    Ok(())
}

/// A fault that waits for its instant.
pub struct Armed {
    timeline: Arc<Timeline>,
    plugin: Arc<Mutex<Option<FaultPlugin>>>,
    host: Arc<LiveHost>,
}

impl Armed {
    /// When the fault should be in force, for the facts that are read then.
    fn middle_ns(&self, fire_at_ns: i64) -> i64 {
        const WITHOUT_END_NS: i64 = 200 * NS_PER_MS;
        match self.host.last_until_ns() {
            Some(until) if until > fire_at_ns => fire_at_ns + (until - fire_at_ns) / 2,
            _ => fire_at_ns + WITHOUT_END_NS,
        }
    }
}

/// Undoes what is in force and drops the rest. An admin interface that does not answer can hold that up
/// for long: whoever pressed Ctrl-C is told what is waited for.
fn cancel(context: &RunContext<'_>, armed: &Armed) {
    /// Undoing that takes no longer is not worth a word.
    const PATIENCE: Duration = Duration::from_secs(1);
    let (done, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The other end goes away when everything is undone.
            if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let effects = context.prepared.fault.iter().flat_map(|f| &f.effects);
            let requests: Vec<String> = effects
                .filter(|e| matches!(e.action, EffectAction::Http { .. }))
                .map(|e| describe(&e.action))
                .collect();
            let asked = if requests.is_empty() {
                String::new()
            } else {
                format!(" (effects of this run: {})", requests.join(", "))
            };
            context.reporter.say(format!(
                "  undoing  what the fault did; answers are waited for{asked}, at most {} s\n           a second \
                 Ctrl-C ends at once, and leaves the undoing to the watchdog",
                CANCEL_TIMEOUT_NS / NS_PER_S
            ));
        });
        armed.timeline.cancel();
        drop(done);
    });
}

/// Starts the timeline and lets the plugin put its effects on it.
fn arm(stage: &Stage<'_>, fire: &FireSignal) -> Result<Option<Armed>, Failure> {
    let context = stage.context;
    let plan = &context.prepared.plan;
    stage.local_clock("arm");
    let (Some(setup), Some(arm_with)) =
        (&context.prepared.fault, arm_context(plan, context.planned))
    else {
        return Ok(None);
    };
    let plugin: Arc<Mutex<Option<FaultPlugin>>> = Arc::default();
    let events = stage.recorder.sender();
    let notice = {
        let (plugin, fire, events, clock) =
            (plugin.clone(), fire.clone(), events.clone(), stage.clock);
        Arc::new(move |effect: u32, notice: Notice| {
            let event = match notice {
                Notice::Started(at) => {
                    fire.fire(at);
                    EffectEvent::Started(at)
                }
                Notice::Undone(at) => EffectEvent::Undone(at),
                Notice::Failed(reason) => EffectEvent::Failed(reason),
            };
            let mut plugin = plugin.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Err(e)) = plugin.as_mut().map(|p| p.observe(effect, &event)) {
                // The timeline goes on and undoes; the run is judged by its proof.
                events.emit(
                    clock.now(),
                    EventKind::Note {
                        text: e.to_string(),
                    },
                );
            }
        })
    };
    let timeline = Timeline::new(TimelineOptions {
        clock: stage.clock,
        targets: stage.targets.clone(),
        watchdog: context.watchdog.clone(),
        sink: Arc::new(move |e| events.send(e)),
        notice,
        helper: Some(Reexec::balloon()),
        mode: if context.planned.negative_control {
            Mode::NegativeControl
        } else {
            Mode::Real
        },
    })
    .map_err(Failure::internal)?;
    let timeline = Arc::new(timeline);
    let host = Arc::new(LiveHost::new(plan, stage.clock, timeline.scheduler()));
    let mut instance = setup.template.instantiate(host.clone())?;
    instance.arm(&arm_with)?;
    *plugin.lock().unwrap_or_else(PoisonError::into_inner) = Some(instance);
    Ok(Some(Armed {
        timeline,
        plugin,
        host,
    }))
}

/// Follows the run until every request has its outcome, or the operator stops it.
///
/// # Errors
/// When the record cannot be written any more; people are told at once, since a run can go on for
/// many minutes. The load is then ended.
fn watch(stage: &Stage<'_>, load: &LoadHandle, armed: Option<&Armed>) -> Result<(), Failure> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(armed) = armed {
            scope.spawn(|| read_facts(stage, armed, &over));
        }
        let followed = follow(stage, load);
        over.store(true, Ordering::Relaxed);
        followed
    })
}

/// Reads the victims' facts before the fire and while the fault should be in force. A thread of its
/// own, at real-time priority: what is read after the fire proves nothing about before it.
fn read_facts(stage: &Stage<'_>, armed: &Armed, over: &AtomicBool) {
    // A refusal shows when the host starves: the facts come late, and the fault is not proven.
    let _ = request_real_time(Urgency::Observing);
    let fire_at = stage.context.prepared.plan.phases.fire_at_ns();
    for (phase, at) in [
        ("before", fire_at - FACTS_LEAD_NS),
        ("during", armed.middle_ns(fire_at)),
    ] {
        while stage.clock.now() < at {
            if over.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(TICK);
        }
        stage.facts(phase, &armed.timeline);
    }
}

fn follow(stage: &Stage<'_>, load: &LoadHandle) -> Result<(), Failure> {
    let context = stage.context;
    let plan = &context.prepared.plan;
    let phases = &plan.phases;
    let last_outcome_ns = phases.load_end_ns() + plan.load.timeout_ns;
    let events = stage.recorder.sender();
    let mut live = super::summary::LiveLine::new(context.reporter, plan, context.planned);
    loop {
        std::thread::sleep(TICK);
        let now = stage.clock.now();
        // Written as they come, so that a long run holds none of them.
        load.drain_events().into_iter().for_each(|e| events.send(e));
        let progress = load.progress();
        live.show(now, &progress);
        let broken = stage.recorder.failure().or_else(|| load.failure());
        if let Some(reason) = broken {
            load.cancel();
            live.end();
            context.reporter.say(format!(
                "  the record cannot be written: {reason}\n  the run ends now, and what is in force is undone"
            ));
            return Err(Failure::message(Exit::Internal, reason));
        }
        let recorded = progress.completed + progress.errored + progress.censored;
        if now >= phases.load_end_ns() && recorded >= progress.scheduled {
            break;
        }
        if context.interrupt.raised() || now > last_outcome_ns + DRAIN_SLACK_NS {
            load.cancel();
            break;
        }
    }
    live.end();
    Ok(())
}

/// On this host the fault is fired and everything is stamped by one clock: nothing to measure.
impl Stage<'_> {
    fn local_clock(&self, phase: &str) {
        self.recorder.sender().emit(
            self.clock.now(),
            EventKind::Clock(ClockSample {
                phase: phase.to_owned(),
                offset_ns: 0,
                bound_ns: 0,
                samples: 0,
            }),
        );
    }
}
