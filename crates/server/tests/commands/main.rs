//! The server's own commands over real sockets: exact bytes.

mod blocking;
mod configuration;
mod debug;
mod harness;
mod memory;
mod offload;
mod shutdown;
