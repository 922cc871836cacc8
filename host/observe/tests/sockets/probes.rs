use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blackstart_clock::NS_PER_MS;
use blackstart_observe::{CpuSource, EventSink, FireSignal, ObserveRun, Observers};
use blackstart_plan::Endpoint;
use blackstart_record::{EventKind, ProbeOutcome, ProbePath};

use crate::support::*;

/// The outcome of the first direct probe of a server.
fn first_probe(url: &str) -> ProbeOutcome {
    let watch = Watch::start(&plan(vec![replica("r0", url)], None));
    let outcome = watch.probe();
    watch.stop();
    outcome
}

fn chunked(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{body}"
    )
}

fn reason_of(server: &Server) -> String {
    let outcome = first_probe(&server.url());
    assert!(!outcome.ok);
    assert_eq!(outcome.first_token_ns, None);
    outcome.reason.unwrap()
}

#[test]
fn a_token_is_success_and_is_stamped() {
    for bytes in [
        one_token().into_bytes(),
        include_bytes!("../fixtures/vllm-0.32.0-chat-stream.raw").to_vec(),
        include_bytes!("../fixtures/vllm-0.32.0-completion-stream.raw").to_vec(),
        response(
            "200 OK",
            "application/json",
            r#"{"choices":[{"text":"x"}]}"#,
        )
        .into_bytes(),
    ] {
        let server = Server::saying(bytes);
        let outcome = first_probe(&server.url());
        assert!(outcome.ok, "{outcome:?}");
        assert_eq!(outcome.reason, None);
        assert_eq!(outcome.path, ProbePath::Direct);
        assert_eq!(outcome.replica.as_deref(), Some("r0"));
        assert!(outcome.sent_ns >= 0);
        assert!(outcome.first_token_ns.unwrap() > outcome.sent_ns);
    }
}

#[test]
fn the_stamp_is_the_tokens_and_not_the_heads() {
    let token_sent = Arc::new(std::sync::Mutex::new(None));
    let stamp = Arc::clone(&token_sent);
    let server = Server::start(move |_, stream| {
        let text = one_token();
        let (head, token) = text.split_at(
            text.find("data: {\"choices\":[{\"delta\":{\"content")
                .unwrap(),
        );
        let _ = stream.write_all(head.as_bytes());
        std::thread::sleep(std::time::Duration::from_millis(30));
        *stamp.lock().unwrap() = Some(blackstart_clock::monotonic_ns());
        let _ = stream.write_all(token.as_bytes());
    });
    let watch = Watch::start(&plan(vec![replica("r0", &server.url())], None));
    let outcome = watch.probe();
    let sent = watch
        .clock
        .from_monotonic(token_sent.lock().unwrap().unwrap());
    assert!(
        outcome.first_token_ns.unwrap() >= sent,
        "{outcome:?} but sent at {sent}"
    );
    watch.stop();
}

#[test]
fn answers_that_are_not_service_are_failures_with_their_class() {
    let html = "<!doctype html><title>It works</title>";
    for (bytes, expected) in [
        (events(""), "empty: the event stream ended"),
        (events("data: [DONE]\n\n"), "empty: "),
        (
            events(
                "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
            ),
            "empty: finish reason `stop`",
        ),
        (
            events("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"),
            "truncated: ",
        ),
        (
            events("data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\n"),
            "in_stream_error: 500 engine died",
        ),
        (events("data: nonsense\n\n"), "malformed_stream: "),
        (response("200 OK", "application/json", "{}"), "not_sse: "),
        (
            response(
                "200 OK",
                "application/json",
                r#"{"error":{"message":"dead"}}"#,
            ),
            "in_stream_error: dead",
        ),
        (
            response("200 OK", "text/html", html),
            "not_sse: status 200 with text/html",
        ),
        (response("200 OK", "text/plain", ""), "not_sse: "),
        (
            response(
                "503 Service Unavailable",
                "text/plain",
                "no healthy upstream",
            ),
            "http_status 503: no healthy",
        ),
        (
            response("307 Temporary Redirect", "text/plain", ""),
            "http_status 307",
        ),
        (
            include_str!("../fixtures/vllm-0.32.0-unknown-model.raw").to_owned(),
            "http_status 404: 404 The model `no-such-model` does not exist. Valid aliases: tiny.",
        ),
        (
            include_str!("../fixtures/vllm-0.32.0-engine-killed.raw").to_owned(),
            "http_status 500: 500 EngineCore encountered an issue.",
        ),
        (
            String::new(),
            "empty: the connection was closed before an answer",
        ),
        (chunked("zz\r\nnot a chunk\r\n"), "malformed_stream: "),
        (chunked("40\r\ndata: "), "truncated: "),
        ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), "malformed_stream: "),
    ] {
        let server = Server::saying(bytes.clone());
        let reason = reason_of(&server);
        assert!(reason.starts_with(expected), "{bytes:?}: {reason}");
    }
}

