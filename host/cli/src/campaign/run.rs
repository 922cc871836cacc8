//! One repetition: start the system under test, load it, fire, watch, and leave nothing behind.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, monotonic_ns};
use blackstart_effects::{Mode, Notice, Timeline, TimelineOptions, Watchdog};
use blackstart_load::{CanaryTarget, LoadHandle, LoadRun, Secret};
use blackstart_observe::{
    CpuSource, EventSink, FireSignal, ObserveRun, Observers, ReadyError, ReadyRequest, wait_ready,
};
use blackstart_plan::{ReplicaPlan, RestartPolicy, RunPlan, RuntimePlan};
use blackstart_plugins::{EffectAction, EffectEvent, FaultPlugin};
use blackstart_record::{ClockSample, EventKind, RunFiles, write_metrics_parquet};
use blackstart_targets::{Reexec, Runtime, TargetError, Targets};

use super::fault_host::LiveHost;
use super::prepare::{Prepared, api_key, arm_context};
use super::recorder::Recorder;
use super::stage::{Canary, Stage};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::reporter::Reporter;

/// Time between "everything is ready" and the run epoch: connections are opened in it.
const LEAD_NS: i64 = NS_PER_S;
/// How often the run's loop looks at clocks and flags.
const TICK: Duration = Duration::from_millis(50);
/// How long after the last client timeout the load may take to give every request its outcome.
const DRAIN_SLACK_NS: i64 = 10 * NS_PER_S;
/// Start of a running (not launched) replica: it is there or it is not.
const RUNNING_TIMEOUT_NS: i64 = 20 * NS_PER_S;

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
        let launched = Targets::launch(
            &plan.target,
            context.dir,
            provisional,
            &Reexec::supervisor(),
            sink,
        );
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
    let observers = Observers::start(ObserveRun {
        plan,
        clock,
        sink: EventSink::new(move |e| events.send(e)),
        fire: fire.clone(),
        api_key: api_key.as_deref(),
        cpu: CpuSource::default(),
    })
    .map_err(Failure::internal)?;
    let schedule = plan.schedule(context.planned).map_err(Failure::internal)?;
    let load = blackstart_load::start(LoadRun {
        plan: plan.load.clone(),
        schedule,
        seed: context.planned.seed,
        clock,
        canary: canary.as_ref().map(|c| CanaryTarget::known(c.base_url())),
        dir: context.dir.to_path_buf(),
        request_id_prefix: format!("{}-{}", plan.campaign, context.planned.run),
        api_key: api_key.map(Secret::new),
        good: plan.method.slo,
    })
    .map_err(Failure::internal)?;

    watch(&stage, &load, armed.as_ref());

    let load_end = load.join();
    let metrics = observers.stop().metrics;
    write_metrics_parquet(&files.metrics(), &metrics).map_err(Failure::internal)?;
    if let Some(armed) = armed {
        stage.facts("after");
        stage.prove(&armed.plugin, context.interrupt.raised());
        armed.timeline.cancel();
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
    timeline: Timeline,
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
        mode: if context.planned.negative_control {
            Mode::NegativeControl
        } else {
            Mode::Real
        },
    })
    .map_err(Failure::internal)?;
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
fn watch(stage: &Stage<'_>, load: &LoadHandle, armed: Option<&Armed>) {
    let context = stage.context;
    let plan = &context.prepared.plan;
    let phases = &plan.phases;
    let fire_at = phases.fire_at_ns();
    let before_at = fire_at - 500 * NS_PER_MS;
    let during_at = armed.map(|a| a.middle_ns(fire_at));
    let last_outcome_ns = phases.load_end_ns() + plan.load.timeout_ns;
    let (mut before, mut during) = (false, false);
    let events = stage.recorder.sender();
    let mut live = super::summary::LiveLine::new(context.reporter, plan, context.planned);
    loop {
        std::thread::sleep(TICK);
        let now = stage.clock.now();
        if armed.is_some() {
            if !before && now >= before_at {
                before = true;
                stage.facts("before");
            }
            if !during && during_at.is_some_and(|at| now >= at) {
                during = true;
                stage.facts("during");
            }
        }
        // Written as they come, so that a long run holds none of them.
        load.drain_events().into_iter().for_each(|e| events.send(e));
        let progress = load.progress();
        live.show(now, &progress);
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
}

/// Waits until every replica, and the service, answers with a token. False = interrupted.
fn wait_for_service(
    context: &RunContext<'_>,
    targets: &Targets,
    api_key: Option<&str>,
) -> Result<bool, Failure> {
    let plan = &context.prepared.plan;
    for replica in &plan.target.replicas {
        let (timeout_ns, launched) = match &replica.runtime {
            RuntimePlan::Process(p) => (p.start_timeout_ns, true),
            RuntimePlan::Url { .. } => (RUNNING_TIMEOUT_NS, false),
        };
        if launched {
            context
                .reporter
                .say(format!("starting   {} ({})", replica.id, replica.base_url));
        }
        let request = ReadyRequest {
            replica,
            load: &plan.load,
            api_key,
            timeout: Duration::from_nanos(timeout_ns.unsigned_abs()),
        };
        let waited = waiting(context, targets, replica, |stop| wait_ready(request, stop));
        match waited {
            Ok(_) => {}
            Err(ReadyError::Stopped { .. }) if context.interrupt.raised() => return Ok(false),
            Err(ReadyError::Stopped { .. }) => {
                return Err(ended_for_good(context, targets, replica));
            }
            Err(e) => {
                let help = if launched {
                    let log = RunFiles::new(context.dir).server_log(&replica.id);
                    format!("the server's output is in {}", log.display())
                } else {
                    "start the server, or correct `base_url`".to_owned()
                };
                return Err(at_replica(
                    context,
                    &replica.id,
                    "base_url",
                    &e.to_string(),
                    &help,
                ));
            }
        }
    }
    Ok(true)
}

/// Waits for something, and gives up when the operator interrupts or the server has ended for good.
fn waiting<T>(
    context: &RunContext<'_>,
    targets: &Targets,
    replica: &ReplicaPlan,
    wait: impl FnOnce(&AtomicBool) -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if context.interrupt.raised() || exit_for_good(targets, replica).is_some() {
                    stop.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(TICK);
            }
        });
        let waited = wait(&stop);
        done.store(true, Ordering::Relaxed);
        waited
    })
}

