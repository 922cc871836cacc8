//! How the observers talk to the rest of the run: events go out, the fire comes in.

use std::sync::{Arc, mpsc};

use blackstart_clock::RunNs;
use blackstart_record::{Event, EventKind};
use tokio::sync::watch;

/// Where events go. Cheap to clone; called from the observers' thread, so it must not block for
/// long (hand the event to a queue).
#[derive(Clone)]
pub struct EventSink(Arc<dyn Fn(Event) + Send + Sync>);

impl EventSink {
    /// A sink that calls `f` for each event.
    pub fn new(f: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// Hands over one event.
    pub fn emit(&self, at_ns: RunNs, kind: EventKind) {
        (self.0)(Event { at_ns, kind });
    }
}

impl From<mpsc::Sender<Event>> for EventSink {
    /// Events whose receiver is gone are dropped: the run has stopped listening.
    fn from(sender: mpsc::Sender<Event>) -> Self {
        Self::new(move |event| {
            let _ = sender.send(event);
        })
    }
}

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventSink")
    }
}

/// Tells the observers that the fault was fired. Clones share one state; any thread may fire.
#[derive(Debug, Clone)]
pub struct FireSignal(Arc<watch::Sender<Option<RunNs>>>);

impl FireSignal {
    /// Not fired.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// The fault was fired at that run time. A later call (a further effect of the same fault)
    /// makes the observers watch closely anew.
    pub fn fire(&self, at_ns: RunNs) {
        self.0.send_replace(Some(at_ns));
    }

    /// When it was fired last; `None` = not yet.
    pub fn fired_at(&self) -> Option<RunNs> {
        *self.0.borrow()
    }

    /// A receiver that wakes at each fire. It never sees the channel close while `self` lives.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<RunNs>> {
        self.0.subscribe()
    }
}

impl Default for FireSignal {
    fn default() -> Self {
        Self::new()
    }
}
