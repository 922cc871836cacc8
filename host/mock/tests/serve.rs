//! Healthy behaviour over real sockets: streams, queueing, metrics, admin faults.

#![allow(clippy::unwrap_used)] // A test may panic; that is how it fails.

mod support;

use std::io::{BufReader, ErrorKind};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Mock, chat, completion, read_answer, read_events, wait_for, with_defaults};

fn mock(more: &[&str]) -> Mock {
    let defaults = ["--startup-scale", "0.01", "--ttft-ms", "5", "--itl-ms", "2"];
    Mock::start(&with_defaults(&defaults, more))
}

#[test]
fn chat_stream_has_vllms_events_and_headers() {
    let m = mock(&["--replica-name", "vllm-0"]);
    let a = read_answer(&mut m.post("/v1/chat/completions", "req-7", &chat(5)));
    assert_eq!((a.status, a.error), (200, None));
    for header in [
        "content-type: text/event-stream; charset=utf-8",
        "server: uvicorn",
        "x-replica: vllm-0",
        "x-request-id: req-7",
    ] {
        assert!(a.head.contains(header), "{header} missing in {}", a.head);
    }
    let events = a.events();
    // Role, five tokens (the last with the finish reason), usage, end marker.
    assert_eq!(events.len(), 1 + 5 + 1 + 1);
    let json: Vec<Value> = events[..7]
        .iter()
        .map(|e| serde_json::from_str(e).unwrap())
        .collect();
    assert_eq!(json[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(json[0]["id"], "chatcmpl-req-7");
    for chunk in &json[1..5] {
        assert!(chunk["choices"][0]["finish_reason"].is_null());
        assert!(
            !chunk["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap()
                .is_empty()
        );
    }
    assert_eq!(json[5]["choices"][0]["finish_reason"], "length");
    assert_eq!(json[6]["choices"], Value::Array(vec![]));
    assert_eq!(json[6]["usage"]["prompt_tokens"], 3);
    assert_eq!(json[6]["usage"]["completion_tokens"], 5);
    assert_eq!(events[7], "[DONE]");

    let end = m.end_of("req-7");
    assert_eq!((&end["end"], &end["tokens"]), (&"done".into(), &5.into()));
    let ns = |k: &str| end[k].as_u64().unwrap();
    // The analytic instants, exact to the nanosecond.
    assert_eq!(ns("first_token_due_ns") - ns("admitted_ns"), 5_000_000);
    assert_eq!(
        ns("last_token_due_ns") - ns("first_token_due_ns"),
        4 * 2_000_000
    );
    assert!(ns("first_token_ns") >= ns("first_token_due_ns"));
}

#[test]
fn completions_unary_and_streamed() {
    let m = mock(&[]);
    let a = read_answer(&mut m.post("/v1/completions", "", &completion(3)));
    let j = a.json();
    assert_eq!(
        (a.status, &j["choices"][0]["finish_reason"]),
        (200, &"length".into())
    );
    assert_eq!(j["usage"]["completion_tokens"], 3);
    let streamed = completion(3).replace('}', r#","stream":true}"#);
    let b = read_answer(&mut m.post("/v1/completions", "", &streamed));
    let events = b.events();
    assert_eq!(
        events.len(),
        3 + 1,
        "no role chunk, no usage unless asked: {events:?}"
    );
    let text: String = events[..3]
        .iter()
        .map(|e| {
            serde_json::from_str::<Value>(e).unwrap()["choices"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(j["choices"][0]["text"], text.as_str());
}

#[test]
fn small_routes_and_refusals() {
    let m = mock(&["--model", "tiny", "--max-model-len", "64"]);
    assert_eq!(m.get("/health").status, 200);
    assert_eq!(m.get("/version").json()["version"], "0.32.0");
    assert_eq!(m.get("/v1/models").json()["data"][0]["id"], "tiny");
    assert_eq!(m.get("/nope").status, 404);
    assert_eq!(m.get("/v1/completions").status, 405);
    let a = read_answer(&mut m.post("/v1/completions", "", &completion(3)));
    assert_eq!(
        (a.status, &a.json()["error"]["type"]),
        (404, &"NotFoundError".into())
    );
    let long = completion(3)
        .replace("mock-8b", "tiny")
        .replace("one", &"one ".repeat(80));
    let b = read_answer(&mut m.post("/v1/completions", "", &long));
    assert_eq!(
        (b.status, &b.json()["error"]["type"]),
        (400, &"BadRequestError".into())
    );
    assert_eq!(
        read_answer(&mut m.post("/v1/completions", "", "{")).status,
        400
    );
    // The admin interface is not on the main port.
    assert_eq!(m.get("/admin/fault").status, 404);
    let requests = m.admin("/admin/requests");
    assert_eq!(
        (&requests["received"], &requests["outcomes"]["rejected"]),
        (&3.into(), &3.into())
    );
}

#[test]
fn overload_queues_in_order_of_arrival() {
    let m = mock(&["--max-num-seqs", "2", "--ttft-ms", "20", "--itl-ms", "5"]);
    let mut streams = Vec::new();
    for i in 0..6 {
        streams.push(m.post("/v1/chat/completions", &format!("q{i}"), &chat(4)));
        // Let each arrive before the next is sent.
        wait_for("arrival", || (m.events("request").len() > i).then_some(()));
    }
    for s in &mut streams {
        assert_eq!(read_answer(s).events().len(), 1 + 4 + 1 + 1);
    }
    let ends: Vec<Value> = (0..6).map(|i| m.end_of(&format!("q{i}"))).collect();
    let ns = |i: usize, k: &str| ends[i][k].as_u64().unwrap();
    for (i, end) in ends.iter().enumerate() {
        assert_eq!(
            ns(i, "first_token_due_ns") - ns(i, "admitted_ns"),
            20_000_000,
            "{end}"
        );
        assert_eq!(
            ns(i, "last_token_due_ns") - ns(i, "first_token_due_ns"),
            15_000_000,
            "{end}"
        );
        if i >= 2 {
            // Two places, equal work: request i gets the place of request i − 2,
            // at the instant its last token was due (35 ms of service each),
            // unless it came later than that.
            let freed = ns(i - 2, "last_token_due_ns");
            let expected = freed.max(ns(i, "arrival_ns"));
            assert_eq!(ns(i, "admitted_ns"), expected, "request {i}");
        }
    }
}

#[test]
fn metrics_count_what_happened() {
    let m = mock(&["--max-num-seqs", "1", "--ttft-ms", "50", "--itl-ms", "50"]);
    let value = |page: &str, start: &str| -> f64 {
        let line = page
            .lines()
            .find(|l| l.starts_with(start))
            .unwrap_or_else(|| panic!("{start} not in\n{page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let mut first = m.post("/v1/chat/completions", "", &chat(4));
    let mut second = m.post("/v1/chat/completions", "", &chat(2));
    wait_for("one running, one waiting", || {
        let page = m.get("/metrics").body;
        let both = value(&page, "vllm:num_requests_running{") == 1.0
            && value(&page, "vllm:num_requests_waiting{") == 1.0;
        both.then_some(())
    });
    assert_eq!(read_answer(&mut first).error, None);
    assert_eq!(read_answer(&mut second).error, None);
    let page = m.get("/metrics").body;
    for (name, expected) in [
        ("vllm:num_requests_running{", 0.0),
        ("vllm:num_requests_waiting{", 0.0),
        ("vllm:kv_cache_usage_perc{", 0.0),
        ("vllm:prompt_tokens_total{", 6.0),
        ("vllm:generation_tokens_total{", 6.0),
        ("vllm:time_to_first_token_seconds_count{", 2.0),
        ("vllm:inter_token_latency_seconds_count{", 4.0),
        ("vllm:e2e_request_latency_seconds_count{", 2.0),
        ("vllm:request_queue_time_seconds_count{", 2.0),
        (
            "vllm:request_success_total{engine=\"0\",finished_reason=\"length\"",
            2.0,
        ),
        (
            "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"",
            0.0,
        ),
    ] {
        assert_eq!(value(&page, name), expected, "{name}");
    }
    // Every line is a comment or `name{labels} number`.
    for line in page.lines().filter(|l| !l.starts_with('#')) {
        let (name, number) = line.rsplit_once(' ').unwrap();
        assert!(number.parse::<f64>().is_ok(), "{line}");
        assert!(!name.contains('{') || name.ends_with('}'), "{line}");
    }
}

#[test]
fn metric_families_are_those_of_a_recorded_server() {
    // Names and types as a real 0.32.0 server served them.
    let recorded = include_str!("fixtures/metric-families-0.32.0.txt");
    let m = mock(&[]);
    let page = m.get("/metrics").body;
    let mine: Vec<&str> = page
        .lines()
        .filter_map(|l| l.strip_prefix("# TYPE "))
        .collect();
    assert!(mine.len() > 15);
    for family in mine {
        assert!(
            recorded.lines().any(|r| r == family),
            "`{family}` was not recorded"
        );
    }
}

#[test]
fn a_client_that_leaves_is_aborted_and_its_place_reused() {
    let m = mock(&["--max-num-seqs", "1", "--itl-ms", "1000"]);
    let leaving = m.post("/v1/chat/completions", "leaver", &chat(100));
    let mut reader = BufReader::new(leaving);
    read_events(&mut reader, 2);
    drop(reader);
    let a = read_answer(&mut m.post("/v1/chat/completions", "next", &chat(1)));
    assert_eq!(a.events().len(), 4);
    let end = m.end_of("leaver");
    assert_eq!(
        (&end["end"], &end["tokens"]),
        (&"client_gone".into(), &1.into())
    );
}

#[test]
fn fault_error_is_counted_and_cleared() {
    let m = mock(&[]);
    assert_eq!(
        m.fault(r#"{"mode":"error","status":503,"fraction":0.5}"#)
            .status,
        200
    );
    assert_eq!(m.admin("/admin/fault")["mode"], "error");
    let statuses: Vec<u16> = (0..4)
        .map(|_| read_answer(&mut m.post("/v1/completions", "same", &completion(1))).status)
        .collect();
    assert_eq!(statuses, [200, 503, 200, 503]);
    assert_eq!(m.fault(r#"{"mode":"none"}"#).status, 200);
    assert_eq!(
        read_answer(&mut m.post("/v1/completions", "same", &completion(1))).status,
        200
    );
    let r = m.admin("/admin/requests");
    assert_eq!(
        (&r["received"], &r["duplicates"], &r["in_flight"]),
        (&5.into(), &4.into(), &0.into())
    );
    assert_eq!(
        (&r["outcomes"]["done"], &r["outcomes"]["fault_error"]),
        (&3.into(), &2.into())
    );
    let bad = m.fault(r#"{"mode":"slow_reload"}"#);
    assert_eq!(bad.status, 409);
    assert!(bad.body.contains("--state-file"));
    assert_eq!(m.fault(r#"{"mode":"lunch"}"#).status, 400);
}

#[test]
fn fault_stream_abort_resets_after_the_tokens() {
    let m = mock(&[]);
    m.fault(r#"{"mode":"stream_abort","after_tokens":3}"#);
    let a = read_answer(&mut m.post("/v1/chat/completions", "cut", &chat(50)));
    assert_eq!((a.status, a.error), (200, Some(ErrorKind::ConnectionReset)));
    let tokens = a
        .events()
        .iter()
        .filter(|e| e.contains(r#""content":" "#))
        .count();
    assert_eq!(tokens, 3);
    let end = m.end_of("cut");
    assert_eq!((&end["end"], &end["tokens"]), (&"reset".into(), &3.into()));
}

#[test]
fn fault_silent_hang_sends_headers_only() {
    let m = mock(&[]);
    m.fault(r#"{"mode":"silent_hang"}"#);
    let mut s = m.post("/v1/chat/completions", "hung", &chat(1));
    s.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let a = read_answer(&mut s);
    assert_eq!(
        (a.status, a.body.as_str(), a.error),
        (200, "", Some(ErrorKind::WouldBlock))
    );
    assert_eq!(m.get("/health").status, 200);
    drop(s);
    assert_eq!(m.end_of("hung")["end"], "client_gone");
}

#[test]
fn fault_stall_stops_streams_and_admission_until_cleared() {
    let m = mock(&["--itl-ms", "10"]);
    let mut open = BufReader::new(m.post("/v1/chat/completions", "open", &chat(30)));
    read_events(&mut open, 4);
    m.fault(r#"{"mode":"stall"}"#);
    let mut late = m.post("/v1/chat/completions", "late", &chat(2));
    let stalled = Instant::now();
    std::thread::sleep(Duration::from_millis(400));
    let before = m.events("request_end").len();
    assert_eq!(before, 0, "nothing ends during a stall");
    assert_eq!(m.get("/health").status, 200);
    m.fault(r#"{"mode":"none"}"#);
    assert!(stalled.elapsed() >= Duration::from_millis(400));
    assert_eq!(read_answer(&mut late).events().len(), 5);
    let end = m.end_of("open");
    assert_eq!((&end["end"], &end["tokens"]), (&"done".into(), &30.into()));
    let ns = |k: &str| end[k].as_u64().unwrap();
    // The gap is in the instants: 29 steps of 10 ms and the stall.
    assert!(ns("last_token_due_ns") - ns("first_token_due_ns") >= 290_000_000 + 400_000_000);
    let late = m.end_of("late");
    assert!(
        late["admitted_ns"].as_u64().unwrap() - late["arrival_ns"].as_u64().unwrap() >= 300_000_000
    );
}

#[test]
fn canary_preset_is_one_quiet_process_with_known_timing() {
    let m = Mock::start(&["--canary"]);
    assert_eq!(m.engine_pid, m.pid());
    let body = r#"{"prompt":"ping","stream":true}"#;
    let a = read_answer(&mut m.post("/v1/completions", "c", body));
    assert_eq!(a.events().len(), 32 + 1);
    let end = m.end_of("c");
    let ns = |k: &str| end[k].as_u64().unwrap();
    assert_eq!(ns("first_token_due_ns") - ns("arrival_ns"), 20_000_000);
    assert_eq!(
        ns("last_token_due_ns") - ns("first_token_due_ns"),
        31 * 10_000_000
    );
    assert_eq!(
        m.log().lines().count(),
        1,
        "only the announcement: {}",
        m.log()
    );
}

#[test]
fn admin_on_the_main_port_and_real_time_only_when_asked_for() {
    let m = mock(&["--admin-on-main", "--realtime"]);
    assert_eq!(m.get("/admin/fault").json()["mode"], "none");
    assert_eq!(m.events("realtime").len(), 1);
    let line = m
        .log()
        .lines()
        .find(|l| l.starts_with('{'))
        .unwrap()
        .to_owned();
    let announced: Value = serde_json::from_str(&line).unwrap();
    assert!(
        announced["realtime"].is_boolean(),
        "granted or refused, but said: {line}"
    );
}

#[test]
fn five_hundred_streams_at_once_all_complete() {
    let m = Mock::start(&[
        "--startup-scale",
        "0",
        "--max-num-seqs",
        "600",
        "--ttft-ms",
        "20",
        "--itl-ms",
        "10",
        "--no-access-log",
    ]);
    let mut streams: Vec<_> = (0..500)
        .map(|i| m.post("/v1/chat/completions", &format!("s{i}"), &chat(20)))
        .collect();
    for s in &mut streams {
        let a = read_answer(s);
        assert_eq!((a.events().len(), a.error), (1 + 20 + 2, None));
    }
    wait_for("all ends", || {
        (m.events("request_end").len() == 500).then_some(())
    });
    for end in m.events("request_end") {
        let ns = |k: &str| end[k].as_u64().unwrap();
        assert_eq!(
            ns("last_token_due_ns") - ns("first_token_due_ns"),
            190_000_000
        );
    }
}
