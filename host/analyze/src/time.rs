//! Wall-clock texts.
