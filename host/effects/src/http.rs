//! HTTP requests as effects: one attempt, no redirect, no proxy, bounded in time and size.

use std::io::Read;
use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S, monotonic_ns, sleep_until};
use reqwest::blocking::Client;
use serde::{Deserialize, Serialize};

/// Longest time for one request and its answer.
pub const HTTP_TIMEOUT_NS: i64 = 10 * NS_PER_S;
/// Longest time for a connection.
const CONNECT_TIMEOUT_NS: i64 = 2 * NS_PER_S;
/// Most bytes of a request's body.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// Most bytes of a refusing answer that are shown.
const MAX_SHOWN_BYTES: u64 = 200;
/// How often an undo is tried. The effect itself is sent once only.
const UNDO_ATTEMPTS: u32 = 3;
/// Pause between two tries.
const UNDO_PAUSE_NS: i64 = 200 * NS_PER_MS;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// `http://host:port/path`
    pub url: String,
    /// Headers; their values never reach logs or journals.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// A POST without headers and body.
    pub fn post(url: &str) -> Self {
        Self {
            method: "POST".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// What it is, for people: without headers and body, which may hold secrets.
    pub fn describe(&self) -> String {
        format!("{} {}", self.method, self.url)
    }

    /// Whether it can be sent at all; the reason is for people.
    pub(crate) fn check(&self) -> Result<(), String> {
        let url = reqwest::Url::parse(&self.url)
            .map_err(|e| format!("`{}` is not a URL: {e}", self.url))?;
        if url.scheme() != "http" || url.host_str().is_none() {
            return Err(format!(
                "`{}`: only http:// addresses can be called",
                self.url
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL must not hold a user name or password; use a header".to_owned());
        }
        reqwest::Method::from_bytes(self.method.as_bytes())
            .map_err(|_| format!("`{}` is not an HTTP method", self.method))?;
        if self.body.len() > MAX_BODY_BYTES || self.headers.len() > MAX_HEADERS {
            return Err(format!(
                "it is too large (at most {MAX_BODY_BYTES} bytes of body and {MAX_HEADERS} headers)"
            ));
        }
        for (name, value) in &self.headers {
            let name_ok = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok();
            let value_ok = reqwest::header::HeaderValue::from_str(value).is_ok();
            if !name_ok || !value_ok {
                return Err(format!("header `{name}` is not one"));
            }
        }
        Ok(())
    }
}

/// A request that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Monotonic clock directly before.
    pub(crate) before: i64,
    /// Directly after the answer's head came, or the failure was known.
    pub(crate) after: i64,
    /// The status, or why there is no success.
    pub(crate) result: Result<u16, String>,
}

/// Sends requests.
pub(crate) struct Sender(Client);

impl Sender {
    pub(crate) fn new() -> Result<Self, String> {
        let ns = |ns: i64| Duration::from_nanos(ns.unsigned_abs());
        Client::builder()
            // A retried fault is two faults.
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(ns(HTTP_TIMEOUT_NS))
            .connect_timeout(ns(CONNECT_TIMEOUT_NS))
            .pool_max_idle_per_host(0)
            .build()
            .map(Self)
            .map_err(|e| format!("HTTP client: {e}"))
    }

    /// One attempt. Everything that can be made before is made before the first clock read.
    pub(crate) fn send(&self, request: &HttpRequest, not_before: i64) -> Sent {
        let built = self.build(request);
        let before = blackstart_clock::wait_until(not_before, blackstart_clock::SleepPlan::DEFAULT);
        let answer = built.and_then(|r| self.0.execute(r).map_err(|e| reason(&e)));
        let after = monotonic_ns();
        let result = answer.and_then(|answer| {
            let status = answer.status();
            if status.is_success() {
                return Ok(status.as_u16());
            }
            let mut text = Vec::new();
            // What cannot be read is not shown; the status says enough.
            let _ = answer.take(MAX_SHOWN_BYTES).read_to_end(&mut text);
            Err(format!(
                "answered {status}: {}",
                String::from_utf8_lossy(&text).trim()
            ))
        });
        Sent {
            before,
            after,
            result,
        }
    }

    /// Several attempts: undoing twice does no harm.
    pub(crate) fn send_undo(&self, request: &HttpRequest, not_before: i64) -> Sent {
        let mut sent = self.send(request, not_before);
        for _ in 1..UNDO_ATTEMPTS {
            if sent.result.is_ok() {
                break;
            }
            sleep_until(monotonic_ns() + UNDO_PAUSE_NS);
            sent = self.send(request, 0);
        }
        sent
    }

    fn build(&self, request: &HttpRequest) -> Result<reqwest::blocking::Request, String> {
        let method = reqwest::Method::from_bytes(request.method.as_bytes())
            .map_err(|_| "not an HTTP method".to_owned())?;
        let mut builder = self.0.request(method, &request.url);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        builder
            .body(request.body.clone())
            .build()
            .map_err(|e| reason(&e))
    }
}

/// The innermost cause: `Connection refused` rather than `error sending request`.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", HTTP_TIMEOUT_NS / NS_PER_S);
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
