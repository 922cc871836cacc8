//! `blackstart load`: a load without a fault. The quick look before anything else.

mod args;
mod bars;
mod claim;
mod killed;
mod seal;
mod show;
mod verify;

use std::path::Path;
use std::time::{Duration, Instant};

use blackstart_analyze::{LoadAsked, LoadFigures, LoadFiguresBuilder};
use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, monotonic_ns, wall_clock_bound_ns};
use blackstart_load::{
    CanaryTarget, ClosedLoop, LoadError, LoadHandle, LoadRun, OpenLoop, Pacing, Prompts, Secret,
};
use blackstart_plan::{ConversationSchedule, LOAD_SPEC_SCHEMA_VERSION, LoadPlan, LoadSpec, Pace};
use blackstart_record::{
    ClockSample, ErrorClass, Event, EventKind, RunFiles, for_each_request, read_events, read_gaps,
    read_json, unlocked_because, write_json_atomic,
};
use blackstart_report::LoadReport;
use blackstart_require::{load_figures, load_names};
use blackstart_tls::TlsClient;

pub use args::LoadArgs;
pub(super) use claim::Claim;
pub(super) use seal::check_sealed;
pub use verify::verify;

use crate::Outcome;
use crate::campaign::{Canary, Recorder, unlocked_warning};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::out;
use crate::reporter::Reporter;
use crate::{live, when};

/// Time between "everything is ready" and the epoch: connections are opened in it.
const LEAD_NS: i64 = 50 * NS_PER_MS;
/// How often the loop looks at clocks and flags.
const TICK: Duration = Duration::from_millis(50);
/// How long after the last client timeout the load may take to give every request its outcome.
const DRAIN_SLACK_NS: i64 = 10 * NS_PER_S;

/// Phase of the clock sample that tells how well the wall clock is known; without one it is not
/// synchronised.
pub(super) const WALL_CLOCK: &str = "wall";

/// What was asked for.
pub(super) const SPEC_FILE: &str = "load.json";
/// The hash of every file.
const MANIFEST_FILE: &str = "manifest.json";

/// The figures.
const SUMMARY_FILE: &str = "summary.json";

/// Where the records go.
enum Results {
    /// Where they stay.
    Kept(Claim),
    /// A folder that goes away.
    Dropped(tempfile::TempDir),
}

impl Results {
    fn path(&self) -> &Path {
        match self {
            Self::Kept(claim) => claim.path(),
            Self::Dropped(dir) => dir.path(),
        }
    }

    /// From here on there is something to keep.
    fn keep(&self) {
        if let Self::Kept(claim) = self {
            claim.keep();
        }
    }
}

/// Runs the command.
pub fn run(args: LoadArgs) -> Outcome {
    args.requirements.check(&load_names())?;
    if let Some(unix_ns) = args.start_at {
        lies_ahead(unix_ns, unix_ns - blackstart_clock::unix_ns())?;
    }
    let api_key = args.api_key()?;
    let reporter = Reporter::new();
    let prompts = args.prompts()?;
    let tls = args.tls()?;
    let (spec, open) = args.spec(&prompts, tls.as_ref(), |load, client| {
        first_model(load, api_key.as_ref(), client)
    })?;
    let results = results(args.out.as_deref())?;
    let dir = results.path();
    write_json_atomic(&dir.join(SPEC_FILE), &spec).map_err(Failure::internal)?;
    let interrupt = Interrupt::watch()?;
    let asked = Asked {
        spec: &spec,
        open,
        prompts,
        api_key,
        tls: tls.map(|tls| tls.client),
        canary: !args.no_canary,
        start_at: args.start_at,
    };
    let driven = drive(asked, &results, &reporter, &interrupt);
    // What was recorded is summed up, whatever happened.
    let partial = driven.as_ref().map_or(true, |whole| !whole);
    let kept = match &results {
        Results::Kept(claim) => Some(claim.path().display().to_string()),
        Results::Dropped(_) => None,
    };
    let summary = match sum_up(&spec, dir, partial, kept) {
        Ok(summary) => summary,
        Err(e) => return Err(driven.err().unwrap_or(e)),
    };
    tell(&summary, &reporter);
    let figures = load_figures(&summary);
    if args.json {
        let mut document = serde_json::to_value(&summary).map_err(Failure::internal)?;
        args.requirements.put_into(&mut document, Some(&figures));
        out!("{document}");
    }
    driven?;
    let exit = if interrupt.raised() {
        Exit::Interrupted
    } else {
        verdict(&summary.figures)
    };
    Ok(args.requirements.conclude(exit, Some(&figures)))
}

/// Whether a folder holds the records of a load.
pub fn is_load(dir: &Path) -> bool {
    dir.join(SPEC_FILE).is_file()
}

