//! Reading a log's records again while it is being written: for a replica that lacks more than memory has.
//!
//! ```text
//! incr 3 ─ incr 4 ─ incr 5 ◀── the writer
//!      ▲ from                 ▲ the reader has come so far: what follows is in the ring
//! ```
//!
//! Invariant: a byte is shown only when the check of its batch has proved it, so a batch that is being written is not
//! read in halves.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Seek, SeekFrom},
    path::Path,
};

use super::reader::{ReadError, Reader};
use crate::manifest::Manifest;

/// Reads records from a place of the log on.
#[derive(Debug)]
pub struct Follower {
    file: File,
    reader: Reader<File>,
    /// The log's offset where the reader began.
    begins_at: u64,
    /// The files behind the one that is read, oldest first.
    behind: VecDeque<File>,
    /// The sequence number of the newest file.
    newest: u64,
    /// Bytes that have been read and not been proved.
    batch: Vec<u8>,
    batches: u64,
    /// The log's offset behind what has been shown.
    at: u64,
}

impl Follower {
    /// Opens the files of a manifest at an offset of the log; `None` if they do not go back that far, or have no
    /// checks. Takes as long as reading what is before the offset in its file.
    pub fn open(directory: &Path, manifest: &Manifest, at: u64) -> io::Result<Option<Self>> {
        let mut behind = VecDeque::new();
        let newest = manifest.increments.iter().map(|file| file.sequence).max().unwrap_or(0);
        for increment in manifest.retained.iter().chain(&manifest.increments).rev() {
            let file = File::open(directory.join(&increment.name))?;
            match first_offset(&file)? {
                Some(begins_at) if begins_at <= at => {
                    let reader = reader(&file, 0, begins_at)?;
                    let (batch, batches) = (Vec::new(), 0);
                    return Ok(Some(Self { file, reader, begins_at, behind, newest, batch, batches, at }));
                }
                _ => behind.push_front(file),
            }
        }
        Ok(None)
    }

    /// Goes on to the files of a newer manifest if the writer has begun new ones: without, it would wait at the end of
    /// the last one that it knows.
    pub fn learn(&mut self, directory: &Path, manifest: &Manifest) -> io::Result<()> {
        for file in manifest.retained.iter().chain(&manifest.increments) {
            if file.sequence > self.newest {
                self.behind.push_back(File::open(directory.join(&file.name))?);
                self.newest = file.sequence;
            }
        }
        Ok(())
    }

