//! Shared helpers for tests: the instrument as a child process, campaigns, ports, TLS, and what the mock says happened.
//!
//! Everything here is for tests alone, so a helper that cannot do its work panics with what it saw.

mod campaign;
mod instrument;
mod ports;
mod processes;
mod tls;
mod truth;

pub use campaign::CampaignText;
pub use instrument::{Finished, Instrument, PATIENCE, Running, wait_for};
pub use ports::free_port;
pub use processes::{Seen, marked};
pub use tls::{Authority, Farewell, Identity, TlsFront};
pub use truth::{Life, TruthLine, lives, read_truth};

use std::fs::File;

/// One heavy test at a time: campaigns on a small machine would disturb each other's clocks, and two
/// test programs could choose the same port. Holds across threads, programs and target folders of one
/// user until it is dropped.
///
/// # Panics
/// When the lock file in the system's temporary folder cannot be made or locked.
pub fn alone() -> File {
    // Each user has a file of their own: another's could not be opened.
    let user = rustix::process::getuid().as_raw();
    let path = std::env::temp_dir().join(format!("blackstart-tests-{user}.lock"));
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
