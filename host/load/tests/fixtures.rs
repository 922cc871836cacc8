//! Recorded streams, through the decoder and the outcome rules.

// Helpers of tests may fail by panic as tests do.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use blackstart_load::delta::{self, Parsed};
use blackstart_load::gaps::GapSink;
use blackstart_load::outcome::{BodyEnd, Expectation, Response};
use blackstart_load::sse::SseDecoder;
use blackstart_record::{ErrorClass, FinishReason, GapHistograms, Outcome, RequestRecord};
use proptest::prelude::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sse")
}

/// One row of `expect.tsv`.
#[derive(Debug)]
struct Case {
    file: String,
    bytes: Vec<u8>,
    class: String,
    token_events: u32,
    ttft_event: Option<usize>,
    completion_tokens: Option<u32>,
    finish: Option<String>,
    text: String,
}

fn cases() -> Vec<Case> {
    let table = std::fs::read_to_string(fixtures().join("expect.tsv")).unwrap();
    let cases: Vec<Case> = table
        .lines()
        .skip(1)
        .map(|line| {
            let f: Vec<&str> = line.split('\t').collect();
            let given = |text: &str| (text != "-").then(|| text.to_owned());
            Case {
                file: f[0].to_owned(),
                bytes: std::fs::read(fixtures().join(f[0])).unwrap(),
                class: f[1].to_owned(),
                token_events: f[2].parse().unwrap(),
                ttft_event: given(f[3]).map(|n| n.parse().unwrap()),
                completion_tokens: given(f[4]).map(|n| n.parse().unwrap()),
                finish: given(f[5]),
                text: f[6]
                    .replace("\\u2028", "\u{2028}")
                    .replace("\\u0085", "\u{85}"),
            }
        })
        .collect();
    assert_eq!(cases.len(), 23, "expect.tsv lost or gained rows");
    cases
}

/// Stamps are the offset of the last byte of each part, so that every stamp in the record says which
/// byte it belongs to.
fn play(case: &Case, parts: &[&[u8]]) -> (RequestRecord, GapHistograms) {
    let expect = Expectation::until(i64::MAX);
    let mut response = Response::new(0, 0, expect);
    let mut gaps = GapSink::default();
    let content_type = if case.file.contains("html") {
        "text/html"
    } else {
        "text/event-stream; charset=utf-8"
    };
    response.head(0, 200, Some(content_type), None);
    let mut at = 0;
    for (read, part) in (1..).zip(parts) {
        at += part.len() as i64;
        response.body(at, read, part, &mut gaps);
    }
    response.end(at + 1, BodyEnd::Clean);
    (response.into_record(), gaps.histograms)
}

/// Offsets just behind each event, found by looking for blank lines: independent of the decoder.
fn event_ends(bytes: &[u8]) -> Vec<i64> {
    let mut ends = Vec::new();
    let mut line_start = 0;
    let mut data = false;
    let mut i = 0;
    while i < bytes.len() {
        if matches!(bytes[i], b'\n' | b'\r') {
            let line = &bytes[line_start..i];
            let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
            if line.is_empty() {
                if data {
                    // The line's first end byte completes the event.
                    ends.push(i as i64 + 1);
                }
                data = false;
            }
            data |= line.starts_with(b"data");
            if bytes[i] == b'\r' && bytes.get(i + 1) == Some(&b'\n') {
                i += 1;
            }
            line_start = i + 1;
        }
        i += 1;
    }
    ends
}

