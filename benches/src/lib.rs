//! Criterion benchmarks of the hot paths, and what whole loads are measured against; see README.md for
//! how to run them.

pub mod epoll;
pub mod stream;
