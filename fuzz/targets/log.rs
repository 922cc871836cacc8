//! A server's log, through the lines, the stamps and the matcher of vLLM's formats.

#![no_main]

use blackstart_logs::{LineMatcher, RawBoundary, ReadOptions, read_log};
use blackstart_match_vllm::Session;
use libfuzzer_sys::fuzz_target;

/// The matcher natively; what it found is counted, not kept.
struct Native(Session);

impl LineMatcher for Native {
    fn feed(&mut self, text: &str) -> Result<Vec<RawBoundary>, String> {
        let _ = self.0.feed(text);
        Ok(Vec::new())
    }

    fn finish(&mut self) -> Result<Vec<RawBoundary>, String> {
        let _ = self.0.finish();
        Ok(Vec::new())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let options = ReadOptions {
        // Any bit will do: a log can be an input as it is.
        captured: bytes.len() % 2 == 1,
        reference_unix_ns: 1_800_000_000_000_000_000,
        offset_s: 0,
    };
    let _ = read_log(bytes, &mut Native(Session::new()), options);
});
