//! What survives the process: files of the data set.
//!
//! Nothing here starts a thread or opens a socket, and nothing knows of clients. How values look in a file
//! is [`dunlin_engine::rdb`]'s business; this crate knows files.

pub mod rdb;
mod replace;

pub use replace::replace_file;
