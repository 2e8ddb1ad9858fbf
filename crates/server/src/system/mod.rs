//! The operating system and its machine: processor and memory, priorities of threads, the allocator.

pub mod allocator;
pub(crate) mod arguments;
pub(crate) mod host;
pub mod machine;
pub(crate) mod removal;
pub(crate) mod sockets;
pub(crate) mod utc;
