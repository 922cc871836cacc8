//! Which mode, with which parameters, for how long.

use blackstart_sdk::{PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Nanoseconds in a millisecond.
pub const NS_PER_MS: i64 = 1_000_000;

/// Longest delay that the mock takes, in milliseconds.
pub const MAX_DELAY_MS: u64 = 3_600_000;

/// Greatest factor that the mock takes.
pub const MAX_FACTOR: f64 = 1e6;

/// A failure mode of the mock server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The engine's clock stands: streams stop, new requests wait.
    Stall,
    /// Requests get an HTTP error.
    Error,
    /// Streams end with a connection reset after some tokens.
    StreamAbort,
    /// Requests get their headers and then nothing.
    SilentHang,
    /// The next start takes longer.
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
    /// With `error`: how long the answer is held back, in milliseconds.
    #[serde(default)]
    #[schemars(range(max = MAX_DELAY_MS))]
    pub delay_ms: Option<u64>,
    /// With `stream_abort`: how many tokens a stream sends before the reset.
    #[serde(default)]
    pub after_tokens: Option<u32>,
    /// With `error`, `stream_abort` and `silent_hang`: the share of requests that is hit.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub fraction: Option<f64>,
    /// With `slow_reload`: how many times as long each phase of the next start takes.
    #[serde(default)]
    #[schemars(range(min = 0, max = MAX_FACTOR))]
    pub factor: Option<f64>,
}

impl Config {
    /// What the mock's admin interface is sent. What is not set is left to the mock.
    #[must_use]
    pub fn body(&self) -> serde_json::Value {
        let mut body = serde_json::Map::new();
        body.insert("mode".to_owned(), self.mode.name().into());
        let parameters = [
            ("status", self.status.map(serde_json::Value::from)),
            ("delay_ms", self.delay_ms.map(Into::into)),
            ("after_tokens", self.after_tokens.map(Into::into)),
            ("fraction", self.fraction.map(Into::into)),
            ("factor", self.factor.map(Into::into)),
        ];
        for (key, value) in parameters {
            if let Some(value) = value {
                body.insert(key.to_owned(), value);
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
        if self.delay_ms.is_some_and(|ms| ms > MAX_DELAY_MS) {
            let message = "the mock waits no longer than an hour";
            problems.add("delay_ms", message, format!("at most {MAX_DELAY_MS}"));
        }
        if self.fraction.is_some_and(|f| !(0.0..=1.0).contains(&f)) {
            problems.add("fraction", "no share of requests", "a number from 0 to 1");
        }
        if self
            .factor
            .is_some_and(|f| !(0.0..=MAX_FACTOR).contains(&f))
        {
            let mend = format!("a number from 0 to {MAX_FACTOR}");
            problems.add("factor", "no factor that the mock takes", mend);
        }
        let hit = [Mode::Error, Mode::StreamAbort, Mode::SilentHang];
        let parameters: [(&str, bool, &[Mode]); 5] = [
            ("status", self.status.is_some(), &[Mode::Error]),
            ("delay_ms", self.delay_ms.is_some(), &[Mode::Error]),
            (
                "after_tokens",
                self.after_tokens.is_some(),
                &[Mode::StreamAbort],
            ),
            ("fraction", self.fraction.is_some(), &hit),
            ("factor", self.factor.is_some(), &[Mode::SlowReload]),
        ];
        for (key, given, modes) in parameters {
            if given && !modes.contains(&self.mode) {
                let names: Vec<_> = modes.iter().map(|m| format!("`{}`", m.name())).collect();
                problems.add(
                    key,
                    format!("mode `{}` has no `{key}`", self.mode.name()),
                    format!("leave it out, or choose mode {}", names.join(" or ")),
                );
            }
        }
    }
}
