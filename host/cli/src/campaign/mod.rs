//! A campaign from its file to its report: prepare, run each repetition, analyse, judge, report.

mod fault_host;
mod judge;
mod plugin_errors;
mod prepare;
mod recorder;
mod results;
mod run;
mod service;
mod stage;
mod stored;
mod summary;
mod verify;

pub use prepare::{Prepared, prepare, prepare_file};
pub use recorder::Recorder;
pub use results::{Results, analyze_dir};
pub use stage::{Canary, free_port};
pub use summary::{campaign_ends as print_end, timeline as print_timeline};
pub use verify::verify_dir;

use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::reporter::Reporter;

/// Where and how a campaign is run.
pub struct Execution<'a> {
    /// Folder that gets the results directory.
    pub out: &'a Path,
    /// Where people are told.
    pub reporter: &'a Reporter,
    /// Whether the operator asked to stop.
    pub interrupt: &'a Interrupt,
}

/// One instrument at a time measures an address: a second one's load and faults would look like the
/// system's own. The name vanishes with the process that holds it, however that ends.
fn locks(prepared: &Prepared) -> Result<Vec<UnixListener>, Failure> {
    let target = &prepared.plan.target;
    let addresses: BTreeSet<&str> = target
        .replicas
        .iter()
        .map(|r| r.base_url.as_str())
        .chain(target.service_url.as_deref())
        .collect();
    addresses
        .into_iter()
        .map(|address| {
            let name = SocketAddr::from_abstract_name(format!("blackstart:{address}"))
                .map_err(Failure::internal)?;
            UnixListener::bind_addr(&name).map_err(|e| {
                if e.kind() == std::io::ErrorKind::AddrInUse {
                    Failure::message(
                        Exit::Target,
                        format!("another instrument on this host is measuring {address}"),
                    )
                    .help("wait until it has ended: two loads or faults at once make neither run valid")
                } else {
                    Failure::internal(e).context(format!("locking {address}"))
                }
            })
        })
        .collect()
}

/// Runs a prepared campaign and returns its exit code and its results directory.
///
/// # Errors
/// When the campaign cannot go on; what was recorded by then is in the results directory, marked
/// partial.
pub fn execute(prepared: &Prepared, execution: &Execution<'_>) -> Result<(Exit, PathBuf), Failure> {
    let reporter = execution.reporter;
    let mut results = Results::create(execution.out, prepared)?;
    reporter.say(format!("results    {}", results.dir().display()));
    let _locks = locks(prepared)?;
    let watchdog = std::sync::Arc::new(
        blackstart_effects::Watchdog::spawn(
            &blackstart_targets::Reexec::watchdog(),
            &results.dir().join("undo.jsonl"),
        )
        .map_err(|e| {
            Failure::internal(e).help("no fault is armed without the watchdog that would undo it")
        })?,
    );
    let mut failure = None;
    for planned in &prepared.plan.runs {
        if execution.interrupt.raised() {
            break;
        }
        let dir = results.run_dir(planned.run);
        summary::run_starts(reporter, prepared, planned);
        let end = run::run_once(&run::RunContext {
            prepared,
            planned,
            dir: &dir,
            watchdog: &watchdog,
            reporter,
            interrupt: execution.interrupt,
        });
        // A run that recorded anything is analysed, also when it failed or was interrupted.
        if results::has_records(&dir) {
            let analysed = results.analyze_run(prepared, planned);
            match (analysed, &end) {
                (Ok(analysed), _) => summary::run_ends(reporter, prepared, &analysed),
                (Err(e), Ok(())) => return Err(e),
                // The run's own failure is the one to report.
                (Err(_), Err(_)) => {}
            }
        }
        if let Err(e) = end {
            failure = Some(e);
            break;
        }
    }
    let dir = results.dir().to_path_buf();
    drop(watchdog);
    let interrupted = execution.interrupt.raised();
    let finished = results.finish(prepared, interrupted || failure.is_some());
    if let Some(e) = failure {
        return Err(e);
    }
    let report = finished?;
    summary::campaign_ends(reporter, &prepared.plan, &report, &dir);
    let exit = match (interrupted, report.valid) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Valid,
        (false, false) => Exit::Invalid,
    };
    Ok((exit, dir))
}
