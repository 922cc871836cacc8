//! What was planted for one request: the truth that its record tells.

use blackstart_record::ErrorClass;

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Answered in full.
    Served,
    /// Failed in a way that the client sees.
    Failed(ErrorClass),
    /// Not answered by the client's timeout.
    Unanswered,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fate {
    pub(crate) intended_ns: i64,
    /// When it was written; a refused connection never gets that far.
    pub(crate) dispatched_ns: Option<i64>,
    pub(crate) head_ns: Option<i64>,
    pub(crate) first_ns: Option<i64>,
    pub(crate) ended_ns: i64,
    pub(crate) end: End,
    pub(crate) content_events: u32,
    /// The replica that answered, as far as the client can know.
    pub(crate) replica: Option<u32>,
}

impl Fate {
    /// Whether it was answered in full within both times.
    pub(crate) fn good(&self, ttft_ns: i64, e2e_ns: i64) -> bool {
        self.end == End::Served
            && self
                .first_ns
                .is_some_and(|first| first - self.intended_ns <= ttft_ns)
            && self.ended_ns - self.intended_ns <= e2e_ns
    }

    /// Whether it was lost.
    pub(crate) fn lost(&self) -> bool {
        self.end != End::Served
    }
}
