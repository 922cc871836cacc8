//! Ports that are free and stay so.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports below the range from which systems take a client's own port, so that no connection of
/// another test ever sits on one.
const FIRST: u16 = 20_000;
/// How many there are.
const SPAN: u16 = 12_000;

/// A loopback port on which nothing listens. No other call of this process returns it again.
///
/// # Panics
/// When every port of the range is in use.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at once start at different places.
    let start = (std::process::id().wrapping_mul(131) % u32::from(SPAN)) as u16;
    for _ in 0..SPAN {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start.wrapping_add(step)) % SPAN;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port in {FIRST}..{}", FIRST + SPAN)
}
