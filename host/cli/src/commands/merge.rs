//! `blackstart merge`: joins the parts of one load that several machines sent.

use std::path::{Path, PathBuf};

use blackstart_clock::NS_PER_MS;
use blackstart_plan::{LoadSpec, MAX_SCHEDULED_REQUESTS, Schedule, Share};
use blackstart_record::{
    Event, EventKind, EventWriter, GapHistograms, GapParquetWriter, RequestParquetWriter,
    RequestRecord, RunFiles, for_each_gap, for_each_request, journal_in_use, read_events,
    read_gaps, write_gaps, write_json_atomic,
};
use clap::Args;

use super::load;
use crate::Outcome;
use crate::exit::{Exit, Failure};
use crate::output::out;
use crate::reporter::Reporter;

/// Farthest that the epochs of two parts may lie apart on the wall clock.
const EPOCH_TOLERANCE_NS: u64 = NS_PER_MS.unsigned_abs();
/// Load threads of one part, at most; keeps their numbers apart.
const THREADS_PER_PART: u32 = 1_000;

/// `merge`
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Folders of `load --shard`, one for each part
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// Folder for the joined records; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// One part.
struct Part {
    dir: PathBuf,
    spec: LoadSpec,
    events: Vec<Event>,
    epoch_unix_ns: i64,
    /// How well its wall clock was known; `None` = not synchronised.
    clock_bound_ns: Option<i64>,
    partial: bool,
}

/// Runs the command.
pub fn run(args: MergeArgs) -> Outcome {
    let mut parts: Vec<Part> = args
        .dirs
        .iter()
        .map(|d| read(d))
        .collect::<Result<_, _>>()?;
    parts.sort_by_key(|p| p.spec.share.number);
    check_parts(&parts)?;
    let claim = load::Claim::take(&args.out)?;
    let files = RunFiles::new(&args.out);
    let total = join_requests(&parts, &files)?;
    let mut gaps = GapHistograms::default();
    for part in &parts {
        let own = read_gaps(&RunFiles::new(&part.dir).gaps()).map_err(Failure::records)?;
        gaps.add(own);
    }
    write_gaps(&files.gaps(), &gaps).map_err(Failure::internal)?;
    if parts[0].spec.every_gap {
        join_every_gap(&parts, &files)?;
    }
    join_events(&parts, &files, total)?;
    let spec = LoadSpec {
        share: Share::WHOLE,
        ..parts[0].spec.clone()
    };
    write_json_atomic(&args.out.join(load::SPEC_FILE), &spec).map_err(Failure::internal)?;
    let partial = parts.iter().any(|p| p.partial);
    let kept = Some(args.out.display().to_string());
    let summary = load::sum_up(&spec, &args.out, partial, kept)?;
    let reporter = Reporter::new();
    reporter.say(clocks(&parts));
    load::tell(&summary, &reporter);
    claim.keep();
    out!("{}", args.out.display());
    Ok(if partial { Exit::Invalid } else { Exit::Valid })
}

fn wrong(what: String) -> Failure {
    Failure::message(Exit::Invalid, what)
}

fn read(dir: &Path) -> Result<Part, Failure> {
    let at = |what: &str| wrong(format!("{}: {what}", dir.display()));
    if !load::is_load(dir) {
        return Err(at("holds no load (there is no load.json)")
            .help("give the folders that `load --shard … --out` wrote"));
    }
    let journal = RunFiles::new(dir).journal();
    if journal_in_use(&journal).map_err(Failure::records)? {
        return Err(at("the load is still running").help("stop it or wait"));
    }
    if journal.exists() {
        return Err(at("its instrument was killed").help("run `blackstart analyze` on it first"));
    }
    load::check_sealed(dir)?;
    let spec = load::read_spec(dir)?;
    let events = read_events(&RunFiles::new(dir).events())
        .map_err(Failure::records)?
        .events;
    let epoch = events.iter().find_map(|e| match e.kind {
        EventKind::Epoch { unix_ns, .. } => Some(unix_ns),
        _ => None,
    });
    if epoch.is_some_and(|unix_ns| unix_ns < 0) {
        let file = RunFiles::new(dir).events();
        let what = format!("{}: damaged: its epoch lies before 1970", file.display());
        return Err(wrong(what));
    }
    let clock_bound_ns = events.iter().find_map(|e| match &e.kind {
        EventKind::Clock(sample) if sample.phase == load::WALL_CLOCK => Some(sample.bound_ns),
        _ => None,
    });
    Ok(Part {
        dir: dir.to_owned(),
        epoch_unix_ns: epoch.ok_or_else(|| at("its events name no epoch"))?,
        clock_bound_ns,
        partial: load::was_cut_off(&events),
        spec,
        events,
    })
}

/// Whether these are all parts of one load, each once, started together.
fn check_parts(parts: &[Part]) -> Result<(), Failure> {
    let first = &parts[0];
    let of = first.spec.share.of;
    for part in parts {
        let same = LoadSpec {
            share: first.spec.share,
            ..part.spec.clone()
        };
        if same != first.spec || part.spec.share.of != of {
            return Err(wrong(format!(
                "{} and {} are not parts of one load: their load.json differ in more than the share",
                first.dir.display(),
                part.dir.display()
            )));
        }
        let apart_ns = part.epoch_unix_ns.abs_diff(first.epoch_unix_ns);
        if apart_ns > EPOCH_TOLERANCE_NS {
            return Err(wrong(format!(
                "{} and {} started {:.3} ms apart",
                first.dir.display(),
                part.dir.display(),
                apart_ns as f64 / 1e6
            ))
            .help("give all parts the same --start-at"));
        }
    }
    let found: Vec<u32> = parts.iter().map(|p| p.spec.share.number).collect();
    if let Some(pair) = found.windows(2).find(|w| w[0] == w[1]) {
        return Err(wrong(format!("part {}/{of} is there twice", pair[0])));
    }
    if let Some(missing) = (0..of).find(|n| !found.contains(n)) {
        return Err(wrong(format!("part {missing}/{of} is missing")));
    }
    Ok(())
}