/// `analyze` of a load's folder: the summary once more, from the records. Also of a load whose
/// instrument was killed.
///
/// # Errors
/// When the folder cannot be read.
pub fn analyze(dir: &Path) -> Outcome {
    let spec = read_spec(dir)?;
    let reporter = Reporter::new();
    seal::check_sealed(dir)?;
    let files = RunFiles::new(dir);
    let log = read_events(&files.events()).map_err(Failure::records)?;
    let killed = files.journal().exists();
    if killed {
        say_unlocked(&files, &reporter);
        killed::seal(&spec, dir, &log)?;
    }
    let events = log.events;
    let partial = killed || was_cut_off(&events);
    let kept = Some(dir.display().to_string());
    let summary = sum_up(&spec, dir, partial, kept)?;
    tell(&summary, &reporter);
    if killed::leaves_open(&spec, &events) {
        reporter.say(show::UNKNOWN);
    }
    out!("{}", dir.display());
    Ok(if partial { Exit::Invalid } else { Exit::Valid })
}

/// Says that nothing keeps others away from the records, where that is so.
fn say_unlocked(files: &RunFiles, reporter: &Reporter) {
    if let Some(why) = unlocked_because(&files.journal()) {
        reporter.say(unlocked_warning(&files.journal(), &why));
    }
}

/// What a load's folder says was asked for.
///
/// # Errors
/// When it cannot be read, or is in another version's format.
pub(super) fn read_spec(dir: &Path) -> Result<LoadSpec, Failure> {
    let spec: LoadSpec = read_json(&dir.join(SPEC_FILE)).map_err(Failure::records)?;
    if spec.schema_version != LOAD_SPEC_SCHEMA_VERSION {
        let what = format!(
            "{}: written by version {} of the instrument, in a format that this one does not read",
            dir.display(),
            spec.instrument_version
        );
        return Err(Failure::message(Exit::Invalid, what).help("use that version"));
    }
    if spec.share.number >= spec.share.of {
        let what = format!(
            "{}: damaged: it is part {} of {}",
            dir.join(SPEC_FILE).display(),
            spec.share.number,
            spec.share.of
        );
        return Err(Failure::message(Exit::Invalid, what).help("restore the file from a copy"));
    }
    Ok(spec)
}

/// Whether a load ended before its time: a whole one says at its end that it was, an interrupted one
/// says that too.
pub(super) fn was_cut_off(events: &[Event]) -> bool {
    let said = |what: fn(&EventKind) -> bool| events.iter().any(|e| what(&e.kind));
    said(|kind| matches!(kind, EventKind::Interrupted { .. }))
        || !said(|kind| matches!(kind, EventKind::LoadEnded { .. }))
}

/// A load of which nothing completed has measured nothing of the service.
fn verdict(figures: &LoadFigures) -> Exit {
    let unreachable: u64 = [ErrorClass::Connect, ErrorClass::Tls]
        .iter()
        .filter_map(|class| figures.errored_by_class.get(class.name()))
        .sum();
    match figures.completed {
        0 if unreachable > 0 && unreachable == figures.scheduled => Exit::Target,
        0 => Exit::Invalid,
        _ => Exit::Valid,
    }
}

pub(super) fn tell(summary: &LoadReport, reporter: &Reporter) {
    if summary.tls.as_ref().is_some_and(|tls| tls.insecure) {
        reporter.say(show::INSECURE);
    }
    for line in show::figures(&summary.figures, reporter.canvas()) {
        reporter.say(line);
    }
    if let Some(kept) = &summary.out {
        reporter.say(format!("records    {kept}"));
    }
}

fn results(out: Option<&Path>) -> Result<Results, Failure> {
    let Some(path) = out else {
        return tempfile::tempdir().map(Results::Dropped).map_err(|e| {
            Failure::internal(e)
                .context("a temporary folder for the records")
                .help("choose a folder with --out, or set TMPDIR")
        });
    };
    Claim::take(path).map(Results::Kept)
}

fn first_model(
    load: &LoadPlan,
    api_key: Option<&Secret>,
    tls: Option<&TlsClient>,
) -> Result<String, Failure> {
    let names = api_key
        .map_or_else(
            || blackstart_observe::list_models(load, None, tls),
            |key| key.with(|key| blackstart_observe::list_models(load, Some(key), tls)),
        )
        .map_err(|e| {
            let help = if e.tls {
                // The text says what to do; the server is up.
                "--model would not help: its requests are refused in the same way"
            } else {
                "is the server up at this address? name its model with --model to go on without asking"
            };
            Failure::message(Exit::Target, e).help(help)
        })?;
    let name = names
        .into_iter()
        .next()
        .ok_or_else(|| Failure::message(Exit::Target, "the server lists no model"))?;
    // The name is shown and kept.
    if api_key.is_some_and(|key| key.redact(&name) != name) {
        let what = "the server lists a model whose name holds the API key";
        return Err(Failure::message(Exit::Target, what).help("name the model with --model"));
    }
    Ok(name)
}

