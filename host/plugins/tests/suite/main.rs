//! The plugin host against guests, good ones and hostile ones.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod bundle;
mod cached;
mod compatibility;
mod fault;
mod gate;
mod hostile;
mod matcher;
mod refusals;
mod registry;
