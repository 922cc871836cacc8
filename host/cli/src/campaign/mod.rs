//! A campaign from its file to its report: prepare, run each repetition, analyse, judge, report.

mod fault_host;
mod judge;
mod plugin_errors;
mod prepare;
mod recorder;
mod replan;
mod results;
mod run;
mod service;
mod simulated;
mod stage;
mod stored;
mod summary;
mod verify;

pub use prepare::{Prepared, prepare, prepare_file};
pub use recorder::Recorder;
pub use results::{Results, analyze_dir};
pub use simulated::simulate_dir;
pub use stage::{Canary, free_port};
pub use stored::read_plan;
pub use summary::{campaign_ends as print_end, timeline as print_timeline};
pub use verify::verify_dir;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use blackstart_plan::Plan;
use blackstart_require::campaign_figures;

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::reporter::Reporter;
use crate::require::Requirements;

/// Where and how a campaign is run.
pub struct Execution<'a> {
    /// Folder that gets the results directory.
    pub out: &'a Path,
    /// Where people are told.
    pub reporter: &'a Reporter,
    /// Whether the operator asked to stop.
    pub interrupt: &'a Interrupt,
    /// Objectives that the campaign is held to.
    pub requirements: &'a Requirements,
}

/// One instrument at a time measures an address: a second one's load and faults would look like the
/// system's own. The name vanishes with the process that holds it, however that ends.
fn locks(prepared: &Prepared) -> Result<Vec<UnixListener>, Failure> {
    let target = &prepared.plan.target;
    let names: BTreeMap<String, &str> = target
        .replicas
        .iter()
        .map(|r| r.base_url.as_str())
        .chain(target.service_url.as_deref())
        .flat_map(|address| lock_names(address).into_iter().map(move |n| (n, address)))
        .collect();
    names
        .into_iter()
        .map(|(name, address)| {
            let name = SocketAddr::from_abstract_name(name).map_err(Failure::internal)?;
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

/// Names of the locks of an address `http://host:port`: one for each socket address that it stands
/// for, since `localhost` and `127.0.0.1` are one server. A host that has none yet has no lock: there
/// is nothing to measure, and waiting for the service says so.
fn lock_names(address: &str) -> BTreeSet<String> {
    /// The port of `http://` without one.
    const PORT: u16 = 80;
    let host = address.strip_prefix("http://").unwrap_or(address);
    let found = host
        .to_socket_addrs()
        .or_else(|_| (host.trim_matches(['[', ']']), PORT).to_socket_addrs());
    found
        .into_iter()
        .flatten()
        .map(|found| {
            let ip = match found.ip().to_canonical() {
                // "Any address" reaches this host.
                ip if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
                ip => ip,
            };
            format!("blackstart:{}", std::net::SocketAddr::new(ip, found.port()))
        })
        .collect()
}

/// What is said where the file system of the results knows no locks.
pub fn unlocked_warning(journal: &Path, why: &str) -> String {
    format!(
        "warning: {} cannot be locked ({why}): nothing keeps another instrument's `analyze` or `merge` away \
         from these records while they are written\n  help: leave them alone until this has ended, or write \
         the results to a local disk",
        journal.display()
    )
}

/// Runs a prepared campaign and returns its exit code and its results directory.
///
/// # Errors
/// When the campaign cannot go on; what was recorded by then is in the results directory, marked
/// partial.
pub fn execute(prepared: &Prepared, execution: &Execution<'_>) -> Result<(Exit, PathBuf), Failure> {
    let reporter = execution.reporter;
    check_files(&prepared.plan)?;
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
    let mut watchdog = Some(watchdog);
    let last = prepared.plan.runs.last().map(|r| r.run);
    let mut failure = None;
    for planned in &prepared.plan.runs {
        let Some(guard) = &watchdog else { break };
        if execution.interrupt.raised() {
            break;
        }
        let dir = results.run_dir(planned.run);
        summary::run_starts(reporter, prepared, planned);
        let end = run::run_once(&run::RunContext {
            prepared,
            planned,
            dir: &dir,
            watchdog: guard,
            reporter,
            interrupt: execution.interrupt,
        });
        if end.is_ok() && Some(planned.run) == last && !execution.interrupt.raised() {
            // Its journal is complete with its end.
            watchdog = None;
            results.seal_records(&prepared.plan)?;
        }
        // A run that recorded anything is analysed, also when it failed or was interrupted.
        if results::has_records(&dir) {
            let analysed = results.analyze_run(prepared, planned);
            match (analysed, &end) {
                (Ok(analysed), _) => summary::run_ends(reporter, prepared, &analysed),
                (Err(e), Ok(())) => return Err(analyse_later(e, results.dir())),
                // The run's own failure is the one to report.
                (Err(_), Err(_)) => {}
            }
        }
        // After the last run, and after an interrupt, the watchdog's farewell is still to come.
        let end = if Some(planned.run) == last || execution.interrupt.raised() {
            end
        } else {
            end.and_then(|()| nothing_left(results.dir()))
        };
        if let Err(e) = end {
            // Without it the report only lacks the reason.
            let _ = results::note_stop(results.dir(), &prepared.plan, planned.run, &e);
            failure = Some(e);
            break;
        }
    }
    let dir = results.dir().to_path_buf();
    drop(watchdog);
    let interrupted = execution.interrupt.raised();
    if let Err(left) = nothing_left(&dir) {
        if interrupted || failure.is_some() {
            reporter.say(format!("warning: {}", left.text()));
        } else {
            failure = Some(left);
        }
    }
    let finished = results.finish(prepared, interrupted || failure.is_some());
    if let Some(e) = failure {
        return Err(e);
    }
    let report = finished.map_err(|e| analyse_later(e, &dir))?;
    summary::campaign_ends(reporter, &prepared.plan, &report, &dir);
    let exit = match (interrupted, report.valid) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Valid,
        (false, false) => Exit::Invalid,
    };
    let figures = campaign_figures(&report.report);
    let exit = execution.requirements.conclude(exit, Some(&figures));
    Ok((exit, dir))
}

/// Every effect of the run was undone and what was seen afterwards is as it was before: else the next run
/// would measure the last one's fault.
///
/// # Errors
/// Names what is left, and how to undo it.
fn nothing_left(dir: &Path) -> Result<(), Failure> {
    let journal = dir.join("undo.jsonl");
    // A campaign without a journal has registered nothing.
    let Ok(left) = blackstart_effects::watchdog::leftovers(&journal) else {
        return Ok(());
    };
    if left.effects.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = left
        .effects
        .iter()
        .map(|e| match &e.failed {
            Some(why) => format!("{}: {why}", e.undo),
            None => e.undo.clone(),
        })
        .collect();
    Err(Failure::message(
        Exit::Internal,
        format!(
            "the campaign stops: an effect may still be in force ({})",
            named.join("; ")
        ),
    )
    .help(format!(
        "`blackstart undo {}` lists and undoes it; look at the system under test before the next run",
        dir.display()
    )))
}

/// Found out now, not when the servers run. Each run's own schedule is looked at when it starts.
///
/// # Errors
/// When this user may not open as many files as the first run can need (exit 3).
fn check_files(plan: &Plan) -> Result<(), Failure> {
    let Some(first) = plan.runs.first() else {
        return Ok(());
    };
    let schedule = plan.schedule(first).map_err(Failure::internal)?;
    blackstart_load::check_files(&schedule.intended_ns, plan.load.timeout_ns)
        .map_err(|e| Failure::new(Exit::Configuration, e))
}

/// The measurement is there; only what is made of it could not be written.
fn analyse_later(failure: Failure, dir: &Path) -> Failure {
    if failure.help.is_some() {
        return failure;
    }
    failure.help(format!(
        "what was measured is recorded: mend that, then `blackstart analyze {}`",
        dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_cannot_be_locked_is_told_with_what_to_do() {
        let text = unlocked_warning(Path::new("out/requests.journal"), "not supported");
        assert!(text.starts_with("warning: out/requests.journal cannot be locked (not supported)"));
        assert!(text.contains("help: leave them alone"), "{text}");
    }

    #[test]
    fn one_server_has_one_lock_whatever_it_is_called() {
        let plain = lock_names("http://127.0.0.1:8000");
        assert_eq!(plain.len(), 1);
        for alias in [
            "http://localhost:8000",
            "http://[::ffff:127.0.0.1]:8000",
            "http://0.0.0.0:8000",
        ] {
            assert!(lock_names(alias).is_superset(&plain), "{alias}");
        }
        assert!(lock_names("http://127.0.0.1:8001").is_disjoint(&plain));
        assert_eq!(
            lock_names("http://127.0.0.1"),
            lock_names("http://127.0.0.1:80")
        );
        assert_eq!(lock_names("http://[::1]"), lock_names("http://[::1]:80"));
    }

    /// The kernel's names of locks are short, hosts' names are not.
    #[test]
    fn a_long_host_name_is_no_fault_of_the_instrument() {
        let host = format!("{}.invalid", "long.".repeat(40));
        assert!(lock_names(&format!("http://{host}:8000")).is_empty());
    }
}
