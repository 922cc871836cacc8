//! vLLM's line shapes: process prefix, level, stamp, `[file:line]`, repeated
//! heads of multi-line records, uvicorn's own lines, progress bars.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Who puts the process prefix before a line, and so which lines have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixStyle {
    /// No prefix at all (0.8–0.10.0 with one API server).
    None,
    /// A wrapper round stdout: every line of the process (0.10.1–0.30).
    Wrapper,
    /// The log formatter: records only; uvicorn lines and bars are bare (0.31+).
    Formatter,
}

/// What kind of line a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A record of vLLM's logger: level and `file.py:line`.
    Record(&'static str, &'static str),
    /// A record of uvicorn's logger: `INFO:     text`.
    Uvicorn(&'static str),
    /// Printed without a logger (bars, bare tracebacks).
    Bare,
}

/// Renders lines of one process.
#[derive(Debug, Clone)]
pub struct LineWriter {
    style: PrefixStyle,
    /// `(EngineCore pid=72) ` or empty.
    prefix: String,
}

impl LineWriter {
    /// A writer for the process that the log calls `name`.
    pub fn new(style: PrefixStyle, name: &str, pid: u32) -> Self {
        let prefix = match style {
            PrefixStyle::None => String::new(),
            PrefixStyle::Wrapper | PrefixStyle::Formatter => format!("({name} pid={pid}) "),
        };
        LineWriter { style, prefix }
    }

    /// Renders a text (several lines joined by `\n` are one record: vLLM repeats
    /// the head after CR LF).
    pub fn render(&self, kind: Kind, text: &str, stamp: &str) -> String {
        match kind {
            Kind::Record(level, file) => {
                let head = format!("{}{level} {stamp} [{file}] ", self.prefix);
                let mut out = String::with_capacity(text.len() + head.len() + 2);
                for (i, line) in text.split('\n').enumerate() {
                    if i > 0 {
                        out.push_str("\r\n");
                    }
                    out.push_str(&head);
                    out.push_str(line);
                }
                out.push('\n');
                out
            }
            Kind::Uvicorn(level) => {
                format!(
                    "{}{:<10}{text}\n",
                    self.wrapper_prefix(),
                    format!("{level}:")
                )
            }
            Kind::Bare => {
                let mut out = String::new();
                for line in text.split('\n') {
                    out.push_str(self.wrapper_prefix());
                    out.push_str(line);
                    out.push('\n');
                }
                out
            }
        }
    }

    fn wrapper_prefix(&self) -> &str {
        match self.style {
            PrefixStyle::Wrapper => &self.prefix,
            PrefixStyle::None | PrefixStyle::Formatter => "",
        }
    }

    /// Renders with the current local time and writes to stdout in one piece.
    pub fn print(&self, kind: Kind, text: &str) {
        write_stdout(self.render(kind, text, &stamp_now()).as_bytes());
    }
}

/// Writes to stdout unbuffered. A log nobody reads must not end the server, so
/// errors (a closed pipe) are dropped, as Python's logging drops them.
pub fn write_stdout(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(bytes);
    let _ = out.flush();
}

/// The local time as vLLM stamps it: `MM-DD HH:MM:SS`, no year, no zone.
pub fn stamp_now() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as libc::time_t);
    // SAFETY: an all-zero `tm` is a valid value of this plain C struct.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals; localtime_r keeps neither.
    unsafe { libc::localtime_r(&seconds, &mut tm) };
    format!(
        "{:02}-{:02} {:02}:{:02}:{:02}",
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

/// An integer with thousands commas, as vLLM prints token counts.
pub fn with_commas(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: &str = "12-31 23:59:50";

    #[test]
    fn formatter_marks_records_only() {
        let w = LineWriter::new(PrefixStyle::Formatter, "EngineCore", 72);
        assert_eq!(
            w.render(Kind::Record("INFO", "core.py:140"), "hello", STAMP),
            "(EngineCore pid=72) INFO 12-31 23:59:50 [core.py:140] hello\n"
        );
        assert_eq!(
            w.render(Kind::Uvicorn("INFO"), "Started server process [1]", STAMP),
            "INFO:     Started server process [1]\n"
        );
        assert_eq!(w.render(Kind::Bare, "bar", STAMP), "bar\n");
    }

    #[test]
    fn wrapper_marks_every_line_and_repeats_heads() {
        let w = LineWriter::new(PrefixStyle::Wrapper, "APIServer", 1);
        assert_eq!(
            w.render(Kind::Record("INFO", "utils.py:287"), "\na", STAMP),
            "(APIServer pid=1) INFO 12-31 23:59:50 [utils.py:287] \r\n\
             (APIServer pid=1) INFO 12-31 23:59:50 [utils.py:287] a\n"
        );
        assert_eq!(
            w.render(Kind::Uvicorn("ERROR"), "x", STAMP),
            "(APIServer pid=1) ERROR:    x\n"
        );
        assert_eq!(
            w.render(Kind::Bare, "a\nb", STAMP),
            "(APIServer pid=1) a\n(APIServer pid=1) b\n"
        );
    }

    #[test]
    fn no_prefix_in_old_releases() {
        let w = LineWriter::new(PrefixStyle::None, "APIServer", 1);
        assert_eq!(
            w.render(Kind::Record("INFO", "core.py:69"), "x", STAMP),
            "INFO 12-31 23:59:50 [core.py:69] x\n"
        );
    }

    #[test]
    fn thousands() {
        assert_eq!(with_commas(0), "0");
        assert_eq!(with_commas(999), "999");
        assert_eq!(with_commas(2_097_152), "2,097,152");
    }
}