    /// The log's offset behind what has been shown.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Shows the next batch; `false` if there is none yet. After an error, nothing more can be read.
    pub fn show_batch(&mut self, mut show: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<bool> {
        loop {
            let read = self
                .reader
                .read_record()
                .map(|record| record.map(|record| self.batch.extend_from_slice(record)));
            let progress = self.reader.progress();
            // A record behind a check may have come with it.
            let unproven = progress.unproven_record_bytes as usize;
            if progress.batches > self.batches && self.batch.len() >= unproven {
                self.batches = progress.batches;
                let rest = self.batch.split_off(self.batch.len() - unproven);
                let proven = std::mem::replace(&mut self.batch, rest);
                let start = progress.lsn - proven.len() as u64;
                let known = self.at.saturating_sub(start).min(proven.len() as u64);
                self.at = self.at.max(progress.lsn);
                if known < proven.len() as u64 {
                    show(&proven[known as usize..])?;
                    return Ok(true);
                }
                continue;
            }
            match read {
                Ok(Some(())) => {}
                Err(ReadError::Io(error)) => return Err(error),
                Ok(None) if unproven == 0 && !self.behind.is_empty() => {
                    let begins_at =
                        progress.log_end(Some(self.begins_at)).expect("it was known in front of the file");
                    self.file = self.behind.pop_front().expect("there is one");
                    self.begin(0, begins_at)?;
                }
                Ok(None) | Err(_) if self.behind.is_empty() => {
                    // The rest is being written.
                    let proven = self.reader.proven();
                    let begins_at = if proven.batches > 0 { proven.lsn } else { self.begins_at };
                    self.begin(proven.offset, begins_at)?;
                    return Ok(false);
                }
                Ok(None) => return Err(io::Error::other("a file of the log does not end with a check")),
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
    }

    fn begin(&mut self, offset: u64, begins_at: u64) -> io::Result<()> {
        self.reader = reader(&self.file, offset, begins_at)?;
        (self.begins_at, self.batches) = (begins_at, 0);
        self.batch.clear();
        Ok(())
    }
}

fn reader(mut file: &File, offset: u64, begins_at: u64) -> io::Result<Reader<File>> {
    file.seek(SeekFrom::Start(offset))?;
    Ok(Reader::new(file.try_clone()?, offset).going_on_from(Some(begins_at)))
}

/// The log's offset in front of a file's first record; `None` if no check says so.
fn first_offset(mut file: &File) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(0))?;
    let (mut reader, mut bytes) = (Reader::new(file.try_clone()?, 0), 0);
    loop {
        let record = match reader.read_record() {
            Ok(record) => record.map(<[u8]>::len),
            Err(ReadError::Io(error)) => return Err(error),
            Err(_) => None,
        };
        let progress = reader.progress();
        if progress.batches > 0 {
            return Ok(progress.lsn.checked_sub(bytes));
        }
        let Some(length) = record else { return Ok(None) };
        bytes += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{
        aof::{Check, Checksum, HEAD},
        manifest::LogFile,
    };

    fn record(word: &str) -> Vec<u8> {
        let mut out = Vec::new();
        dunlin_engine::write_command(&mut out, &[b"DEL", word.as_bytes()]);
        out
    }

    fn batch(lsn: &mut u64, words: &[&str]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| record(word)).collect();
        *lsn += bytes.len() as u64;
        let mut sum = Checksum::default();
        sum.add(&bytes);
        bytes.extend(Check { lsn: *lsn, length: bytes.len() as u64 }.line(sum));
        bytes
    }

    fn all(follower: &mut Follower) -> Vec<u8> {
        let mut shown = Vec::new();
        while follower
            .show_batch(|bytes| {
                shown.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap()
        {}
        shown
    }

    #[test]
    fn follower_shows_records_from_any_offset_and_goes_on() {
        let directory = std::env::temp_dir().join(format!("dunlin-follower-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (mut lsn, mut manifest) = (700, Manifest::default());
        let names = ["a", "b", "c"];
        let mut stream = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let mut bytes = Vec::new();
            if index == 1 {
                // A head has no offsets.
                bytes = HEAD.to_vec();
                let head = record("head");
                bytes.extend(&head);
                let body = record("x");
                bytes.extend(&body);
                lsn += body.len() as u64;
                let mut sum = Checksum::default();
                sum.add(&bytes);
                let length = bytes.len() as u64;
                bytes.extend(Check { lsn, length }.line(sum));
                stream.extend(body);
            }
            for words in [&["one", "two"][..], &["three"]] {
                bytes.extend(batch(&mut lsn, words));
                stream.extend(words.iter().flat_map(|word| record(word)));
            }
            std::fs::write(directory.join(name), &bytes).unwrap();
            // Superseded files that are kept come before the others.
            let files = if index == 0 { &mut manifest.retained } else { &mut manifest.increments };
            files.push(LogFile { name: (*name).to_owned(), sequence: index as u64 + 1 });
        }
        assert!(Follower::open(&directory, &manifest, 699).unwrap().is_none());
        for at in 700..=lsn {
            let mut follower = Follower::open(&directory, &manifest, at).unwrap().unwrap();
            assert_eq!(all(&mut follower), stream[(at - 700) as usize..], "{at}");
            assert_eq!(follower.at(), lsn);
        }
        // A record that is being written is shown when its check is there, however it is cut.
        let mut follower = Follower::open(&directory, &manifest, lsn).unwrap().unwrap();
        let mut file = File::options().append(true).open(directory.join("c")).unwrap();
        for _ in 0..3 {
            let whole = batch(&mut lsn, &["four", "five"]);
            for (index, byte) in whole.iter().enumerate() {
                file.write_all(&[*byte]).unwrap();
                let shown = all(&mut follower);
                let expected =
                    if index + 1 < whole.len() { vec![] } else { [record("four"), record("five")].concat() };
                assert_eq!(shown, expected, "{index}");
            }
        }
        assert_eq!(follower.at(), lsn);
        // The writer goes on in another file, with something more in the one that was the last.
        file.write_all(&batch(&mut lsn, &["six"])).unwrap();
        std::fs::write(directory.join("d"), batch(&mut lsn, &["seven"])).unwrap();
        let known = manifest.increments.len();
        manifest.increments.push(LogFile { name: "d".to_owned(), sequence: 4 });
        assert_eq!(all(&mut follower), record("six"), "it does not know of the new file");
        // A rewrite has superseded all others.
        manifest.retained.clear();
        manifest.increments.drain(..known);
        for _ in 0..2 {
            follower.learn(&directory, &manifest).unwrap();
        }
        assert_eq!(all(&mut follower), record("seven"));
        assert_eq!(follower.at(), lsn);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
