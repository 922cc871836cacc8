//! HTTPS: a scripted plain server behind a terminator of TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::support::*;
use blackstart_load::start;
use blackstart_plan::LoadPlan;
use blackstart_record::{CensorKind, ErrorClass, Outcome, RequestRecord};
use blackstart_testkit::{Authority, Farewell, Identity, TlsFront};
use blackstart_tls::{TlsClient, Trust};

const HERE: &str = "127.0.0.1";

fn trusting(pem: &str) -> TlsClient {
    TlsClient::new(Trust::Platform {
        added_pem: Some(pem.as_bytes()),
    })
    .unwrap()
}

/// Sends requests at these times.
fn drive_tls(plan: LoadPlan, client: TlsClient, intended_ns: Vec<i64>) -> Vec<RequestRecord> {
    let dir = tempfile::tempdir().unwrap();
    let count = intended_ns.len() as i64;
    let mut run = load_run(plan, count, dir.path());
    run.tls = Some(client);
    run.pacing = at(intended_ns);
    finish(start(run).unwrap(), dir.path(), count).1.requests
}

fn every(ms: i64, count: i64) -> Vec<i64> {
    (1..=count).map(|k| k * ms * MS).collect()
}

/// All requests fail in the handshake; what they are told.
fn refused(url: String, client: TlsClient) -> String {
    let requests = drive_tls(plan(url), client, every(10, 3));
    for r in &requests {
        assert_eq!(r.error_class, Some(ErrorClass::Tls), "{r:?}");
        assert_eq!(r.dispatched_ns, None, "the handshake is no request");
        assert!(r.connect_started_ns.is_some());
    }
    requests[0].error_text.clone().unwrap()
}

fn good() -> Server {
    Server::start(|x| {
        x.send(&good_answer(3));
        Then::KeepAlive
    })
}

#[test]
fn a_stream_in_single_bytes_completes() {
    let server = Server::start(|x| {
        x.stream.set_nodelay(true).unwrap();
        for byte in good_answer(3).into_bytes() {
            let _ = x.stream.write_all(&[byte]);
        }
        Then::KeepAlive
    });
    let authority = Authority::new();
    let front = TlsFront::start(&authority.issue(&[HERE]), server.address, Farewell::Proper);
    let requests = drive_tls(plan(front.url()), trusting(&authority.pem()), every(50, 6));
    for r in &requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        assert_eq!((r.content_events, r.completion_tokens), (3, Some(3)));
        assert!(r.dispatched_ns.unwrap() >= r.intended_ns, "{r:?}");
    }
}

#[test]
fn idle_connections_are_used_again_whatever_tickets_wait_on_them() {
    let server = good();
    let authority = Authority::new();
    let front = TlsFront::start(&authority.issue(&[HERE]), server.address, Farewell::Proper);
    // The server's session tickets arrive on the idle connections that are open from the start; later
    // requests come after these have been looked after.
    let times = every(300, 8);
    let requests = drive_tls(plan(front.url()), trusting(&authority.pem()), times);
    for r in &requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        assert_eq!(r.connect_started_ns, None, "it had its connection in time");
    }
    assert!(requests.iter().any(|r| r.connection_reused));
    assert!(front.accepted() <= 4, "{} connections", front.accepted());
}

#[test]
fn an_issuer_that_nobody_knows_is_refused_with_what_to_do() {
    let server = good();
    let identity = Authority::new().issue(&[HERE]);
    let front = TlsFront::start(&identity, server.address, Farewell::Proper);
    let text = refused(front.url(), trusting(&Authority::new().pem()));
    assert!(text.contains("--ca-file"), "{text}");
    assert_eq!(server.request_count(), 0);
}

#[test]
fn a_wrong_name_and_an_old_certificate_are_refused_by_their_reason() {
    let server = good();
    let authority = Authority::new();
    let other = authority.issue(&["llm.example", "10.0.0.1"]);
    let front = TlsFront::start(&other, server.address, Farewell::Proper);
    let text = refused(front.url(), trusting(&authority.pem()));
    assert!(
        text.contains("not for 127.0.0.1 but for") && text.contains("llm.example"),
        "{text}"
    );
    let old = authority.issue_expired(&[HERE]);
    let front = TlsFront::start(&old, server.address, Farewell::Proper);
    let text = refused(front.url(), trusting(&authority.pem()));
    assert!(
        text.contains("expired") && text.contains("days ago"),
        "{text}"
    );
    // The same two, and one of nobody's, where nothing is verified.
    for identity in [other, old, Authority::new().issue(&["x.example"])] {
        let front = TlsFront::start(&identity, server.address, Farewell::Proper);
        let client = TlsClient::new(Trust::Anyone).unwrap();
        for r in drive_tls(plan(front.url()), client, every(10, 3)) {
            assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        }
    }
}

