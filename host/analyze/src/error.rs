//! Why records cannot be analysed at all.

/// Why a run cannot be analysed. Missing evidence is never an error: it becomes an absent figure
/// with a reason. An error means that the input is not what a run can have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnalyzeError {
    /// A time that no run can have.
    #[error(
        "{what} is {value} ns, more than {limit} ns from the epoch: the record file is damaged, or belongs to another run"
    )]
    TimeOutOfRange {
        /// Which time.
        what: String,
        /// Its value.
        value: i64,
        /// The bound.
        limit: i64,
    },
    /// A parameter of the plan with which the method is not defined.
    #[error("plan: {what}; correct plan.json or plan the campaign again")]
    Plan {
        /// What is wrong.
        what: String,
    },
}
