//! Whole loads against scripted servers on loopback: what each kind of failure is recorded as, and
//! that nothing is lost, retried or left waiting.

// Helpers of tests may fail by panic as tests do.
#![allow(clippy::unwrap_used)]

mod conversation;
mod pacing;
mod receive;
mod support;
mod tls;
mod unruly;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use blackstart_load::{CanaryTarget, LoadError, Secret, start};
use blackstart_record::{CensorKind, ErrorClass, EventKind, FinishReason, Outcome, RequestRecord};
use support::{
    Exchange, MS, STREAM_HEAD, Server, Then, at, chunk, drive, finish, good_answer, load_run, plan,
    tail, token,
};

fn classes(records: &[RequestRecord]) -> Vec<Option<ErrorClass>> {
    records.iter().map(|r| r.error_class).collect()
}

/// All requests meet the same script and end in the same class.
fn all_end_in(class: ErrorClass, script: impl Fn(&mut Exchange) -> Then + Send + Sync + 'static) {
    let server = Server::start(script);
    let (_, run) = drive(plan(server.url()), 5);
    assert_eq!(classes(&run.requests), vec![Some(class); 5]);
    assert_eq!(server.request_count(), 5, "nothing is sent twice");
    assert!(run.requests.iter().all(|r| r.dispatched_ns.is_some()));
}

#[test]
fn good_streams_complete_on_connections_that_are_reused() {
    let server = Server::start(|x| {
        x.send(&good_answer(3));
        Then::KeepAlive
    });
    let (summary, run) = drive(plan(server.url()), 40);
    for r in &run.requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        assert_eq!((r.content_events, r.completion_tokens), (3, Some(3)));
        assert_eq!(r.finish_reason, Some(FinishReason::Length));
        assert!(r.done_marker && r.http_status == Some(200));
    }
    let gaps: u64 = run.gaps.buckets.values().map(|h| h.len()).sum();
    assert_eq!(gaps, 80, "two gaps for each request of three tokens");
    assert!(run.requests.iter().any(|r| r.connection_reused));
    assert!(!summary.cancelled);
    let beats: Vec<_> = summary
        .events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Heartbeat { thread, ticks, .. } => Some((*thread, *ticks > 0)),
            _ => None,
        })
        .collect();
    assert_eq!(beats.len(), 2);
    assert!(beats.iter().all(|(_, ticked)| *ticked), "{beats:?}");
}

#[test]
fn requests_say_who_they_are_and_what_they_want() {
    let server = Server::start(|x| {
        x.send(&good_answer(3));
        Then::KeepAlive
    });
    let mut plan = plan(server.url() + "/llm/");
    plan.headers = vec![("X-Tenant".to_owned(), "blue".to_owned())];
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan, 3, dir.path());
    run.api_key = Some(Secret::new("sk-1"));
    finish(start(run).unwrap(), dir.path(), 3);
    let mut requests = server.requests.lock().unwrap().clone();
    requests.sort_by_key(|r| r.find("x-request-id").map(|at| r[at..].to_owned()));
    for (i, request) in requests.iter().enumerate() {
        assert!(
            request.starts_with("POST /llm/v1/chat/completions HTTP/1.1\r\n"),
            "{request}"
        );
        for wanted in [
            format!("host: {}\r\n", server.address),
            format!("x-request-id: test-1-{i}\r\n"),
            "x-tenant: blue\r\n".to_owned(),
            "authorization: Bearer sk-1\r\n".to_owned(),
            "\"ignore_eos\":true".to_owned(),
        ] {
            assert!(request.contains(&wanted), "{wanted} in {request}");
        }
    }
}

#[test]
fn a_server_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (_, run) = drive(plan(format!("http://{port}")), 5);
    assert_eq!(classes(&run.requests), vec![Some(ErrorClass::Connect); 5]);
    assert!(run.requests.iter().all(|r| r.dispatched_ns.is_none()));
    assert!(run.requests.iter().all(|r| r.send_skew_ns().is_some()));
}

#[test]
fn a_server_that_accepts_no_connection_is_no_delay_of_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Room for a single connection that nobody accepts; once it is taken, further ones wait.
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(taken) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(taken);
        assert!(waiting.len() < 16, "the queue is never full");
    }
    let mut plan = plan(format!("http://{address}"));
    plan.timeout_ns = 400 * MS;
    let (_, run) = drive(plan, 3);
    for r in &run.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::Timeout), "{r:?}");
        assert_eq!(r.dispatched_ns, None, "{r:?}");
        let started = r.connect_started_ns.expect("it tried to connect");
        let late = (started - r.intended_ns).max(0);
        assert_eq!(r.send_skew_ns(), Some(late));
    }
}