#[test]
fn a_certificate_of_its_own_that_was_added_is_trusted_for_its_own_names() {
    let server = good();
    let own = Identity::of_its_own(&[HERE]);
    let front = TlsFront::start(&own, server.address, Farewell::Proper);
    for r in drive_tls(plan(front.url()), trusting(own.pem()), every(10, 3)) {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
    }
    let elsewhere = Identity::of_its_own(&["llm.example"]);
    let front = TlsFront::start(&elsewhere, server.address, Farewell::Proper);
    let text = refused(front.url(), trusting(elsewhere.pem()));
    assert!(text.contains("not for 127.0.0.1"), "{text}");
    let text = refused(front.url(), trusting(own.pem()));
    assert!(text.contains("--ca-file"), "{text}");
}

/// Answers whatever comes first with a text, and closes.
fn says(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test program.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(text.as_bytes());
        }
    });
    address
}

#[test]
fn a_server_that_speaks_the_other_of_the_two_is_named() {
    let plain = says("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    let client = || TlsClient::new(Trust::Anyone).unwrap();
    let text = refused(format!("https://{plain}"), client());
    assert!(text.contains("use http://"), "{text}");
    let mute = says("");
    let text = refused(format!("https://{mute}"), client());
    assert!(text.contains("use http://"), "{text}");

    let server = good();
    let front = TlsFront::start(
        &Authority::new().issue(&[HERE]),
        server.address,
        Farewell::Proper,
    );
    let (_, run) = drive(plan(format!("http://{}", front.address)), 3);
    for r in &run.requests {
        assert_eq!(r.error_class, Some(ErrorClass::Tls), "{r:?}");
        assert!(r.error_text.as_ref().unwrap().contains("use https://"));
    }
}

#[test]
fn a_handshake_that_never_ends_is_censored_at_the_timeout() {
    // It waits for the end of a request's head, and says nothing.
    let server = good();
    let mut plan = plan(format!("https://{}", server.address));
    plan.timeout_ns = 400 * MS;
    let client = TlsClient::new(Trust::Anyone).unwrap();
    for r in drive_tls(plan, client, every(10, 4)) {
        assert_eq!(r.censor_kind, Some(CensorKind::Timeout), "{r:?}");
        assert_eq!(r.observed_ns(), 400 * MS);
        assert_eq!(r.dispatched_ns, None);
        assert!(
            r.connect_started_ns.is_some(),
            "a connect that it waited for"
        );
    }
}

#[test]
fn a_cut_stream_is_truncated_with_and_without_a_farewell() {
    for farewell in [Farewell::Silent, Farewell::Proper, Farewell::NotifyOnly] {
        let server = Server::start(|x| {
            match x.number % 3 {
                0 => {}
                1 => x.send("HTTP/1.1 200 OK\r\ncontent-"),
                _ => x.send(&(STREAM_HEAD.to_owned() + &token())),
            }
            Then::Close
        });
        let authority = Authority::new();
        let front = TlsFront::start(&authority.issue(&[HERE]), server.address, farewell);
        let requests = drive_tls(plan(front.url()), trusting(&authority.pem()), every(100, 6));
        let mut classes: Vec<_> = requests.iter().map(|r| r.error_class.unwrap()).collect();
        classes.sort_unstable();
        let (reset, truncated) = (ErrorClass::Reset, ErrorClass::Truncated);
        assert_eq!(
            classes,
            [reset, reset, truncated, truncated, truncated, truncated],
            "{farewell:?} {requests:?}"
        );
    }
}

#[test]
fn the_end_of_a_connection_after_an_answer_is_no_error_and_not_overlooked() {
    for farewell in [Farewell::Silent, Farewell::Proper, Farewell::NotifyOnly] {
        let server = Server::start(|x| {
            x.send(&good_answer(3));
            Then::Close
        });
        let authority = Authority::new();
        let front = TlsFront::start(&authority.issue(&[HERE]), server.address, farewell);
        // Far enough apart that the end has arrived.
        let requests = drive_tls(plan(front.url()), trusting(&authority.pem()), every(200, 5));
        for r in &requests {
            assert_eq!(r.outcome, Outcome::Completed, "{farewell:?} {r:?}");
            assert!(!r.connection_reused, "{farewell:?} {r:?}");
        }
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_judged_as_over_tcp() {
    let server = Server::start(|x| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n";
        x.send(&(head.to_owned() + finish));
        std::thread::sleep(Duration::from_millis(5));
        Then::Close
    });
    let authority = Authority::new();
    let mut asked = plan(String::new());
    asked.ignore_eos = false;
    for farewell in [Farewell::Silent, Farewell::Proper] {
        let front = TlsFront::start(&authority.issue(&[HERE]), server.address, farewell);
        asked.base_url = front.url();
        let client = trusting(&authority.pem());
        for r in drive_tls(asked.clone(), client, every(20, 3)) {
            assert_eq!(r.outcome, Outcome::Completed, "{farewell:?} {r:?}");
            assert!(!r.done_marker);
        }
    }
}
