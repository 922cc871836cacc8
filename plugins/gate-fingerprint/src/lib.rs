//! G5: all replicas ran on equal accelerators.
