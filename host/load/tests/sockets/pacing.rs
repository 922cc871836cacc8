//! Caps, closed loops, shares, and the kinds of censoring, against a scripted server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use blackstart_load::{ClosedLoop, LoadRun, OpenLoop, Pacing, start};
use blackstart_plan::{Schedule, Share};
use blackstart_record::{
    CensorKind, Gap, GapHistograms, Outcome, RunFiles, RunRecords, for_each_gap, read_run,
};

/// A server that counts the requests under way and takes a while for each.
fn counting(each: Duration) -> (Server, Arc<AtomicUsize>) {
    let most = Arc::new(AtomicUsize::new(0));
    let now = AtomicUsize::new(0);
    let seen = Arc::clone(&most);
    let server = Server::start(move |exchange| {
        let under_way = now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(under_way, Ordering::SeqCst);
        std::thread::sleep(each);
        // Before the answer: the client may start the next one as soon as it has it.
        now.fetch_sub(1, Ordering::SeqCst);
        exchange.send(&good_answer(3));
        Then::KeepAlive
    });
    (server, most)
}

fn every_ms(ms: i64, count: i64) -> Schedule {
    Schedule {
        intended_ns: (1..=count).map(|k| k * ms * MS).collect(),
    }
}

fn drive_paced(mut run: LoadRun, pacing: Pacing) -> RunRecords {
    run.pacing = pacing;
    let dir = run.dir.clone();
    start(run).unwrap().join().unwrap();
    read_run(&dir).unwrap()
}

fn closed(concurrency: u32, requests: u64, end_ms: i64) -> Pacing {
    Pacing::Closed(ClosedLoop {
        concurrency,
        requests,
        end_ns: end_ms * MS,
        turns: None,
    })
}

#[test]
fn a_cap_holds_and_its_wait_counts_in_latencies_and_not_in_skew() {
    let (server, most) = counting(Duration::from_millis(50));
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        Pacing::Open(OpenLoop {
            schedule: every_ms(5, 12),
            share: Share::WHOLE,
            concurrency: Some(2),
            turns: Vec::new(),
        }),
    );
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(records.requests.len(), 12);
    for (k, r) in (0_i64..).zip(&records.requests) {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        // Two at a time, 50 ms each: the pair k/2 cannot have its answer before its turn's end.
        let turn_end = (k / 2 + 1) * 50 * MS;
        assert!(r.ttft_ns().unwrap() >= turn_end - r.intended_ns, "{r:?}");
        if k >= 2 {
            let admitted = r.admitted_ns.expect("it waited");
            assert!(admitted > r.intended_ns && admitted <= r.dispatched_ns.unwrap());
            let skew = r.send_skew_ns().unwrap();
            assert!(skew <= r.dispatched_ns.unwrap() - admitted, "{r:?}");
        } else {
            assert_eq!(r.admitted_ns, None);
        }
    }
}

#[test]
fn a_request_that_is_never_admitted_is_censored_by_its_timeout() {
    let server = Server::start(|exchange| {
        exchange.hang();
        Then::Close
    });
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(server.url());
    plan.timeout_ns = 200 * MS;
    let records = drive_paced(
        load_run(plan, 1, dir.path()),
        Pacing::Open(OpenLoop {
            schedule: every_ms(1, 3),
            share: Share::WHOLE,
            concurrency: Some(1),
            turns: Vec::new(),
        }),
    );
    for r in &records.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::Timeout), "{r:?}");
        assert_eq!(r.observed_ns(), 200 * MS);
    }
}

#[test]
fn a_closed_loop_keeps_its_slots_full_and_stops_at_its_number() {
    let (server, most) = counting(Duration::from_millis(20));
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        closed(3, 20, 60_000),
    );
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert_eq!(server.requests.lock().unwrap().len(), 20);
    let indices: Vec<u64> = records.requests.iter().map(|r| r.index).collect();
    assert_eq!(indices, (0..20).collect::<Vec<_>>());
    assert!(
        records
            .requests
            .iter()
            .all(|r| r.outcome == Outcome::Completed)
    );
    // Each is intended when it is started, and none before the epoch.
    assert!(records.requests.iter().all(|r| r.intended_ns >= 0));
}

#[test]
fn a_closed_loop_stops_at_its_time() {
    let (server, _) = counting(Duration::from_millis(5));
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        closed(2, 1_000_000, 200),
    );
    assert!(!records.requests.is_empty());
    assert!(records.requests.iter().all(|r| r.intended_ns < 200 * MS));
}

#[test]
fn a_server_that_refuses_is_not_hammered() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(url), 1, dir.path()),
        closed(2, 1_000_000, 450),
    );
    let n = records.requests.len();
    // Two slots, a rest of 100 ms after each failure.
    assert!((2..=10).contains(&n), "{n}");
    assert!(
        records
            .requests
            .iter()
            .all(|r| r.outcome == Outcome::Errored)
    );
}

#[test]
fn silence_after_a_token_is_censored_as_idle() {
    let server = Server::start(|exchange| {
        exchange.send(&(STREAM_HEAD.to_owned() + &token()));
        exchange.hang();
        Then::Close
    });
    let mut plan = plan(server.url());
    plan.idle_timeout_ns = Some(150 * MS);
    let (_, records) = drive(plan, 2);
    for r in &records.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::Idle), "{r:?}");
        assert_eq!(r.ended_ns, r.last_token_ns.unwrap() + 150 * MS);
        assert_eq!(r.content_events, 1);
    }
}