#[test]
fn resets_before_and_inside_the_stream() {
    all_end_in(ErrorClass::Reset, |x| {
        x.reset();
        Then::Close
    });
    all_end_in(ErrorClass::Reset, |x| {
        x.send(&(STREAM_HEAD.to_owned() + &token()));
        std::thread::sleep(Duration::from_millis(30));
        x.reset();
        Then::Close
    });
}

#[test]
fn closed_before_the_response_is_a_reset_too() {
    all_end_in(ErrorClass::Reset, |_| Then::Close);
}

#[test]
fn streams_cut_short() {
    // By a FIN inside the chunked body, as when the server's process is killed.
    all_end_in(ErrorClass::Truncated, |x| {
        x.send(&(STREAM_HEAD.to_owned() + &token()));
        Then::Close
    });
    // In good order, as gateways do.
    all_end_in(ErrorClass::Truncated, |x| {
        x.send(&(STREAM_HEAD.to_owned() + &token() + "0\r\n\r\n"));
        Then::KeepAlive
    });
    // Inside the response head.
    all_end_in(ErrorClass::Truncated, |x| {
        x.send("HTTP/1.1 200 OK\r\ncontent-ty");
        Then::Close
    });
    // Before any event.
    all_end_in(ErrorClass::Empty, |x| {
        x.send(STREAM_HEAD);
        Then::Close
    });
}

#[test]
fn broken_framing() {
    all_end_in(ErrorClass::MalformedStream, |x| {
        x.send(&(STREAM_HEAD.to_owned() + &token() + "zz\r\nrubbish\r\n"));
        Then::Close
    });
    all_end_in(ErrorClass::MalformedStream, |x| {
        x.send("SSH-2.0-OpenSSH_9.2\r\n\r\n");
        Then::Close
    });
}

#[test]
fn documents_and_statuses() {
    let answer = |status: &'static str, kind: &'static str, body: &'static str| {
        move |x: &mut Exchange| {
            x.send(&format!(
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ));
            Then::KeepAlive
        }
    };
    all_end_in(
        ErrorClass::NotSse,
        answer(
            "200 OK",
            "text/html",
            "<html><body>502 Bad Gateway</body></html>",
        ),
    );
    all_end_in(
        ErrorClass::HttpStatus,
        answer(
            "503 Service Unavailable",
            "text/plain",
            "no healthy upstream",
        ),
    );
    all_end_in(
        ErrorClass::InStreamError,
        answer(
            "200 OK",
            "application/json",
            r#"{"error":{"message":"dead","code":500}}"#,
        ),
    );
}

#[test]
fn a_short_completion_is_a_failure() {
    all_end_in(ErrorClass::ShortCompletion, |x| {
        x.send(&good_answer(2));
        Then::KeepAlive
    });
}

#[test]
fn recorded_answers_of_a_real_server() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm-http");
    let completed = (Outcome::Completed, None, None);
    let errored = |class, code| (Outcome::Errored, Some(class), code);
    for (file, expected) in [
        ("chat_stream_usage", completed),
        ("completion_stream_continuous_usage", completed),
        ("stop5-engine-stream_chat", completed),
        (
            "kill9-engine-stream_chat",
            errored(ErrorClass::InStreamError, Some(500)),
        ),
        (
            "kill9-engine-nostream",
            errored(ErrorClass::HttpStatus, Some(500)),
        ),
        (
            "overlong_chat_stream",
            errored(ErrorClass::HttpStatus, Some(400)),
        ),
        ("unknown_model", errored(ErrorClass::HttpStatus, Some(404))),
        ("sigterm-stream_chat", errored(ErrorClass::Aborted, None)),
        ("sigterm-nostream", errored(ErrorClass::NotSse, None)),
    ] {
        let bytes = std::fs::read(dir.join(format!("0.32.0-{file}.raw"))).unwrap();
        let server = Server::start(move |x| {
            // In pieces that respect nothing.
            for piece in bytes.chunks(1_009) {
                let _ = x.stream.write_all(piece);
            }
            Then::Close
        });
        let mut plan = plan(server.url());
        plan.ignore_eos = false;
        plan.timeout_ns = 20_000 * MS;
        let (_, run) = drive(plan, 2);
        for r in &run.requests {
            assert_eq!(
                (r.outcome, r.error_class, r.error_code),
                expected,
                "{file}: {r:?}"
            );
            if expected == completed {
                assert!(
                    r.done_marker && r.completion_tokens.is_some(),
                    "{file}: {r:?}"
                );
            }
        }
    }
}