/// Writes all requests; the number of them. Every request of the schedule must be there once, at its
/// own time.
fn join_requests(parts: &[Part], files: &RunFiles) -> Result<u64, Failure> {
    let mut writer = RequestParquetWriter::create(&files.requests()).map_err(Failure::internal)?;
    let mut times: Vec<Option<i64>> = Vec::new();
    for part in parts {
        let share = part.spec.share;
        let mut problem = None;
        let mut add = |r: &RequestRecord| {
            let index = usize::try_from(r.index).unwrap_or(usize::MAX);
            // A part has whole conversations, where there are any.
            let place = match part.spec.conversations {
                Some(_) => r.conversation.map(u64::from),
                None => Some(r.index),
            };
            if place.and_then(|place| share.position(place)).is_none()
                || index >= MAX_SCHEDULED_REQUESTS
            {
                problem.get_or_insert(wrong(format!(
                    "{}: request {} is not of part {}/{}",
                    part.dir.display(),
                    r.index,
                    share.number,
                    share.of
                )));
                return;
            }
            if index >= times.len() {
                times.resize(index + 1, None);
            }
            if times[index].replace(r.intended_ns).is_some() {
                let what = format!("{}: request {} is there twice", part.dir.display(), r.index);
                problem.get_or_insert(wrong(what));
            } else if problem.is_none()
                && let Err(e) = writer.push(r.clone())
            {
                problem = Some(Failure::internal(e));
            }
        };
        for_each_request(&RunFiles::new(&part.dir).requests(), &mut add)
            .map_err(Failure::records)?;
        if let Some(problem) = problem {
            return Err(problem);
        }
    }
    let missing = times.iter().position(Option::is_none);
    if let Some(index) = missing {
        return Err(wrong(format!(
            "request {index} of the schedule is in no part"
        )));
    }
    let schedule = Schedule {
        intended_ns: times.into_iter().flatten().collect(),
    };
    if parts[0].spec.schedule_sha256.as_deref() != Some(schedule.sha256().as_str()) {
        return Err(wrong(
            "the requests together are not the schedule: its SHA-256 is another".to_owned(),
        )
        .help("a part is not what its instrument wrote, or its last requests are missing"));
    }
    writer.finish().map_err(Failure::internal)?;
    Ok(schedule.intended_ns.len() as u64)
}

/// Writes the single gaps of all parts, one part after the other.
fn join_every_gap(parts: &[Part], files: &RunFiles) -> Result<(), Failure> {
    let mut writer = GapParquetWriter::create(&files.every_gap()).map_err(Failure::internal)?;
    for part in parts {
        let mut written = Ok(());
        for_each_gap(&RunFiles::new(&part.dir).every_gap(), |rows| {
            if written.is_ok() {
                written = writer.extend(&rows);
            }
        })
        .and(written)
        .map_err(Failure::internal)?;
    }
    writer.finish().map_err(Failure::internal)
}

fn join_events(parts: &[Part], files: &RunFiles, total: u64) -> Result<(), Failure> {
    let mut all = Vec::new();
    let mut epoch = None;
    for part in parts {
        for event in &part.events {
            let mut event = event.clone();
            match &mut event.kind {
                EventKind::Epoch { .. } => {
                    epoch.get_or_insert(event);
                    continue;
                }
                EventKind::LoadEnded { .. } => continue,
                EventKind::Heartbeat { thread, .. } => {
                    *thread =
                        part.spec.share.number * THREADS_PER_PART + *thread % THREADS_PER_PART;
                }
                _ => {}
            }
            all.push(event);
        }
    }
    all.sort_by_key(|e| e.at_ns);
    let end_ns = all.last().map_or(0, |e| e.at_ns);
    let ended = EventKind::LoadEnded {
        scheduled: total,
        recorded: total,
    };
    let mut writer = EventWriter::create(&files.events()).map_err(Failure::internal)?;
    let whole = parts.iter().all(|p| !p.partial).then_some(Event {
        at_ns: end_ns,
        kind: ended,
    });
    for event in epoch.iter().chain(&all).chain(&whole) {
        writer.append(event).map_err(Failure::internal)?;
    }
    Ok(())
}

/// What the parts' clocks have in common.
fn clocks(parts: &[Part]) -> String {
    let n = parts.len();
    let unknown = parts.iter().filter(|p| p.clock_bound_ns.is_none()).count();
    let widest = parts.iter().filter_map(|p| p.clock_bound_ns).max();
    match widest {
        Some(bound) if unknown == 0 => format!(
            "parts      {n}, started together within ±{:.3} ms by their wall clocks",
            bound as f64 / 1e6
        ),
        _ => format!(
            "parts      {n}; the wall clock of {unknown} of them was not synchronised: that they started together is not measured"
        ),
    }
}
