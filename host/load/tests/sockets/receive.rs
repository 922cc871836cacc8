//! The kernel's stamps beside the client's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::*;
use blackstart_clock::monotonic_ns;
use blackstart_load::{LoadSummary, start};
use blackstart_record::{EventKind, Outcome};

/// Whether the kernel stamps nothing here, which is then said.
fn skipped(test: &str, summary: &LoadSummary) -> bool {
    let refusal = summary.events.iter().find_map(|e| match &e.kind {
        EventKind::ReceiveStampsRefused { reason } => Some(reason),
        _ => None,
    });
    if let Some(reason) = refusal {
        println!("skipped: {test}: {reason}");
    }
    refusal.is_some()
}

/// How far apart the run clock and the kernel's wall clock can be read.
const PAIRING_NS: i64 = 100_000;

#[test]
fn the_kernels_stamps_lie_between_the_servers_write_and_the_clients_read() {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&writes);
    let server = Server::start(move |x| {
        x.send(STREAM_HEAD);
        std::thread::sleep(Duration::from_millis(20));
        let first_ns = monotonic_ns();
        x.send(&token());
        std::thread::sleep(Duration::from_millis(20));
        let last_ns = monotonic_ns();
        x.send(&(token() + &token() + &tail(3)));
        seen.lock().unwrap().push((x.number, first_ns, last_ns));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 6, dir.path());
    // One after the other, so that the server sees them in their order; late enough for the kernel,
    // which turns its stamps on a moment after the first socket asked for them.
    run.pacing = at((1..=6).map(|k| k * 200 * MS).collect());
    let clock = run.clock;
    let (summary, run) = finish(start(run).unwrap(), dir.path(), 6);
    if skipped("the_kernels_stamps", &summary) {
        return;
    }
    let mut writes = writes.lock().unwrap().clone();
    writes.sort_unstable();
    for (r, (_, first_ns, last_ns)) in run.requests.iter().zip(writes) {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        let between = |wrote_ns: i64, kernel_ns: Option<i64>, read_ns: i64| {
            let kernel_ns = kernel_ns.unwrap();
            let wrote_ns = clock.from_monotonic(wrote_ns);
            assert!(wrote_ns - PAIRING_NS <= kernel_ns, "{wrote_ns} {r:?}");
            assert!(kernel_ns <= read_ns, "{r:?}");
        };
        between(first_ns, r.first_token_kernel_ns, r.first_token_ns.unwrap());
        between(last_ns, r.ended_kernel_ns, r.ended_ns);
    }
}

#[test]
fn an_end_that_no_read_brought_has_no_kernel_stamp() {
    let server = Server::start(|x| {
        x.send(&(STREAM_HEAD.to_owned() + &token()));
        if x.number.is_multiple_of(2) {
            x.hang();
        }
        Then::Close
    });
    let mut plan = plan(server.url());
    plan.timeout_ns = 300 * MS;
    let (summary, run) = drive(plan, 6);
    if skipped("an_end_that_no_read_brought", &summary) {
        return;
    }
    for r in &run.requests {
        assert_ne!(r.outcome, Outcome::Completed);
        assert!(r.first_token_kernel_ns.is_some(), "{r:?}");
        assert_eq!(r.ended_kernel_ns, None, "{r:?}");
        assert!(r.read_lag_max_ns.is_some(), "{r:?}");
    }
}

#[test]
fn a_request_that_is_never_answered_has_no_stamp_at_all() {
    let (_, run) = drive(plan("http://127.0.0.1:9".to_owned()), 3);
    for r in &run.requests {
        let stamps = (r.first_token_kernel_ns, r.ended_kernel_ns);
        assert_eq!((stamps, r.read_lag_max_ns), ((None, None), None));
    }
}
