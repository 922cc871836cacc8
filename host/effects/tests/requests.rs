//! HTTP effects on a real server: once, bracketed, undone.

mod support;

use blackstart_effects::{Action, HttpRequest};
use support::*;

fn fault(server: &Server, undo: bool) -> Action {
    let request = |path: &str, body: &str| HttpRequest {
        method: "POST".to_owned(),
        url: format!("{}{path}", server.url),
        headers: vec![("x-test".to_owned(), "1".to_owned())],
        body: body.as_bytes().to_vec(),
    };
    Action::Http {
        replica: Some("r0".to_owned()),
        request: request("/fault", "stall"),
        on_expiry: undo.then(|| request("/fault", "none")),
    }
}

fn bench(victim: &Child) -> Bench {
    Bench::new(vec![running("r0", victim.pid())])
}

#[test]
fn a_request_and_its_undo_are_sent_at_their_instants() {
    let victim = Child::run(&["sleep", "1000"]);
    let server = Server::start(|_| OK);
    let bench = bench(&victim);
    let at = bench.in_ms(400);
    let id = bench
        .timeline
        .schedule(fault(&server, true), at, Some(at + 300_000_000))
        .expect("scheduled");
    let started = bench.wait(id, "started");
    let undone = bench.wait(id, "undone");
    for step in [&started, &undone] {
        let (before, after) = (step.before_ns.expect("b"), step.after_ns.expect("a"));
        assert!(step.planned_ns <= before && before <= after, "{step:?}");
        assert_eq!(step.detail.as_deref(), Some("status 200"));
    }
    assert_eq!(server.got(), ["POST /fault stall", "POST /fault none"]);
    assert_eq!(bench.names(id), ["scheduled", "started", "undone"]);
}

#[test]
fn a_refused_request_is_a_failed_step_and_is_undone_at_once() {
    let victim = Child::run(&["sleep", "1000"]);
    let server = Server::start(|r| if r.ends_with("stall") { BROKEN } else { OK });
    let bench = bench(&victim);
    let at = bench.in_ms(100);
    let id = bench
        .timeline
        .schedule(fault(&server, true), at, Some(at + 3_000_000_000_000))
        .expect("scheduled");
    let failed = bench.wait(id, "failed");
    let detail = failed.detail.expect("reason");
    assert!(
        detail.contains("500") && detail.contains("no fault"),
        "{detail}"
    );
    bench.wait(id, "undone");
    assert_eq!(server.got(), ["POST /fault stall", "POST /fault none"]);
}

#[test]
fn a_request_is_never_sent_twice() {
    let victim = Child::run(&["sleep", "1000"]);
    // Closes the connection without an answer: what pooled clients like to retry.
    let server = Server::start(|_| "");
    let bench = bench(&victim);
    let id = bench
        .timeline
        .schedule(fault(&server, false), bench.in_ms(100), None)
        .expect("scheduled");
    bench.wait(id, "failed");
    bench.timeline.cancel();
    assert_eq!(server.got(), ["POST /fault stall"]);
}

#[test]
fn nobody_there_is_a_failed_step() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = bench(&victim);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let url = format!("http://{}/fault", listener.local_addr().expect("address"));
    drop(listener);
    let action = Action::Http {
        replica: None,
        request: HttpRequest::post(&url),
        on_expiry: None,
    };
    let id = bench
        .timeline
        .schedule(action, bench.in_ms(50), None)
        .expect("scheduled");
    let detail = bench.wait(id, "failed").detail.expect("reason");
    assert!(detail.to_lowercase().contains("refused"), "{detail}");
}

#[test]
fn cancel_sends_the_undo() {
    let victim = Child::run(&["sleep", "1000"]);
    let server = Server::start(|_| OK);
    let bench = bench(&victim);
    let at = bench.in_ms(50);
    let id = bench
        .timeline
        .schedule(fault(&server, true), at, Some(at + 3_000_000_000_000))
        .expect("scheduled");
    bench.wait(id, "started");
    bench.timeline.cancel();
    assert_eq!(server.got(), ["POST /fault stall", "POST /fault none"]);
    assert_eq!(bench.names(id), ["scheduled", "started", "undone"]);
}
