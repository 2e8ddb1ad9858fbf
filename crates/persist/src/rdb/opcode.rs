//! The bytes in the place of a type of value, and the fields behind them.

/// A template of hashes: id and names of fields (Redis 8.10).
pub(super) const HASH_TEMPLATE: u8 = 242;
/// Metadata of the next key (Redis 8.6).
pub(super) use dunlin_engine::rdb::KEY_METADATA;
/// State of a slot on its way to another node of a cluster (Valkey 9).
pub(super) const SLOT_IMPORT: u8 = 243;
/// How many keys a slot of a cluster has: three lengths. A hint (Redis 7.4).
pub(super) const SLOT_INFO: u8 = 244;
/// A library of functions: its code.
pub(super) const FUNCTION: u8 = 245;
/// Functions as release candidates of Redis 7.0 wrote them.
pub(super) const FUNCTION_PRE_GA: u8 = 246;
/// Data of a module that belongs to no key.
pub(super) const MODULE_AUX: u8 = 247;
/// Seconds since the next key was used: a length.
pub(super) const IDLE: u8 = 248;
/// How often the next key is used: a byte.
pub(super) const FREQUENCY: u8 = 249;
/// A name and a value.
pub(super) use dunlin_engine::rdb::AUXILIARY as AUX;
/// How many keys the database has: two lengths. A hint.
pub(super) const RESIZE: u8 = 251;
/// When the next key expires: milliseconds.
pub(super) use dunlin_engine::rdb::EXPIRY_MS;
/// When the next key expires: seconds, in 32 bits.
pub(super) const EXPIRY_S: u8 = 253;
/// The database of the keys that follow: a length.
pub(super) const SELECT: u8 = 254;
/// The end; the checksum follows.
pub(super) const END: u8 = 255;
