//! G2: the client kept its schedule.
