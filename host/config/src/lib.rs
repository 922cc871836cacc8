//! The campaign file: TOML with spans, checked, turned into a plan.
