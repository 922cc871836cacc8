//! One request's state between the engine's records and the HTTP body.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use crate::ipc::Finish;

/// How a request ended, as the truth file and `/admin/requests` name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Complete answer.
    Done,
    /// Cut by the server's shutdown, in good order.
    Aborted,
    /// The engine died.
    EngineDead,
    /// The client left first.
    ClientGone,
    /// The mock reset the connection (fault `stream_abort`).
    Reset,
    /// Answered with an injected error status (fault `error`).
    FaultError,
    /// Bad request, unknown model, overlong prompt.
    Rejected,
    /// Still open when the server left.
    ServerExit,
}

impl End {
    /// The word in files.
    pub fn word(self) -> &'static str {
        match self {
            End::Done => "done",
            End::Aborted => "aborted",
            End::EngineDead => "engine_dead",
            End::ClientGone => "client_gone",
            End::Reset => "reset",
            End::FaultError => "fault_error",
            End::Rejected => "rejected",
            End::ServerExit => "server_exit",
        }
    }
}

/// What is known of a request so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Tokens the engine has made.
    pub made: u32,
    /// Set with the last token or an abort.
    pub finish: Option<Finish>,
    /// The engine died under it.
    pub dead: bool,
    /// Admission, ns.
    pub admitted_ns: Option<u64>,
    /// Due instant of the first token, ns.
    pub first_due_ns: Option<u64>,
    /// Due instant of the last token so far, ns.
    pub last_due_ns: Option<u64>,
    waker: Option<Waker>,
}

/// A shared request.
#[derive(Debug)]
pub struct Slot {
    /// Engine id.
    pub id: u64,
    /// Arrival, ns.
    pub arrival_ns: u64,
    /// Client's `x-request-id`.
    pub request_id: Option<String>,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Progress.
    pub progress: RefCell<Progress>,
}

/// Shared within the API thread.
pub type SlotRef = Rc<Slot>;

impl Slot {
    /// Stores who to wake.
    pub fn wait(&self, waker: &Waker) {
        let mut p = self.progress.borrow_mut();
        match &p.waker {
            Some(w) if w.will_wake(waker) => {}
            _ => p.waker = Some(waker.clone()),
        }
    }

    /// Changes the progress and wakes the reader.
    pub fn update(&self, change: impl FnOnce(&mut Progress)) {
        let waker = {
            let mut p = self.progress.borrow_mut();
            change(&mut p);
            p.waker.take()
        };
        if let Some(w) = waker {
            w.wake();
        }
    }
}
