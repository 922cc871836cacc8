//! Exit codes, and errors that know theirs.

use std::fmt;
use std::process::ExitCode;

use blackstart_config::ConfigError;
use blackstart_plugins::PluginError;
use blackstart_record::RecordError;

/// Exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything ran and is valid.
    Valid,
    /// A fault of the instrument.
    Internal,
    /// A run is invalid, or a check failed.
    Invalid,
    /// The configuration or the command line is wrong.
    Configuration,
    /// A plugin is missing, refused or stopped.
    Plugin,
    /// The target does not answer, or cannot be started or found.
    Target,
    /// Everything is valid, but a stated objective was not met.
    NotMet,
    /// Interrupted, after everything was undone.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::Internal => 1,
            Self::Invalid => 2,
            Self::Configuration => 3,
            Self::Plugin => 4,
            Self::Target => 5,
            Self::NotMet => 6,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error with its exit code and a way to mend it.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    /// What went wrong, with its causes.
    pub error: anyhow::Error,
    /// How to mend it.
    pub help: Option<String>,
    /// The error draws itself (a snippet of a file) and needs no prefix.
    pub drawn: bool,
}

impl Failure {
    /// An error with this exit code.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: error.into(),
            help: None,
            drawn: false,
        }
    }

    /// An error made of a sentence.
    pub fn message(exit: Exit, message: impl fmt::Display) -> Self {
        Self::new(exit, anyhow::anyhow!("{message}"))
    }

    /// A fault of the instrument or its surroundings (files, threads).
    pub fn internal(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Internal, error)
    }

    /// Records that cannot be read or written: damaged ones fail as a check does, the system's refusal
    /// is a fault of the surroundings.
    pub fn records(error: RecordError) -> Self {
        let exit = match error {
            RecordError::Damaged { .. } => Exit::Invalid,
            RecordError::InUse { .. } => Exit::Configuration,
            RecordError::Io { .. } => Exit::Internal,
        };
        Self::new(exit, error)
    }

    /// Adds a way to mend it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds what was being done.
    pub fn context(mut self, context: impl fmt::Display + Send + Sync + 'static) -> Self {
        self.error = self.error.context(context);
        self
    }
}

impl Failure {
    /// What went wrong with its causes, each said once: many errors repeat their cause in their own
    /// sentence.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for cause in self.error.chain() {
            let cause = cause.to_string();
            if text.contains(&cause) {
                continue;
            }
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
        text
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self {
            exit: Exit::Configuration,
            drawn: true,
            help: None,
            error: error.into(),
        }
    }
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        let help = error.help();
        // A machine that cannot run a plugin says nothing about the plugin.
        let exit = if error.is_shortage() {
            Exit::Internal
        } else {
            Exit::Plugin
        };
        let failure = Self::new(exit, error);
        if help.is_empty() {
            failure
        } else {
            failure.help(help)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_sentence_repeats_is_said_once() {
        let lost = std::path::Path::new("/no/such/folder/plan.json");
        let error = blackstart_record::read_json::<i32>(lost).unwrap_err();
        let text = Failure::internal(error).context("reading the plan").text();
        assert!(text.starts_with("reading the plan: /no/such/"), "{text}");
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
        let other = Failure::internal(std::io::Error::other("disk")).context("writing x");
        assert_eq!(other.text(), "writing x: disk");
    }
}
