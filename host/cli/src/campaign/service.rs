//! Before the epoch: waiting for the system under test, and saying where in the campaign file the
//! reason stands if it does not come.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use blackstart_clock::NS_PER_S;
use blackstart_config::Source;
use blackstart_observe::{ReadyError, ReadyRequest, wait_ready};
use blackstart_plan::{ReplicaPlan, RestartPolicy, RuntimePlan};
use blackstart_plugins::EffectAction;
use blackstart_record::RunFiles;
use blackstart_targets::{Runtime, TargetError, Targets};

use super::run::{RunContext, TICK};
use crate::exit::{Exit, Failure};

/// Starts that ended before the server answered, after which another one is hopeless.
const HOPELESS_STARTS: u32 = 4;
/// Start of a running (not launched) replica: it is there or it is not.
const RUNNING_TIMEOUT_NS: i64 = 20 * NS_PER_S;

/// Waits until every replica, and the service, answers with a token. False = interrupted.
pub fn wait_for_service(
    context: &RunContext<'_>,
    targets: &Targets,
    api_key: Option<&str>,
) -> Result<bool, Failure> {
    let plan = &context.prepared.plan;
    for replica in &plan.target.replicas {
        let (timeout_ns, launched) = match &replica.runtime {
            RuntimePlan::Process(p) => (p.start_timeout_ns, true),
            RuntimePlan::Url { .. } => (RUNNING_TIMEOUT_NS, false),
        };
        if launched {
            context
                .reporter
                .say(format!("starting   {} ({})", replica.id, replica.base_url));
        }
        let request = ReadyRequest {
            replica,
            load: &plan.load,
            api_key,
            timeout: Duration::from_nanos(timeout_ns.unsigned_abs()),
        };
        let waited = waiting(context, targets, replica, |stop| wait_ready(request, stop));
        match waited {
            Ok(_) => {}
            Err(ReadyError::Stopped { .. }) if context.interrupt.raised() => return Ok(false),
            Err(ReadyError::Stopped { .. }) => {
                return Err(ended_for_good(context, targets, replica));
            }
            Err(e) => return Err(not_ready(context, replica, launched, &e)),
        }
    }
    Ok(true)
}

/// A replica that did not answer with a token, at the key of the file that would mend it.
fn not_ready(
    context: &RunContext<'_>,
    replica: &ReplicaPlan,
    launched: bool,
    error: &ReadyError,
) -> Failure {
    let address = replica_path(context, &replica.id, "base_url");
    let ReadyError::NotReady {
        what,
        last_seen,
        mend,
        key,
    } = error
    else {
        let help = "correct the replica's table in the campaign file";
        return at(source(context), &address, &error.to_string(), help);
    };
    let mut help = mend.clone();
    if launched {
        let log = RunFiles::new(context.dir).server_log(&replica.id);
        help.push_str(&format!("\nthe server's output is in {}", log.display()));
    }
    // Keys of the load stand in their own table.
    let path = key.unwrap_or(&address);
    let message = format!("{what}; last seen: {last_seen}");
    at(source(context), path, &message, &help)
}

/// Waits for something, and gives up when the operator interrupts or the server has ended for good.
fn waiting<T>(
    context: &RunContext<'_>,
    targets: &Targets,
    replica: &ReplicaPlan,
    wait: impl FnOnce(&AtomicBool) -> T,
) -> T {
    let given_up = || context.interrupt.raised() || exit_for_good(targets, replica).is_some();
    watched(given_up, wait)
}

/// Does `wait` while another thread looks at `given_up`; once that says so, the flag that `wait`
/// gets is set.
fn watched<T>(given_up: impl Fn() -> bool + Sync, wait: impl FnOnce(&AtomicBool) -> T) -> T {
    /// Ends the other thread however `wait` ends: a scope that waited for it after a panic would
    /// wait for ever, and with it the server that was started.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if given_up() {
                    stop.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(TICK);
            }
        });
        let _over = Over(&done);
        wait(&stop)
    })
}

/// The end of a launched server that has never answered.
struct Ended {
    /// Exit code, or signal, of the last start.
    exit: (Option<i32>, Option<i32>),
    /// How often it was started.
    starts: u32,
}

/// How a launched main process ended, if its policy does not start it again, or has so often in vain.
fn exit_for_good(targets: &Targets, replica: &ReplicaPlan) -> Option<Ended> {
    let RuntimePlan::Process(process) = &replica.runtime else {
        return None;
    };
    let Ok(Runtime::Supervised(supervised)) = targets.replica(&replica.id).map(|r| r.runtime())
    else {
        return None;
    };
    let exit = supervised.last_exit()?;
    let starts = supervised.restarts() + 1;
    if supervised.main().is_some() {
        // One more than the hopeless ones, which has not ended yet.
        return (starts > HOPELESS_STARTS).then_some(Ended {
            exit,
            starts: starts - 1,
        });
    }
    let again = match process.restart {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit.0 != Some(0),
        RestartPolicy::No => false,
    };
    (!again || starts >= HOPELESS_STARTS).then_some(Ended { exit, starts })
}

