//! Switches a failure mode of the mock server on and off.
