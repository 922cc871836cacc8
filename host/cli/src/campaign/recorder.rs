//! The one thread that writes `events.jsonl`, whoever the events come from.
//!
//! Replicas start before the run epoch is chosen (their start takes as long as it takes), so their
//! first events are stamped on a provisional clock. They are held back until the epoch is known and
//! then shifted; both clocks share one pair of monotonic and wall readings.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use blackstart_clock::RunClock;
use blackstart_record::{Event, EventKind, EventWriter};

use crate::exit::Failure;

enum Message {
    /// On the provisional clock.
    Provisional(Event),
    /// On the run's clock.
    Run(Event),
    /// Run time of the provisional clock's zero.
    Epoch(i64),
}

/// Writes a run's events.
pub struct Recorder {
    sender: Sender<Message>,
    failed: Arc<OnceLock<String>>,
    thread: JoinHandle<()>,
}

/// Hands events to the recorder. Cheap to clone.
#[derive(Clone)]
pub struct EventSender {
    sender: Sender<Message>,
    provisional: bool,
}

impl EventSender {
    /// Hands over an event. Never blocks; after the recorder has ended it does nothing.
    pub fn send(&self, event: Event) {
        let message = if self.provisional {
            Message::Provisional(event)
        } else {
            Message::Run(event)
        };
        let _ = self.sender.send(message);
    }

    /// Hands over what happened at an instant.
    pub fn emit(&self, at_ns: i64, kind: EventKind) {
        self.send(Event { at_ns, kind });
    }
}

impl Recorder {
    /// Starts the thread on a new file.
    ///
    /// # Errors
    /// When the file cannot be made, or the system gives no thread.
    pub fn start(path: &Path) -> Result<Self, Failure> {
        let writer = EventWriter::create(path).map_err(Failure::internal)?;
        let (sender, receiver) = channel();
        let failed: Arc<OnceLock<String>> = Arc::default();
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn({
                let failed = failed.clone();
                move || write(writer, &receiver, &failed)
            })
            .map_err(Failure::internal)?;
        Ok(Self {
            sender,
            failed,
            thread,
        })
    }

    /// What keeps it from writing, from the first event on that could not be written.
    pub fn failure(&self) -> Option<String> {
        self.failed.get().cloned()
    }

    /// For events on the run's clock.
    pub fn sender(&self) -> EventSender {
        EventSender {
            sender: self.sender.clone(),
            provisional: false,
        }
    }

    /// For events on the provisional clock.
    pub fn provisional(&self) -> EventSender {
        EventSender {
            sender: self.sender.clone(),
            provisional: true,
        }
    }

    /// Says when the epoch is, and records it.
    pub fn epoch(&self, provisional: &RunClock, run: &RunClock) {
        let _ = self.sender.send(Message::Epoch(
            provisional.epoch_monotonic_ns() - run.epoch_monotonic_ns(),
        ));
        self.sender().emit(
            0,
            EventKind::Epoch {
                monotonic_ns: run.epoch_monotonic_ns(),
                unix_ns: run.epoch_unix_ns(),
            },
        );
    }

    /// Ends the thread once every sender is gone, and says what kept it from writing.
    ///
    /// # Errors
    /// When an event could not be written.
    pub fn finish(self) -> Result<(), Failure> {
        drop(self.sender);
        match self.thread.join() {
            Ok(()) => match self.failed.get() {
                None => Ok(()),
                Some(e) => Err(Failure::message(crate::exit::Exit::Internal, e)),
            },
            Err(_) => Err(Failure::message(
                crate::exit::Exit::Internal,
                "the recorder's thread panicked",
            )),
        }
    }
}

fn write(mut writer: EventWriter, receiver: &Receiver<Message>, failed: &OnceLock<String>) {
    let mut held = Vec::new();
    let mut shift: Option<i64> = None;
    let mut put = |event: Event| {
        // After a failure (a full disk) the queue is still drained, so that nobody blocks and memory
        // stays bounded; the run's loop sees the first failure and ends the run.
        if failed.get().is_none()
            && let Err(e) = writer.append(&event)
        {
            let _ = failed.set(e.to_string());
        }
    };
    while let Ok(message) = receiver.recv() {
        match (message, shift) {
            (Message::Run(event), _) => put(event),
            (Message::Provisional(event), Some(by)) => put(shifted(event, by)),
            (Message::Provisional(event), None) => held.push(event),
            (Message::Epoch(by), _) => {
                shift = Some(by);
                held.drain(..).for_each(|e| put(shifted(e, by)));
            }
        }
    }
    // A run that never reached its epoch keeps the provisional clock: better than no events.
    held.drain(..).for_each(put);
}

fn shifted(mut event: Event, by: i64) -> Event {
    event.at_ns += by;
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use blackstart_record::read_events;

    #[test]
    fn a_failure_is_known_before_the_recorder_ends() {
        // The kernel's own full disk.
        let Ok(recorder) = Recorder::start(Path::new("/dev/full")) else {
            println!("skipped: a_failure_is_known_before_the_recorder_ends: no /dev/full");
            return;
        };
        assert_eq!(recorder.failure(), None);
        let text = "x".to_owned();
        recorder.sender().emit(0, EventKind::Note { text });
        while recorder.failure().is_none() {
            std::thread::yield_now();
        }
        let reason = recorder.failure().unwrap();
        assert!(
            reason.contains("/dev/full") && reason.contains("free space"),
            "{reason}"
        );
        assert!(recorder.finish().is_err());
    }

    #[test]
    fn events_before_the_epoch_are_shifted_onto_the_run_clock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let note = |text: &str| EventKind::Note {
            text: text.to_owned(),
        };
        let provisional = RunClock::from_recorded(1_000, 5_000);
        let run = RunClock::from_recorded(1_400, 5_400);
        let recorder = Recorder::start(&path).unwrap();
        recorder.provisional().emit(100, note("early"));
        recorder.epoch(&provisional, &run);
        recorder.provisional().emit(500, note("late"));
        recorder.sender().emit(7, note("own"));
        recorder.finish().unwrap();
        let events = read_events(&path).unwrap().events;
        let at = |text: &str| events.iter().find(|e| e.kind == note(text)).unwrap().at_ns;
        assert_eq!((at("early"), at("late"), at("own")), (-300, 100, 7));
    }
}
