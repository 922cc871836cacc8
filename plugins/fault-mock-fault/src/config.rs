//! Which mode, with which parameters, for how long.

use blackstart_sdk::{PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Nanoseconds in a millisecond.
pub const NS_PER_MS: i64 = 1_000_000;

/// A failure mode of the mock server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Streams stop in the middle and go on when the mode ends.
    Stall,
    /// Requests get an HTTP error.
    Error,
    /// Streams are cut by a connection reset.
    StreamAbort,
    /// Requests are accepted and never answered.
    SilentHang,
    /// The server goes through a slow start-up again.
    SlowReload,
}

impl Mode {
    /// Name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Stall => "stall",
            Mode::Error => "error",
            Mode::StreamAbort => "stream_abort",
            Mode::SilentHang => "silent_hang",
            Mode::SlowReload => "slow_reload",
        }
    }
}

/// Configuration of `mock-fault`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The failure mode.
    pub mode: Mode,
    /// How long the mode lasts, in milliseconds; without it, to the end of the fault window.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub duration_ms: Option<u64>,
    /// With `error`: the HTTP status that requests get.
    #[serde(default)]
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u16>,
    /// With `stream_abort`: how many events a stream sends before the reset.
    #[serde(default)]
    pub after_events: Option<u32>,
    /// With `slow_reload`: how long the start-up takes, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub reload_ms: Option<u64>,
}

impl Config {
    /// What the mock's admin interface is sent. What is not set is left to the mock.
    #[must_use]
    pub fn body(&self) -> serde_json::Value {
        let mut body = serde_json::Map::new();
        body.insert("mode".to_owned(), self.mode.name().into());
        let parameters = [
            ("status", self.status.map(u64::from)),
            ("after_events", self.after_events.map(u64::from)),
            ("reload_ms", self.reload_ms),
        ];
        for (key, value) in parameters {
            if let Some(value) = value {
                body.insert(key.to_owned(), value.into());
            }
        }
        body.into()
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if self.duration_ms == Some(0) {
            problems.add(
                "duration_ms",
                "a mode for 0 ms is no fault",
                "at least 1, or leave it out for the whole fault window",
            );
        }
        if let Some(status) = self.status
            && !(400..=599).contains(&status)
        {
            problems.add(
                "status",
                format!("{status} is no HTTP error"),
                "a status from 400 to 599",
            );
        }
        if self.reload_ms == Some(0) {
            problems.add("reload_ms", "a reload of 0 ms is no fault", "at least 1");
        }
        let parameters = [
            ("status", self.status.is_some(), Mode::Error),
            (
                "after_events",
                self.after_events.is_some(),
                Mode::StreamAbort,
            ),
            ("reload_ms", self.reload_ms.is_some(), Mode::SlowReload),
        ];
        for (key, given, mode) in parameters {
            if given && self.mode != mode {
                problems.add(
                    key,
                    format!("mode `{}` has no `{key}`", self.mode.name()),
                    format!("leave it out, or choose mode `{}`", mode.name()),
                );
            }
        }
    }
}
