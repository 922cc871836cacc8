//! Signals that end a process.

use blackstart_sdk::fault::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A signal that ends a process unless the process handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Deadly {
    /// Cannot be handled: what the out-of-memory killer and `kill -9` send.
    #[default]
    Kill,
    /// A polite request to stop.
    Term,
    /// Ctrl-C.
    Int,
    /// The terminal is gone.
    Hup,
    /// A failed assertion.
    Abrt,
    /// A bad memory access.
    Segv,
}

impl Deadly {
    /// Name without `SIG`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Deadly::Kill => "KILL",
            Deadly::Term => "TERM",
            Deadly::Int => "INT",
            Deadly::Hup => "HUP",
            Deadly::Abrt => "ABRT",
            Deadly::Segv => "SEGV",
        }
    }
}

impl From<Deadly> for Signal {
    fn from(signal: Deadly) -> Signal {
        match signal {
            Deadly::Kill => Signal::Kill,
            Deadly::Term => Signal::Term,
            Deadly::Int => Signal::Int,
            Deadly::Hup => Signal::Hup,
            Deadly::Abrt => Signal::Abrt,
            Deadly::Segv => Signal::Segv,
        }
    }
}
