//! The timeline that executes faults at their instant, brackets them, and undoes them; the watchdog.
//!
//! Invariants:
//! - An effect never fires before its instant; the operation stands alone between two clock reads.
//! - A signal goes only to a process that the guard authorised for the named replica, through a
//!   pidfd, so that no other process can ever receive it.
//! - Whatever can be undone is registered with the watchdog, which acknowledged it, *before* it
//!   fires; and is undone at its end, on cancel, on drop, on panic, and by the watchdog when the
//!   instrument dies.

mod action;
mod http;
mod operation;
mod timeline;
pub mod watchdog;

pub use action::{Action, ScheduleError};
pub use blackstart_targets::Signal;
pub use http::{HTTP_TIMEOUT_NS, HttpRequest};
pub use operation::{FactBoard, FactSource, Limit, NetworkRule, Operation, run_balloon};
pub use timeline::{
    CANCEL_TIMEOUT_NS, Condition, EffectSink, FIRE_WAKE_NS, MAX_EFFECT_NS, MAX_EFFECTS, Mode,
    Notice, NoticeSink, PREPARE_NS, RECHECK_NS, Scheduler, Timeline, TimelineError,
    TimelineOptions,
};
pub use watchdog::{Watchdog, WatchdogError};
