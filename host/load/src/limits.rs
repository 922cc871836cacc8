//! Connections are never a throttle: as many open files as the schedule can need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::LoadError;
use crate::pacing::State;

/// Open files besides the load's connections: records, logs, event loops, observers.
const OTHER_FILES: u64 = 256;

/// Most requests that can be under way at once: those intended within one client timeout, or as many
/// as a concurrency limit allows.
pub(crate) fn concurrency_bound(pacing: &State, timeout_ns: i64) -> u64 {
    match pacing {
        State::Closed { plan, .. } => u64::from(plan.concurrency),
        State::Open {
            permits: Some(permits),
            ..
        } => permits.available_permits() as u64,
        State::Open { schedule, .. } => fullest_timeout(schedule, timeout_ns),
    }
}

fn fullest_timeout(schedule: &[i64], timeout_ns: i64) -> u64 {
    let mut first = 0;
    let mut most = 0;
    for (i, t) in schedule.iter().enumerate() {
        while t - schedule[first] > timeout_ns {
            first += 1;
        }
        most = most.max(i - first + 1);
    }
    most as u64
}

/// Raises an unusually low limit on open files as far as the system lets it, so that what is needed
/// besides the load's connections can be opened. An ordinary limit stays what it is: launched servers
/// inherit it.
pub fn provide_basic_files() {
    let limit = getrlimit(Resource::Nofile);
    let basic = limit.maximum.map_or(OTHER_FILES, |m| m.min(OTHER_FILES));
    if limit.current.is_some_and(|n| n < basic) {
        let raised = Rlimit {
            current: Some(basic),
            maximum: limit.maximum,
        };
        // What then cannot be opened says so itself.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Whether this process may open as many files as the schedule can need.
///
/// # Errors
/// When the system's hard limit is too low.
pub fn check_files(schedule: &[i64], timeout_ns: i64) -> Result<(), LoadError> {
    let connections = fullest_timeout(schedule, timeout_ns);
    match getrlimit(Resource::Nofile).maximum {
        Some(hard) if hard < connections + OTHER_FILES => {
            Err(too_low(connections, &hard.to_string()))
        }
        _ => Ok(()),
    }
}

fn too_low(connections: u64, limit: &str) -> LoadError {
    let needed = connections + OTHER_FILES;
    LoadError::Plan {
        what: format!(
            "the schedule can have {connections} requests under way within one client timeout, but \
             the limit on open files is {limit}; raise it (`ulimit -n {needed}`), lower the rate or \
             shorten the timeout"
        ),
    }
}

/// Raises this process's limit on open files where the schedule can need it.
///
/// # Errors
/// When the system's hard limit is too low: a server that hangs would then be measured by the limit.
pub(crate) fn provide_files(connections: u64) -> Result<(), LoadError> {
    let needed = connections + OTHER_FILES;
    raise_limit(connections, needed)?;
    widen_table(needed);
    Ok(())
}

/// Most entries of the kernel's table of open files that are made beforehand (half a megabyte).
const MAX_TABLE: u64 = 65_536;

/// Makes the kernel's table of open files as large as it will be needed. Grown in the middle of a load,
/// in which several threads share it, each doubling would hold up the thread that opens a connection
/// for a grace period of the kernel (10 to 20 ms were seen).
fn widen_table(files: u64) {
    let last = i32::try_from(files.min(MAX_TABLE)).unwrap_or(i32::MAX) - 1;
    // A high number makes the table large, and it stays so. Where that fails it grows when it must.
    drop(rustix::io::fcntl_dupfd_cloexec(
        rustix::stdio::stderr(),
        last,
    ));
}

fn raise_limit(connections: u64, needed: u64) -> Result<(), LoadError> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|n| n >= needed) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum
        && hard < needed
    {
        return Err(too_low(connections, &hard.to_string()));
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum: limit.maximum,
        },
    )
    .map_err(|e| too_low(connections, &format!("not to be raised: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_fullest_timeout() {
        assert_eq!(fullest_timeout(&[], 10), 0);
        assert_eq!(fullest_timeout(&[0, 5, 10, 11, 30], 10), 3);
        assert_eq!(fullest_timeout(&[0, 0, 0], 1), 3);
    }

    #[test]
    fn an_impossible_need_is_refused_with_its_numbers() {
        let limit = getrlimit(Resource::Nofile);
        if let Some(hard) = limit.maximum {
            let error = provide_files(hard).unwrap_err().to_string();
            assert!(error.contains("ulimit -n"), "{error}");
        }
        provide_files(1).unwrap();
    }
}
