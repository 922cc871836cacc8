//! Which process, for how long.

use blackstart_sdk::{PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Nanoseconds in a millisecond.
pub const NS_PER_MS: i64 = 1_000_000;

/// Longest name of a process role.
pub const MAX_ROLE_BYTES: usize = 64;

/// Configuration of `process-freeze`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long the process stands still, in milliseconds. It must go on within the fault
    /// window.
    #[schemars(range(min = 1))]
    pub duration_ms: u64,
    /// The process that is stopped, as the target names its processes (`api`, `engine`,
    /// `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            duration_ms: 5_000,
            process: "api".to_owned(),
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if self.duration_ms == 0 {
            problems.add(
                "duration_ms",
                "a freeze of 0 ms is no fault",
                "a duration of at least 1 ms",
            );
        }
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
