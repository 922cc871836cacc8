//! A mock OpenAI-compatible server that starts, queues, streams and fails as vLLM does; also the canary endpoint.
//!
//! Two real processes: the **API process** (HTTP, SSE, metrics, admin) and the
//! **engine process** (queue, token timing, the "GPU"), joined by a Unix socket.
//! Killing, freezing or orphaning either has the consequences it has with vLLM.
//! What differs between releases is data in [`release`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod api;
pub mod args;
pub mod boot;
pub mod engine;
pub mod ipc;
pub mod logline;
pub mod mono;
pub mod phases;
pub mod release;
pub mod truth;

pub use api::run;
pub use args::{EngineArgs, MockArgs};
pub use engine::run_engine;
