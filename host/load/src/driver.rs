//! Starts a load and ends it: threads in, results out. No runtime leaks to the caller.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use blackstart_clock::RunClock;
use blackstart_plan::{LoadPlan, SloThresholds};
use blackstart_record::{Event, EventKind, RecordError, RequestJournalWriter, RunFiles};
use blackstart_tls::TlsClient;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
};

use crate::address::Address;
use crate::canary::{Canary, CanaryTarget};
use crate::pacing::{Pacing, State};
use crate::progress::{Progress, snapshot};
use crate::prompt::{BodyTemplate, Prompts};
use crate::request::{RequestHead, base_headers};
use crate::shared::Shared;
use crate::worker::{self, RequestKit, WorkerSetup};
use crate::writer::{self, MAX_QUEUED_MESSAGES, Written};
use crate::{LoadError, Secret, limits};

/// Most load threads.
pub const MAX_THREADS: u32 = 64;
/// Connections that are open before the first request, over all load threads.
pub const CONNECTION_FLOOR: usize = 4;
/// Longest client timeout (a day).
pub const MAX_TIMEOUT_NS: i64 = 86_400 * blackstart_clock::NS_PER_S;

/// What one load is.
#[derive(Debug, Clone)]
pub struct LoadRun {
    /// The load as planned.
    pub plan: LoadPlan,
    /// What releases its requests.
    pub pacing: Pacing,
    /// What they ask.
    pub prompts: Prompts,
    /// Seed of the run; makes its prompts its own.
    pub seed: u64,
    /// The run's clock. Its epoch may lie ahead.
    pub clock: RunClock,
    /// The canary, if it is to run.
    pub canary: Option<CanaryTarget>,
    /// Directory of the run, which must exist.
    pub dir: PathBuf,
    /// Prefix of the `x-request-id` header; the request's index follows.
    pub request_id_prefix: String,
    /// Sent as bearer token.
    pub api_key: Option<Secret>,
    /// How to speak TLS; an `https://` address needs it.
    pub tls: Option<TlsClient>,
    /// When a request counts as good in the live display.
    pub good: SloThresholds,
    /// Whether every gap between content events is kept (`gaps.parquet`), besides their histograms.
    pub every_gap: bool,
}

/// What a load did.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSummary {
    /// Requests in the schedule.
    pub scheduled: u64,
    /// Rows written; equal to `scheduled` unless the instrument has a defect.
    pub recorded: u64,
    /// Whether it was ended early.
    pub cancelled: bool,
    /// Heartbeats, canary streams and notes that were not drained before.
    pub events: Vec<Event>,
}

/// Starts a load. Its threads run until every request of the schedule has an outcome.
///
/// # Errors
/// When the plan is impossible, the address is, or the results cannot be written. A server that does
/// not answer is no error.
pub fn start(run: LoadRun) -> Result<LoadHandle, LoadError> {
    let kit = Arc::new(request_kit(&run)?);
    let canary = run.canary.clone().map(Canary::new).transpose()?;
    let pacing = State::new(run.pacing)?;
    if pacing.has_turns() && !kit.template.has_turns(&run.plan) {
        return Err(LoadError::Plan {
            what: "conversations need the chat API, and prompts that have turns".to_owned(),
        });
    }
    limits::provide_files(limits::concurrency_bound(&pacing, run.plan.timeout_ns))?;
    let mut journal = RequestJournalWriter::create(&RunFiles::new(&run.dir).journal())?;
    if run.every_gap {
        // So that there is a table even if no gap comes.
        journal.append_every_gap(&[])?;
        journal.flush()?;
    }
    let threads = run.plan.threads as usize;
    let shared = Arc::new(Shared::new(run.clock, pacing, threads));

    let (to_writer, queue) = sync_channel(MAX_QUEUED_MESSAGES);
    let writer = {
        let (shared, dir) = (Arc::clone(&shared), run.dir.clone());
        spawn("load-writer", move || {
            writer::write(&queue, journal, &shared, &dir)
        })?
    };
    // From here on a failure must end the threads that run already.
    let mut handle = LoadHandle {
        shared,
        dir: run.dir,
        writer: Some(writer),
        workers: Vec::new(),
    };
    let mut canary = canary;
    for thread in 0..run.plan.threads {
        let setup = WorkerSetup {
            thread,
            shared: Arc::clone(&handle.shared),
            kit: Arc::clone(&kit),
            to_writer: to_writer.clone(),
            real_time: run.plan.real_time,
            every_gap: run.every_gap,
            floor: CONNECTION_FLOOR.div_ceil(threads),
            canary: canary.take(),
        };
        handle
            .workers
            .push(spawn("load-worker", move || worker::run(setup))?);
    }
    drop(to_writer);
    Ok(handle)
}

fn spawn<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, LoadError> {
    Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|source| LoadError::Thread { name, source })
}

/// A load under way. Dropped without [`join`](Self::join), it is ended early; its records are still
/// written.
#[derive(Debug)]
pub struct LoadHandle {
    shared: Arc<Shared>,
    dir: PathBuf,
    writer: Option<JoinHandle<Result<Written, RecordError>>>,
    workers: Vec<JoinHandle<std::io::Result<()>>>,
}

impl LoadHandle {
    /// How it goes.
    pub fn progress(&self) -> Progress {
        snapshot(&self.shared)
    }

