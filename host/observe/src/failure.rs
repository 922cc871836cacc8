//! Why a request of an observer failed. The first word of each text is the error class that the
//! load uses for the same thing, so that probes and requests can be read side by side.

use std::error::Error;
use std::fmt;
use std::io;

/// Longest excerpt of a server's text in a reason, in characters.
pub(crate) const MAX_EXCERPT_CHARS: usize = 240;

/// How far a request had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The connection was not established.
    Connecting,
    /// The request was on its way; no response head had come.
    Waiting,
    /// A response head had come, but no token.
    Streaming,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection.
    Connect {
        /// Whether the host said that nothing listens.
        refused: bool,
        /// The system's words.
        text: String,
    },
    /// The TLS handshake failed; what that means.
    Tls(String),
    /// The connection was reset or lost; the system's words.
    Reset(String),
    /// A status of 400 or more, or one that is no answer (a redirect).
    Status {
        /// The status.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// A 200 whose body is neither an event stream nor a completion.
    NotInference {
        /// Its content type, or why it cannot be read.
        what: String,
        /// How it begins.
        excerpt: String,
    },
    /// An error object inside a 200.
    InAnswer(String),
    /// A well-formed answer without a token.
    NoToken(String),
    /// The server gave up the request (finish reason `abort`).
    Aborted,
    /// The connection ended before a token or the end of the answer.
    Truncated(Stage),
    /// Something that is not HTTP, or an event that is not JSON.
    Malformed(String),
    /// No token by the timeout.
    Timeout {
        /// How far it had come.
        stage: Stage,
        /// The timeout.
        timeout_ms: u64,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { refused: true, .. } => f.write_str("connect: refused"),
            Self::Connect { text, .. } => write!(f, "connect: {text}"),
            Self::Tls(text) => write!(f, "tls: {text}"),
            Self::Reset(text) => write!(f, "reset: {text}"),
            Self::Status { code, message } if message.is_empty() => {
                write!(f, "http_status {code}")
            }
            Self::Status { code, message } => write!(f, "http_status {code}: {message}"),
            Self::NotInference { what, excerpt } => {
                write!(f, "not_sse: status 200 with {what}, beginning {excerpt:?}")
            }
            Self::InAnswer(message) => write!(f, "in_stream_error: {message}"),
            Self::NoToken(what) => write!(f, "empty: {what}"),
            Self::Aborted => f.write_str("aborted: finish reason `abort` without a token"),
            Self::Truncated(Stage::Connecting | Stage::Waiting) => {
                f.write_str("empty: the connection was closed before an answer")
            }
            Self::Truncated(Stage::Streaming) => {
                f.write_str("truncated: the answer ended before a token")
            }
            Self::Malformed(what) => write!(f, "malformed_stream: {what}"),
            Self::Timeout { stage, timeout_ms } => {
                let what = match stage {
                    Stage::Connecting => "no connection",
                    Stage::Waiting => "connected, no response head",
                    Stage::Streaming => "accepted, no token",
                };
                write!(f, "timeout: {what} within {timeout_ms} ms")
            }
        }
    }
}

impl Failure {
    /// From a connection attempt.
    pub(crate) fn from_connect(error: &io::Error) -> Self {
        Self::Connect {
            refused: error.kind() == io::ErrorKind::ConnectionRefused,
            text: excerpt(&error.to_string()),
        }
    }

    /// From the HTTP connection, at that stage.
    pub(crate) fn from_hyper(error: &hyper::Error, stage: Stage) -> Self {
        let mut source: Option<&(dyn Error + 'static)> = error.source();
        while let Some(inner) = source {
            if let Some(io) = inner.downcast_ref::<io::Error>() {
                return match io.kind() {
                    io::ErrorKind::UnexpectedEof => Self::Truncated(stage),
                    // hyper's own, for a chunk header or the like that is not HTTP.
                    io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                        Self::Malformed(excerpt(&io.to_string()))
                    }
                    _ => Self::Reset(excerpt(&io.to_string())),
                };
            }
            source = inner.source();
        }
        if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            return Self::Truncated(stage);
        }
        Self::Malformed(excerpt(&error.to_string()))
    }
}

/// A bounded, printable piece of a text that a server sent.
pub(crate) fn excerpt(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.trim().chars();
    for c in chars.by_ref().take(MAX_EXCERPT_CHARS) {
        out.push(if c.is_control() { ' ' } else { c });
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_bounded_and_printable() {
        let long = "é\u{1b}[31m\n".repeat(1000);
        let short = excerpt(&long);
        assert_eq!(short.chars().count(), MAX_EXCERPT_CHARS + 1);
        assert!(!short.chars().any(char::is_control));
        assert_eq!(excerpt(" two\nlines "), "two lines");
    }
}