#[test]
fn a_server_that_never_answers_is_idle_from_the_intended_time() {
    let server = Server::start(|exchange| {
        exchange.hang();
        Then::Close
    });
    let mut plan = plan(server.url());
    plan.idle_timeout_ns = Some(120 * MS);
    let (_, records) = drive(plan, 2);
    for r in &records.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::Idle), "{r:?}");
        assert_eq!(r.observed_ns(), 120 * MS);
    }
}

#[test]
fn comments_are_no_content() {
    let server = Server::start(|exchange| {
        exchange.send(STREAM_HEAD);
        while !exchange.stopped() {
            exchange.send(&chunk(": still there\n\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
        Then::Close
    });
    let mut plan = plan(server.url());
    plan.first_token_timeout_ns = Some(200 * MS);
    plan.idle_timeout_ns = Some(1_000 * MS);
    let (_, records) = drive(plan, 2);
    for r in &records.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::FirstToken), "{r:?}");
        assert_eq!(r.observed_ns(), 200 * MS);
    }
}

#[test]
fn a_first_token_in_time_ends_that_timeout() {
    let server = Server::start(|exchange| {
        exchange.send(&(STREAM_HEAD.to_owned() + &token()));
        std::thread::sleep(Duration::from_millis(300));
        exchange.send(&(token() + &token() + &tail(3)));
        Then::KeepAlive
    });
    let mut plan = plan(server.url());
    plan.first_token_timeout_ns = Some(200 * MS);
    let (_, records) = drive(plan, 2);
    assert!(
        records
            .requests
            .iter()
            .all(|r| r.outcome == Outcome::Completed)
    );
}

#[test]
fn shares_together_are_the_whole_load() {
    let server = Server::start(|exchange| {
        exchange.send(&good_answer(3));
        Then::KeepAlive
    });
    let schedule = every_ms(3, 20);
    let mut seen: Vec<Option<i64>> = vec![None; 20];
    for number in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let records = drive_paced(
            load_run(plan(server.url()), 1, dir.path()),
            Pacing::Open(OpenLoop {
                schedule: schedule.clone(),
                share: Share { number, of: 3 },
                concurrency: None,
                turns: Vec::new(),
            }),
        );
        for r in &records.requests {
            assert_eq!(seen[r.index as usize].replace(r.intended_ns), None);
        }
    }
    let seen: Vec<i64> = seen.into_iter().map(Option::unwrap).collect();
    assert_eq!(seen, schedule.intended_ns);
    // Prompts are unique over all shares.
    let bodies: std::collections::HashSet<String> = server
        .requests
        .lock()
        .unwrap()
        .iter()
        .map(|r| r.split("\r\n\r\n").nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(bodies.len(), 20);
}

/// Gaps of each request, in the file's order.
fn every_gap(dir: &std::path::Path) -> BTreeMap<u64, Vec<Gap>> {
    let mut found: BTreeMap<u64, Vec<Gap>> = BTreeMap::new();
    for_each_gap(&RunFiles::new(dir).every_gap(), |rows| {
        for gap in rows {
            found.entry(gap.index).or_default().push(gap);
        }
    })
    .unwrap();
    found
}

#[test]
fn every_gap_is_kept_and_agrees_with_records_and_histograms() {
    let server = Server::start(|exchange| {
        let pause = Duration::from_millis(exchange.number % 4);
        exchange.send(STREAM_HEAD);
        for _ in 0..3 + exchange.number % 5 {
            exchange.send(&token());
            std::thread::sleep(pause);
        }
        exchange.send(&tail(3));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 30, dir.path());
    run.every_gap = true;
    start(run).unwrap().join().unwrap();
    let records = read_run(dir.path()).unwrap();
    let gaps = every_gap(dir.path());
    for r in &records.requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        let own = &gaps[&r.index];
        let chunks: Vec<u32> = own.iter().map(|g| g.chunk).collect();
        assert_eq!(chunks, (1..r.content_events).collect::<Vec<_>>(), "{r:?}");
        assert!(own.iter().all(|g| g.choice == 0));
        assert_eq!(own.iter().map(|g| g.gap_ns).max(), r.gap_max_ns);
        // From the first token to the last without a hole.
        let mut at_ns = r.first_token_ns.unwrap();
        for gap in own {
            at_ns += gap.gap_ns;
            assert_eq!(gap.at_ns, at_ns, "{r:?}");
        }
        assert_eq!(Some(at_ns), r.last_token_ns);
    }
    let mut again = GapHistograms::default();
    for gap in gaps.values().flatten() {
        let intended_ns = records.requests[gap.index as usize].intended_ns;
        again.record(intended_ns, gap.gap_ns);
    }
    assert_eq!(again.buckets, records.gaps.buckets);
}

#[test]
fn a_load_without_gaps_has_an_empty_table_of_them() {
    let server = Server::start(|_| Then::Close);
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 3, dir.path());
    run.every_gap = true;
    start(run).unwrap().join().unwrap();
    assert!(every_gap(dir.path()).is_empty());
}
