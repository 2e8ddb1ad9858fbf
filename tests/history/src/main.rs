//! History checker (being written).
fn main() {}
