//! The API process: HTTP, admin, metrics, supervision of the engine.

pub mod admin;
pub mod app;
pub mod body;
pub mod fault;
pub mod http;
mod leave;
mod life;
pub mod link;
pub mod metrics;
pub mod openai;
pub mod server;
pub mod slot;
pub mod start;
pub mod state;
mod stats;
mod supervise;

pub use supervise::run;
