//! Runs with planted truth: a scenario and a seed give the records of a run, and what it must show.
//!
//! [`simulate`] drives a virtual service in virtual time and returns what a real run would have
//! recorded, as [`RunRecords`](blackstart_record::RunRecords) and server logs, beside the [`Truth`]:
//! what was planted, counted from the planted requests and never by an estimator of the analysis.
//! [`check`] analyses the records as those of a real run are analysed and compares; [`table`] sums up
//! thousands of checks.
//!
//! Invariants: the same scenario, settings and seed give the same records, byte for byte, on every
//! machine (only IEEE basic operations are used); nothing here reads a clock, a file or a socket; of
//! all modules only `check` knows the analysis.

mod check;
mod clock;
mod curve;
mod fate;
mod log;
mod observers;
mod planning;
mod planted;
mod random;
mod scenario;
mod service;
mod simulation;
pub mod table;
mod truth;

pub use check::{Mismatch, RunCheck, check, check_run};
pub use planning::{EPOCH_UNIX_NS, Settings, plan};
pub use scenario::{SCENARIOS, Scenario, scenario};
pub use simulation::{SimulateError, Simulated, simulate};
pub use truth::{
    BoundaryTruth, Counted, Expected, FlightTruth, OutcomeTruth, RecoveryTruth, SplitTruth, Truth,
};
