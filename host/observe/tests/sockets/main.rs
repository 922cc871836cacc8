//! Observers against real sockets: small servers that behave as real ones do when they fail.

mod probes;
mod ready;
mod recorded;
mod scrapes;
mod support;
