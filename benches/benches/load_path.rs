//! The load path without sockets: decoding a stream, computing a schedule, writing a record.
#![allow(missing_docs)] // criterion's macros make public items

use std::hint::black_box;

use blackstart_load::http1::{Part, ResponseReader};
use blackstart_load::outcome::{BodyEnd, Expectation, Response};
use blackstart_load::{delta::EventParser, gaps::GapSink, sse::SseDecoder};
use blackstart_plan::Arrivals;
use blackstart_record::{Outcome, RequestJournalWriter, RequestRecord};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

/// A stream as vLLM sends it: a role chunk, 32 tokens, a finish, the usage and the end.
fn stream() -> Vec<u8> {
    let chunk = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let mut text = chunk("{\"role\":\"assistant\",\"content\":\"\"}", "null");
    for _ in 0..32 {
        text += &chunk("{\"content\":\" token\"}", "null");
    }
    text += &chunk("{}", "\"length\"");
    text += "data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":32}}\n\ndata: [DONE]\n\n";
    text.into_bytes()
}

fn decode(c: &mut Criterion) {
    let bytes = stream();
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(36));
    group.bench_function("events_of_a_stream", |b| {
        b.iter(|| {
            let (mut decoder, mut parser) = (SseDecoder::new(), EventParser::default());
            // As sockets deliver: one event a read.
            for part in bytes.split_inclusive(|&b| b == b'\n') {
                decoder
                    .feed(black_box(part), |event| {
                        let _ = black_box(parser.parse(event.data));
                    })
                    .expect("the stream's events are short");
            }
        });
    });
    group.finish();
}

/// A whole response, read by read, as the load takes it: HTTP, SSE, JSON, stamps, gaps and the record.
fn response(c: &mut Criterion) {
    let writes = blackstart_benches::stream::writes();
    let mut group = c.benchmark_group("response");
    group.throughput(Throughput::Elements(
        blackstart_benches::stream::EVENTS as u64,
    ));
    group.bench_function("to_its_record", |b| {
        let mut gaps = GapSink::default();
        b.iter(|| {
            let mut reader = ResponseReader::new();
            let mut response = Response::new(0, 0, Expectation::until(i64::MAX));
            for (read, bytes) in (1_i64..).zip(&writes) {
                let at_ns = read * 10_000_000;
                reader
                    .feed(black_box(bytes), |part| match part {
                        Part::Head(head) => {
                            response.head(at_ns, head.status, head.text("content-type"), None);
                        }
                        Part::Data(data) => response.body(at_ns, read as u64, data, &mut gaps),
                        Part::End => response.end(at_ns, BodyEnd::Clean),
                    })
                    .expect("it is HTTP");
            }
            let record = response.into_record();
            assert_eq!(record.outcome, Outcome::Completed);
            record
        });
    });
    group.finish();
}

fn schedule(c: &mut Criterion) {
    c.bench_function("schedule_100k_poisson", |b| {
        b.iter(|| {
            Arrivals::Poisson
                .schedule(black_box(1000.0), 100_000_000_000, 7)
                .expect("a positive rate")
        });
    });
}

fn journal(c: &mut Criterion) {
    let record: RequestRecord = serde_json::from_value(serde_json::json!({
        "index": 1,
        "intended_ns": 1_000_000,
        "dispatched_ns": 1_010_000,
        "headers_ns": 2_000_000,
        "first_event_ns": 2_000_000,
        "first_token_ns": 3_000_000,
        "last_token_ns": 9_000_000,
        "ended_ns": 9_100_000,
        "outcome": "completed",
        "done_marker": true,
        "content_events": 32,
        "body_bytes": 9000,
        "coalesced_reads": 0,
        "connection_reused": true,
    }))
    .expect("a record without its optional fields");
    let dir = tempfile::tempdir().expect("a temporary folder");
    c.bench_function("journal_1000_records", |b| {
        b.iter_batched(
            || RequestJournalWriter::create(&dir.path().join("bench.journal")).expect("a file"),
            |mut writer| {
                for _ in 0..1000 {
                    writer
                        .append(black_box(&record))
                        .expect("space on the disk");
                }
                writer.flush().expect("space on the disk");
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group!(benches, decode, response, schedule, journal);
criterion_main!(benches);