/// Everything that a load needs.
struct Asked<'a> {
    spec: &'a LoadSpec,
    /// Times and turns of an open loop.
    open: Option<ConversationSchedule>,
    prompts: Prompts,
    api_key: Option<Secret>,
    tls: Option<TlsClient>,
    canary: bool,
    /// When it starts, if that was asked for.
    start_at: Option<i64>,
}

/// Refuses a start that is past.
fn lies_ahead(start_unix_ns: i64, ahead_ns: i64) -> Result<(), Failure> {
    if ahead_ns >= 0 {
        return Ok(());
    }
    let what = format!(
        "--start-at {}: that was {} ago by this machine's clock",
        when::rfc3339(start_unix_ns),
        when::ago(-ahead_ns)
    );
    Err(Failure::message(Exit::Configuration, what)
        .help("choose an instant that leaves every machine time to start, in UTC or with an offset (+02:00)"))
}

/// Why a load was not begun: the server's address, the machine, or what was asked for.
fn not_started(error: LoadError) -> Failure {
    let exit = match &error {
        LoadError::Resolve { .. } => Exit::Target,
        LoadError::Thread { .. } | LoadError::Panicked { .. } | LoadError::Record(_) => {
            Exit::Internal
        }
        _ => Exit::Configuration,
    };
    Failure::new(exit, error)
}

/// A clock whose zero is an instant of the wall clock.
fn epoch_at(unix_ns: i64) -> Result<RunClock, Failure> {
    // Both clocks are read together.
    let now = RunClock::with_epoch(monotonic_ns());
    let ahead_ns = unix_ns - now.epoch_unix_ns();
    lies_ahead(unix_ns, ahead_ns)?;
    Ok(RunClock::from_recorded(
        now.epoch_monotonic_ns() + ahead_ns,
        unix_ns,
    ))
}

/// Whether the whole load was carried out.
fn drive(
    asked: Asked<'_>,
    results: &Results,
    reporter: &Reporter,
    interrupt: &Interrupt,
) -> Result<bool, Failure> {
    let dir = results.path();
    let spec = asked.spec;
    let provisional = RunClock::with_epoch(monotonic_ns());
    let canary = asked
        .canary
        .then(|| Canary::launch(dir, provisional))
        .transpose()?;
    let pacing = match (&spec.pace, asked.open) {
        (Pace::Open { concurrency, .. } | Pace::Trace { concurrency, .. }, Some(open)) => {
            Pacing::Open(OpenLoop {
                schedule: open.schedule,
                share: spec.share,
                concurrency: *concurrency,
                turns: open.turns,
            })
        }
        (
            Pace::Closed {
                concurrency,
                requests,
                length_ns,
            },
            None,
        ) => Pacing::Closed(ClosedLoop {
            concurrency: *concurrency,
            requests: *requests,
            end_ns: *length_ns,
            turns: spec.conversations.map(|c| c.turns),
        }),
        _ => {
            let what = "internal error: an open loop has a schedule, and a closed one has none";
            return Err(Failure::message(Exit::Internal, what));
        }
    };
    let recorder = Recorder::start(&RunFiles::new(dir).events())?;
    let clock = match asked.start_at {
        None => RunClock::with_epoch(monotonic_ns() + LEAD_NS),
        Some(unix_ns) => epoch_at(unix_ns)?,
    };
    recorder.epoch(&clock, &clock);
    if let Some(bound_ns) = wall_clock_bound_ns() {
        let sample = ClockSample {
            phase: WALL_CLOCK.to_owned(),
            offset_ns: 0,
            bound_ns,
            samples: 1,
        };
        recorder.sender().emit(0, EventKind::Clock(sample));
    }
    let load = blackstart_load::start(LoadRun {
        plan: spec.load.clone(),
        pacing,
        prompts: asked.prompts,
        seed: spec.seed,
        clock,
        canary: canary.as_ref().map(|c| CanaryTarget::known(c.base_url())),
        dir: dir.to_owned(),
        request_id_prefix: format!("load-{:x}", clock.epoch_unix_ns()),
        api_key: asked.api_key,
        tls: asked.tls,
        good: spec.slo,
        every_gap: spec.every_gap,
    })
    .map_err(not_started)?;
    results.keep();
    // Only now has everything been checked.
    reporter.say(show::plan(spec));
    if spec.tls.as_ref().is_some_and(|tls| tls.insecure) {
        reporter.say(show::INSECURE);
    }
    say_unlocked(&RunFiles::new(dir), reporter);
    let whole = watch(spec, &load, &recorder, clock, reporter, interrupt);
    let ended = load.join();
    drop(canary);
    let events = recorder.sender();
    if let Ok(summary) = &ended {
        summary.events.iter().cloned().for_each(|e| events.send(e));
        events.emit(
            clock.now(),
            EventKind::LoadEnded {
                scheduled: summary.scheduled,
                recorded: summary.recorded,
            },
        );
    }
    if interrupt.raised() {
        let signal = interrupt.signal_name().to_owned();
        events.emit(clock.now(), EventKind::Interrupted { signal });
    }
    drop(events);
    let recorded = recorder.finish();
    ended.map_err(Failure::internal)?;
    recorded?;
    Ok(whole)
}

