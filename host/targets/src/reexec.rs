//! How the instrument starts its own helpers: the same executable, with a hidden first argument.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// A program and the arguments that make it a helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reexec {
    /// The program; by default the running executable, also when its file was replaced.
    pub program: PathBuf,
    /// Arguments before any others.
    pub prefix: Vec<OsString>,
}

impl Reexec {
    /// The running executable with the given hidden subcommand.
    pub fn own(subcommand: &str) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            prefix: vec![OsString::from(subcommand)],
        }
    }

    /// The supervisor, `__supervise`.
    pub fn supervisor() -> Self {
        Self::own("__supervise")
    }

    /// The same with `--mask-env`: the value of that variable is kept out of the server's log.
    pub fn masking(mut self, variable: &str) -> Self {
        self.prefix
            .extend(["--mask-env", variable].map(OsString::from));
        self
    }

    /// The watchdog, `__watchdog`.
    pub fn watchdog() -> Self {
        Self::own("__watchdog")
    }

    /// The helper that takes memory, `__balloon`.
    pub fn balloon() -> Self {
        Self::own("__balloon")
    }

    /// A command to start it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.prefix);
        command
    }
}
