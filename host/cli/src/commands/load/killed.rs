//! The records of a load whose instrument was killed: what it could not write any more follows from the
//! schedule.

use std::path::Path;

use blackstart_load::outcome::{Expectation, Response};
use blackstart_plan::{
    ConversationSchedule, LoadSpec, MAX_TURNS, Pace, PromptSpec, conversation_schedule, schedule,
};
use blackstart_record::{
    CensorKind, Event, EventKind, EventLog, EventWriter, JournalEntry, RequestJournalReader,
    RunFiles, seal_journal_with,
};

use crate::exit::Failure;

/// Seals the journal of a killed load. Requests of this share that have no record get one: those that
/// were due by the last stamp of the records are censored there, the others were never due. What was
/// found becomes an event, so that whoever reads the records later is told too.
///
/// # Errors
/// When the load is still running, or its records cannot be read or written.
pub(super) fn seal(spec: &LoadSpec, dir: &Path, log: &EventLog) -> Result<(), Failure> {
    let files = RunFiles::new(dir);
    let mut journal = RequestJournalReader::open(&files.journal()).map_err(Failure::records)?;
    journal.hold().map_err(Failure::records)?;
    let planned = planned(spec);
    let mut recorded = vec![false; planned.as_ref().map_or(0, |p| p.schedule.intended_ns.len())];
    // Nothing is known of the time after it.
    let mut until_ns = log.events.iter().map(|e| e.at_ns).max().unwrap_or(0);
    let mut records = 0_u64;
    while let Some(entry) = journal.next_entry().map_err(Failure::records)? {
        if let JournalEntry::Request(record) = entry {
            until_ns = until_ns.max(record.ended_ns);
            records += 1;
            let place = usize::try_from(record.index).ok();
            if let Some(known) = place.and_then(|place| recorded.get_mut(place)) {
                *known = true;
            }
        }
    }
    let (unread_bytes, damaged) = (journal.torn_bytes(), journal.is_damaged());
    // It is locked anew for the sealing.
    drop(journal);
    let filled_in = || {
        let all = planned
            .iter()
            .flat_map(|planned| missing(spec, planned, &recorded));
        all.map(|mut response| {
            response.censor(until_ns, CensorKind::RunEnd);
            response.into_record()
        })
    };
    // Said before the journal goes, and once: this may be the second try.
    let said = |e: &Event| matches!(e.kind, EventKind::Killed { .. });
    if !log.events.iter().any(said) {
        let (all, due) = filled_in().fold((0, 0), |(all, due), record| {
            (all + 1, due + u64::from(record.observed_ns() > 0))
        });
        let event = Event {
            at_ns: until_ns,
            kind: EventKind::Killed {
                filled_in: planned.as_ref().map(|_| all),
                due,
                records,
                unread_bytes,
                damaged,
            },
        };
        EventWriter::resume(&files.events(), log.torn_bytes)
            .and_then(|mut writer| writer.append(&event))
            .map_err(Failure::records)?;
    }
    seal_journal_with(dir, filled_in()).map_err(Failure::records)?;
    Ok(())
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

/// The schedule, if `load.json` alone says it, and it is the one that was sent.
fn planned(spec: &LoadSpec) -> Option<ConversationSchedule> {
    seeded(spec).filter(|found| spec.schedule_sha256 == Some(found.schedule.sha256()))
}

/// The schedule of a load's seed, if `load.json` alone says it: not that of a trace, nor that of a data
/// set's conversations, whose turns are in its file; a closed loop has none.
pub(super) fn seeded(spec: &LoadSpec) -> Option<ConversationSchedule> {
    let Pace::Open {
        profile, requests, ..
    } = &spec.pace
    else {
        return None;
    };
    let (arrivals, seed) = (spec.load.arrivals, spec.seed);
    Some(match (spec.conversations, &spec.prompts) {
        (None, _) => ConversationSchedule {
            schedule: schedule(arrivals, profile, *requests, seed).ok()?,
            turns: Vec::new(),
        },
        (Some(_), PromptSpec::DataSet { .. }) => return None,
        (Some(talk), _) => {
            conversation_schedule(arrivals, profile, talk, |_| MAX_TURNS, *requests, seed).ok()?
        }
    })
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
