//! HTTP requests as effects: one attempt, no redirect, no proxy, bounded in time and size.

use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S, monotonic_ns, sleep_until};
use reqwest::{Client, Request, Response};
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
const MAX_SHOWN_BYTES: usize = 200;
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
    pub(crate) result: Result<u16, Unsent>,
}

/// Why a request has no successful answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// Nothing was sent: the instant at which the effect had to be undone had passed.
    EndHadPassed,
    /// It failed, or was refused; whether it had an effect is not known.
    Failed(String),
}

/// Why an effect was not begun on a host that was late by more than the effect's length.
pub(crate) const END_HAD_PASSED: &str =
    "the host was so late that the effect's end had passed: not fired";

impl std::fmt::Display for Unsent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::EndHadPassed => END_HAD_PASSED,
            Self::Failed(reason) => reason,
        })
    }
}

/// Sends requests, on the calling thread: a thread of its own would not have the caller's priority.
pub(crate) struct Sender {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Sender {
    pub(crate) fn new() -> Result<Self, String> {
        let ns = |ns: i64| Duration::from_nanos(ns.unsigned_abs());
        let client = Client::builder()
            // A retried fault is two faults.
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(ns(HTTP_TIMEOUT_NS))
            .connect_timeout(ns(CONNECT_TIMEOUT_NS))
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|e| format!("HTTP client: {e}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("HTTP client: {e}"))?;
        Ok(Self { client, runtime })
    }

    /// One attempt. Everything that can be made before is made before the first clock read.
    /// Nothing is sent at or after the monotonic instant `end`.
    pub(crate) fn send(&self, request: &HttpRequest, not_before: i64, end: Option<i64>) -> Sent {
        let built = self.build(request);
        let before = blackstart_clock::wait_until(not_before, blackstart_clock::SleepPlan::DEFAULT);
        if end.is_some_and(|end| before >= end) {
            return Sent {
                before,
                after: before,
                result: Err(Unsent::EndHadPassed),
            };
        }
        let answer = built.and_then(|r| {
            // Its timers want the runtime already when it is made.
            self.runtime
                .block_on(async { self.client.execute(r).await })
                .map_err(|e| reason(&e))
        });
        let after = monotonic_ns();
        let result = answer.and_then(|answer| {
            let status = answer.status();
            if status.is_success() {
                return Ok(status.as_u16());
            }
            let text = self.runtime.block_on(beginning(answer));
            Err(format!("answered {status}: {}", text.trim()))
        });
        Sent {
            before,
            after,
            result: result.map_err(Unsent::Failed),
        }
    }

    /// Several attempts: undoing twice does no harm.
    pub(crate) fn send_undo(&self, request: &HttpRequest, not_before: i64) -> Sent {
        let mut sent = self.send(request, not_before, None);
        for _ in 1..UNDO_ATTEMPTS {
            if sent.result.is_ok() {
                break;
            }
            sleep_until(monotonic_ns() + UNDO_PAUSE_NS);
            sent = self.send(request, 0, None);
        }
        sent
    }

    fn build(&self, request: &HttpRequest) -> Result<Request, String> {
        let method = reqwest::Method::from_bytes(request.method.as_bytes())
            .map_err(|_| "not an HTTP method".to_owned())?;
        let mut builder = self.client.request(method, &request.url);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        builder
            .body(request.body.clone())
            .build()
            .map_err(|e| reason(&e))
    }
}

/// The first bytes of an answer. What cannot be read is not shown; the status says enough.
async fn beginning(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_SHOWN_BYTES
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(MAX_SHOWN_BYTES);
    String::from_utf8_lossy(&bytes).into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What should be undone by now must not begin any more.
    #[test]
    fn nothing_is_sent_after_the_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
        listener.set_nonblocking(true).expect("nonblocking");
        let url = format!("http://{}/fault", listener.local_addr().expect("address"));
        let sender = Sender::new().expect("client");
        let at = monotonic_ns() + 10 * NS_PER_MS;
        let sent = sender.send(&HttpRequest::post(&url), at, Some(at));
        assert_eq!(sent.result, Err(Unsent::EndHadPassed));
        assert!(sent.before >= at);
        let nobody = listener.accept().expect_err("no connection");
        assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    }
}
