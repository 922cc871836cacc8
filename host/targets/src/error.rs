//! What can go wrong with a target, where, and how to mend it.

use std::path::PathBuf;

use crate::guard::GuardError;

/// An error of a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The program of a supervised replica does not exist.
    #[error(
        "replica `{replica}`: command `{command}` not found in {searched}; install it, correct \
         `command`, or give its absolute path"
    )]
    CommandNotFound {
        /// The replica.
        replica: String,
        /// First word of its command.
        command: String,
        /// Where it was looked for.
        searched: String,
    },
    /// The program exists but cannot be executed.
    #[error(
        "replica `{replica}`: `{path}` is not an executable file; make it one with `chmod +x`, or \
         name its interpreter first in `command`"
    )]
    NotExecutable {
        /// The replica.
        replica: String,
        /// The file.
        path: PathBuf,
    },
    /// The command is empty.
    #[error("replica `{replica}`: `command` is empty; give the program and its arguments")]
    EmptyCommand {
        /// The replica.
        replica: String,
    },
    /// The working directory does not exist.
    #[error(
        "replica `{replica}`: working directory `{cwd}` is not a directory; create it or correct \
         `cwd`"
    )]
    CwdMissing {
        /// The replica.
        replica: String,
        /// The directory.
        cwd: PathBuf,
    },
    /// Something listens already where the replica should.
    #[error(
        "replica `{replica}`: port {port} of {base_url} is already in use by {holder}; stop it, or \
         choose another port"
    )]
    PortInUse {
        /// The replica.
        replica: String,
        /// The port.
        port: u16,
        /// The replica's address.
        base_url: String,
        /// `pid 12 (command)`, or why it is not known.
        holder: String,
    },
    /// The address of a replica cannot be read.
    #[error(
        "replica `{replica}`: address `{base_url}` is not of the form http://host:port; correct \
         `base_url`"
    )]
    BadAddress {
        /// The replica.
        replica: String,
        /// The text.
        base_url: String,
    },
    /// The supervisor could not start, or the command could not be started by it.
    #[error("replica `{replica}`: could not be started: {reason}")]
    LaunchFailed {
        /// The replica.
        replica: String,
        /// Why.
        reason: String,
    },
    /// A log cannot be written or read.
    #[error("replica `{replica}`: log `{path}`: {reason}; correct the path or its permissions")]
    Log {
        /// The replica.
        replica: String,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The plan names no such replica.
    #[error("no replica `{replica}` in the configuration; it has: {known}")]
    UnknownReplica {
        /// The name.
        replica: String,
        /// Those that exist.
        known: String,
    },
    /// The replica has no such process role.
    #[error("replica `{replica}` has no process role `{role}`; it has: {known}")]
    UnknownRole {
        /// The replica.
        replica: String,
        /// The role.
        role: String,
        /// Those that exist.
        known: String,
    },
    /// No process has the role now.
    #[error("victim not found: replica `{replica}`, process `{role}`: {reason}")]
    VictimNotFound {
        /// The replica.
        replica: String,
        /// The role.
        role: String,
        /// Why.
        reason: String,
    },
    /// The configured pid is no running process.
    #[error(
        "replica `{replica}`: no process has pid {pid}; correct `pid`, or name the server by \
         `command_match`"
    )]
    PidNotFound {
        /// The replica.
        replica: String,
        /// The pid.
        pid: u32,
    },
    /// The regular expression does not compile.
    #[error("replica `{replica}`: `command_match` is not a regular expression: {reason}")]
    BadMatch {
        /// The replica.
        replica: String,
        /// Why.
        reason: String,
    },
    /// No command line matches.
    #[error(
        "replica `{replica}`: no running process matches `{pattern}` (the instrument and its \
         ancestors are never considered); start the server first, or correct `command_match`"
    )]
    NoMatch {
        /// The replica.
        replica: String,
        /// The pattern.
        pattern: String,
    },
    /// Several process trees match.
    #[error(
        "replica `{replica}`: {count} process trees match `{pattern}`; narrow `command_match` to \
         exactly one of:\n{candidates}"
    )]
    ManyMatches {
        /// The replica.
        replica: String,
        /// The pattern.
        pattern: String,
        /// How many.
        count: usize,
        /// `  pid 12: command`, one a line, bounded.
        candidates: String,
    },
    /// The guard refused.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// `/proc` could not be read.
    #[error("/proc: {reason}; the instrument needs a readable /proc to name its victims")]
    Proc {
        /// Why.
        reason: String,
    },
}
