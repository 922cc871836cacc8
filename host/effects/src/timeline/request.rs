//! A thread for each HTTP effect, so that a silent server delays no other effect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use super::{Report, Shared};
use crate::http::{self, HttpRequest, Sent};

enum Order {
    /// Send the request, not before a monotonic instant, and not at or after another.
    Fire { at: i64, until: Option<i64> },
    /// Send the undo, not before a monotonic instant.
    Undo(i64),
}

/// A thread with its client made and its request ready. It ends when this is dropped.
pub(super) struct Worker(Sender<Order>);

impl Worker {
    pub(super) fn start(
        id: u32,
        request: HttpRequest,
        on_expiry: Option<HttpRequest>,
        shared: Arc<Shared>,
    ) -> Result<Self, String> {
        let sender = http::Sender::new()?;
        let (orders, inbox) = channel();
        std::thread::Builder::new()
            .name(format!("effect-{id}"))
            .spawn(move || {
                // A refusal costs some tenths of a millisecond, and the bracket shows them.
                let _ = blackstart_clock::request_real_time(blackstart_clock::Urgency::Instants);
                while let Ok(order) = inbox.recv() {
                    let undo = matches!(order, Order::Undo(_));
                    let sent = catch_unwind(AssertUnwindSafe(|| match order {
                        Order::Fire { at, until } => Some(sender.send(&request, at, until)),
                        Order::Undo(at) => on_expiry.as_ref().map(|r| sender.send_undo(r, at)),
                    }));
                    // The timeline waits for every order's end.
                    let sent = sent.unwrap_or_else(|_| Some(Sent::panicked()));
                    if let Some(sent) = sent {
                        shared.report(Report::Sent { id, undo, sent });
                    }
                }
            })
            .map_err(|e| format!("thread: {e}"))?;
        Ok(Self(orders))
    }

    /// Both instants on the monotonic clock. False when the thread has ended, by a panic.
    pub(super) fn fire(&self, at: i64, until: Option<i64>) -> bool {
        self.0.send(Order::Fire { at, until }).is_ok()
    }

    /// False when the thread has ended, by a panic.
    pub(super) fn undo(&self, at_monotonic_ns: i64) -> bool {
        self.0.send(Order::Undo(at_monotonic_ns)).is_ok()
    }
}
