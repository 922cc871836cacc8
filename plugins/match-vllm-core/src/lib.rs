//! Finds the boundaries of a vLLM server's life in its log, for releases 0.4 … 0.33.
//!
//! Pure text in, boundaries out: no clock, no input or output, no WebAssembly. The
//! plugin `vllm` wraps it.
//!
//! The path of a line: [`prefilter`] says which lines hold any literal at all;
//! `text` removes terminal escapes; `record` (or `json`) takes the line apart into
//! records with process, stamp and message; `rules` decides what the message means;
//! [`Session`] keeps what must outlive a line.

pub mod describe;
mod json;
pub mod prefilter;
mod probe;
mod record;
mod rules;
mod session;
mod text;

pub use probe::{Probe, probe};
pub use session::Session;

/// A boundary of the server's life that a line marks.
#[derive(Debug, Clone, PartialEq)]
pub struct Boundary {
    /// Physical line within the session, from 0.
    pub line: u64,
    /// One of [`describe::BOUNDARIES`].
    pub key: &'static str,
    /// The printing process as the log names it (`EngineCore`, `Worker_TP1`).
    pub process: Option<String>,
    /// The line's own clock: `--MM-DDTHH:MM:SS`, or with year and milliseconds where
    /// the log has them. Neither has a zone.
    pub stamp: Option<String>,
    /// Figures in the line, under the names that every release shares.
    pub measures: Vec<Measure>,
    /// Texts in the line. `pid` of the process; `during` = `shutdown` on failures
    /// of a server that had been asked to stop.
    pub fields: Vec<Field>,
}

/// A figure with its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measure {
    /// `weights_loaded_s`, `model_loaded_gib`, ...
    pub name: &'static str,
    /// The number as printed.
    pub value: f64,
    /// UCUM unit: `s`, `GiBy`, `{tokens}`, `1`.
    pub unit: &'static str,
}

/// A labelled text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// `version`, `model`, `exit_code`, ...
    pub key: &'static str,
    /// At most 256 bytes.
    pub value: String,
}
