//! Dumps: one value with the version of its format and a checksum, as DUMP answers and RESTORE takes it.
//!
//! ```text
//! type: u8 │ value │ version: u16 LE │ CRC64 of everything before: u64 LE
//! ```
//!
//! The version is the oldest that knows the type: Redis refuses dumps of versions newer than its own. A checksum of zero says that
//! it was left out, as Redis 8.10 does in its stream of replication.

use std::io;

use crc::{CRC_64_REDIS, Crc, Table};
use dunlin_resp::SharedSlice;

use crate::{
    keyspace::EntryRef,
    value::{Layout, LongText, shared_slices},
};

use super::{
    Compressor, Input, KEY_METADATA, Output, RdbError, Value, Version, dump_version_of, read_value,
    skip_key_metadata, type_of, write_value,
};

const VERSION_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 8;

/// The polynomial of Jones, reflected: that of Redis.
pub static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Why a dump was refused.
#[derive(Debug)]
pub enum DumpError {
    /// The payload is too short to be one, of an unknown version, or its checksum is wrong.
    Footer,
    /// Its value breaks a rule of the format.
    Value(RdbError),
}

impl From<RdbError> for DumpError {
    fn from(error: RdbError) -> Self {
        Self::Value(error)
    }
}

/// The value of an entry as a dump. O(n).
pub(crate) fn write_dump(entry: EntryRef<'_>, now_ms: u64, compressor: Option<&mut Compressor>) -> Vec<u8> {
    write_dump_in(dump_version_of(entry), entry, now_ms, compressor)
}

/// The value of an entry as a dump, in pieces: a string in chunks that is not compressed is shared, not copied. O(n), since
/// all of it is summed.
pub(crate) fn write_dump_in_pieces(
    entry: EntryRef<'_>,
    now_ms: u64,
    compressor: Option<&mut Compressor>,
) -> Vec<SharedSlice> {
    let Some(LongText::Rope(rope)) = entry.long_text() else {
        return vec![write_dump(entry, now_ms, compressor).into()];
    };
    let version = dump_version_of(entry);
    let mut head = vec![type_of(entry, version)];
    let mut output = Output::new(&mut head, compressor);
    let is_compressed = output.compressed_rope(&rope).expect("a vector takes everything");
    if is_compressed {
        seal_dump(&mut head, version);
        return vec![head.into()];
    }
    output.length(rope.len() as u64).expect("a vector takes everything");
    let mut sum = CRC64.digest();
    sum.update(&head);
    rope.slices(0..rope.len()).for_each(|slice| sum.update(slice));
    let mut tail = version.number().to_le_bytes().to_vec();
    sum.update(&tail);
    tail.extend_from_slice(&sum.finalize().to_le_bytes());
    let mut pieces = vec![head.into()];
    pieces.extend(shared_slices(&rope, 0..rope.len()));
    pieces.push(tail.into());
    pieces
}

/// The value of an entry as a dump of a version. O(n).
pub(crate) fn write_dump_in(
    version: Version,
    entry: EntryRef<'_>,
    now_ms: u64,
    compressor: Option<&mut Compressor>,
) -> Vec<u8> {
    let mut dump = vec![type_of(entry, version)];
    let mut output = Output::new(&mut dump, compressor);
    write_value(entry, version, now_ms, &mut output).expect("a vector takes everything");
    seal_dump(&mut dump, version);
    dump
}

/// Bytes that the value of an entry takes in a dump. O(n).
pub(crate) fn serialized_bytes(
    entry: EntryRef<'_>,
    now_ms: u64,
    compressor: Option<&mut Compressor>,
) -> usize {
    let mut output = Output::new(Count(0), compressor);
    write_value(entry, dump_version_of(entry), now_ms, &mut output).expect("counting does not fail");
    output.sink().0
}

/// Counts the bytes that are written.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a dump of a type and a value: puts version and checksum behind them.
pub fn seal_dump(dump: &mut Vec<u8>, version: Version) {
    dump.extend_from_slice(&version.number().to_le_bytes());
    let checksum = CRC64.checksum(dump);
    dump.extend_from_slice(&checksum.to_le_bytes());
}

/// Returns the value inside a dump, before version and checksum, which are right; if `relaxed`, also of a version that is
/// not known.
pub fn unseal_dump(dump: &[u8], relaxed: bool) -> Result<(&[u8], Version), DumpError> {
    let (summed, checksum) = dump.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DumpError::Footer)?;
    let (body, version) = summed.split_last_chunk::<VERSION_BYTES>().ok_or(DumpError::Footer)?;
    let version = Version::from_number(u16::from_le_bytes(*version), relaxed).ok_or(DumpError::Footer)?;
    let stated = u64::from_le_bytes(*checksum);
    if stated != 0 && stated != CRC64.checksum(summed) {
        return Err(DumpError::Footer);
    }
    Ok((body, version))
}

/// The value of a dump; if `relaxed`, also of a version that is not known. O(n).
pub(crate) fn read_dump(dump: &[u8], relaxed: bool, layout: Layout<'_>) -> Result<Value, DumpError> {
    let (body, version) = unseal_dump(dump, relaxed)?;
    let mut input = Input::new(body);
    let type_number = match input.byte()? {
        KEY_METADATA if matches!(version, Version::Redis(_)) => {
            skip_key_metadata(&mut input)?;
            input.byte()?
        }
        type_number => type_number,
    };
    let value = read_value(type_number, version, &mut input, layout)?;
    if !input.is_at_end()? {
        return Err(RdbError::Corrupt("there are bytes behind the value").into());
    }
    Ok(value)
}
