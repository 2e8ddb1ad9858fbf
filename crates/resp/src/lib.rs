//! RESP2 and RESP3: incremental decoding of requests, encoding of replies.
//!
//! ```text
//! request   = multibulk | inline
//! multibulk = "*" count CRLF count × ("$" length CRLF bytes CRLF)
//! inline    = words separated by blanks, optionally quoted, up to LF
//! ```
//!
//! Requests are decoded in place: a [`Batch`] holds spans into the caller's buffer, so a pipeline
//! is decoded without copying a byte. Long arguments can be kept out of that buffer ([`RequestDecoder::detach`]). Replies are appended to a [`ReplyBuffer`], which can also
//! carry large payloads by reference.
//!
//! The crate does no I/O and knows no commands.

mod detached;
pub mod number;
mod reply;
mod request;
mod shared;
mod value;

pub use detached::Detached;
pub use reply::{Mark, Protocol, ReplyBuffer};
pub use request::{Batch, Decoded, Limits, ProtocolError, RequestDecoder, Span};
pub use shared::{ReplyChunk, SharedSlice};
pub use value::{ReplyLimits, Value, ValueDecoder, ValueError};
