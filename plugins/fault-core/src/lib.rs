//! What the bundled fault variants do to whom and when, and what proves each.
//!
//! One module a variant; a plugin of that name is a crate beside this one that registers it and
//! holds nothing else. Most variants do one thing to each victim at the fire ([`OneEffect`]); the
//! others are chains, of which each link waits until the one before has come back.
//!
//! `docs/faults.md` is made from the same modules: a variant is its code, its [`About`] and the
//! JSON Schema of its configuration.

mod about;
mod bounds;
mod on_each;
mod plan;
mod proof;
mod sequence;
mod signal;
#[cfg(test)]
mod tests;

pub mod black_hole;
pub mod cascade;
pub mod cgroup_freeze;
pub mod connection_reset;
pub mod container_kill;
pub mod container_pause;
pub mod container_recreate;
pub mod container_restart;
pub mod container_stop;
pub mod cpu_throttle;
pub mod disk_full;
pub mod flapping;
pub mod graceful_stop;
pub mod memory_limit;
pub mod mock_fault;
pub mod network_bandwidth;
pub mod network_delay;
pub mod network_disconnect;
pub mod network_loss;
pub mod process_freeze;
pub mod process_kill;
pub mod rolling_restart;
pub mod slow_weights;

pub use about::{About, Documented};
pub use on_each::{OnEach, OneEffect};
pub use signal::Deadly;
