//! Reports for people and machines from finished analyses. Computes nothing.
