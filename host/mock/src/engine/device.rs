//! The "GPU memory": an exclusive lock on a file, held while the engine lives.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::mono::{now_ns, sleep_until};

/// Time between two tries, ns.
const RETRY_NS: u64 = 10_000_000;
/// Size of the make-believe device, GiB.
const TOTAL_GIB: f64 = 79.11;
/// Free when another engine holds it, GiB.
const FREE_GIB: f64 = 7.43;
/// vLLM's default share.
const UTILIZATION: f64 = 0.92;

/// A taken device.
#[derive(Debug)]
pub struct Device {
    /// Closing the file (also by death) frees the device.
    _file: File,
}

/// Takes the device, trying for up to `wait_ns`.
///
/// # Errors
/// The file cannot be opened, or another process holds it to the end of the wait.
pub fn take(path: &Path, wait_ns: u64) -> io::Result<Device> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)?;
    let deadline = now_ns().saturating_add(wait_ns);
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Device { _file: file }),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) if now_ns() < deadline => {
                sleep_until((now_ns() + RETRY_NS).min(deadline));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// vLLM's words when the device's memory is taken.
pub fn busy_message(names_device: bool) -> String {
    let device = if names_device { "cuda:0 " } else { "" };
    format!(
        "ValueError: Free memory on device {device}({FREE_GIB}/{TOTAL_GIB} GiB) on startup is less than desired \
         GPU memory utilization ({UTILIZATION}, {:.2} GiB). Decrease GPU memory utilization or reduce GPU memory \
         used by other processes.",
        TOTAL_GIB * UTILIZATION
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_taker_waits_and_fails_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpu");
        let first = take(&path, 0).unwrap();
        let before = now_ns();
        assert!(take(&path, 30_000_000).is_err());
        assert!(now_ns() - before >= 30_000_000);
        drop(first);
        take(&path, 0).unwrap();
        assert!(busy_message(true).contains("device cuda:0 (7.43/79.11 GiB)"));
        assert!(busy_message(false).contains("device (7.43/79.11 GiB)"));
    }
}
