//! G1: each replica got its share of the load.
