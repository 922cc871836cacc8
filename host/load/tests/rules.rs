//! The outcome rules that no recorded stream shows.

// Helpers of tests may fail by panic as tests do.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use blackstart_load::Secret;
use blackstart_load::gaps::GapSink;
use blackstart_load::outcome::{BodyEnd, Expectation, MAX_SAMPLE_BYTES, Response};
use blackstart_record::{CensorKind, ErrorClass, FinishReason, Outcome, RequestRecord};

const DEADLINE: i64 = 1_000;

fn response() -> Response {
    expecting(None)
}

fn expecting(exact_tokens: Option<u32>) -> Response {
    let mut response = Response::new(
        3,
        0,
        Expectation {
            exact_tokens,
            secret: Some(Arc::new(Secret::new("sk-secret"))),
            ..Expectation::until(DEADLINE)
        },
    );
    response.head(10, 200, Some("text/event-stream"), Some("r1"));
    response
}

fn feed(response: &mut Response, at_ns: i64, event: &str) {
    let text = format!("data: {event}\n\n");
    let mut gaps = GapSink::default();
    response.body(at_ns, at_ns.unsigned_abs(), text.as_bytes(), &mut gaps);
}

fn token(response: &mut Response, at_ns: i64) {
    feed(
        response,
        at_ns,
        r#"{"choices":[{"index":0,"delta":{"content":"x"}}]}"#,
    );
}

fn finish(response: &mut Response, at_ns: i64, reason: &str) {
    let event = format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
    feed(response, at_ns, &event);
}

fn usage(response: &mut Response, at_ns: i64, tokens: u32) {
    let event =
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{tokens}}}}}"#);
    feed(response, at_ns, &event);
}

fn errored(record: &RequestRecord) -> (ErrorClass, i64) {
    assert_eq!(record.outcome, Outcome::Errored, "{record:?}");
    (record.error_class.unwrap(), record.ended_ns)
}

#[test]
fn done_completes_at_its_own_stamp_and_nothing_after_it_counts() {
    let mut r = response();
    token(&mut r, 20);
    token(&mut r, 30);
    finish(&mut r, 31, "stop");
    usage(&mut r, 32, 2);
    feed(&mut r, 40, "[DONE]");
    assert!(r.decided());
    token(&mut r, 50);
    r.end(60, BodyEnd::Failed(ErrorClass::Reset, "late".to_owned()));
    let record = r.into_record();
    assert_eq!(record.outcome, Outcome::Completed);
    assert_eq!(record.ended_ns, 40);
    assert!(record.done_marker);
    assert_eq!(
        (record.first_token_ns, record.last_token_ns),
        (Some(20), Some(30))
    );
    assert_eq!((record.content_events, record.gap_max_ns), (2, Some(10)));
    assert_eq!(
        (record.completion_tokens, record.prompt_tokens),
        (Some(2), Some(5))
    );
    assert_eq!(record.replica.as_deref(), Some("r1"));
}

#[test]
fn a_finish_reason_without_done_completes_at_the_end_of_the_body() {
    for end in [BodyEnd::Clean, BodyEnd::Cut] {
        let mut r = response();
        token(&mut r, 20);
        finish(&mut r, 21, "length");
        assert!(!r.decided());
        r.end(70, end);
        let record = r.into_record();
        assert_eq!(record.outcome, Outcome::Completed);
        assert_eq!((record.ended_ns, record.done_marker), (70, false));
    }
}

#[test]
fn a_stream_that_says_not_finished_in_every_chunk_is_truncated_where_it_ends() {
    for not_finished in [r#""""#, r#""null""#, "false"] {
        let mut response = response();
        let event = format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":{not_finished}}}]}}"#
        );
        feed(&mut response, 30, &event);
        response.end(50, BodyEnd::Cut);
        let record = response.into_record();
        assert_eq!(
            errored(&record),
            (ErrorClass::Truncated, 50),
            "{not_finished}"
        );
        assert_eq!(record.finish_reason, None);
    }
}

#[test]
fn a_reset_after_the_finish_reason_is_a_failure() {
    let mut r = response();
    token(&mut r, 20);
    finish(&mut r, 21, "stop");
    r.end(70, BodyEnd::Failed(ErrorClass::Reset, "reset".to_owned()));
    assert_eq!(errored(&r.into_record()), (ErrorClass::Reset, 70));
}

