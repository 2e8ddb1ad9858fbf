//! The calls of a server to the disk, as `record.c` records them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a call's head: `struct call` in `record.c`.
const HEAD_BYTES: usize = 32;

/// A call that changed something, or a sync as it began or ended.
#[derive(Debug)]
pub struct Call {
    /// When it had been done, in nanoseconds of the system's monotonic clock.
    pub at_ns: u64,
    pub what: What,
}

/// A call. Files and directories go by their inodes, which may be used again for a file that is created.
#[derive(Debug)]
pub enum What {
    Create { path: PathBuf, inode: u64 },
    Write { inode: u64, offset: usize, bytes: Vec<u8> },
    Cut { inode: u64, length: usize },
    BeginSync { inode: u64, number: u64 },
    EndSync { inode: u64, number: u64 },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
    MakeDirectory { path: PathBuf, inode: u64 },
}

/// Reads a record. The process may have been killed in the middle of a call that it was about to record.
pub fn read(mut record: &[u8]) -> Result<Vec<Call>, String> {
    let mut calls = Vec::new();
    while let Some((head, rest)) = record.split_at_checked(HEAD_BYTES) {
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (at_ns, inode, offset) = (long(0), long(8), long(16));
        let (kind, length) = (long(24) as u32, (long(24) >> 32) as usize);
        let Some((bytes, rest)) = rest.split_at_checked(length) else { break };
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let what = match kind {
            1 => What::Create { path: path(bytes), inode },
            2 => What::Write { inode, offset: offset as usize, bytes: bytes.to_vec() },
            3 => What::Cut { inode, length: offset as usize },
            4 => What::BeginSync { inode, number: offset },
            5 => What::EndSync { inode, number: offset },
            6 => {
                let middle = bytes.iter().position(|byte| *byte == 0).ok_or("a rename of one path")?;
                What::Rename { from: path(&bytes[..middle]), to: path(&bytes[middle + 1..]) }
            }
            7 => What::Remove { path: path(bytes) },
            8 => What::MakeDirectory { path: path(bytes), inode },
            other => return Err(format!("call {}: there is no kind {other}", calls.len())),
        };
        calls.push(Call { at_ns, what });
        record = rest;
    }
    Ok(calls)
}

impl What {
    /// For people.
    pub fn show(&self) -> String {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self {
            Self::Create { path, inode } => format!("create {} ({inode})", name(path)),
            Self::Write { inode, offset, bytes } => format!("write {} at {offset} of {inode}", bytes.len()),
            Self::Cut { inode, length } => format!("cut {inode} to {length}"),
            Self::BeginSync { inode, number } => format!("begin sync {number} of {inode}"),
            Self::EndSync { inode, number } => format!("end sync {number} of {inode}"),
            Self::Rename { from, to } => format!("rename {} to {}", name(from), name(to)),
            Self::Remove { path } => format!("remove {}", name(path)),
            Self::MakeDirectory { path, inode } => format!("make directory {} ({inode})", name(path)),
        }
    }
}
