//! Waiting, before a run, until a replica answers with a token.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blackstart_clock::RunClock;
use blackstart_plan::{LoadPlan, ReplicaPlan};
use blackstart_tls::TlsClient;
use serde_json::Value;

use crate::exchange::{Exchange, HttpTarget};
use crate::failure::{Failure, Stage, excerpt};
use crate::probe::ProbeClient;

/// Wait between two attempts.
const POLL: Duration = Duration::from_millis(100);
/// How long one attempt may take: the first inference of a fresh server can be slow.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// An attempt that the end of the wait cuts shorter than this says nothing by its timeout; what was
/// seen before it is reported instead.
const TELLING_ATTEMPT: Duration = Duration::from_secs(1);
/// How long the list of models may take.
const MODELS_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest list of models that is read, in bytes.
const MAX_MODELS_BYTES: usize = 1024 * 1024;
/// Most model names in an error.
const MAX_MODELS_NAMED: usize = 10;
/// Successive answers that only a changed configuration can mend (unknown model, key refused) after
/// which waiting ends early. More than one, because a server or gateway that is starting may say so
/// for a moment.
const HOPELESS_ATTEMPTS: u32 = 5;
/// How often the stop flag is looked at.
const STOP_POLL: Duration = Duration::from_millis(20);

/// What is waited for.
#[derive(Clone, Copy)]
pub struct ReadyRequest<'a> {
    /// The replica.
    pub replica: &'a ReplicaPlan,
    /// Model, endpoint and headers of the load.
    pub load: &'a LoadPlan,
    /// The API key, if the target wants one.
    pub api_key: Option<&'a str>,
    /// How long to wait.
    pub timeout: Duration,
}

/// A replica answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyAt {
    /// `CLOCK_MONOTONIC` when the first token was read, in nanoseconds.
    pub monotonic_ns: i64,
    /// Attempts, the successful one included.
    pub attempts: u64,
}

/// Why a replica is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadyError {
    /// It cannot be asked.
    #[error("replica {replica}: {reason}")]
    Configuration {
        /// The replica.
        replica: String,
        /// What is wrong, and how to mend it.
        reason: String,
    },
    /// It did not answer with a token in time.
    #[error("{what}; last seen: {last_seen}; {mend}")]
    NotReady {
        /// Which replica, at which address, and that it did not answer within which time, or that
        /// it refused for good.
        what: String,
        /// What the last attempt saw.
        last_seen: String,
        /// What to do about it.
        mend: String,
        /// Key of the campaign file that mends it (`load.model`), where it is one of the load's and
        /// not of the replica's address.
        key: Option<&'static str>,
    },
    /// The stop flag was raised.
    #[error("stopped while waiting for replica {replica}")]
    Stopped {
        /// The replica.
        replica: String,
    },
}

/// Polls a replica with one-token requests until one is answered. Blocks the calling thread; raise
/// `stop` from another to end it early.
///
/// # Errors
/// [`ReadyError`]; it says what was last seen and how to mend it. An answer that waiting cannot
/// change (model not served, key refused), given five times in a row, ends the wait early.
pub fn wait_ready(request: ReadyRequest<'_>, stop: &AtomicBool) -> Result<ReadyAt, ReadyError> {
    let replica = request.replica.id.clone();
    let configuration = |reason: String| ReadyError::Configuration {
        replica: replica.clone(),
        reason,
    };
    // Epoch 0: run time is the monotonic clock itself.
    let clock = RunClock::from_recorded(0, 0);
    let client = ProbeClient::new(
        &request.replica.base_url,
        request.load,
        std::slice::from_ref(request.replica),
        request.api_key,
        clock,
        format!("ready-{:x}-{replica}", blackstart_clock::unix_ns()),
        None,
    )
    .map_err(configuration)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| ReadyError::Configuration {
            replica: replica.clone(),
            reason: format!("the poller cannot be started: {e}"),
        })?;
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            () = raised(stop) => Err(ReadyError::Stopped { replica }),
            result = poll(&request, &client) => result,
        }
    });
    // A name that is being resolved must not hold up the caller.
    runtime.shutdown_background();
    result
}

async fn raised(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(STOP_POLL).await;
    }
}

