//! The records of a load whose instrument was killed: what it could not write any more follows from the
//! schedule.

use std::path::Path;

use blackstart_load::outcome::{Expectation, Response};
use blackstart_plan::{
    ConversationSchedule, LoadSpec, MAX_TURNS, Pace, PromptSpec, conversation_schedule, schedule,
};
use blackstart_record::{
    CensorKind, Event, EventKind, JournalEntry, RequestJournalReader, RunFiles, seal_journal_with,
};

use crate::exit::Failure;

/// Seals the journal of a killed load. Requests of this share that have no record get one: those that
/// were due by the last stamp of the records are censored there, the others were never due. Says what
/// was found.
///
/// # Errors
/// When the load is still running, or its records cannot be read or written.
pub(super) fn seal(spec: &LoadSpec, dir: &Path, events: &[Event]) -> Result<Vec<String>, Failure> {
    let mut journal =
        RequestJournalReader::open(&RunFiles::new(dir).journal()).map_err(Failure::records)?;
    journal.hold().map_err(Failure::records)?;
    let planned = planned(spec);
    let mut recorded = vec![false; planned.as_ref().map_or(0, |p| p.schedule.intended_ns.len())];
    // Nothing is known of the time after it.
    let mut until_ns = events.iter().map(|e| e.at_ns).max().unwrap_or(0);
    while let Some(entry) = journal.next_entry().map_err(Failure::records)? {
        if let JournalEntry::Request(record) = entry {
            until_ns = until_ns.max(record.ended_ns);
            let place = usize::try_from(record.index).ok();
            if let Some(known) = place.and_then(|place| recorded.get_mut(place)) {
                *known = true;
            }
        }
    }
    // It is locked anew for the sealing.
    drop(journal);
    let mut due = 0_u64;
    let missing = planned
        .iter()
        .flat_map(|planned| missing(spec, planned, &recorded));
    let missing = missing.map(|mut response| {
        response.censor(until_ns, CensorKind::RunEnd);
        let record = response.into_record();
        due += u64::from(record.observed_ns() > 0);
        record
    });
    let sealed = seal_journal_with(dir, missing).map_err(Failure::records)?;
    let mut lines = Vec::new();
    if sealed.damaged {
        lines.push(format!(
            "DAMAGED    the journal is damaged behind {} records: {} bytes of it were not read, and what they \
             held counts as not recorded",
            sealed.requests - sealed.added,
            sealed.torn_bytes
        ));
    }
    if planned.is_some() {
        lines.push(format!(
            "KILLED     the instrument died: {} requests had no record; {due} of them were due by {:.3} s, the \
             last stamp, and count as censored there",
            sealed.added,
            until_ns as f64 / 1e9
        ));
    }
    Ok(lines)
}

/// Whether it is not known what was under way: the instrument was killed, and its schedule does not
/// follow from `load.json`.
pub(super) fn leaves_open(spec: &LoadSpec, events: &[Event]) -> bool {
    let ended = |e: &Event| {
        matches!(
            e.kind,
            EventKind::LoadEnded { .. } | EventKind::Interrupted { .. }
        )
    };
    !events.iter().any(ended) && planned(spec).is_none()
}

/// The schedule, if `load.json` alone says it: not that of a trace, nor that of a data set's
/// conversations, whose turns are in its file; a closed loop has none.
fn planned(spec: &LoadSpec) -> Option<ConversationSchedule> {
    let Pace::Open {
        profile, requests, ..
    } = &spec.pace
    else {
        return None;
    };
    let (arrivals, seed) = (spec.load.arrivals, spec.seed);
    let found = match (spec.conversations, &spec.prompts) {
        (None, _) => ConversationSchedule {
            schedule: schedule(arrivals, profile, *requests, seed).ok()?,
            turns: Vec::new(),
        },
        (Some(_), PromptSpec::DataSet { .. }) => return None,
        (Some(talk), _) => {
            conversation_schedule(arrivals, profile, talk, |_| MAX_TURNS, *requests, seed).ok()?
        }
    };
    (spec.schedule_sha256 == Some(found.schedule.sha256())).then_some(found)
}

/// The requests of the share that have no record, without their outcome.
fn missing<'a>(
    spec: &LoadSpec,
    planned: &'a ConversationSchedule,
    recorded: &'a [bool],
) -> impl Iterator<Item = Response> + use<'a> {
    let share = spec.share;
    let times = (0_u64..).zip(&planned.schedule.intended_ns).zip(recorded);
    times
        .enumerate()
        .filter_map(move |(place, ((index, intended_ns), known))| {
            let turn = planned.turns.get(place);
            // A part has whole conversations, where there are any.
            let of_share = turn.map_or(index, |turn| u64::from(turn.conversation));
            if *known || share.position(of_share).is_none() {
                return None;
            }
            let mut response = Response::new(index, *intended_ns, Expectation::until(i64::MAX));
            if let Some(turn) = turn {
                response.in_conversation(turn.conversation, turn.turn);
            }
            Some(response)
        })
}
