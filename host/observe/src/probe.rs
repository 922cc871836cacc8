//! One inference probe: a streamed request for one token on a connection of its own.

use std::sync::Mutex;
use std::time::Duration;

use blackstart_clock::{RunClock, RunNs};
use blackstart_plan::{Endpoint, LoadPlan, ReplicaPlan};
use blackstart_tls::TlsClient;
use hyper::http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::json;

use crate::answer::{self, StreamReader, Verdict};
use crate::exchange::{Exchange, HttpTarget};
use crate::failure::{Failure, Stage, excerpt};

/// Largest answer that is read when it comes as one document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;
/// How long the rest of an answer is awaited after its token, so that the server does not count an
/// aborted request.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// Everything that is the same for all probes of one path.
#[derive(Debug)]
pub(crate) struct ProbeClient {
    pub(crate) target: HttpTarget,
    endpoint: Endpoint,
    model: String,
    ignore_eos: bool,
    pub(crate) headers: HeaderMap,
    secret: Option<String>,
    replica_header: Option<HeaderName>,
    /// `(value of the replica header, replica)`.
    names: Vec<(String, String)>,
    clock: RunClock,
    nonce: String,
}

/// What a probe saw.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Clock read immediately before the connection was opened.
    pub(crate) sent_ns: RunNs,
    /// When the bytes of the first token were read, or why there were none.
    pub(crate) token: Result<RunNs, Failure>,
    /// The replica that the answer names.
    pub(crate) served_by: Option<String>,
}

/// The rest of an answer after its token.
pub(crate) struct Rest(Option<Exchange>);

impl Rest {
    /// Reads it to its end, for a bounded time.
    pub(crate) async fn drain(self) {
        let Some(mut exchange) = self.0 else { return };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, async {
            let mut budget = MAX_DOCUMENT_BYTES;
            while let Ok(Some(chunk)) = exchange.chunk().await {
                budget = budget.saturating_sub(chunk.len());
                if budget == 0 {
                    break;
                }
            }
        })
        .await;
    }
}

impl ProbeClient {
    /// A client for the model and headers of `load` at a base URL. `nonce` must differ between
    /// clients: it makes their prompts differ. An `https://` URL needs `tls`.
    ///
    /// # Errors
    /// A text naming the URL or header that cannot be used.
    pub(crate) fn new(
        base_url: &str,
        load: &LoadPlan,
        replicas: &[ReplicaPlan],
        api_key: Option<&str>,
        clock: RunClock,
        nonce: String,
        tls: Option<&TlsClient>,
    ) -> Result<Self, String> {
        let target =
            HttpTarget::parse(base_url, tls).map_err(|e| format!("URL `{base_url}`: {e}"))?;
        let replica_header = load
            .replica_header
            .as_deref()
            .map(|name| {
                name.parse::<HeaderName>()
                    .map_err(|_| format!("replica_header `{}` is no header name", excerpt(name)))
            })
            .transpose()?;
        let mut names = Vec::new();
        for replica in replicas {
            names.push((replica.id.clone(), replica.id.clone()));
            if let Ok(own) = HttpTarget::parse(&replica.base_url, None) {
                names.push((own.authority().to_owned(), replica.id.clone()));
            }
        }
        Ok(Self {
            target,
            endpoint: load.endpoint,
            model: load.model.clone(),
            ignore_eos: load.ignore_eos,
            headers: request_headers(load, api_key)?,
            secret: api_key.filter(|k| !k.is_empty()).map(str::to_owned),
            replica_header,
            names,
            clock,
            nonce,
        })
    }

    /// Sends one probe and waits for its token, at most for `timeout`.
    pub(crate) async fn attempt(&self, number: u64, timeout: Duration) -> (Attempt, Rest) {
        let progress = Mutex::new((Stage::Connecting, None));
        let sent_ns = self.clock.now();
        let outcome = tokio::time::timeout(timeout, self.exchange(number, &progress)).await;
        let (stage, served_by) = match progress.into_inner() {
            Ok(progress) => progress,
            Err(poisoned) => poisoned.into_inner(),
        };
        let (token, rest) = match outcome {
            Ok(Ok((at, exchange))) => (Ok(at), Some(exchange)),
            Ok(Err(failure)) => (Err(self.redact(failure)), None),
            Err(_) => (
                Err(Failure::Timeout {
                    stage,
                    timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
                }),
                None,
            ),
        };
        let attempt = Attempt {
            sent_ns,
            token,
            served_by,
        };
        (attempt, Rest(rest))
    }

