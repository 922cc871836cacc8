//! The thread that writes records: the only one that touches the disk.

use std::path::Path;
use std::sync::mpsc::Receiver;

use blackstart_record::{
    CensorKind, ErrorClass, Gap, GapHistograms, RecordError, RequestJournalWriter, RequestRecord,
    SealSummary, seal_journal,
};

use blackstart_plan::MAX_SCHEDULED_REQUESTS;

use crate::outcome::{BodyEnd, Expectation, Response};
use crate::pacing::State;
use crate::shared::Shared;

/// Messages that may wait for the disk, from all load threads together.
pub(crate) const MAX_QUEUED_MESSAGES: usize = 256;

/// What a load thread hands over.
pub(crate) enum ToWriter {
    /// Requests that have their outcome.
    Records(Vec<RequestRecord>),
    /// Gaps since the last message.
    Gaps(GapHistograms),
    /// Single gaps, where every one is kept.
    EveryGap(Vec<Gap>),
}

/// What was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// Records written.
    pub(crate) recorded: u64,
    /// Of these, records that no load thread delivered.
    pub(crate) filled_in: u64,
    /// Records that came a second time and were dropped: a defect, if any.
    pub(crate) duplicates: u64,
}

/// Writes until every load thread is gone, gives the requests that none of them delivered their
/// outcome, and seals the files. When the disk fails the load is ended; the journal stays as it is.
pub(crate) fn write(
    queue: &Receiver<ToWriter>,
    mut journal: RequestJournalWriter,
    shared: &Shared,
    dir: &Path,
) -> Result<Written, RecordError> {
    let mut ledger = Ledger::new(&shared.pacing);
    let mut failure = None;
    while let Ok(message) = queue.recv() {
        // After a failure the queue is still emptied, so that no load thread waits for ever.
        if failure.is_none()
            && let Err(e) = ledger.append(&mut journal, message)
        {
            shared.fail(e.to_string());
            failure = Some(e);
        }
    }
    if let Some(e) = failure {
        return Err(e);
    }
    let filled_in = ledger.fill_in(&mut journal, shared)?;
    drop(journal);
    let SealSummary { requests, .. } = seal_journal(dir)?;
    Ok(Written {
        recorded: requests,
        filled_in,
        duplicates: ledger.duplicates,
    })
}

/// Which requests are written.
struct Ledger<'a> {
    pacing: &'a State,
    /// One bit for each place in the share; grows with a closed loop.
    written: Vec<u64>,
    duplicates: u64,
}

impl<'a> Ledger<'a> {
    fn new(pacing: &'a State) -> Self {
        Self {
            pacing,
            written: Vec::new(),
            duplicates: 0,
        }
    }

    fn append(
        &mut self,
        journal: &mut RequestJournalWriter,
        message: ToWriter,
    ) -> Result<(), RecordError> {
        match message {
            ToWriter::Records(records) => {
                for record in &records {
                    if self.mark(record.index) {
                        journal.append(record)?;
                    } else {
                        self.duplicates += 1;
                    }
                }
            }
            ToWriter::Gaps(gaps) => {
                for (bucket, histogram) in &gaps.buckets {
                    journal.append_gaps(*bucket, histogram)?;
                }
            }
            ToWriter::EveryGap(gaps) => journal.append_every_gap(&gaps)?,
        }
        journal.flush()
    }

    /// Marks an index; false if it was marked already, or is not of the share.
    fn mark(&mut self, index: u64) -> bool {
        let Some(position) = self.pacing.position(index) else {
            return false;
        };
        let place = (position / 64) as usize;
        if place >= MAX_SCHEDULED_REQUESTS {
            return false;
        }
        if place >= self.written.len() {
            self.written.resize(place + 1, 0);
        }
        let word = &mut self.written[place];
        let bit = 1 << (position % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Writes a record for each request that has none: never due because the load was ended early,
    /// or lost by the instrument.
    fn fill_in(
        &mut self,
        journal: &mut RequestJournalWriter,
        shared: &Shared,
    ) -> Result<u64, RecordError> {
        let mut filled_in = 0;
        for (position, intended_ns) in (0..).zip(self.pacing.schedule().iter().copied()) {
            let index = self.pacing.index(position);
            if !self.mark(index) {
                continue;
            }
            let expect = Expectation::until(i64::MAX);
            let mut response = Response::new(index, intended_ns, expect);
            if let Some(turn) = self.pacing.turn(position) {
                response.in_conversation(turn.conversation, turn.turn);
            }
            match shared.cancelled() {
                Some(at_ns) => response.censor(at_ns, CensorKind::RunEnd),
                None => response.end(
                    shared.clock.now().max(intended_ns),
                    BodyEnd::Failed(
                        ErrorClass::Undispatched,
                        "the instrument never sent it, or lost its outcome".to_owned(),
                    ),
                ),
            }
            journal.append(&response.into_record())?;
            filled_in += 1;
        }
        journal.flush()?;
        Ok(filled_in)
    }
}
