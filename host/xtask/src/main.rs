//! Build tasks: plugins, demo, test.
fn main() {}
