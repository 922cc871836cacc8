//! Which signal, to which process.

use blackstart_sdk::fault::Signal;
use blackstart_sdk::{PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Longest name of a process role.
pub const MAX_ROLE_BYTES: usize = 64;

/// A signal that ends a process unless the process handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
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

/// Configuration of `process-kill`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The signal, without `SIG`.
    pub signal: Deadly,
    /// The process that gets it, as the target names its processes (`api`, `engine`,
    /// `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            signal: Deadly::Kill,
            process: "api".to_owned(),
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if self.process.is_empty() || self.process.len() > MAX_ROLE_BYTES {
            problems.add(
                "process",
                format!("a process name of {} bytes", self.process.len()),
                format!(
                    "name a process of the target in 1 to {MAX_ROLE_BYTES} bytes, such as `api`"
                ),
            );
        }
    }
}
