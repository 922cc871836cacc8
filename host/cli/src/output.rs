//! Standard output, for machines and for what a person asked to see.
//!
//! A reader that has seen enough (`| head -1`) is no error. Any other failure is remembered, so that
//! a result that did not reach a file cannot pass for one that did.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

use crate::glyphs;

static FAILED: OnceLock<String> = OnceLock::new();

/// Writes one line. Use through [`out!`].
pub fn line(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_fmt(text)
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    if let Err(e) = written
        && e.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = FAILED.set(e.to_string());
    }
}

/// Why a line could not be written.
pub fn failure() -> Option<&'static str> {
    FAILED.get().map(String::as_str)
}

/// Writes one line for people. Use through [`out_text!`].
pub fn text(text: fmt::Arguments<'_>) {
    line(format_args!("{}", glyphs::shown(&text.to_string())));
}

/// `println!` that never panics.
macro_rules! out {
    ($($arg:tt)*) => {
        $crate::output::line(format_args!($($arg)*))
    };
}
pub(crate) use out;

/// The same for people: with the signs that their locale has.
macro_rules! out_text {
    ($($arg:tt)*) => {
        $crate::output::text(format_args!($($arg)*))
    };
}
pub(crate) use out_text;
