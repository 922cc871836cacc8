//! Ten thousand instances made and thrown away, good ones and stopped ones: nothing
//! of them stays. A test program of its own, since it looks at the whole process.

#![allow(clippy::unwrap_used)]

mod support;

use blackstart_plugins::{GateTemplate, MatcherTemplate};
use support::{Facts, Guest, engine};

/// Rounds of each kind.
const ROUNDS: usize = 5_000;
/// Rounds before the first look, in which allocators reach their size.
const WARM_UP: usize = 500;
/// Growth that allocators may show without a leak. One leaked instance of either
/// kind would add at least a page of 4 KiB a round: 20 MiB.
const MAX_GROWTH_KIB: usize = 8 << 10;

/// A figure of `/proc/self/status`, in its own unit.
fn status(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn nothing_stays_of_ten_thousand_instances() {
    let engine = engine();
    let trapping = Guest::gate("trapper")
        .with("evaluate", "unreachable")
        .artifact();
    let trapping = GateTemplate::new(&engine, &trapping).unwrap();
    let matching = MatcherTemplate::new(&engine, &Guest::matcher("m").artifact()).unwrap();
    let round = |count: usize| {
        for _ in 0..count {
            let mut gate = trapping.instantiate().unwrap();
            assert!(gate.evaluate("{}", Facts::new(0)).is_err());
            let mut matcher = matching.instantiate().unwrap();
            let session = matcher.session("vllm-0", "{}").unwrap();
            assert_eq!(matcher.feed(&session, "a\nR").unwrap().len(), 1);
            // The session is left open on purpose: dropping the instance must do.
        }
    };
    round(WARM_UP);
    let (memory, threads) = (status("VmRSS:"), status("Threads:"));
    let space = status("VmSize:");
    round(ROUNDS);
    let grown = status("VmRSS:").saturating_sub(memory);
    assert!(grown < MAX_GROWTH_KIB, "{grown} KiB more than before");
    assert_eq!(status("Threads:"), threads);
    // An instance reserves gigabytes of address space: one left over would show.
    let grown = status("VmSize:").saturating_sub(space);
    assert!(
        grown < 1 << 20,
        "{grown} KiB of address space more than before"
    );
}
