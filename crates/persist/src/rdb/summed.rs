//! Sources and sinks that sum the bytes that pass, a buffer at a time.

use std::io;

use crc_fast::{CrcAlgorithm, Digest};
use dunlin_engine::rdb::CRC64;

const BUFFER_BYTES: usize = 256 * 1024;

/// The checksum of the files with the processor's carry-less multiplication, ten times as fast as by table.
fn begin_sum() -> Digest {
    Digest::new(CrcAlgorithm::Crc64Redis)
}

/// A buffered source that knows the checksum of the bytes consumed.
pub(super) struct SummedSource<R> {
    source: R,
    buffer: Box<[u8]>,
    filled: usize,
    /// Bytes before it were consumed.
    at: usize,
    /// Bytes before it are in the sum.
    summed: usize,
    /// `None` if no checksum is wanted.
    sum: Option<Digest>,
}

impl<R: io::Read> SummedSource<R> {
    pub(super) fn new(source: R, sums: bool) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { source, buffer, filled: 0, at: 0, summed: 0, sum: sums.then(begin_sum) }
    }

    fn catch_up(&mut self) {
        if let Some(sum) = &mut self.sum {
            sum.update(&self.buffer[self.summed..self.at]);
        }
        self.summed = self.at;
    }

    /// Returns the checksum of the bytes consumed, if there is one. The summing ends here.
    pub(super) fn checksum(&mut self) -> Option<u64> {
        self.catch_up();
        self.sum.take().map(|sum| sum.finalize())
    }
}

impl<R: io::Read> io::BufRead for SummedSource<R> {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.filled {
            self.catch_up();
            self.filled = 0;
            (self.at, self.summed) = (0, 0);
            self.filled = self.source.read(&mut self.buffer)?;
        }
        Ok(&self.buffer[self.at..self.filled])
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.filled);
    }
}

impl<R: io::Read> io::Read for SummedSource<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = io::Read::read(&mut io::BufRead::fill_buf(self)?, out)?;
        io::BufRead::consume(self, read);
        Ok(read)
    }
}

/// A buffered sink that knows the checksum of the bytes written.
pub(super) struct SummedSink<W> {
    sink: W,
    buffer: Vec<u8>,
    /// `None` if no checksum is wanted.
    sum: Option<Digest>,
}

impl<W: io::Write> SummedSink<W> {
    pub(super) fn new(sink: W, sums: bool) -> Self {
        Self { sink, buffer: Vec::with_capacity(BUFFER_BYTES), sum: sums.then(begin_sum) }
    }

    /// Returns the checksum of the bytes written, if there is one. The summing ends here.
    pub(super) fn checksum(&mut self) -> io::Result<Option<u64>> {
        self.empty()?;
        Ok(self.sum.take().map(|sum| sum.finalize()))
    }

    fn empty(&mut self) -> io::Result<()> {
        pass_on(&mut self.sink, &mut self.sum, &self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

fn pass_on(sink: &mut impl io::Write, sum: &mut Option<Digest>, bytes: &[u8]) -> io::Result<()> {
    if let Some(sum) = sum {
        sum.update(bytes);
    }
    sink.write_all(bytes)
}

impl<W: io::Write> io::Write for SummedSink<W> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.empty()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            pass_on(&mut self.sink, &mut self.sum, bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.empty()?;
        self.sink.flush()
    }
}

/// Returns the checksum of a file whose first bytes are replaced, with `behind` bytes after them. O(log
/// behind).
///
/// A checksum that begins at 0 and ends as it is, as this one does, is linear: that of `a ⊕ b` is the one of
/// `a` ⊕ the one of `b`. So the difference of the beginnings is summed up, then as many zeros as there are
/// bytes behind it, by squaring the matrix that stands for one zero (Adler, zlib's `crc32_combine`).
pub(super) fn checksum_with_other_start<const N: usize>(
    checksum: u64,
    was: [u8; N],
    is: [u8; N],
    behind: usize,
) -> u64 {
    let difference = std::array::from_fn::<u8, N, _>(|at| was[at] ^ is[at]);
    let mut sum = CRC64.checksum(&difference);
    // Column by column, the result for a sum whose only bit is that of the column.
    let mut zeros: [u64; 64] = std::array::from_fn(|bit| {
        let mut digest = CRC64.digest_with_initial((1_u64 << bit).reverse_bits());
        digest.update(&[0]);
        digest.finalize()
    });
    let apply = |matrix: &[u64; 64], sum: u64| {
        let columns = matrix.iter().enumerate().filter(|(bit, _)| sum >> bit & 1 != 0);
        columns.fold(0, |product, (_, column)| product ^ column)
    };
    let mut count = behind;
    while count > 0 {
        if count & 1 != 0 {
            sum = apply(&zeros, sum);
        }
        zeros = zeros.map(|column| apply(&zeros, column));
        count >>= 1;
    }
    checksum ^ sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_the_format() {
        let bytes: Vec<u8> = (0..100_000_usize).map(|at| ((at * at) >> 3) as u8).collect();
        for length in (0..300).chain([4095, 4096, 65_537, bytes.len()]) {
            let mut sum = begin_sum();
            let (first, second) = bytes[..length].split_at(length / 3);
            sum.update(first);
            sum.update(second);
            assert_eq!(sum.finalize(), CRC64.checksum(&bytes[..length]), "{length} bytes");
        }
    }

    #[test]
    fn checksum_of_another_beginning_is_that_of_the_whole() {
        let file = |start: &[u8; 9], behind: usize| {
            let mut file = start.to_vec();
            file.extend((0..behind).map(|at| (at * 7) as u8));
            file
        };
        let (was, is) = (*b"REDIS0010", *b"VALKEY080");
        for behind in [0, 1, 2, 3, 100, 4095, 1_000_003] {
            let sum = CRC64.checksum(&file(&was, behind));
            let expected = CRC64.checksum(&file(&is, behind));
            assert_eq!(checksum_with_other_start(sum, was, is, behind), expected, "{behind} bytes behind it");
            assert_eq!(checksum_with_other_start(sum, was, was, behind), sum);
        }
    }
}