#[test]
fn done_without_a_finish_reason_completes_and_the_record_tells() {
    let mut r = response();
    token(&mut r, 20);
    feed(&mut r, 40, "[DONE]");
    let record = r.into_record();
    assert_eq!(
        (record.outcome, record.finish_reason),
        (Outcome::Completed, None)
    );
}

#[test]
fn a_well_formed_answer_without_content_is_empty() {
    let mut r = response();
    finish(&mut r, 21, "stop");
    feed(&mut r, 40, "[DONE]");
    assert_eq!(errored(&r.into_record()), (ErrorClass::Empty, 40));
    let mut r = response();
    finish(&mut r, 21, "stop");
    r.end(50, BodyEnd::Clean);
    assert_eq!(errored(&r.into_record()), (ErrorClass::Empty, 50));
}

#[test]
fn accepted_and_then_nothing() {
    for (end, class) in [
        (BodyEnd::Clean, ErrorClass::Empty),
        (BodyEnd::Cut, ErrorClass::Empty),
    ] {
        let mut r = response();
        r.end(50, end);
        assert_eq!(errored(&r.into_record()), (class, 50));
    }
    let mut r = response();
    r.censor(DEADLINE, CensorKind::Timeout);
    let record = r.into_record();
    assert_eq!(record.censor_kind, Some(CensorKind::Timeout));
    assert_eq!(
        (record.http_status, record.first_event_ns),
        (Some(200), None)
    );
}

#[test]
fn an_abort_keeps_its_time_and_the_usage_behind_it() {
    let mut r = response();
    token(&mut r, 20);
    finish(&mut r, 30, "abort");
    usage(&mut r, 31, 1);
    feed(&mut r, 40, "[DONE]");
    let record = r.into_record();
    assert_eq!(errored(&record), (ErrorClass::Aborted, 30));
    assert_eq!(record.finish_reason, Some(FinishReason::Abort));
    assert_eq!(record.completion_tokens, Some(1));
    // Silence behind the abort does not make it a censored request.
    let mut r = response();
    finish(&mut r, 30, "abort");
    r.censor(DEADLINE, CensorKind::Timeout);
    assert_eq!(errored(&r.into_record()), (ErrorClass::Aborted, 30));
}

#[test]
fn fewer_tokens_than_ignore_eos_guarantees() {
    for (got, outcome) in [(6, Outcome::Errored), (7, Outcome::Completed)] {
        let mut r = expecting(Some(7));
        token(&mut r, 20);
        finish(&mut r, 21, "stop");
        usage(&mut r, 22, got);
        feed(&mut r, 40, "[DONE]");
        let record = r.into_record();
        assert_eq!(record.outcome, outcome);
        if outcome == Outcome::Errored {
            assert_eq!(errored(&record), (ErrorClass::ShortCompletion, 40));
        }
    }
    // Without the server's count nothing is known: events are not tokens.
    let mut r = expecting(Some(7));
    token(&mut r, 20);
    finish(&mut r, 21, "stop");
    feed(&mut r, 40, "[DONE]");
    assert_eq!(r.into_record().outcome, Outcome::Completed);
}

#[test]
fn what_comes_after_the_deadline_is_not_seen() {
    let mut r = response();
    token(&mut r, DEADLINE);
    feed(&mut r, DEADLINE + 1, "[DONE]");
    let record = r.into_record();
    assert_eq!(record.outcome, Outcome::Censored);
    assert_eq!((record.ended_ns, record.content_events), (DEADLINE, 1));
    assert!(!record.done_marker);
}

#[test]
fn rubbish_inside_the_stream() {
    for event in ["{not json", "<html>", "[1]", "{\"choices\":7}"] {
        let mut r = response();
        token(&mut r, 20);
        feed(&mut r, 30, event);
        let record = r.into_record();
        assert_eq!(
            errored(&record),
            (ErrorClass::MalformedStream, 30),
            "{event}"
        );
        assert!(record.error_text.is_some());
    }
    let mut r = response();
    let mut gaps = GapSink::default();
    r.body(30, 1, &vec![b'x'; (1 << 20) + 1], &mut gaps);
    assert_eq!(errored(&r.into_record()).0, ErrorClass::MalformedStream);
}

