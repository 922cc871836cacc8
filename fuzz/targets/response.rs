//! A response as a server sends it: HTTP, event stream and JSON, up to the record of its request.
//!
//! Whatever comes in whatever portions: no panic, and the portions change nothing but stamps.

#![no_main]

use blackstart_load::gaps::GapSink;
use blackstart_load::http1::{Part, ResponseReader};
use blackstart_load::outcome::{BodyEnd, Expectation, Response};
use blackstart_record::RequestRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The last byte, so that what a server has sent can be an input as it is.
    let Some((&portion, bytes)) = input.split_last() else {
        return;
    };
    let whole = play(bytes, bytes.len().max(1));
    let parts = play(bytes, usize::from(portion) + 1);
    assert_eq!(said(whole), said(parts));
});

/// The record with one stamp for everything.
fn play(bytes: &[u8], portion: usize) -> RequestRecord {
    let mut reader = ResponseReader::new();
    let mut response = Response::new(0, 0, Expectation::until(i64::MAX));
    let mut gaps = GapSink::default();
    let mut malformed = None;
    for (number, bytes) in (0..).zip(bytes.chunks(portion)) {
        let fed = reader.feed(bytes, |part| match part {
            Part::Head(head) => {
                response.head(
                    1,
                    head.status,
                    head.text("content-type"),
                    head.text("x-replica"),
                );
            }
            Part::Data(data) => response.body(1, number, data, &mut gaps),
            Part::End => response.end(1, BodyEnd::Clean),
        });
        if let Err(e) = fed {
            malformed = Some(e.to_string());
            break;
        }
        if response.decided() {
            break;
        }
    }
    response.end(
        1,
        match malformed {
            Some(text) => BodyEnd::Failed(blackstart_record::ErrorClass::MalformedStream, text),
            None => BodyEnd::Cut,
        },
    );
    response.into_record()
}

/// What must not depend on the portions: how many reads brought several tokens does, and so does how
/// much of a body that is no stream was taken before its outcome was known.
fn said(mut record: RequestRecord) -> RequestRecord {
    record.coalesced_reads = 0;
    record.body_bytes = 0;
    record
}