/// The last line of a log that is not empty, from the log's last few KiB: a server may have written
/// gigabytes, and in any encoding.
fn last_line(log: &Path) -> Option<String> {
    const TAIL_BYTES: u64 = 8 << 10;
    let mut file = blackstart_record::open_regular(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.to_owned())
}

fn ended_for_good(context: &RunContext<'_>, targets: &Targets, replica: &ReplicaPlan) -> Failure {
    let ended = exit_for_good(targets, replica);
    let how = match ended.as_ref().map(|ended| ended.exit) {
        Some((Some(code), _)) => format!("ended with exit code {code}"),
        Some((_, Some(signal))) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    };
    let so = match ended.map(|ended| ended.starts) {
        Some(starts) if starts >= HOPELESS_STARTS => {
            format!("and so did each of its {starts} starts")
        }
        _ => "and its restart policy does not start it again".to_owned(),
    };
    let log = RunFiles::new(context.dir).server_log(&replica.id);
    let last = last_line(&log).unwrap_or_else(|| "(no output)".to_owned());
    Failure::message(
        Exit::Target,
        format!("replica {} {how} before it answered, {so}", replica.id),
    )
    .help(format!(
        "its last line was: {last}\nthe whole output is in {}",
        log.display()
    ))
}

/// A victim that cannot be found is found out now, not at the fire.
pub fn check_victims(context: &RunContext<'_>, targets: &Targets) -> Result<(), Failure> {
    let Some(fault) = &context.prepared.fault else {
        return Ok(());
    };
    for effect in &fault.effects {
        if let EffectAction::Signal {
            replica,
            process_role,
            ..
        } = &effect.action
        {
            targets
                .resolve_role(replica, process_role)
                .map_err(|e| target_failure(context, &e))?;
        }
    }
    Ok(())
}

/// A target's error at the line of the file that asked for it.
pub fn target_failure(context: &RunContext<'_>, error: &TargetError) -> Failure {
    let (replica, key) = match error {
        TargetError::CommandNotFound { replica, .. }
        | TargetError::NotExecutable { replica, .. }
        | TargetError::EmptyCommand { replica }
        | TargetError::LaunchFailed { replica, .. } => (replica, "process.command".to_owned()),
        TargetError::CwdMissing { replica, .. } => (replica, "process.cwd".to_owned()),
        TargetError::PortInUse { replica, .. } | TargetError::BadAddress { replica, .. } => {
            (replica, "base_url".to_owned())
        }
        TargetError::Log { replica, .. } => (replica, "running.log_file".to_owned()),
        TargetError::PidNotFound { replica, .. } => (replica, "running.pid".to_owned()),
        TargetError::BadMatch { replica, .. }
        | TargetError::NoMatch { replica, .. }
        | TargetError::ManyMatches { replica, .. } => (replica, "running.command_match".to_owned()),
        TargetError::VictimNotFound { replica, role, .. }
        | TargetError::UnknownRole { replica, role, .. } => (replica, format!("roles.{role}")),
        _ => return Failure::message(Exit::Target, error),
    };
    target_error(
        source(context),
        &replica_path(context, replica, &key),
        error,
    )
}

/// A target's error at a key path.
pub fn target_error(source: &Source, path: &str, error: &TargetError) -> Failure {
    let text = error.to_string();
    // Their texts say what is wrong, and after a semicolon how to mend it.
    let (message, help) = text
        .split_once("; ")
        .unwrap_or((&text, "see the replica's table in the campaign file"));
    at(source, path, message, help)
}

fn source<'a>(context: &RunContext<'a>) -> &'a Source {
    &context.prepared.file.source
}

/// Key path of a key in a replica's table.
fn replica_path(context: &RunContext<'_>, replica: &str, key: &str) -> String {
    let replicas = &context.prepared.plan.target.replicas;
    let index = replicas.iter().position(|r| r.id == replica).unwrap_or(0);
    format!("target.replica.{index}.{key}")
}

fn at(source: &Source, path: &str, message: &str, help: &str) -> Failure {
    Failure {
        exit: Exit::Target,
        ..Failure::from(source.error_at(path, message, help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without an end of its watcher this test would never end.
    #[test]
    fn a_panic_while_waiting_is_passed_on() {
        let panicked = std::panic::catch_unwind(|| watched(|| false, |_| panic!("no files left")));
        assert!(panicked.is_err());
    }

    #[test]
    fn who_waits_is_told_to_give_up() {
        watched(
            || true,
            |stop| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            },
        );
    }
}