async fn poll(request: &ReadyRequest<'_>, client: &ProbeClient) -> Result<ReadyAt, ReadyError> {
    let started = Instant::now();
    let mut attempts = 0;
    let mut hopeless = 0;
    let mut before: Option<Failure> = None;
    loop {
        attempts += 1;
        let left = request.timeout.saturating_sub(started.elapsed());
        let limit = ATTEMPT_TIMEOUT.min(left).max(STOP_POLL);
        let (attempt, rest) = client.attempt(attempts, limit).await;
        let failure = match attempt.token {
            Ok(monotonic_ns) => {
                rest.drain().await;
                return Ok(ReadyAt {
                    monotonic_ns,
                    attempts,
                });
            }
            Err(Failure::Timeout { stage, timeout_ms }) => match before {
                Some(telling) if limit < TELLING_ATTEMPT => telling,
                _ => Failure::Timeout { stage, timeout_ms },
            },
            Err(failure) => failure,
        };
        let served = match failure {
            Failure::Status { code: 404, .. } => models(client).await,
            _ => None,
        };
        hopeless = if is_hopeless(&failure, served.as_deref(), &request.load.model) {
            hopeless + 1
        } else {
            0
        };
        if hopeless >= HOPELESS_ATTEMPTS || started.elapsed() + POLL >= request.timeout {
            return Err(ReadyError::NotReady {
                what: format!(
                    "replica {} at {} {}",
                    request.replica.id,
                    request.replica.base_url,
                    how(attempts, hopeless, request.timeout)
                ),
                key: key(&failure, served.as_deref(), &request.load.model),
                mend: mend(&failure, served.as_deref(), request, &client.target),
                last_seen: failure.to_string(),
            });
        }
        before = Some(failure);
        tokio::time::sleep(POLL).await;
    }
}

fn is_hopeless(failure: &Failure, served: Option<&[String]>, model: &str) -> bool {
    match failure {
        Failure::Status {
            code: 401 | 403, ..
        } => true,
        Failure::Status { code: 404, .. } => {
            served.is_some_and(|names| !names.iter().any(|n| n == model))
        }
        _ => false,
    }
}

/// How the wait ended, in words: by its limit, or by answers that no waiting changes.
fn how(attempts: u64, hopeless: u32, timeout: Duration) -> String {
    if hopeless >= HOPELESS_ATTEMPTS {
        return format!(
            "refused {hopeless} requests in a row with an answer that waiting does not change"
        );
    }
    let plural = if attempts == 1 { "" } else { "s" };
    // The limit, not the clock: the last attempt ends a moment before it or after.
    format!(
        "did not answer with a token within {} s ({attempts} attempt{plural})",
        timeout.as_secs_f64()
    )
}

/// Key of the campaign file that would mend a failure, if it is one of the load's.
fn key(failure: &Failure, served: Option<&[String]>, model: &str) -> Option<&'static str> {
    match failure {
        Failure::Status { code: 404, .. } => match served {
            Some(names) if names.iter().any(|n| n == model) => Some("load.endpoint"),
            Some(_) => Some("load.model"),
            None => None,
        },
        Failure::Status {
            code: 401 | 403, ..
        } => Some("load.api_key_env"),
        Failure::Status {
            code: 400..=499, ..
        } => Some("load"),
        _ => None,
    }
}

/// Why a server's models are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct ModelsError {
    /// What is wrong.
    pub what: String,
    /// Whether it is TLS: the server answered, and the text says how to mend it.
    pub tls: bool,
}

impl From<String> for ModelsError {
    fn from(what: String) -> Self {
        Self { what, tls: false }
    }
}

impl From<&str> for ModelsError {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl From<Failure> for ModelsError {
    fn from(failure: Failure) -> Self {
        Self {
            what: failure.to_string(),
            tls: matches!(failure, Failure::Tls(_)),
        }
    }
}

/// The models that a server lists at `/v1/models`. An `https://` address needs `tls`.
///
/// # Errors
/// What is wrong with the address or headers, or that it does not list any.
pub fn list_models(
    load: &LoadPlan,
    api_key: Option<&str>,
    tls: Option<&TlsClient>,
) -> Result<Vec<String>, ModelsError> {
    let clock = RunClock::from_recorded(0, 0);
    let client = ProbeClient::new(
        &load.base_url,
        load,
        &[],
        api_key,
        clock,
        "models".to_owned(),
        tls,
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let at = format!("{}/v1/models", load.base_url);
        let names = asked_models(&client).await.map_err(|e| ModelsError {
            what: format!("{at}: {e}"),
            ..e
        })?;
        if names.is_empty() {
            return Err(format!("{at} lists no model").into());
        }
        Ok(names)
    })
}

