//! Embeds the bundled plugins.
fn main() {}
