//! JSON documents: a packed form, its parser and writer, paths of both dialects of RedisJSON, edits, and the binary forms
//! in which other servers keep documents.
//!
//! ```text
//! text ──parse──▶ Builder ──▶ Document ◀── operations ◀── Path ◀── compile
//!                    ▲           │
//!   forms of files ──┘           └──▶ ValueRef ──▶ Writer ──▶ text
//! ```
//!
//! Look first at `packed/mod.rs` (a value in one block) and `tree/mod.rs` (many blocks).
//!
//! Invariants:
//! - No I/O, no threads, no clocks, no keyspace; hostile input is bounded: nothing recurses by the depth of a document or
//!   path, no announced length sizes an allocation, no path costs more than [`Budget`](path::Budget) allows.
//! - A clone of a document is a snapshot: it shares all blocks, and an edit of either copies what it touches.

mod builder;
mod document;
pub mod forms;
pub mod operations;
mod packed;
mod parse;
pub mod path;
#[cfg(test)]
mod tests;
mod tree;
mod typed;
mod value;
mod write;

pub use builder::Builder;
pub use document::{Document, Location};
pub use parse::{DEPTH_MAX, ParseError, Parser, Problem, parse};
pub use tree::{BLOCK_BYTES_MAX, set_name_seed};
pub use value::{Items, Kind, Number, ValueRef, block_bytes};
pub use write::{Layout, Writer, write_double, write_string, write_text};
