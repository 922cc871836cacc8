//! Small-sample statistics.
