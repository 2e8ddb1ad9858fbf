//! The `dunlin` binary: parses the subcommand, nothing else.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "server" => dunlin_server::server::main(words),
        _ => ExitCode::FAILURE,
    }
}
