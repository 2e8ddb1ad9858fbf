//! Append-only files: batches of records, each with a line that proves it whole.
//!
//! ```text
//! file  = [opening] batch… [room], see `opening.rs`
//! batch = ["#TS:" seconds CRLF] record… check
//! check = "#CRC32C:" 8 hexadecimal digits " LSN:" number " LEN:" number CRLF
//! room  = lines of "#", see `room.rs`
//! ```
//!
//! `LEN` counts the bytes of the batch before its check, `LSN` is the log's offset behind it, and the
//! checksum covers the batch and the rest of the check's line, from the blank before `LSN`. Redis 7 and
//! Valkey skip lines that begin with `#` between commands, so they read such a file. Batches that they
//! append have no checks, and are read all the same.
//!
//! A file may begin with a SELECT for its first records, which the log itself has earlier. Older versions put it, marked with
//! `#HEAD`, into the first batch of the file.
//!
//! docs/formats/aof.md has the whole scenario.

mod adoption;
mod base;
mod check;
mod follower;
mod foreign_change;
mod kept_files;
mod opening;
mod reader;
mod room;
mod writer;

pub use adoption::Adoption;
pub use base::BaseWriter;
pub use check::{Check, Checksum};
pub use follower::Follower;
pub use foreign_change::is_foreign_change;
pub use kept_files::KeptFiles;
pub use reader::{HEAD, Progress, ReadError, Reader};
pub use room::{Roomy, Tail};
pub use writer::{FinishedSync, Outgrown, PendingSync, Resume, Writer, WriterOptions};
