//! The run clock: monotonic nanoseconds since the run epoch, sleep-then-spin, real-time priority.