    /// Ends the load early: requests under way, and those not sent yet, are censored by the run's
    /// end. Returns at once.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Why records cannot be written any more (a full disk), as soon as that is known; the load is
    /// then ending.
    pub fn failure(&self) -> Option<String> {
        self.shared.write_failure()
    }

    /// Whether [`join`](Self::join) would return without waiting.
    pub fn is_finished(&self) -> bool {
        self.writer.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Events since the last call. A caller that writes them as they come keeps memory flat; what it
    /// leaves is in the summary.
    pub fn drain_events(&self) -> Vec<Event> {
        self.shared.take_events()
    }

    /// Waits until every request has an outcome and all records are written and sealed.
    ///
    /// # Errors
    /// When the records could not be written, or a thread failed; what was written before stays.
    pub fn join(mut self) -> Result<LoadSummary, LoadError> {
        let panicked = |name| LoadError::Panicked {
            name,
            dir: self.dir.clone(),
        };
        let mut failure = None;
        for worker in std::mem::take(&mut self.workers) {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(e)) => self.note(format!(
                    "a load thread ended early, its requests were not sent: {e}"
                )),
                Err(_) => failure = Some(panicked("load-worker")),
            }
        }
        let written = match self.writer.take().map(JoinHandle::join) {
            Some(Ok(written)) => written?,
            Some(Err(_)) | None => return Err(panicked("load-writer")),
        };
        if let Some(failure) = failure {
            return Err(failure);
        }
        let cancelled = self.shared.cancelled().is_some();
        if written.filled_in > 0 && !cancelled {
            self.note(format!(
                "{} requests got no outcome from their load thread; they count as undispatched",
                written.filled_in
            ));
        }
        if written.duplicates > 0 {
            self.note(format!(
                "{} records came twice and were dropped: a defect of the instrument",
                written.duplicates
            ));
        }
        Ok(LoadSummary {
            scheduled: self.shared.total(),
            recorded: written.recorded,
            cancelled,
            events: self.shared.take_events(),
        })
    }

    fn note(&self, text: String) {
        self.shared.push_event(Event {
            at_ns: self.shared.clock.now(),
            kind: EventKind::Note { text },
        });
    }
}

impl Drop for LoadHandle {
    fn drop(&mut self) {
        self.shared.cancel();
    }
}

fn request_kit(run: &LoadRun) -> Result<RequestKit, LoadError> {
    let plan = &run.plan;
    if !(1..=MAX_THREADS).contains(&plan.threads) {
        return Err(LoadError::Plan {
            what: format!("{} load threads; choose 1 to {MAX_THREADS}", plan.threads),
        });
    }
    let timeouts = [
        ("a client timeout", Some(plan.timeout_ns)),
        ("an idle timeout", plan.idle_timeout_ns),
        ("a first-token timeout", plan.first_token_timeout_ns),
    ];
    for (what, ns) in timeouts {
        if let Some(ns) = ns
            && !(1..=MAX_TIMEOUT_NS).contains(&ns)
        {
            return Err(LoadError::Plan {
                what: format!("{what} of {ns} ns; choose more than nothing and at most a day"),
            });
        }
    }
    let address = Address::resolve(&plan.base_url, run.tls.as_ref())?;
    let mut headers = base_headers(&address);
    for (name, value) in &plan.headers {
        let (name, value) = header(name, value)?;
        headers.insert(name, value);
    }
    if let Some(key) = &run.api_key {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", key.expose())).map_err(|_| {
                LoadError::Header {
                    name: AUTHORIZATION.to_string(),
                    what: "the API key holds characters that no header may; check its variable"
                        .to_owned(),
                }
            })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    if HeaderValue::from_str(&run.request_id_prefix).is_err() {
        return Err(LoadError::Header {
            name: "x-request-id".to_owned(),
            what: "the campaign's name holds characters that no header may; rename it".to_owned(),
        });
    }
    Ok(RequestKit {
        head: RequestHead::new(&address, plan.endpoint, &headers)?,
        template: BodyTemplate::new(plan, &run.prompts, run.seed)?,
        id_prefix: run.request_id_prefix.clone(),
        replica_header: plan
            .replica_header
            .as_deref()
            .map(|name| header_name(name).map(|name| name.to_string()))
            .transpose()?,
        timeout_ns: plan.timeout_ns,
        first_token_timeout_ns: plan.first_token_timeout_ns,
        idle_timeout_ns: plan.idle_timeout_ns,
        secret: run.api_key.clone().map(Arc::new),
        good: run.good,
        address,
    })
}

fn header_name(name: &str) -> Result<HeaderName, LoadError> {
    name.parse().map_err(|_| LoadError::Header {
        name: name.escape_debug().to_string(),
        what: "not a header name; use letters, digits and hyphens".to_owned(),
    })
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), LoadError> {
    let parsed = header_name(name)?;
    if [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(&parsed) {
        return Err(LoadError::Header {
            name: name.to_owned(),
            what: "the instrument sets this one itself; leave it out".to_owned(),
        });
    }
    // The value is not shown: it may be a secret after all.
    let value = HeaderValue::from_str(value).map_err(|_| LoadError::Header {
        name: name.to_owned(),
        what: "its value holds characters that no header may".to_owned(),
    })?;
    Ok((parsed, value))
}
