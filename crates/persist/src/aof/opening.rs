//! The beginning of an incremental file, which says where the log is in front of its first record.
//!
//! ```text
//! opening = ["#HEAD" CRLF select] check          a batch without records
//! ```
//!
//! Without it a file would not say so until it has a batch. If the server ends before, the log's offset, by which a
//! replica or a primary goes on in a stream of replication, would be unknown. The first file of a log that has no base
//! begins with its first batch: that log begins at offset 0.

use super::{
    check::{Check, Checksum},
    reader::HEAD,
};

/// The opening of a file whose records follow those before `lsn`, in front of which that database is selected.
pub(super) fn opening(lsn: u64, database: usize) -> Vec<u8> {
    let mut opening = Vec::new();
    if database != 0 {
        opening.extend_from_slice(HEAD);
        dunlin_engine::write_command(&mut opening, &[b"SELECT", database.to_string().as_bytes()]);
    }
    let mut sum = Checksum::default();
    sum.add(&opening);
    let check = Check { lsn, length: opening.len() as u64 };
    opening.extend(check.line(sum));
    opening
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aof::Reader;

    #[test]
    fn opening_is_frozen_and_says_where_the_log_is() {
        let text = |lsn, database| String::from_utf8(opening(lsn, database)).unwrap();
        assert_eq!(text(4711, 0), "#CRC32C:c45611aa LSN:4711 LEN:0\r\n");
        let selects = "#HEAD\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n#CRC32C:28c46bdf LSN:4711 LEN:30\r\n";
        assert_eq!(text(4711, 3), selects);
        for (database, select) in [(0, None), (3, Some([&b"SELECT"[..], b"3"]))] {
            let bytes = opening(4711, database);
            let mut reader = Reader::new(&bytes[..], 0).going_on_from(Some(4711));
            if let Some(select) = select {
                assert_eq!(reader.read_command().unwrap().unwrap(), select);
            }
            assert_eq!(reader.read_command().unwrap(), None);
            assert_eq!(reader.progress().log_end(None), Some(4711));
            assert!(Reader::new(&bytes[..], 0).has_no_record());
        }
    }
}