#[test]
fn a_server_that_hangs_is_censored_at_the_timeout() {
    let server = Server::start(|x| {
        match x.number % 3 {
            0 => {}
            1 => x.send(STREAM_HEAD),
            _ => x.send(&(STREAM_HEAD.to_owned() + &token())),
        }
        x.hang();
        Then::Close
    });
    let mut plan = plan(server.url());
    plan.timeout_ns = 400 * MS;
    let (_, run) = drive(plan, 6);
    for r in &run.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::Timeout), "{r:?}");
        assert_eq!(r.observed_ns(), 400 * MS, "counted from the intended time");
        assert!(r.dispatched_ns.is_some());
    }
    let seen: u32 = run.requests.iter().map(|r| r.content_events).sum();
    assert_eq!(seen, 2);
}

#[test]
fn one_byte_at_a_time_is_censored_too() {
    let server = Server::start(|x| {
        for byte in good_answer(3).into_bytes() {
            if x.stopped() || x.stream.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Then::Close
    });
    let mut plan = plan(server.url());
    plan.timeout_ns = 400 * MS;
    let (_, run) = drive(plan, 3);
    for r in &run.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::Timeout), "{r:?}");
    }
}

#[test]
fn ending_early_writes_every_result() {
    let server = Server::start(|x| {
        x.send(&(STREAM_HEAD.to_owned() + &token()));
        x.hang();
        Then::Close
    });
    let mut plan = plan(server.url());
    plan.timeout_ns = 60_000 * MS;
    let dir = tempfile::tempdir().unwrap();
    let handle = start(load_run(plan, 1_000, dir.path())).unwrap();
    while server.request_count() < 5 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!handle.is_finished());
    let progress = handle.progress();
    assert_eq!(progress.scheduled, 1_000);
    assert!(
        progress.in_flight >= 5 && progress.completed == 0,
        "{progress:?}"
    );
    handle.cancel();
    let (summary, run) = finish(handle, dir.path(), 1_000);
    assert!(summary.cancelled);
    let sent = run
        .requests
        .iter()
        .filter(|r| r.dispatched_ns.is_some())
        .count();
    assert!((5..1_000).contains(&sent), "{sent}");
    for r in &run.requests {
        assert_eq!(r.censor_kind, Some(CensorKind::RunEnd), "{r:?}");
        if r.dispatched_ns.is_none() {
            assert_eq!(r.observed_ns(), 0, "never due: {r:?}");
        }
    }
}

#[test]
fn a_reused_connection_that_is_dead_costs_its_own_request_and_no_other() {
    // The second request on each connection is met by a reset before any byte of a response.
    let server = Server::start(|x| {
        if x.on_connection == 1 {
            x.reset();
            return Then::Close;
        }
        x.send(&good_answer(3));
        Then::KeepAlive
    });
    let (_, run) = drive(plan(server.url()), 30);
    assert_eq!(server.request_count(), 30, "no request is sent twice");
    let mut failed = 0;
    for r in &run.requests {
        if r.connection_reused {
            failed += 1;
            assert_eq!(r.error_class, Some(ErrorClass::Reset), "{r:?}");
        } else {
            assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        }
    }
    assert!(failed > 0);
}

#[test]
fn a_connection_that_the_server_closed_while_idle_is_not_used() {
    let server = Server::start(|x| {
        x.send(&good_answer(3));
        Then::Close
    });
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 4, dir.path());
    // Far enough apart that the server's close has arrived.
    run.pacing = at((1..=4).map(|k| k * 300 * MS).collect());
    let (_, run) = finish(start(run).unwrap(), dir.path(), 4);
    for r in &run.requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
    }
}