#[test]
fn an_event_named_error_is_an_error_whatever_its_data() {
    let mut r = response();
    let mut gaps = GapSink::default();
    r.body(30, 1, b"event: error\ndata: upstream gone\n\n", &mut gaps);
    let record = r.into_record();
    assert_eq!(errored(&record), (ErrorClass::InStreamError, 30));
    assert_eq!(record.error_text.as_deref(), Some("upstream gone"));
}

fn answer(status: u16, content_type: Option<&str>, body: &[u8]) -> RequestRecord {
    let expect = Expectation {
        secret: Some(Arc::new(Secret::new("sk-secret"))),
        ..Expectation::until(DEADLINE)
    };
    let mut r = Response::new(0, 0, expect);
    let mut gaps = GapSink::default();
    r.head(10, status, content_type, None);
    r.body(20, 1, body, &mut gaps);
    r.end(30, BodyEnd::Clean);
    r.into_record()
}

#[test]
fn bodies_that_are_no_stream() {
    let json = Some("application/json");
    let record = answer(503, json, br#"{"error":{"message":"busy","code":503}}"#);
    assert_eq!(errored(&record), (ErrorClass::HttpStatus, 10));
    assert_eq!(
        (record.http_status, record.error_code),
        (Some(503), Some(503))
    );
    assert_eq!(record.error_text.as_deref(), Some("busy"));

    let record = answer(502, Some("text/html"), b"<h1>Bad\x1b Gateway</h1>");
    assert_eq!(errored(&record).0, ErrorClass::HttpStatus);
    assert_eq!(
        record.error_text.as_deref(),
        Some("<h1>Bad\\u{1b} Gateway</h1>")
    );

    let record = answer(200, json, br#"{"error":{"message":"dead","code":500}}"#);
    assert_eq!(errored(&record), (ErrorClass::InStreamError, 10));
    assert_eq!(record.error_code, Some(500));

    let record = answer(200, json, br#"{"choices":[{"text":"x"}]}"#);
    assert_eq!(errored(&record), (ErrorClass::NotSse, 10));

    assert_eq!(errored(&answer(302, None, b"")).0, ErrorClass::NotSse);
}

#[test]
fn a_stream_by_its_label_only() {
    let sse = Some("text/event-stream");
    let record = answer(200, sse, br#"{"error":{"message":"dead","code":500}}"#);
    assert_eq!(errored(&record).0, ErrorClass::InStreamError);
    assert_eq!(
        errored(&answer(200, sse, b"<html></html>")).0,
        ErrorClass::NotSse
    );
    assert_eq!(
        errored(&answer(200, sse, b"data: {\"choi")).0,
        ErrorClass::Truncated
    );
    assert_eq!(
        errored(&answer(200, None, b"<html></html>")).0,
        ErrorClass::NotSse
    );
    assert_eq!(errored(&answer(200, None, b"\r\n")).0, ErrorClass::Empty);
}

#[test]
fn a_secret_that_the_server_echoes_is_not_kept() {
    let body = br#"{"error":{"message":"bad key sk-secret, go away","code":401}}"#;
    let text = answer(401, None, body).error_text.unwrap();
    assert_eq!(text, "bad key [redacted], go away");
    let long = format!(
        "{}sk-secret{}",
        "x".repeat(195),
        "y".repeat(MAX_SAMPLE_BYTES)
    );
    let text = answer(500, None, long.as_bytes()).error_text.unwrap();
    assert!(
        !text.contains("sk-s") && text.chars().count() <= 201,
        "{text}"
    );
}

#[test]
fn a_request_that_was_never_due_is_observed_for_no_time() {
    let expect = Expectation::until(i64::MAX);
    let mut r = Response::new(0, 5_000, expect);
    r.censor(100, CensorKind::RunEnd);
    let record = r.into_record();
    assert_eq!((record.observed_ns(), record.dispatched_ns), (0, None));
    assert_eq!(record.censor_kind, Some(CensorKind::RunEnd));
}
