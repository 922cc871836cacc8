//! Metrics of a server, Prometheus text.

#![no_main]

use blackstart_observe::parse_text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for (_, sample) in parse_text(bytes) {
        let _ = sample.map_err(|e| e.to_string());
    }
});
