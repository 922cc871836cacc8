//! A report of the published format, and its endpoints.

#![no_main]

use blackstart_analyze::foreign::{is_foreign, verify_foreign};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Two documents, one behind the other.
    let (report, endpoints) = match bytes.iter().position(|&b| b == 0) {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let _ = is_foreign(report);
    let _ = verify_foreign(report, endpoints);
});