#[test]
fn nothing_listening_is_refused() {
    let outcome = first_probe(&Reserved::new().url());
    assert_eq!(outcome.reason.as_deref(), Some("connect: refused"));
}

#[test]
fn a_reset_is_told_from_an_orderly_end() {
    let server = Server::start(|_, stream| reset(stream));
    let reason = reason_of(&server);
    assert!(reason.starts_with("reset: "), "{reason}");
}

#[test]
fn a_hang_is_reported_at_its_timeout_by_how_far_it_came() {
    let silent = Server::start(|_, stream| hold(stream));
    let headed = Server::start(|_, stream| {
        let _ = stream.write_all(events("").as_bytes());
        hold(stream);
    });
    for (server, expected) in [
        (silent, "timeout: connected, no response head within 700 ms"),
        (headed, "timeout: accepted, no token within 700 ms"),
    ] {
        let mut plan = plan(vec![replica("r0", &server.url())], None);
        plan.observe.probe_timeout_ns = 700 * NS_PER_MS;
        let watch = Watch::start(&plan);
        assert_eq!(watch.probe().reason.as_deref(), Some(expected));
        watch.stop();
    }
}

#[test]
fn probes_go_on_while_earlier_ones_hang_but_not_without_bound() {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, max) = (Arc::clone(&open), Arc::clone(&most));
    let server = Server::start(move |_, stream| {
        max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        hold(stream);
        now.fetch_sub(1, Ordering::SeqCst);
    });
    let mut plan = plan(vec![replica("r0", &server.url())], None);
    plan.observe.probe_interval_outage_ns = 5 * NS_PER_MS;
    plan.observe.probe_timeout_ns = 300 * NS_PER_MS;
    let watch = Watch::start(&plan);
    watch.fire.fire(watch.clock.now());
    let outcomes: Vec<_> = (0..40).map(|_| watch.probe()).collect();
    let summary = watch.stop();
    assert!(outcomes.iter().all(|o| !o.ok));
    assert!(
        most.load(Ordering::SeqCst) > 1,
        "the second waited for the first"
    );
    // A connection that the client has dropped may be counted here a moment longer.
    assert!(most.load(Ordering::SeqCst) <= 2 * 16);
    let probes = &summary.probes[0];
    assert_eq!(probes.ok, 0);
    assert!(probes.failed >= 40);
    assert_eq!(probes.sent, probes.failed + probes.abandoned);
    assert!(probes.abandoned <= 16);
}

