//! Criterion benchmarks of the hot paths; see README.md for how to run them.
