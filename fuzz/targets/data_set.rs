//! A data set of prompts, JSON lines.

#![no_main]

use blackstart_load::DataSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = DataSet::parse(bytes);
});