#[test]
fn the_fire_makes_probes_dense_and_recovery_is_seen() {
    let reserved = Reserved::new();
    let watch = Watch::start(&plan(vec![replica("r0", &reserved.url())], None));
    assert_eq!(watch.probe().reason.as_deref(), Some("connect: refused"));
    // Without the fire the next probe would be an hour away.
    let fired = watch.clock.now();
    watch.fire.fire(fired);
    for _ in 0..3 {
        let outcome = watch.probe();
        assert!(!outcome.ok && outcome.sent_ns >= fired);
    }
    let before = watch.clock.now();
    let server = Server::on(reserved.listen(), |_, stream| {
        let _ = stream.write_all(one_token().as_bytes());
    });
    let first = loop {
        let outcome = watch.probe();
        if outcome.ok {
            break outcome;
        }
    };
    assert!(first.first_token_ns.unwrap() > before);
    drop(server);
    let summary = watch.stop();
    assert!(summary.probes[0].ok >= 1 && summary.probes[0].failed >= 4);
    assert_eq!(summary.probes[0].skipped, 0);
}

#[test]
fn the_service_probe_names_who_served_it() {
    let direct = Server::saying(one_token());
    let named =
        |name: &str| one_token().replacen("\r\n", &format!("\r\nX-Served-By: {name}\r\n"), 1);
    for (header, expected) in [
        (Some("vllm-0".to_owned()), Some("vllm-0".to_owned())),
        (Some(direct.addr.to_string()), Some("vllm-0".to_owned())),
        (Some("elsewhere".to_owned()), Some("elsewhere".to_owned())),
        (None, None),
    ] {
        let service = Server::saying(match &header {
            Some(name) => named(name),
            None => one_token(),
        });
        let mut plan = plan(vec![replica("vllm-0", &direct.url())], Some(service.url()));
        plan.load.replica_header = Some("x-served-by".to_owned());
        // The service probe is offset by half an interval.
        plan.observe.probe_interval_ns = 20 * NS_PER_MS;
        let watch = Watch::start(&plan);
        let outcome = watch.next(|kind| match kind {
            EventKind::Probe(o) if o.path == ProbePath::Service => Some(o),
            _ => None,
        });
        assert!(outcome.ok, "{outcome:?}");
        assert_eq!(outcome.replica, expected);
        let summary = watch.stop();
        assert_eq!(summary.probes.len(), 2);
        assert_eq!(summary.probes[1].path, ProbePath::Service);
    }
}

#[test]
fn every_probe_has_its_own_connection_and_its_own_prompt() {
    let server = Server::saying(one_token());
    for endpoint in [Endpoint::Chat, Endpoint::Completions] {
        server.seen.lock().unwrap().clear();
        let mut plan = plan(vec![replica("r0", &server.url())], None);
        plan.load.endpoint = endpoint;
        let watch = Watch::with(&plan, Some("sk-secret"), CpuSource::default());
        watch.fire.fire(0);
        for _ in 0..4 {
            assert!(watch.probe().ok);
        }
        watch.stop();
        let seen = server.seen.lock().unwrap().clone();
        let mut prompts = HashSet::new();
        for request in &seen {
            let head = request.head.to_ascii_lowercase();
            assert!(head.contains("connection: close"), "{head}");
            assert!(head.contains("authorization: bearer sk-secret"), "{head}");
            assert!(head.contains("x-team: blue"), "{head}");
            assert_eq!(request.path(), endpoint.path());
            let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
            assert_eq!(body["max_tokens"], 1);
            assert_eq!(body["ignore_eos"], true);
            assert_eq!(body["model"], "tiny");
            let prompt = match endpoint {
                Endpoint::Chat => &body["messages"][0]["content"],
                Endpoint::Completions => &body["prompt"],
            };
            prompts.insert(prompt.as_str().unwrap().to_owned());
        }
        assert!(seen.len() >= 4);
        assert_eq!(prompts.len(), seen.len());
    }
}

#[test]
fn the_key_does_not_come_back_through_an_error() {
    let server = Server::saying(response(
        "401 Unauthorized",
        "application/json",
        r#"{"error":{"message":"Incorrect key sk-secret"}}"#,
    ));
    let plan = plan(vec![replica("r0", &server.url())], None);
    let watch = Watch::with(&plan, Some("sk-secret"), CpuSource::default());
    let reason = watch.probe().reason.unwrap();
    assert_eq!(reason, "http_status 401: Incorrect key [api key]");
    watch.stop();
}

