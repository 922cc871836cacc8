//! blackstart: measures how LLM serving survives.
fn main() {}
