//! Server logs: physical lines, wrapper stamps and server lives, read through a matcher.
//!
//! Nothing here knows a server product: what a line means is the matcher's business. This crate
//! splits bytes into physical lines (a carriage return does not end one), takes off the stamp that
//! a container runtime put before a line, resolves the line's own clock, and counts server starts.

mod escapes;
mod keep;
mod lines;
mod lives;
mod read;
mod stamp;

pub use escapes::without_escapes;
pub use keep::Dropped;
pub use lines::{LONGEST_LINE_BYTES, LineSplitter, PhysicalLine};
pub use read::{LineMatcher, LogReading, RawBoundary, ReadError, ReadOptions, read_log};
pub use stamp::{LineClock, Wrapper, strip_wrapper};