fn check(case: &Case, parts: &[&[u8]]) {
    let (record, gaps) = play(case, parts);
    let file = &case.file;
    let class = match record.outcome {
        Outcome::Completed if record.finish_reason == Some(FinishReason::Length) => "ok:length",
        Outcome::Completed => "ok",
        Outcome::Errored => match record.error_class.unwrap() {
            ErrorClass::InStreamError => "error:in_stream",
            ErrorClass::Truncated => "error:truncated",
            ErrorClass::Empty => "error:empty",
            ErrorClass::NotSse => "error:not_sse",
            other => panic!("{file}: {other:?}"),
        },
        Outcome::Censored => panic!("{file}: censored"),
    };
    let class = match record.error_code {
        Some(code) => format!("{class}:{code}"),
        None => class.to_owned(),
    };
    // The table's `ok` leaves the finish reason to its own column.
    assert!(
        class == case.class || (class == "ok:length" && case.class == "ok"),
        "{file}: {class} instead of {}",
        case.class
    );
    assert_eq!(
        record.content_events, case.token_events,
        "{file}: token events"
    );
    assert_eq!(
        record.completion_tokens, case.completion_tokens,
        "{file}: usage"
    );
    assert_eq!(
        record.finish_reason.as_ref().map(FinishReason::name),
        case.finish.as_deref(),
        "{file}: finish"
    );
    assert_eq!(
        record.first_token_ns.is_some(),
        case.ttft_event.is_some(),
        "{file}: TTFT"
    );
    if let (Some(at), Some(event)) = (record.first_token_ns, case.ttft_event) {
        // The stamp is that of the part which brought the byte that completes the event.
        let complete = event_ends(&case.bytes)[event];
        let mut end = 0;
        let part_end = parts.iter().find_map(|p| {
            end += p.len() as i64;
            (end >= complete).then_some(end)
        });
        assert_eq!(Some(at), part_end, "{file}: TTFT belongs to event {event}");
    }
    let gap_count: u64 = gaps.buckets.values().map(|h| h.len()).sum();
    // n=2: one token of each choice, and gaps are per choice.
    let expected_gaps = if file.starts_with("25_") {
        0
    } else {
        u64::from(case.token_events.saturating_sub(1))
    };
    assert_eq!(gap_count, expected_gaps, "{file}: gaps");
}

/// Visible text of choice 0.
fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    SseDecoder::new()
        .feed(bytes, |event| {
            if let Ok(Parsed::Chunk(chunk)) = delta::parse(event.data)
                && let Some(raw) = chunk.text
                && let Ok(Some(piece)) = serde_json::from_str::<Option<String>>(raw)
            {
                out.push_str(&piece);
            }
        })
        .unwrap();
    out
}

#[test]
fn every_case_delivered_whole() {
    for case in cases() {
        check(&case, &[&case.bytes]);
        assert_eq!(text(&case.bytes), case.text, "{}", case.file);
    }
}

#[test]
fn every_case_delivered_byte_by_byte() {
    for case in cases() {
        let parts: Vec<&[u8]> = case.bytes.chunks(1).collect();
        check(&case, &parts);
        let (record, _) = play(&case, &parts);
        assert_eq!(record.coalesced_reads, 0, "{}", case.file);
    }
}

#[test]
fn the_recorded_split() {
    let case = cases()
        .into_iter()
        .find(|c| c.file == "08_tcp_split.sse")
        .unwrap();
    let cuts = std::fs::read_to_string(fixtures().join("08_tcp_split.split")).unwrap();
    let mut cuts: Vec<usize> = cuts
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    cuts.insert(0, 0);
    cuts.push(case.bytes.len());
    let parts: Vec<&[u8]> = cuts.windows(2).map(|w| &case.bytes[w[0]..w[1]]).collect();
    check(&case, &parts);
    let (record, _) = play(&case, &parts);
    assert_eq!(record.ended_ns, event_ends(&case.bytes)[3]);
}

#[test]
fn events_that_share_a_read_are_counted_as_coalesced() {
    let case = cases()
        .into_iter()
        .find(|c| c.file == "01_role_only_first.sse")
        .unwrap();
    let (record, gaps) = play(&case, &[&case.bytes]);
    assert_eq!(record.coalesced_reads, 1);
    let gap: Vec<u64> = gaps.buckets.values().map(|h| h.max()).collect();
    assert_eq!(gap, [1], "a gap within one read counts as 1 µs");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_case_at_random_splits(cuts in prop::collection::vec(0usize..1300, 0..12)) {
        for case in cases() {
            let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (case.bytes.len() + 1)).collect();
            cuts.extend([0, case.bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|w| &case.bytes[w[0]..w[1]]).collect();
            check(&case, &parts);
        }
    }
}
