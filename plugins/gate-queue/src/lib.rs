//! G7: no replica was saturated before the fault.
