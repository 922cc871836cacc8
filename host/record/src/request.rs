//! One record per scheduled request.

use serde::{Deserialize, Serialize};

/// Everything the client saw of one request. Its outcome is exactly one of three.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Place in the schedule, from 0.
    pub index: u64,
    /// Planned send time. Latencies count from here.
    pub intended_ns: i64,
    /// When the concurrency cap admitted it or the earlier turns of its conversation had ended, if it
    /// had to wait for that; `None` = at its intended time. The wait counts in its latencies, and is no skew of the client.
    pub admitted_ns: Option<i64>,
    /// Start of the connect that this request waited for beyond its intended time; `None` = it had
    /// its connection in time.
    pub connect_started_ns: Option<i64>,
    /// First byte of the request written to the socket; `None` = never dispatched.
    pub dispatched_ns: Option<i64>,
    /// Response head received.
    pub headers_ns: Option<i64>,
    /// First SSE event of any kind.
    pub first_event_ns: Option<i64>,
    /// First event that carries generated content (text, reasoning or a tool call): TTFT ends here.
    pub first_token_ns: Option<i64>,
    /// Last event that carried generated content.
    pub last_token_ns: Option<i64>,
    /// Terminal event (completed or errored), or the instant of censoring.
    pub ended_ns: i64,
    /// The outcome.
    pub outcome: Outcome,
    /// Class, when errored.
    pub error_class: Option<ErrorClass>,
    /// Kind, when censored.
    pub censor_kind: Option<CensorKind>,
    /// HTTP status, when a response head arrived.
    pub http_status: Option<u16>,
    /// `code` of an error object inside the stream or the body.
    pub error_code: Option<i64>,
    /// Short text of the error (bounded, control characters escaped, no secrets).
    pub error_text: Option<String>,
    /// Finish reason that the server gave.
    pub finish_reason: Option<FinishReason>,
    /// Whether `[DONE]` was seen.
    pub done_marker: bool,
    /// SSE events that carried generated content.
    pub content_events: u32,
    /// `usage.completion_tokens`, the server's own count.
    pub completion_tokens: Option<u32>,
    /// `usage.prompt_tokens`, the server's own count.
    pub prompt_tokens: Option<u32>,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Reads of the socket that delivered more than one content event: their gaps are coalesced.
    pub coalesced_reads: u32,
    /// Largest gap between content events.
    pub gap_max_ns: Option<i64>,
    /// Whether the request went out on a connection that had served another before.
    pub connection_reused: bool,
    /// Replica that served it, from the response header that the plan names.
    pub replica: Option<String>,
    /// The kernel's stamp of the read that delivered `first_token_ns`: when the last segment of which
    /// that read brought bytes had been received. Like every kernel stamp absent where the kernel gave
    /// none, or one that cannot be true.
    pub first_token_kernel_ns: Option<i64>,
    /// The kernel's stamp of the read that delivered the terminal event; absent too where no read did
    /// (the end of a connection, a censored request).
    pub ended_kernel_ns: Option<i64>,
    /// Of all reads since the request was sent, the longest time between the kernel's stamp and this
    /// client's: how long bytes that had arrived waited to be read.
    pub read_lag_max_ns: Option<i64>,
    /// The conversation that it belongs to, from 0 in the order in which they begin; `None` = none.
    pub conversation: Option<u32>,
    /// Which turn of it, from 0.
    pub turn: Option<u32>,
}

impl RequestRecord {
    /// Send skew: how late the client was ready to write, from the intended time or from the
    /// admission under a concurrency cap. That is its write, or where it waited for a connection the
    /// start of the connect: the time that a server takes to accept is the server's. `None` if it
    /// came to neither.
    pub fn send_skew_ns(&self) -> Option<i64> {
        let due_ns = self.admitted_ns.unwrap_or(self.intended_ns);
        self.connect_started_ns
            // A connect may start within the lead: nothing was late then.
            .map(|t| t.max(due_ns))
            .or(self.dispatched_ns)
            .map(|t| t - due_ns)
    }

    /// Time to first token from the intended send time.
    pub fn ttft_ns(&self) -> Option<i64> {
        self.first_token_ns.map(|t| t - self.intended_ns)
    }

