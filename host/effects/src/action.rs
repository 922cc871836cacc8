//! What an effect does, and which effects are refused before they are ever on the timeline.

use blackstart_clock::RunNs;
use blackstart_targets::{Signal, TargetError};

use crate::http::HttpRequest;
use crate::operation::Operation;
use crate::timeline::Condition;
use crate::timeline::{MAX_EFFECT_NS, MAX_EFFECTS};

/// What an effect does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A signal to the process that has a role of a replica at that instant.
    Signal {
        /// The replica.
        replica: String,
        /// Its process role.
        role: String,
        /// The signal. `STOP` needs an end and is undone by `CONT`; no other signal can be undone.
        signal: Signal,
    },
    /// An HTTP request. Whether its URL is granted is decided by the caller.
    Http {
        /// The replica it harms, where it harms one.
        replica: Option<String>,
        /// Sent at the instant.
        request: HttpRequest,
        /// Sent at the end; an effect with an end needs one.
        on_expiry: Option<HttpRequest>,
    },
    /// An operation on a replica's surroundings.
    Operation {
        /// The replica.
        replica: String,
        /// The operation.
        operation: Operation,
    },
    /// Nothing is done: the effect starts when a condition holds.
    Watch {
        /// The replica.
        replica: String,
        /// The condition.
        condition: Condition,
        /// The wait fails at this instant.
        deadline: RunNs,
    },
}

/// Why an effect is not put on the timeline.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// No such replica or role.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The window is not one.
    #[error("effect window: {0}")]
    Window(String),
    /// The operation is not one, or cannot be done and undone here.
    #[error("{operation}: {reason}")]
    Operation {
        /// What was asked.
        operation: String,
        /// Why not.
        reason: String,
    },
    /// The request is not one that can be sent.
    #[error("effect request: {0}")]
    Request(String),
    /// Too many.
    #[error("at most {MAX_EFFECTS} effects fit on a run's timeline; schedule fewer")]
    TooMany,
    /// The timeline was cancelled or has ended.
    #[error("the timeline is closed: the run has ended or was interrupted")]
    Closed,
    /// Two effects of one kind on one thing at the same time: the end of one would end the other.
    #[error(
        "effect {other} is in force already during this window ({what}); let the windows follow \
         each other"
    )]
    Overlap {
        /// What both change.
        what: String,
        /// The earlier effect.
        other: u32,
    },
}

/// No instant of a run lies further from its epoch: 30 days.
const MAX_RUN_NS: i64 = 30 * 86_400 * blackstart_clock::NS_PER_S;

