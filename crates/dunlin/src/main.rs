//! The `dunlin` binary: parses the subcommand, nothing else.

fn main() {}
