//! Values in the format of RDB files and of DUMP: byte for byte as Redis and Valkey write and read them.
//!
//! ```text
//! file     … type │ key │ value …                    (crates/persist reads and writes files)
//! dump     type │ value │ version: u16 LE │ CRC64 of all before: u64 LE
//! value    by its type: strings, counts, numbers     (value/TYPE/stored.rs)
//! string   length, bytes │ integer │ LZF             ([`Input`], [`Output`])
//! ```
//!
//! Input is never trusted. Every length is checked against the bytes that are there before it is believed, packed forms
//! are validated through and through, and an element that must be unique is one. Input that breaks a rule is refused
//! with the rule. Forms older than today's packed ones (ziplist, zipmap) are translated.
//!
//! The output has the oldest form that carries the value, so that servers from Redis 7.0 on can read it; or that of a
//! version that was asked for ([`Version::writable`]).
//!
//! Sources: Redis 7.0–7.4 and Valkey 9 `rdb.c`, `cluster.c` (DUMP), `ziplist.c`, `zipmap.c`;
//! docs/formats/rdb.md draws all of it.

mod dump;
mod input;
mod lzf;
mod module;
mod output;
mod string;
mod unique;
mod value;
mod version;
pub(crate) mod ziplist;
pub(crate) mod zipmap;

pub use dump::{CRC64, DumpError, seal_dump, unseal_dump};
pub(crate) use dump::{read_dump, serialized_bytes, write_dump_in, write_dump_in_pieces};
pub use input::{Input, RdbError};
pub use lzf::Compressor;
pub(crate) use module::{Item, ItemReader, ItemWriter, skip_items};
pub use module::{KEY_METADATA, ModuleAux, ModuleName, read_module_aux, skip_key_metadata};
pub use output::Output;
pub(crate) use output::{LongString, Text, length_bytes};
pub(crate) use unique::all_differ;
pub use value::{
    AUXILIARY, EXPIRY_MS, PRODUCERS_FIELD, RELEASED_FIELD, Value, is_stream_field, read_value,
    read_value_of_file, type_of, unfit, version_of, write_value,
};
pub(crate) use value::{
    dump_version_of, is_written_in_elements, read_listpack, types, whole_version_of, write_elements,
    write_key,
};
pub use version::Version;

pub use crate::value::HashTemplates;
