//! Switches a failure mode of the mock server on at the fire instant and off at the end.

use blackstart_sdk::fault::{ArmContext, EffectId, FaultHost, Replica, Request};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window, field};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS};
use crate::proof::{Facts, Shown, not, unknown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Attribute of a replica that says where its admin interface listens.
pub const ADMIN_URL: &str = "admin-url";

/// Path of the admin interface that takes `{"mode": ...}`.
pub const ADMIN_PATH: &str = "/admin/fault";

/// Longest delay that the mock takes, in milliseconds.
pub const MAX_DELAY_MS: u64 = 3_600_000;

/// Greatest factor that the mock takes.
pub const MAX_FACTOR: f64 = 1e6;

/// A failure mode of the mock server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
    /// The failure mode. A key below that it does not have is an error.
    pub mode: Mode,
    /// How long the mode lasts, in milliseconds; without it, to the end of the fault window.
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: Option<u64>,
    /// With `error`: the HTTP status that requests get; without it the mock's own, 500.
    #[serde(default)]
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u16>,
    /// With `error`: how long the answer is held back, in milliseconds; without it not at all.
    #[serde(default)]
    #[schemars(range(max = MAX_DELAY_MS))]
    pub delay_ms: Option<u64>,
    /// With `stream_abort`: how many tokens a stream sends before the reset; without it none.
    #[serde(default)]
    pub after_tokens: Option<u32>,
    /// With `error`, `stream_abort` and `silent_hang`: the share of requests that is hit, exact over
    /// any run of requests, not random; without it all are.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub fraction: Option<f64>,
    /// With `slow_reload`: how many times as long each phase of the next start takes; without it 3.
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
        if let Some(ms) = self.duration_ms {
            bounds::duration(problems, "duration_ms", ms);
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

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "mock-fault",
        summary: "Switches a failure mode of the mock server on and off (stall, error, \
                  stream_abort, silent_hang, slow_reload).",
        mechanism: "`POST <admin_url>/admin/fault` at the fire and at the end. The admin \
                    interface listens on loopback only, at `--admin-port`, or on the main port \
                    with `--admin-on-main`. The operation is a request, so that its bracket, and \
                    with it the fire uncertainty, contains the answer time of the admin \
                    interface.",
        client_sees: "| mode | what the client sees | outcome |\n\
                      | --- | --- | --- |\n\
                      | `stall` | streams stop, new requests wait; all go on afterwards | late, or censored |\n\
                      | `error` | an HTTP error for new requests | `http_status` |\n\
                      | `stream_abort` | a TCP reset after some tokens | `reset` |\n\
                      | `silent_hang` | response headers, then nothing | censored |\n\
                      | `slow_reload` | nothing now; the next start takes longer. The mock needs `--state-file` | none by itself |",
        proof: "The server's answer to the request: a status of 200 to 299. A request that fails \
                or is refused is a failed effect, and the run is invalid.",
        ends: "The host sends `{\"mode\": \"none\"}`, up to three times; the watchdog does if \
               the host cannot.",
        stands_for: "Nothing real. It exercises the instrument: each outcome and error class, \
                     and the report, without a GPU.",
        not_for: "Evidence about a real server.",
        grants: &[("http", "[\"http://127.0.0.1:18432/admin/*\"]")],
        victims: "[\"r0\"]",
        example_target: "[[target.replica]]\n\
                         id = \"r0\"\n\
                         base_url = \"http://127.0.0.1:18431\"\n\
                         admin_url = \"http://127.0.0.1:18432\"\n\
                         [target.replica.process]\n\
                         command = [\"${blackstart}\", \"mock\", \"--port\", \"18431\", \"--admin-port\", \"18432\"]\n",
        example: "mode = \"stall\"\nduration_ms = 6000",
        ..PLAIN
    };

    fn check_replica(&self, replica: &Replica) -> Result<(), Error> {
        admin_url(replica).map(drop)
    }

    fn until(&self, context: &ArmContext) -> Result<Option<RunNs>, Error> {
        match self.duration_ms {
            Some(ms) => plan::end(context, "duration_ms", ms).map(Some),
            None => Ok(Some(context.expire_at)),
        }
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        let url = admin_url(replica)?;
        let on = post(&url, &self.body());
        let off = post(&url, &serde_json::json!({ "mode": "none" }));
        host.send_http(&on, Some(&off), when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        format!("mode {} of {victims}", self.mode.name())
    }

    /// The server's answer to the request (`http.status`) is the proof. It was given when the effect
    /// started; whichever reading carries it counts.
    fn shown(&self, facts: &Facts<'_>) -> Shown {
        let mode = self.mode.name();
        let reading = facts.read("http.status");
        let Some(answer) = reading.during.or(reading.after) else {
            return unknown(format!(
                "its answer to the request for mode {mode} was not read"
            ));
        };
        match answer.parse::<u16>() {
            Ok(status @ 200..=299) => Ok(format!(
                "it took the request for mode {mode} (HTTP {status})"
            )),
            Ok(status) => not(format!(
                "it refused the request for mode {mode} (HTTP {status})"
            )),
            Err(_) => unknown(format!(
                "its answer to the request for mode {mode} is no HTTP status: `{answer}`"
            )),
        }
    }
}

fn admin_url(replica: &Replica) -> Result<String, Error> {
    let url = replica.attributes.iter().find(|a| a.key == ADMIN_URL);
    match url.map(|a| a.value.trim_end_matches('/')) {
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            Ok(format!("{url}{ADMIN_PATH}"))
        }
        Some(_) => Err(Error::Unsupported(format!(
            "replica `{}`: its {ADMIN_URL} is no http:// or https:// URL",
            replica.id
        ))),
        None => Err(Error::Unsupported(format!(
            "replica `{}` has no {ADMIN_URL}: only a mock server has these modes; give the \
             replica an {ADMIN_URL} if it is one",
            replica.id
        ))),
    }
}

fn post(url: &str, body: &serde_json::Value) -> Request {
    Request {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: vec![field("content-type", "application/json")],
        body: body.to_string().into_bytes(),
    }
}
