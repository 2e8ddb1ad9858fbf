//! RDB files: the data set of a moment, as Redis and Valkey write and read it.
//!
//! ```text
//! magic and version: 9 bytes, REDIS0010 or VALKEY080
//! FA name │ value                    auxiliary: the writer and the time
//! F5 code                            a library of functions
//! FE number                          keys of that database follow
//!   FB keys │ of these expiring      how many
//!   FD seconds: i32 LE │ FC milliseconds: i64 LE     the next key expires at that unix time
//!   F8 seconds │ F9 frequency: u8    the next key was last used so long ago, is used so often
//!   type │ key │ value
//! FF │ CRC64 of everything before: u64 LE, 0 for none (from version 5 on)
//! ```
//!
//! Names, values, codes and keys are strings, numbers without a type are lengths. [`Reader`] streams a file
//! of any size, [`Writer`] writes one; both sum as they go. docs/formats/rdb.md has all of it.

mod opcode;
mod reader;
mod summed;
mod writer;

pub use reader::{Head, Item, ReadError, ReadOptions, Reader};
pub use writer::Writer;
