//! Events of one stream: portions change nothing, and a frame says what parsing would say.

#![no_main]

use blackstart_load::delta::{self, EventParser};
use blackstart_load::sse::SseDecoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The last byte, so that what a server has sent can be an input as it is.
    let Some((&portion, bytes)) = input.split_last() else {
        return;
    };
    let whole = decode(bytes, bytes.len().max(1));
    assert_eq!(whole, decode(bytes, usize::from(portion) + 1));
    let mut parser = EventParser::default();
    for data in &whole {
        let framed = format!("{:?}", parser.parse(data));
        assert_eq!(framed, format!("{:?}", delta::parse(data)));
        let _ = delta::error_object(&String::from_utf8_lossy(data));
    }
});

fn decode(bytes: &[u8], portion: usize) -> Vec<Vec<u8>> {
    let mut decoder = SseDecoder::new();
    let mut events = Vec::new();
    for part in bytes.chunks(portion) {
        if decoder
            .feed(part, |event| events.push(event.data.to_vec()))
            .is_err()
        {
            break;
        }
    }
    events
}