/// The names that `/v1/models` lists; `None` if it does not answer with a list.
async fn models(client: &ProbeClient) -> Option<Vec<String>> {
    asked_models(client).await.ok()
}

async fn asked_models(client: &ProbeClient) -> Result<Vec<String>, ModelsError> {
    let request = client
        .target
        .request("/v1/models", &client.headers, None)
        .map_err(|e| e.to_string())?;
    let clock = RunClock::from_recorded(0, 0);
    let asked = async {
        let mut exchange = Exchange::send(&client.target, request, clock, || {}).await?;
        if exchange.head.status != 200 {
            return Err(format!("it answered {}", exchange.head.status).into());
        }
        Ok::<String, ModelsError>(exchange.text(MAX_MODELS_BYTES).await?)
    };
    let listed = tokio::time::timeout(MODELS_TIMEOUT, asked)
        .await
        .map_err(|_| format!("no answer within {} s", MODELS_TIMEOUT.as_secs()))??;
    let document: Value =
        serde_json::from_str(&listed).map_err(|_| "its answer is no JSON document".to_owned())?;
    let names = document
        .get("data")
        .and_then(Value::as_array)
        .ok_or("its answer has no list `data`")?;
    Ok(names
        .iter()
        .filter_map(|m| m.get("id")?.as_str().map(excerpt))
        .collect())
}

fn mend(
    failure: &Failure,
    served: Option<&[String]>,
    request: &ReadyRequest<'_>,
    target: &HttpTarget,
) -> String {
    let authority = target.authority();
    let model = &request.load.model;
    match failure {
        Failure::Connect { refused: true, .. } => format!(
            "nothing listens on {authority}: check that the server was started, its log, and the port in base_url"
        ),
        // It says how to mend it itself.
        Failure::Tls(_) => format!("check the host and port in base_url ({authority})"),
        Failure::Connect { .. } => {
            format!("check the host and port in base_url ({authority})")
        }
        Failure::Status { code: 404, .. } => match served {
            Some([]) => "the server lists no model: it has loaded none".to_owned(),
            Some(names) if names.iter().any(|n| n == model) => format!(
                "the server does list model `{model}`: check that it serves {} and that load.endpoint is right",
                request.load.endpoint.path()
            ),
            Some(names) => {
                let more = if names.len() > MAX_MODELS_NAMED { ", …" } else { "" };
                let names: Vec<String> = names
                    .iter()
                    .take(MAX_MODELS_NAMED)
                    .map(|n| format!("`{n}`"))
                    .collect();
                format!(
                    "the server does not serve model `{model}` but {}{more}: set load.model to one of these",
                    names.join(", ")
                )
            }
            None => format!(
                "{} is not an OpenAI-compatible server's path: check base_url",
                target.url(request.load.endpoint.path())
            ),
        },
        Failure::Status {
            code: 401 | 403, ..
        } => match &request.load.api_key_env {
            Some(name) => format!("check the API key in the environment variable {name}"),
            None => "the server wants an API key: name its environment variable in load.api_key_env"
                .to_owned(),
        },
        Failure::Status { code: 502..=504, .. } => {
            "the model is still loading, or a gateway has no healthy server behind it: look at the server's log, or raise the start timeout".to_owned()
        }
        Failure::Status { code: 500.., .. } | Failure::InAnswer(_) | Failure::Aborted => {
            "the server cannot run the model: look at its log".to_owned()
        }
        Failure::Status { .. } => {
            "the server refuses the request: check load.model, load.endpoint and load.headers".to_owned()
        }
        Failure::NotInference { .. } | Failure::Malformed(_) => format!(
            "something else than an OpenAI-compatible server listens on {authority}: check base_url"
        ),
        Failure::Timeout {
            stage: Stage::Connecting,
            ..
        } => format!("packets to {authority} are lost or the server does not accept: check the address, firewalls and whether the process is stopped"),
        Failure::Timeout { .. } => {
            "the server accepts but generates nothing: its engine hangs or is still starting; look at its log, or raise the start timeout".to_owned()
        }
        Failure::Reset(_) | Failure::Truncated(_) | Failure::NoToken(_) => {
            "the server ends requests without a token: look at its log (its engine may have died)".to_owned()
        }
    }
}
