//! The load path: pacing, connections, SSE decoder, outcomes, client self-observation.
//!
//! A load is an open loop: the schedule is fixed before the epoch and nothing that the server does
//! moves it. (A closed loop is there for capacity measurements: [`Pacing`].) [`start`] spawns load threads that
//! send their requests, each at its time, and read their streams (each with an event loop, an alarm
//! clock and connections of its own), and one writer thread that owns the disk. Every request of the schedule gets exactly one outcome
//! ([`outcome`] has the rules), latencies count from the intended time, nothing is ever retried.

mod address;
mod alarm;
mod canary;
mod connection;
mod conversation;
pub mod delta;
mod driver;
mod error;
mod exchange;
pub mod gaps;
mod heartbeat;
pub mod http1;
mod limits;
pub mod outcome;
mod pacing;
mod pool;
mod progress;
mod prompt;
pub mod receive;
mod request;
mod secret;
mod shared;
pub mod sse;
mod text;
mod worker;
mod writer;

pub use address::check_url;
pub use canary::{CanaryTarget, MAX_CANARY_TOKENS};
pub use driver::{
    CONNECTION_FLOOR, LoadHandle, LoadRun, LoadSummary, MAX_THREADS, MAX_TIMEOUT_NS, start,
};
pub use error::LoadError;
pub use limits::{check_files, provide_basic_files};
pub use pacing::{ClosedLoop, MAX_CONCURRENCY, OpenLoop, Pacing};
pub use progress::Progress;
pub use prompt::{
    DataSet, MAX_DATA_SET_BYTES, MAX_DATA_SET_LINES, MAX_PROMPT_BYTES, MAX_PROMPT_WORDS, Prompts,
    UNIQUE_WORDS,
};
pub use secret::Secret;
