//! Observers against real sockets: small servers that behave as real ones do when they fail.

#![allow(
    clippy::unwrap_used,
    reason = "clippy does not see that shared helpers are tests too"
)]

mod probes;
mod ready;
mod recorded;
mod scrapes;
mod support;
