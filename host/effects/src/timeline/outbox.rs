//! Hands steps and notices on, on a thread of their own: whoever records or observes cannot
//! delay an effect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use blackstart_clock::RunNs;
use blackstart_record::{EffectStep, Event, EventKind};

use super::{EffectSink, MAX_EFFECTS, Notice, NoticeSink};

/// Most messages of one effect: five steps, three notices.
const MESSAGES_PER_EFFECT: usize = 8;
/// So large that sending never waits: not even a callback that schedules can block itself.
const CAPACITY: usize = MAX_EFFECTS * MESSAGES_PER_EFFECT + 16;

enum Message {
    Event(Box<Event>),
    Notice(u32, Notice),
    Stop,
}

/// The sending side.
#[derive(Clone)]
pub(super) struct Outbox(SyncSender<Message>);

impl Outbox {
    pub(super) fn start(
        sink: EffectSink,
        notice: NoticeSink,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (sender, receiver) = sync_channel(CAPACITY);
        let thread = std::thread::Builder::new()
            .name("effect-notices".to_owned())
            .spawn(move || {
                while let Ok(message) = receiver.recv() {
                    let stop = matches!(message, Message::Stop);
                    // A panic of one callback must not cost the record of all later steps.
                    let handed = catch_unwind(AssertUnwindSafe(|| match message {
                        Message::Event(event) => sink(*event),
                        Message::Notice(id, what) => notice(id, what),
                        Message::Stop => {}
                    }));
                    if handed.is_err() {
                        tracing::error!("a receiver of effect steps panicked");
                    }
                    if stop {
                        break;
                    }
                }
            })?;
        Ok((Self(sender), thread))
    }

    // A receiver that is gone has stopped: then nobody records any more.
    fn send(&self, message: Message) {
        let _ = self.0.send(message);
    }

    pub(super) fn step(&self, at: RunNs, step: EffectStep) {
        self.event(at, EventKind::Effect(step));
    }

    pub(super) fn event(&self, at_ns: RunNs, kind: EventKind) {
        self.send(Message::Event(Box::new(Event { at_ns, kind })));
    }

    pub(super) fn notice(&self, id: u32, notice: Notice) {
        self.send(Message::Notice(id, notice));
    }

    pub(super) fn stop(&self) {
        self.send(Message::Stop);
    }
}
