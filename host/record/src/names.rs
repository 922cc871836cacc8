//! Stable names of the enumerations in tables, and back.

use crate::{CensorKind, ErrorClass, FinishReason, Outcome};

impl Outcome {
    /// All outcomes, in their fixed order.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Errored, Self::Censored];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Errored => "errored",
            Self::Censored => "censored",
        }
    }

    /// The outcome of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.name() == name)
    }
}

impl ErrorClass {
    /// The class of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

impl CensorKind {
    /// All kinds, in their fixed order.
    pub const ALL: [Self; 4] = [Self::Timeout, Self::RunEnd, Self::Idle, Self::FirstToken];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::RunEnd => "run_end",
            Self::Idle => "idle",
            Self::FirstToken => "first_token",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

impl FinishReason {
    /// The server's own word.
    pub fn name(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::Abort => "abort",
            Self::Other(name) => name,
        }
    }

    /// The reason of that word.
    pub fn from_name(name: impl Into<String> + AsRef<str>) -> Self {
        match name.as_ref() {
            "stop" => Self::Stop,
            "length" => Self::Length,
            "tool_calls" => Self::ToolCalls,
            "abort" => Self::Abort,
            _ => Self::Other(name.into()),
        }
    }
}
