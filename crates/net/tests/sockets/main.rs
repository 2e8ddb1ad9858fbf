//! The I/O layer over real sockets, with a tiny service on top: exact bytes, order and limits.

mod harness;
mod lifecycle;
mod limits;
mod lines;
mod messages;
mod pipelines;
mod tls;