    /// Time from the intended send time to the terminal event or the censoring.
    pub fn observed_ns(&self) -> i64 {
        self.ended_ns - self.intended_ns
    }
}

/// Exactly one of three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The terminal marker was seen and nothing contradicts success.
    Completed,
    /// An explicit failure.
    Errored,
    /// No terminal event by the client timeout or the end of the run.
    Censored,
}

/// Class of an explicit failure. Names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Refused, unreachable, no such host.
    Connect,
    /// TLS handshake or certificate.
    Tls,
    /// Connection reset.
    Reset,
    /// HTTP status of 400 or above.
    HttpStatus,
    /// Status 200 that is no event stream.
    NotSse,
    /// Ended without any content or error event.
    Empty,
    /// Ended before the terminal marker and without a finish reason.
    Truncated,
    /// An event that is not valid JSON, an over-long event, or a broken chunk.
    MalformedStream,
    /// An error object inside the stream (or inside a 200 body).
    InStreamError,
    /// Finish reason `abort`.
    Aborted,
    /// Ended in good order with fewer tokens than `ignore_eos` with `max_tokens` guarantees.
    ShortCompletion,
    /// Scheduled but never dispatched: a failure of the instrument, not of the server.
    Undispatched,
}

impl ErrorClass {
    /// All classes, in their fixed order.
    pub const ALL: [Self; 12] = [
        Self::Connect,
        Self::Tls,
        Self::Reset,
        Self::HttpStatus,
        Self::NotSse,
        Self::Empty,
        Self::Truncated,
        Self::MalformedStream,
        Self::InStreamError,
        Self::Aborted,
        Self::ShortCompletion,
        Self::Undispatched,
    ];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::HttpStatus => "http_status",
            Self::NotSse => "not_sse",
            Self::Empty => "empty",
            Self::Truncated => "truncated",
            Self::MalformedStream => "malformed_stream",
            Self::InStreamError => "in_stream_error",
            Self::Aborted => "aborted",
            Self::ShortCompletion => "short_completion",
            Self::Undispatched => "undispatched",
        }
    }
}

/// Why an observation ended without a terminal event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CensorKind {
    /// The client timeout, counted from the intended send time, passed.
    Timeout,
    /// The run ended (interrupt or the drain's bound).
    RunEnd,
    /// No byte came for the idle timeout.
    Idle,
    /// No content came within the first-token timeout, counted from the intended send time.
    FirstToken,
}

/// Finish reason that the server gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A natural end or a stop sequence.
    Stop,
    /// The token limit.
    Length,
    /// Tool calls.
    ToolCalls,
    /// The server gave up the request.
    Abort,
    /// Any other reason, bounded in length.
    Other(String),
}

#[cfg(test)]
mod tests {
    use crate::testing::record;

    #[test]
    fn the_wait_for_admission_is_no_skew_of_the_client() {
        let mut r = record(1);
        r.connect_started_ns = None;
        r.admitted_ns = Some(r.intended_ns + 3_000_000_000);
        r.dispatched_ns = r.admitted_ns.map(|t| t + 40_000);
        assert_eq!(r.send_skew_ns(), Some(40_000));
        r.connect_started_ns = Some(r.intended_ns);
        assert_eq!(r.send_skew_ns(), Some(0));
    }

    #[test]
    fn a_slow_connect_is_no_skew_of_the_client() {
        let mut r = record(1);
        let at = |us: i64| Some(r.intended_ns + us * 1000);
        let (early, late, written) = (at(-100), at(300), at(90_000));
        r.admitted_ns = None;
        r.dispatched_ns = written;
        r.connect_started_ns = None;
        assert_eq!(r.send_skew_ns(), Some(90_000_000), "its own delay");
        r.connect_started_ns = late;
        assert_eq!(
            r.send_skew_ns(),
            Some(300_000),
            "late to connect by so much"
        );
        r.connect_started_ns = early;
        assert_eq!(r.send_skew_ns(), Some(0), "within the lead");
        r.dispatched_ns = None;
        assert_eq!(
            r.send_skew_ns(),
            Some(0),
            "never accepted, but tried in time"
        );
        r.connect_started_ns = None;
        assert_eq!(r.send_skew_ns(), None);
    }
}