/// How a launched main process ended, if its policy does not start it again.
fn exit_for_good(targets: &Targets, replica: &ReplicaPlan) -> Option<(Option<i32>, Option<i32>)> {
    let RuntimePlan::Process(process) = &replica.runtime else {
        return None;
    };
    let Ok(Runtime::Supervised(supervised)) = targets.replica(&replica.id).map(|r| r.runtime())
    else {
        return None;
    };
    if supervised.main().is_some() {
        return None;
    }
    let exit = supervised.last_exit()?;
    let again = match process.restart {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit.0 != Some(0),
        RestartPolicy::No => false,
    };
    (!again).then_some(exit)
}

fn ended_for_good(context: &RunContext<'_>, targets: &Targets, replica: &ReplicaPlan) -> Failure {
    let how = match exit_for_good(targets, replica) {
        Some((Some(code), _)) => format!("ended with exit code {code}"),
        Some((_, Some(signal))) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    };
    let log = RunFiles::new(context.dir).server_log(&replica.id);
    let last = std::fs::read_to_string(&log).unwrap_or_default();
    let last = last.lines().next_back().unwrap_or("(no output)").to_owned();
    Failure::message(
        Exit::Target,
        format!(
            "replica {} {how} before it answered, and its restart policy does not start it again",
            replica.id
        ),
    )
    .help(format!(
        "its last line was: {last}\nthe whole output is in {}",
        log.display()
    ))
}

/// A victim that cannot be found is found out now, not at the fire.
fn check_victims(context: &RunContext<'_>, targets: &Targets) -> Result<(), Failure> {
    let Some(fault) = &context.prepared.fault else {
        return Ok(());
    };
    for effect in &fault.effects {
        if let EffectAction::Signal {
            replica,
            process_role,
            ..
        } = &effect.action
        {
            targets
                .resolve_role(replica, process_role)
                .map_err(|e| target_failure(context, &e))?;
        }
    }
    Ok(())
}

/// A target's error at the line of the file that asked for it.
fn target_failure(context: &RunContext<'_>, error: &TargetError) -> Failure {
    let text = error.to_string();
    // Their texts say what is wrong, and after a semicolon how to mend it.
    let (message, help) = text
        .split_once("; ")
        .unwrap_or((&text, "see the replica's table in the campaign file"));
    let (replica, key) = match error {
        TargetError::CommandNotFound { replica, .. }
        | TargetError::NotExecutable { replica, .. }
        | TargetError::EmptyCommand { replica }
        | TargetError::LaunchFailed { replica, .. } => (replica, "process.command".to_owned()),
        TargetError::CwdMissing { replica, .. } => (replica, "process.cwd".to_owned()),
        TargetError::PortInUse { replica, .. } | TargetError::BadAddress { replica, .. } => {
            (replica, "base_url".to_owned())
        }
        TargetError::Log { replica, .. } => (replica, "running.log_file".to_owned()),
        TargetError::PidNotFound { replica, .. } => (replica, "running.pid".to_owned()),
        TargetError::BadMatch { replica, .. }
        | TargetError::NoMatch { replica, .. }
        | TargetError::ManyMatches { replica, .. } => (replica, "running.command_match".to_owned()),
        TargetError::VictimNotFound { replica, role, .. }
        | TargetError::UnknownRole { replica, role, .. } => (replica, format!("roles.{role}")),
        _ => return Failure::message(Exit::Target, error),
    };
    at_replica(context, replica, &key, message, help)
}

/// An error of a replica, at a key of its table.
fn at_replica(
    context: &RunContext<'_>,
    replica: &str,
    key: &str,
    message: &str,
    help: &str,
) -> Failure {
    let replicas = &context.prepared.plan.target.replicas;
    let index = replicas.iter().position(|r| r.id == replica).unwrap_or(0);
    let path = format!("target.replica.{index}.{key}");
    let error = context.prepared.file.source.error_at(&path, message, help);
    Failure {
        exit: Exit::Target,
        ..Failure::from(error)
    }
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
