//! The server's own commands over real sockets: exact bytes.

mod apart;
mod blocking;
mod configuration;
mod debug;
mod harness;
mod memory;
mod shutdown;