#[test]
fn every_outcome_at_once_adds_up() {
    let server = Server::start(|x| match x.number % 5 {
        0 => {
            x.send(&good_answer(3));
            Then::KeepAlive
        }
        1 => {
            x.hang();
            Then::Close
        }
        2 => Then::Close,
        3 => {
            x.send("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n");
            Then::KeepAlive
        }
        _ => {
            x.send(&(STREAM_HEAD.to_owned() + &token() + &chunk("data: {oops}\n\n")));
            Then::Close
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let handle = start(load_run(plan(server.url()), 100, dir.path())).unwrap();
    while !handle.is_finished() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let progress = handle.progress();
    let (_, run) = finish(handle, dir.path(), 100);
    let count = |outcome| run.requests.iter().filter(|r| r.outcome == outcome).count() as u64;
    assert_eq!(progress.completed, count(Outcome::Completed));
    assert_eq!(progress.errored, count(Outcome::Errored));
    assert_eq!(progress.censored, count(Outcome::Censored));
    assert_eq!(progress.in_flight, 0);
    assert_eq!(
        progress.errored_by_class.iter().sum::<u64>(),
        progress.errored
    );
    assert_eq!(server.request_count(), 100);
    assert_eq!(
        (progress.completed, progress.errored, progress.censored),
        (20, 60, 20)
    );
    let class = |c: ErrorClass| {
        classes(&run.requests)
            .iter()
            .filter(|x| **x == Some(c))
            .count()
    };
    assert_eq!(class(ErrorClass::HttpStatus), 20);
    assert_eq!(class(ErrorClass::MalformedStream), 20);
    assert_eq!(class(ErrorClass::Reset), 20);
}

#[test]
fn the_stamp_of_an_event_is_that_of_the_read_that_brought_it() {
    // Three tokens 60 ms apart, the middle one in two pieces.
    let server = Server::start(|x| {
        x.send(&(STREAM_HEAD.to_owned() + &token()));
        std::thread::sleep(Duration::from_millis(60));
        let middle = token();
        let (a, b) = middle.split_at(40);
        x.send(a);
        std::thread::sleep(Duration::from_millis(60));
        x.send(b);
        x.send(&tail(2));
        Then::KeepAlive
    });
    let mut plan = plan(server.url());
    plan.ignore_eos = false;
    plan.timeout_ns = 10_000 * MS;
    let (_, run) = drive(plan, 2);
    for r in &run.requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        // A lower bound only: a busy machine may take longer, never less.
        assert!(r.gap_max_ns.unwrap() >= 115 * MS, "{r:?}");
    }
}

#[test]
fn the_canary_goes_through_the_same_path() {
    let server = Server::start(|x| {
        x.send(&good_answer(3));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 60, dir.path());
    run.canary = Some(CanaryTarget {
        tokens: 3,
        ..CanaryTarget::known(server.url())
    });
    let (summary, run) = finish(start(run).unwrap(), dir.path(), 60);
    assert_eq!(run.requests.len(), 60);
    let streams: Vec<_> = summary
        .events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Canary(c) => Some(c),
            _ => None,
        })
        .collect();
    assert!(!streams.is_empty());
    for c in streams {
        assert!(c.completed && c.ttft_dev_ns.is_some(), "{c:?}");
        assert_eq!((c.itl_dev_ns.len(), c.event_lag_ns.len()), (2, 3));
    }
}

#[test]
fn an_empty_schedule_ends_at_once() {
    let (summary, run) = drive(plan("http://127.0.0.1:9".to_owned()), 0);
    assert_eq!((summary.scheduled, run.requests.len()), (0, 0));
}

#[test]
fn what_cannot_be_driven_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut blackstart_load::LoadRun)| -> LoadError {
        let mut run = load_run(plan("http://127.0.0.1:9".to_owned()), 1, dir.path());
        run.api_key = Some(Secret::new("sk-\n-bad"));
        run.api_key = None;
        change(&mut run);
        start(run).unwrap_err()
    };
    for (change, why) in [
        (
            (&|r: &mut blackstart_load::LoadRun| r.plan.base_url = "https://h".to_owned())
                as &dyn Fn(&mut blackstart_load::LoadRun),
            "https is not spoken here",
        ),
        (&|r| r.plan.threads = 0, "choose 1 to 64"),
        (&|r| r.plan.timeout_ns = 0, "client timeout"),
        (&|r| r.plan.prompt_words = 1, "prompt_words"),
        (&|r| r.pacing = at(vec![2, 1]), "do not ascend"),
        (
            &|r| r.plan.headers = vec![("Host".to_owned(), "x".to_owned())],
            "sets this one itself",
        ),
        (
            &|r| r.plan.headers = vec![("a b".to_owned(), String::new())],
            "not a header name",
        ),
        (
            &|r| r.api_key = Some(Secret::new("sk-\n-bad")),
            "check its variable",
        ),
        (
            &|r| r.dir = "/no/such/dir".into(),
            "/no/such/dir/requests.journal",
        ),
    ] {
        let text = refused(change).to_string();
        assert!(text.contains(why), "{text}");
        assert!(!text.contains("sk-"), "{text}");
    }
}

#[test]
fn a_directory_that_vanishes_ends_the_load_with_an_error() {
    let server = Server::start(|x| {
        x.send(&good_answer(3));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let handle = start(load_run(plan(server.url()), 10, dir.path())).unwrap();
    std::fs::remove_dir_all(dir.path()).unwrap();
    let error = handle.join().unwrap_err().to_string();
    assert!(error.contains("requests.journal"), "{error}");
}