impl Action {
    /// What it is, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Signal {
                replica,
                role,
                signal,
            } => format!("signal {} to process {role} of {replica}", signal.name()),
            Self::Http { request, .. } => request.describe(),
            Self::Operation { replica, operation } => operation.describe(replica),
            Self::Watch {
                replica, condition, ..
            } => format!("wait until {replica} {}", condition.describe()),
        }
    }

    /// What undoing it is, for people.
    pub(crate) fn describe_undo(&self) -> String {
        match self {
            Self::Signal { replica, role, .. } => {
                format!("signal CONT to process {role} of {replica}")
            }
            Self::Http {
                on_expiry: Some(request),
                ..
            } => request.describe(),
            Self::Http { .. } | Self::Watch { .. } => "nothing".to_owned(),
            Self::Operation { replica, operation } => operation.describe_undo(replica),
        }
    }

    /// The thing whose state it changes until its end, where it has one.
    pub(crate) fn holds(&self) -> Option<String> {
        match self {
            Self::Signal {
                replica,
                role,
                signal: Signal::Stop,
            } => Some(format!(
                "process `{role}` of replica `{replica}` is stopped"
            )),
            Self::Operation { replica, operation } => Some(operation.holds(replica)),
            _ => None,
        }
    }

    /// The replica it harms.
    pub fn replica(&self) -> Option<&str> {
        match self {
            Self::Signal { replica, .. } | Self::Operation { replica, .. } => Some(replica),
            Self::Http { replica, .. } => replica.as_deref(),
            // Nobody is harmed by a wait.
            Self::Watch { .. } => None,
        }
    }

    /// Everything that can be checked without the target.
    pub(crate) fn check(&self, at: RunNs, until: Option<RunNs>) -> Result<(), ScheduleError> {
        let window = |text: String| Err(ScheduleError::Window(text));
        if at.checked_abs().is_none_or(|a| a > MAX_RUN_NS) {
            return window(format!(
                "{at} ns is not an instant of a run (more than 30 days from its epoch)"
            ));
        }
        if let Some(until) = until {
            if until <= at {
                return window(format!(
                    "its end {until} ns does not come after its begin {at} ns"
                ));
            }
            if until.checked_sub(at).is_none_or(|d| d > MAX_EFFECT_NS) {
                return window(format!(
                    "it is longer than the longest fault, {} s",
                    MAX_EFFECT_NS / blackstart_clock::NS_PER_S
                ));
            }
        }
        match (self, until) {
            (
                Self::Signal {
                    signal: Signal::Stop,
                    ..
                },
                None,
            ) => window(
                "a signal STOP needs an end (`until`), at which the process is continued"
                    .to_owned(),
            ),
            (Self::Signal { signal, .. }, Some(_)) if *signal != Signal::Stop => window(format!(
                "a signal {} cannot be undone; leave its end (`until`) out",
                signal.name()
            )),
            (Self::Signal { .. } | Self::Watch { .. }, _) => Ok(()),
            (Self::Operation { replica, operation }, until) => {
                let refuse = |reason: String| ScheduleError::Operation {
                    operation: operation.describe(replica),
                    reason,
                };
                operation.check().map_err(refuse)?;
                operation.check_end(until.is_some()).map_err(refuse)
            }
            (
                Self::Http {
                    request, on_expiry, ..
                },
                until,
            ) => {
                request.check().map_err(ScheduleError::Request)?;
                match (on_expiry, until) {
                    (None, None) => Ok(()),
                    (Some(undo), Some(_)) => undo.check().map_err(ScheduleError::Request),
                    (None, Some(_)) => window(
                        "a request with an end (`until`) needs the request that undoes it \
                         (`on-expiry`)"
                            .to_owned(),
                    ),
                    (Some(_), None) => window(
                        "a request with an undo (`on-expiry`) needs an end (`until`)".to_owned(),
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(signal: Signal) -> Action {
        Action::Signal {
            replica: "r0".to_owned(),
            role: "api".to_owned(),
            signal,
        }
    }

    fn http(url: &str, undo: Option<&str>) -> Action {
        Action::Http {
            replica: None,
            request: HttpRequest::post(url),
            on_expiry: undo.map(HttpRequest::post),
        }
    }

    #[test]
    fn windows_without_sense_are_refused_with_a_mend() {
        let url = "http://127.0.0.1:1/x";
        let far = i64::MAX;
        for (action, at, until, says) in [
            (signal(Signal::Stop), 0, None, "needs an end"),
            (signal(Signal::Kill), 0, Some(1), "cannot be undone"),
            (signal(Signal::Stop), 5, Some(5), "does not come after"),
            (signal(Signal::Stop), 0, Some(far), "longest fault"),
            (signal(Signal::Kill), far, None, "not an instant"),
            (signal(Signal::Kill), i64::MIN, None, "not an instant"),
            (http(url, None), 0, Some(1), "on-expiry"),
            (http(url, Some(url)), 0, None, "needs an end"),
            (http("https://h/", None), 0, None, "http://"),
            (http("http://u:p@h/", None), 0, None, "user"),
            (http("nonsense", None), 0, None, "nonsense"),
            (http(url, Some("ftp://x/")), 0, Some(1), "http://"),
        ] {
            let text = action.check(at, until).expect_err(says).to_string();
            assert!(text.contains(says), "{text:?} lacks {says:?}");
        }
        signal(Signal::Stop).check(-5, Some(5)).expect("a freeze");
        signal(Signal::Kill).check(0, None).expect("a kill");
        http(url, Some(url)).check(0, Some(9)).expect("a request");
    }
}
