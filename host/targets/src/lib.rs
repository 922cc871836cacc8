//! The system under test: processes that the instrument supervises, and servers that already run.
//!
//! Invariants:
//! - A process is a pid *and* a start time, held by a pidfd ([`ProcessRef`]): a reused pid is
//!   never mistaken for the process that had it before.
//! - Nothing outside a named replica's process tree can be authorised as a victim
//!   ([`Targets::authorize`]), and never the instrument, its ancestors or its helpers.
//! - A supervised tree does not outlive the instrument: its supervisor is a process of its own
//!   that stops the tree when its standard input ends, whatever ended the instrument.

mod error;
mod existing;
mod facts;
mod guard;
mod holder;
mod lines;
mod lookup;
pub mod proc;
mod process_ref;
mod reexec;
mod supervised;
pub mod supervisor;
mod tail;
mod targets;

pub use error::TargetError;
pub use existing::Existing;
pub use guard::{GuardError, Protected};
pub use holder::{PortHolder, port_holder};
pub use lines::{LineSplitter, MAX_LINE_BYTES, SPLIT_MARK, push_stamp};
pub use process_ref::{ProcessRef, Signal};
pub use reexec::Reexec;
pub use supervised::Supervised;
pub use tail::{LogTail, TAIL_INTERVAL_NS};
pub use targets::{Replica, Runtime, Targets};

use std::sync::Arc;

/// Receives the events of a replica's life. Called from the target's own threads, never from one
/// that keeps time.
pub type EventSink = Arc<dyn Fn(blackstart_record::Event) + Send + Sync>;