/// Follows the load until every request has its outcome; false if it was ended before.
fn watch(
    spec: &LoadSpec,
    load: &LoadHandle,
    recorder: &Recorder,
    clock: RunClock,
    reporter: &Reporter,
    interrupt: &Interrupt,
) -> bool {
    let length_ns = spec.pace.length_ns();
    let last_outcome_ns = length_ns.saturating_add(spec.load.timeout_ns);
    let events = recorder.sender();
    reporter.start_bar(u64::try_from(length_ns / NS_PER_MS).unwrap_or_default());
    let mut spoken = Instant::now();
    let whole = loop {
        std::thread::sleep(TICK);
        load.drain_events().into_iter().for_each(|e| events.send(e));
        let now = clock.now();
        let progress = load.progress();
        if reporter.is_terminal() {
            let at = u64::try_from(now.max(0) / NS_PER_MS).unwrap_or_default();
            reporter.progress(at, live::moving(&progress));
        } else if spoken.elapsed() >= live::PLAIN_INTERVAL {
            spoken = Instant::now();
            reporter.say(format!(
                "{:>7.1} s  {}",
                now as f64 / NS_PER_S as f64,
                live::plain(&progress)
            ));
        }
        if load.is_finished() {
            break true;
        }
        if interrupt.raised()
            || recorder.failure().is_some()
            || now > last_outcome_ns.saturating_add(DRAIN_SLACK_NS)
        {
            load.cancel();
            break false;
        }
    };
    reporter.end_bar();
    whole
}

/// How long requests are offered: as long as was asked, or as its number of requests lasts at its rate.
fn offered_length_ns(spec: &LoadSpec) -> i64 {
    let length_ns = spec.pace.length_ns();
    match spec.pace {
        Pace::Open {
            requests: Some(n), ..
        } if spec.load.rate_per_s > 0.0 => {
            let lasts_ns = n as f64 / spec.load.rate_per_s * NS_PER_S as f64;
            length_ns.min(lasts_ns as i64)
        }
        _ => length_ns,
    }
}

/// Figures of what is on disk, which are then on disk too, and the seal over all of it.
pub(super) fn sum_up(
    spec: &LoadSpec,
    dir: &Path,
    partial: bool,
    out: Option<String>,
) -> Result<LoadReport, Failure> {
    let events = read_events(&RunFiles::new(dir).events()).map_err(Failure::records)?;
    let summary = summarise(spec, dir, &events.events, partial, out)?;
    write_json_atomic(&dir.join(SUMMARY_FILE), &summary).map_err(Failure::internal)?;
    seal::seal(spec, dir, partial)?;
    Ok(summary)
}

/// Figures of what is on disk.
fn summarise(
    spec: &LoadSpec,
    dir: &Path,
    events: &[Event],
    partial: bool,
    out: Option<String>,
) -> Result<LoadReport, Failure> {
    let files = RunFiles::new(dir);
    let rate_per_s = match spec.pace {
        Pace::Open { .. } | Pace::Trace { .. } => Some(spec.load.rate_per_s),
        Pace::Closed { .. } => None,
    };
    let mut figures = LoadFiguresBuilder::new(LoadAsked {
        rate_per_s,
        length_ns: offered_length_ns(spec),
        slo: spec.slo,
        partial,
    });
    for_each_request(&files.requests(), |r| figures.push(r)).map_err(Failure::records)?;
    let gaps = read_gaps(&files.gaps()).map_err(Failure::records)?;
    let mut figures = figures.finish(&gaps.merged(i64::MIN, i64::MAX), events);
    if killed::leaves_open(spec, events) {
        // Figures of the survivors would flatter.
        figures.goodput = None;
        figures.offered_rate = None;
    }
    Ok(LoadReport::new(figures, spec.tls.clone(), out))
}