#[test]
fn stop_waits_for_no_server() {
    // Everything that can be held back is: the head, the first token, a body at a byte a second.
    let silent = Server::start(|_, stream| hold(stream));
    let slow = Server::start(|request, stream| {
        let text = match request.path() {
            "/metrics" => response("200 OK", "text/plain", &"# x\n".repeat(1000)),
            _ => events(&": x\n".repeat(1000)),
        };
        for byte in text.bytes() {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    });
    let mut plan = plan(
        vec![replica("r0", &silent.url()), replica("r1", &slow.url())],
        Some(silent.url()),
    );
    plan.observe.metrics_path = Some("/metrics".to_owned());
    plan.observe.probe_interval_ns = 20 * NS_PER_MS;
    plan.observe.metrics_interval_ns = 20 * NS_PER_MS;
    let watch = Watch::start(&plan);
    let deadline = std::time::Instant::now() + PATIENCE;
    while silent.seen.lock().unwrap().len() < 3 || slow.seen.lock().unwrap().len() < 2 {
        assert!(std::time::Instant::now() < deadline, "no request came");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let summary = watch.stop();
    assert_eq!(summary.probes.len(), 3);
    assert_eq!(summary.probes.iter().map(|p| p.ok).sum::<u64>(), 0);
    assert!(
        summary
            .probes
            .iter()
            .all(|p| p.abandoned == p.sent - p.failed)
    );
}

#[test]
fn client_cpu_is_sampled_or_said_to_be_unmeasured() {
    let server = Server::saying(one_token());
    let plan = plan(vec![replica("r0", &server.url())], None);
    let watch = Watch::start(&plan);
    let (interval, host) = watch.next(|kind| match kind {
        EventKind::ClientCpu {
            interval_ns,
            host_percent,
            ..
        } => Some((interval_ns, host_percent)),
        _ => None,
    });
    assert!(interval > 0 && (0.0..=100.0).contains(&host));
    assert!(watch.stop().cpu_samples >= 1);

    let absent = CpuSource {
        host: "/nonexistent/stat".into(),
        process: "/proc/self/stat".into(),
    };
    let watch = Watch::with(&plan, None, absent);
    let note = watch.next(|kind| match kind {
        EventKind::Note { text } => Some(text),
        _ => None,
    });
    assert!(note.contains("not measured: /nonexistent/stat"), "{note}");
    assert_eq!(watch.stop().cpu_samples, 0);
}

#[test]
fn what_cannot_be_observed_is_refused_at_the_start() {
    let start = |plan: &blackstart_plan::Plan, key: Option<&str>| {
        Observers::start(ObserveRun {
            plan,
            clock: blackstart_clock::RunClock::from_recorded(0, 0),
            sink: EventSink::new(|_| {}),
            fire: FireSignal::new(),
            api_key: key,
            cpu: CpuSource::default(),
        })
        .map(|_| ())
        .unwrap_err()
        .to_string()
    };
    let good = "http://127.0.0.1:1";
    let text = start(&plan(vec![replica("r0", "https://h")], None), None);
    assert!(
        text.contains("replica r0") && text.contains("plain HTTP"),
        "{text}"
    );
    let text = start(
        &plan(vec![replica("r0", good)], Some("nowhere".into())),
        None,
    );
    assert!(text.contains("the service"), "{text}");
    let text = start(&plan(vec![replica("r0", good)], None), Some("a\nb"));
    assert!(text.contains("API key") && !text.contains("a\nb"), "{text}");
    let mut bad = plan(vec![replica("r0", good)], None);
    bad.observe.metrics_path = Some("metrics".into());
    assert!(start(&bad, None).contains("must begin with `/`"));
    let mut bad = plan(vec![replica("r0", good)], None);
    bad.load.replica_header = Some("not a name".into());
    assert!(start(&bad, None).contains("not a name"));
}
