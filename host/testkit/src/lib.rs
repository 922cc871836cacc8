//! Shared helpers for tests: the instrument as a child process, campaigns, ports, and what the mock says happened.
//!
//! Everything here is for tests alone, so a helper that cannot do its work panics with what it saw.

mod campaign;
mod instrument;
mod ports;
mod processes;
mod truth;

pub use campaign::CampaignText;
pub use instrument::{Finished, Instrument, PATIENCE, Running, wait_for};
pub use ports::free_port;
pub use processes::{Seen, marked};
pub use truth::{Life, TruthLine, lives, read_truth};

use std::fs::File;
use std::path::Path;

/// One heavy test at a time: campaigns on a small machine would disturb each other's clocks. Holds
/// across threads and across test programs until it is dropped.
///
/// # Panics
/// When the lock file in `folder` (cargo's `CARGO_TARGET_TMPDIR`) cannot be made or locked.
pub fn alone(folder: &Path) -> File {
    let path = folder.join("one-campaign-at-a-time.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.lock()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file
}
