//! Starts and stops all observers of a run, on one thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use blackstart_clock::{RunClock, RunNs, Urgency, request_real_time};
use blackstart_plan::Plan;
use blackstart_record::{EventKind, MetricTable, ProbePath};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle as Task;

use crate::cpu::CpuSource;
use crate::exchange::HttpTarget;
use crate::probe::{ProbeClient, request_headers};
use crate::prober::Prober;
use crate::scraper::{self, Scraper};
use crate::signal::{EventSink, FireSignal};
use crate::table::TableBuilder;

/// Name of the observers' thread.
const THREAD_NAME: &str = "observe";

/// What is observed, and how the observers talk to the rest of the run.
pub struct ObserveRun<'a> {
    /// The campaign's plan.
    pub plan: &'a Plan,
    /// The run's clock.
    pub clock: RunClock,
    /// Where events go.
    pub sink: EventSink,
    /// Raised by whoever fires the fault.
    pub fire: FireSignal,
    /// The API key, if the target wants one. It goes into requests and nowhere else.
    pub api_key: Option<&'a str>,
    /// Where CPU counters are read.
    pub cpu: CpuSource,
}

/// Why observers could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// A target cannot be observed as configured.
    #[error("{what} cannot be observed: {reason}")]
    Target {
        /// `replica r0` or `the service`.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system gave no thread or no event queue.
    #[error(
        "the observers cannot be started: {0}; close other programs or raise the process limits"
    )]
    System(String),
}

/// Probes of one path over a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSummary {
    /// The path.
    pub path: ProbePath,
    /// The replica probed directly; `None` for the service.
    pub replica: Option<String>,
    /// Probes sent.
    pub sent: u64,
    /// Those answered with a token.
    pub ok: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those unanswered when the run ended. They are not in the events.
    pub abandoned: u64,
    /// Ticks at which no probe was sent because too many were unanswered.
    pub skipped: u64,
}

/// Scrapes of one replica over a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapeSummary {
    /// The replica.
    pub replica: String,
    /// Scrapes that gave samples.
    pub scrapes: u64,
    /// `ScrapeError` events.
    pub errors: u64,
    /// Series kept.
    pub series: u64,
    /// Samples not kept because of a bound.
    pub dropped_samples: u64,
    /// Lines that could not be read.
    pub malformed_lines: u64,
}

/// What the observers collected besides events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObserveSummary {
    /// All scraped samples.
    pub metrics: MetricTable,
    /// Each probed path: the replicas in the plan's order, then the service.
    pub probes: Vec<ProbeSummary>,
    /// Each scraped replica in the plan's order.
    pub scrapes: Vec<ScrapeSummary>,
    /// Number of `ClientCpu` events.
    pub cpu_samples: u64,
}

/// Starts observers.
pub struct Observers;

/// Running observers. Dropping it stops them.
pub struct ObserversHandle {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<ObserveSummary>>,
}

impl Observers {
    /// Starts all observers of a run: a prober for each replica and one for the service, a scraper
    /// for each replica, the CPU sampler. Probes and scrapes begin at the run epoch (or now, if that
    /// is past), spread over their interval.
    ///
    /// # Errors
    /// When an address or header of the plan cannot be used, or the system gives no thread.
    pub fn start(run: ObserveRun<'_>) -> Result<ObserversHandle, ObserveError> {
        let probers = probers(&run)?;
        let scrapers = scrapers(&run)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|e| ObserveError::System(e.to_string()))?;
        let (stop, stopping) = watch::channel(false);
        let (clock, sink, cpu) = (run.clock, run.sink, run.cpu);
        let real_time = run.plan.load.real_time;
        let thread = std::thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || {
                // A probe sent late finds the recovery late. A refusal costs only that, and the
                // gaps between probes are in the record.
                if real_time {
                    let _ = request_real_time(Urgency::Observing);
                }
                drive(runtime, probers, scrapers, cpu, clock, sink, stopping)
            })
            .map_err(|e| ObserveError::System(e.to_string()))?;
        Ok(ObserversHandle {
            stop,
            thread: Some(thread),
        })
    }
}

