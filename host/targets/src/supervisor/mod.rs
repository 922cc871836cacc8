//! The supervisor: a process of its own between the instrument and a server.
//!
//! It starts the server, writes its log with stamps, starts it again by its policy, and reports.
//! It is the server's *child subreaper*: descendants that lose their parent become its own
//! children, so that none is ever lost from sight. Its standard input is its lifeline: when that
//! ends, the instrument is gone (by SIGKILL too), and the whole tree is stopped.

mod pump;
mod run;
mod tree;
mod wire;

pub use run::run;
pub use wire::{Command, Config, Orphan, WireEvent};

/// Most bytes of the configuration line.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;
/// Most bytes of a later command line.
pub const MAX_COMMAND_BYTES: usize = 4096;
/// Longest orderly stop, whatever the configuration says.
pub const MAX_STOP_TIMEOUT_NS: i64 = 600 * blackstart_clock::NS_PER_S;
/// How long killed processes may take to vanish before they are reported as left.
pub const KILL_TIMEOUT_NS: i64 = 10 * blackstart_clock::NS_PER_S;
/// How long the log's last bytes are waited for after the tree is gone.
pub const DRAIN_TIMEOUT_NS: i64 = blackstart_clock::NS_PER_S;
