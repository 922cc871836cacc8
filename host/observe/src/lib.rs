//! Watching a run from outside: inference probes, metrics, client CPU, accelerator fingerprint.
//!
//! One background thread with a current-thread runtime drives every observer of a run
//! ([`Observers::start`]). Before a run, [`wait_ready`] waits until a replica answers with a token;
//! [`fingerprint`] and [`host_facts`] say on what it ran.
//!
//! Invariants:
//! - Liveness is a token. Neither an open port, nor a 200, nor `/health` counts as service.
//! - A probe has a TCP connection of its own and is never sent twice: a reused connection would
//!   hide a dead listener, a retry would hide a failure.
//! - What could not be observed is said by an event with its reason; nothing is filled in.
//! - Everything a server sends is hostile until parsed: sizes, times and counts are bounded, and
//!   [`ObserversHandle::stop`] is prompt whatever the servers do.

mod answer;
mod cadence;
mod cpu;
mod exchange;
mod failure;
mod fingerprint;
mod host_facts;
mod observers;
mod probe;
mod prober;
mod prometheus;
mod ready;
mod scraper;
mod signal;
mod sse;
mod table;

pub use cpu::{CpuReading, CpuShares, CpuSource, cpu_shares, parse_host_cpu, parse_process_cpu};
pub use fingerprint::{FINGERPRINT_TIMEOUT, NVIDIA_SMI, fingerprint, fingerprint_with};
pub use host_facts::{host_facts, host_facts_under};
pub use observers::{
    ObserveError, ObserveRun, ObserveSummary, Observers, ObserversHandle, ProbeSummary,
    ScrapeSummary,
};
pub use prometheus::{LineError, PromSample, parse_line, parse_text};
pub use ready::{ModelsError, ReadyAt, ReadyError, ReadyRequest, list_models, wait_ready};
pub use signal::{EventSink, FireSignal};