impl ObserversHandle {
    /// Stops all observers and returns what they collected. Prompt whatever the servers do: nothing
    /// is waited for.
    pub fn stop(mut self) -> ObserveSummary {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<ObserveSummary> {
        self.stop.send_replace(true);
        // A panic of the thread is reported by its own message; here it means "collected nothing".
        self.thread.take()?.join().ok()
    }
}

impl Drop for ObserversHandle {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn probers(run: &ObserveRun<'_>) -> Result<Vec<Prober>, ObserveError> {
    let target = &run.plan.target;
    let mut paths: Vec<(ProbePath, Option<String>, &str, String)> = target
        .replicas
        .iter()
        .map(|r| {
            let what = format!("replica {}", r.id);
            (
                ProbePath::Direct,
                Some(r.id.clone()),
                r.base_url.as_str(),
                what,
            )
        })
        .collect();
    if let Some(url) = &target.service_url {
        paths.push((ProbePath::Service, None, url, "the service".to_owned()));
    }
    let count = paths.len();
    // Unique between runs by the wall clock, between paths by their index.
    let nonce = run.clock.epoch_unix_ns();
    paths
        .into_iter()
        .enumerate()
        .map(|(index, (path, replica, url, what))| {
            let client = ProbeClient::new(
                url,
                &run.plan.load,
                &target.replicas,
                run.api_key,
                run.clock,
                format!("probe-{nonce:x}-{index}"),
                None,
            )
            .map_err(|reason| ObserveError::Target { what, reason })?;
            Ok(Prober {
                path,
                replica,
                client: Arc::new(client),
                plan: run.plan.observe.clone(),
                clock: run.clock,
                sink: run.sink.clone(),
                fire: run.fire.clone(),
                first_ns: first(run.clock, run.plan.observe.probe_interval_ns, index, count),
            })
        })
        .collect()
}

fn scrapers(run: &ObserveRun<'_>) -> Result<Vec<Scraper>, ObserveError> {
    let Some(path) = &run.plan.observe.metrics_path else {
        return Ok(Vec::new());
    };
    let client = scraper::client().map_err(ObserveError::System)?;
    let replicas = &run.plan.target.replicas;
    replicas
        .iter()
        .enumerate()
        .map(|(index, replica)| {
            let fail = |reason: String| ObserveError::Target {
                what: format!("replica {}", replica.id),
                reason,
            };
            if !path.starts_with('/') {
                return Err(fail(format!("metrics_path `{path}` must begin with `/`")));
            }
            let target = HttpTarget::parse(&replica.base_url, None)
                .map_err(|e| fail(format!("URL `{}`: {e}", replica.base_url)))?;
            let interval_ns = run.plan.observe.metrics_interval_ns;
            Ok(Scraper {
                replica: replica.id.clone(),
                url: target.url(path),
                client: client.clone(),
                headers: request_headers(&run.plan.load, run.api_key).map_err(fail)?,
                secret: run.api_key.filter(|k| !k.is_empty()).map(str::to_owned),
                interval_ns,
                needed: run.plan.observe.waiting_metric.clone(),
                clock: run.clock,
                sink: run.sink.clone(),
                first_ns: first(run.clock, interval_ns, index, replicas.len()),
            })
        })
        .collect()
}

/// Start of the `index`th of `count` loops, spread over the interval so that they do not come in
/// bursts.
fn first(clock: RunClock, interval_ns: i64, index: usize, count: usize) -> RunNs {
    let share = interval_ns.max(0) / i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    let offset = share.saturating_mul(i64::try_from(index).unwrap_or(0));
    clock.now().max(0).saturating_add(offset)
}

fn drive(
    runtime: Runtime,
    probers: Vec<Prober>,
    scrapers: Vec<Scraper>,
    cpu: CpuSource,
    clock: RunClock,
    sink: EventSink,
    stop: watch::Receiver<bool>,
) -> ObserveSummary {
    let summary = runtime.block_on(async {
        let cpu = tokio::spawn(cpu.run(clock, sink.clone(), stop.clone()));
        let probers: Vec<Task<_>> = probers
            .into_iter()
            .map(|p| tokio::spawn(p.run(stop.clone())))
            .collect();
        let scrapers: Vec<(String, Task<_>)> = scrapers
            .into_iter()
            .map(|s| (s.replica.clone(), tokio::spawn(s.run(stop.clone()))))
            .collect();
        let mut summary = ObserveSummary::default();
        let lost = |what: &str| {
            let text = format!("observer broke down, its results are lost: {what}");
            sink.emit(clock.now(), EventKind::Note { text });
        };
        for task in probers {
            match task.await {
                Ok(part) => summary.probes.push(part),
                Err(e) => lost(&format!("inference probes: {e}")),
            }
        }
        let mut tables: Vec<(String, TableBuilder)> = Vec::new();
        for (replica, task) in scrapers {
            match task.await {
                Ok((part, table)) => {
                    summary.scrapes.push(part);
                    tables.push((replica, table));
                }
                Err(e) => lost(&format!("metrics of {replica}: {e}")),
            }
        }
        match cpu.await {
            Ok(samples) => summary.cpu_samples = samples,
            Err(e) => lost(&format!("client CPU: {e}")),
        }
        summary.metrics = scraper::merge(tables);
        summary
    });
    // Abandoned probes and name look-ups are not waited for.
    runtime.shutdown_background();
    summary
}

/// Waits until a run time; returns at once if it is past.
pub(crate) async fn at(clock: RunClock, at_ns: RunNs) {
    // The timer may fire early by its resolution; the run clock decides.
    loop {
        match u64::try_from(at_ns.saturating_sub(clock.now())) {
            Ok(left @ 1..) => tokio::time::sleep(Duration::from_nanos(left)).await,
            _ => return,
        }
    }
}

/// Waits until the observers are stopped, or their handle is gone.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