    async fn exchange(
        &self,
        number: u64,
        progress: &Mutex<(Stage, Option<String>)>,
    ) -> Result<(RunNs, Exchange), Failure> {
        let note = |stage: Stage, served_by: Option<String>| {
            if let Ok(mut progress) = progress.lock() {
                *progress = (stage, served_by);
            }
        };
        let request = self.target.request(
            self.endpoint.path(),
            &self.headers,
            Some(self.payload(number)),
        )?;
        let mut exchange = Exchange::send(&self.target, request, self.clock, || {
            note(Stage::Waiting, None)
        })
        .await?;
        note(Stage::Streaming, self.served_by(&exchange.head.headers));
        let status = exchange.head.status;
        if status != 200 {
            let body = exchange.text(MAX_DOCUMENT_BYTES).await.unwrap_or_default();
            return Err(Failure::Status {
                code: status.as_u16(),
                message: answer::error_message(&body),
            });
        }
        let content_type = exchange
            .head
            .headers
            .get(header::CONTENT_TYPE)
            .map(|v| String::from_utf8_lossy(v.as_bytes()).to_ascii_lowercase())
            .unwrap_or_default();
        if content_type.starts_with("text/event-stream") {
            let mut reader = StreamReader::default();
            while let Some(chunk) = exchange.chunk().await? {
                match reader.feed(&chunk) {
                    Verdict::Open => {}
                    Verdict::Token => return Ok((exchange.last_read_ns(), exchange)),
                    Verdict::Failed(failure) => return Err(failure),
                }
            }
            return Err(reader.end());
        }
        let body = exchange.text(MAX_DOCUMENT_BYTES).await?;
        if content_type.starts_with("application/json") {
            return match answer::whole(body.as_bytes()) {
                Verdict::Token => Ok((exchange.last_read_ns(), exchange)),
                Verdict::Failed(failure) => Err(failure),
                Verdict::Open => Err(Failure::NoToken("no token".to_owned())),
            };
        }
        Err(Failure::NotInference {
            what: if content_type.is_empty() {
                "no content type".to_owned()
            } else {
                excerpt(&content_type)
            },
            excerpt: excerpt(&body),
        })
    }

    fn served_by(&self, headers: &HeaderMap) -> Option<String> {
        let value = headers.get(self.replica_header.as_ref()?)?;
        let value = excerpt(&String::from_utf8_lossy(value.as_bytes()));
        let known = self.names.iter().find(|(name, _)| *name == value);
        Some(known.map_or(value, |(_, replica)| replica.clone()))
    }

    /// The prompt begins with what is unique, so that no prefix cache holds any of it.
    fn payload(&self, number: u64) -> Vec<u8> {
        let prompt = format!("{} {number} say one word", self.nonce);
        let mut body = json!({
            "model": self.model,
            "max_tokens": 1,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match self.endpoint {
            Endpoint::Chat => body["messages"] = json!([{"role": "user", "content": prompt}]),
            Endpoint::Completions => body["prompt"] = json!(prompt),
        }
        if self.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        body.to_string().into_bytes()
    }

    /// Servers quote what they were sent; the key must not come back through an error.
    fn redact(&self, failure: Failure) -> Failure {
        let Some(secret) = &self.secret else {
            return failure;
        };
        let clean = |s: String| s.replace(secret.as_str(), "[api key]");
        match failure {
            Failure::Status { code, message } => Failure::Status {
                code,
                message: clean(message),
            },
            Failure::NotInference { what, excerpt } => Failure::NotInference {
                what: clean(what),
                excerpt: clean(excerpt),
            },
            Failure::InAnswer(message) => Failure::InAnswer(clean(message)),
            Failure::NoToken(message) => Failure::NoToken(clean(message)),
            Failure::Malformed(message) => Failure::Malformed(clean(message)),
            other => other,
        }
    }
}

/// The headers of every request to the target: the configured ones and the key.
pub(crate) fn request_headers(load: &LoadPlan, api_key: Option<&str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &load.headers {
        let parsed = name
            .parse::<HeaderName>()
            .map_err(|_| format!("header name `{}` cannot be sent", excerpt(name)))?;
        let value = HeaderValue::from_str(value).map_err(|_| {
            format!("the value of header `{name}` holds characters that cannot be sent")
        })?;
        headers.append(parsed, value);
    }
    if let Some(key) = api_key.filter(|k| !k.is_empty()) {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
            "the API key holds characters that cannot be sent in a header; check the variable"
                .to_owned()
        })?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}
