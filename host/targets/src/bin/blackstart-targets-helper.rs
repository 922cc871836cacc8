//! Helper for this crate's tests: the supervisor, as the command-line tool exposes it.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("__supervise") => blackstart_targets::supervisor::run(None),
        _ => {
            eprintln!("this program serves the tests of blackstart-targets only");
            ExitCode::FAILURE
        }
    }
}
