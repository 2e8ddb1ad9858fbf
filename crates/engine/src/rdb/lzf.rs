//! LZF, the compression of strings in RDB files and dumps.
//!
//! ```text
//! 000lllll                    literals │ l + 1 bytes follow as they are: 1 to 32
//! lllooooo oooooooo           l = 1–6  │ copy l + 2 bytes from o + 1 bytes back: 3 to 8
//! 111ooooo llllllll oooooooo           │ copy l + 9 bytes from o + 1 bytes back: 9 to 264
//! ```
//!
//! A copy may reach into the bytes that it is writing, so that one byte and a copy make a run. A distance is at most
//! 8192 bytes.
//!
//! The format leaves to the compressor which copies it finds. This one chooses as Redis's does: greedily, by
//! the last place at which three bytes with the same hash stood. A dump therefore has the same bytes here
//! and there.
//!
//! Source: the format of LibLZF, <http://oldhome.schmorp.de/marc/liblzf.html>.

use dunlin_structures::Corrupt;

/// Longest run of literals.
const LITERALS_MAX: usize = 32;
/// Farthest that a copy reaches back.
const DISTANCE_MAX: usize = 8192;
/// Shortest copy.
const COPY_MIN: usize = 3;
/// Longest copy.
const COPY_MAX: usize = 264;
/// Copies of this many bytes or more have their length in a byte of its own.
const COPY_LONG: usize = 9;
const HASH_BITS: u32 = 16;
/// A string is compressed if that saves as many bytes.
const SAVED_BYTES_MIN: usize = 4;
/// Largest input that is compressed in one go: positions are kept in 32 bits.
const INPUT_BYTES_MAX: usize = 1 << 31;
/// Largest compressed form of a string that comes in pieces: it is in memory as a whole, as its length stands before it.
const PIECES_BYTES_MAX: usize = 16 << 20;

/// The places at which three bytes were last seen, kept from one string to the next so that it need not be cleared.
#[derive(Debug, Default)]
pub struct Compressor {
    /// By hash: position plus `base`. Empty until it is first needed.
    last_seen: Vec<u32>,
    /// Positions below it were noted for an earlier string.
    base: u32,
    /// The next string's base.
    next: u32,
}

impl Compressor {
    /// Replaces `output` by the compressed form of `input` if that is worth it. Returns whether it is. O(input).
    pub(crate) fn compress(&mut self, input: &[u8], output: &mut Vec<u8>) -> bool {
        output.clear();
        self.append(input, output)
    }

    /// Compresses a string of `length` bytes that comes in pieces, none of which knows the others: that costs a few
    /// bytes for each.
    pub(crate) fn compress_pieces<'p>(
        &mut self,
        pieces: impl Iterator<Item = &'p [u8]>,
        length: usize,
        output: &mut Vec<u8>,
    ) -> bool {
        output.clear();
        let Some(bytes_max) = length.checked_sub(SAVED_BYTES_MIN) else { return false };
        let bytes_max = bytes_max.min(PIECES_BYTES_MAX);
        for piece in pieces {
            let before = output.len();
            if !self.append(piece, output) {
                output.truncate(before);
                write_literals(piece, output);
            }
            if output.len() > bytes_max {
                return false;
            }
        }
        true
    }

    /// Appends the compressed form of `input` if that is worth it; if not, the appended bytes are of no use.
    fn append(&mut self, input: &[u8], output: &mut Vec<u8>) -> bool {
        if input.len() <= SAVED_BYTES_MIN || input.len() > INPUT_BYTES_MAX {
            return false;
        }
        let bytes_max = output.len() + input.len() - SAVED_BYTES_MIN;
        self.prepare(input.len());
        // Three bytes begin at each place before the last two.
        let places = input.len() - (COPY_MIN - 1);
        let (mut at, mut literals_from) = (0, 0);
        while at < places {
            let seen = self.exchange(input, at);
            let is_copy = |from: &usize| {
                let near = *from > 0 && at - from <= DISTANCE_MAX;
                near && input[*from..*from + COPY_MIN] == input[at..at + COPY_MIN]
            };
            let Some(from) = seen.filter(is_copy) else {
                at += 1;
                continue;
            };
            let longest = copy_max(input.len() - at);
            let same = |length: &usize| input[from + length] == input[at + length];
            let length = COPY_MIN + (COPY_MIN..longest).take_while(same).count();
            write_literals(&input[literals_from..at], output);
            write_copy(at - from - 1, length, output);
            if output.len() >= bytes_max {
                return false;
            }
            at += length;
            literals_from = at;
            // Of the places within a copy, the last two are noted.
            if at < places {
                self.exchange(input, at - 2);
                self.exchange(input, at - 1);
            }
        }
        // Redis asks for room before it writes the last literals, and for the most that they can take.
        let pending = at - literals_from;
        let heads = pending / LITERALS_MAX + 1;
        if output.len() + pending + heads + 3 > bytes_max {
            return false;
        }
        write_literals(&input[literals_from..], output);
        true
    }

    /// Makes the table ready for a string of `bytes` bytes.
    fn prepare(&mut self, bytes: usize) {
        // The string before this one ended at `next`: its positions are below.
        self.base = self.next;
        match self.base.checked_add(bytes as u32) {
            Some(next) if !self.last_seen.is_empty() => self.next = next,
            _ => {
                self.last_seen.clear();
                self.last_seen.resize(1 << HASH_BITS, 0);
                self.base = 1;
                self.next = 1 + bytes as u32;
            }
        }
    }

    /// Notes the place `at` and answers which place of this string stood in its stead.
    #[inline]
    fn exchange(&mut self, input: &[u8], at: usize) -> Option<usize> {
        let slot = &mut self.last_seen[hash(input, at)];
        let before = std::mem::replace(slot, self.base + at as u32);
        before.checked_sub(self.base).map(|place| place as usize)
    }
}

/// The place in the table for the three bytes at `at`.
#[inline]
fn hash(input: &[u8], at: usize) -> usize {
    let three = u32::from(input[at]) << 16 | u32::from(input[at + 1]) << 8 | u32::from(input[at + 2]);
    ((three >> (24 - HASH_BITS)).wrapping_sub(three.wrapping_mul(5)) & ((1 << HASH_BITS) - 1)) as usize
}

/// The longest copy that is made if `rest` bytes are left. The last two are spared as a rule; that they
/// are not with 19 or 20 comes of Redis's comparing sixteen bytes in one go.
#[inline]
fn copy_max(rest: usize) -> usize {
    match COPY_MAX.min(rest - (COPY_MIN - 1)) {
        17 | 18 => 19,
        bytes => bytes.max(COPY_MIN),
    }
}

fn write_literals(literals: &[u8], output: &mut Vec<u8>) {
    for run in literals.chunks(LITERALS_MAX) {
        output.push(run.len() as u8 - 1);
        output.extend_from_slice(run);
    }
}

fn write_copy(offset: usize, length: usize, output: &mut Vec<u8>) {
    let (high, low) = ((offset >> 8) as u8, offset as u8);
    if length < COPY_LONG {
        output.push((length as u8 - 2) << 5 | high);
    } else {
        output.push(7 << 5 | high);
        output.push((length - COPY_LONG) as u8);
    }
    output.push(low);
}

/// Expands `input`, which must come to exactly `length` bytes. Memory grows with the contents of `input`, not with the
/// announced length.
pub(crate) fn decompress(input: &[u8], length: usize) -> Result<Vec<u8>, Corrupt> {
    const CUT: Corrupt = Corrupt("compressed string is cut short");
    // No byte of input brings more than a third of the longest copy.
    let most = input.len().saturating_mul(COPY_MAX / COPY_MIN);
    let mut output = Vec::with_capacity(length.min(most));
    let mut rest = input;
    while let Some((&control, behind)) = rest.split_first() {
        rest = behind;
        let kind = usize::from(control >> 5);
        if kind == 0 {
            let literals;
            (literals, rest) = rest.split_at_checked(usize::from(control) + 1).ok_or(CUT)?;
            output.extend_from_slice(literals);
        } else {
            let mut copied = kind + 2;
            if kind == 7 {
                let (&more, behind) = rest.split_first().ok_or(CUT)?;
                rest = behind;
                copied += usize::from(more);
            }
            let (&low, behind) = rest.split_first().ok_or(CUT)?;
            rest = behind;
            let distance = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
            let from = output.len().checked_sub(distance);
            let from = from.ok_or(Corrupt("compressed string refers to bytes before its beginning"))?;
            if copied <= distance {
                output.extend_from_within(from..from + copied);
            } else {
                // The copy reads what it writes.
                (from..from + copied).for_each(|at| output.push(output[at]));
            }
        }
        if output.len() > length {
            return Err(Corrupt("compressed string is longer than it says"));
        }
    }
    if output.len() != length {
        return Err(Corrupt("compressed string is shorter than it says"));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compressed(compressor: &mut Compressor, input: &[u8]) -> Option<Vec<u8>> {
        let mut output = Vec::new();
        compressor.compress(input, &mut output).then_some(output)
    }

    /// Texts in which bytes recur near and far.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(0..3u8, 0..40),
            (any::<u8>(), 1..600usize).prop_map(|(byte, count)| vec![byte; count]),
            (0..9000usize).prop_map(|count| (0..count).map(|at| (at % 251) as u8).collect()),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn lzf_expands_to_what_was_compressed(texts in prop::collection::vec(text(), 1..4)) {
            let mut compressor = Compressor::default();
            for text in texts {
                let Some(small) = compressed(&mut compressor, &text) else { continue };
                prop_assert!(small.len() + SAVED_BYTES_MIN <= text.len());
                prop_assert_eq!(decompress(&small, text.len()), Ok(text.clone()));
                prop_assert!(decompress(&small, text.len() + 1).is_err());
                prop_assert!(decompress(&small, text.len() - 1).is_err());
                prop_assert!(decompress(&small[..small.len() - 1], text.len()).is_err());
                let alone = compressed(&mut Compressor::default(), &text);
                prop_assert_eq!(alone, Some(small), "what came before does not matter");
            }
        }

        #[test]
        fn lzf_of_pieces_expands_as_a_whole(text in text(), piece in 1..5000usize) {
            let mut small = Vec::new();
            if Compressor::default().compress_pieces(text.chunks(piece), text.len(), &mut small) {
                prop_assert!(small.len() + SAVED_BYTES_MIN <= text.len());
                prop_assert_eq!(decompress(&small, text.len()), Ok(text));
            }
        }

        #[test]
        fn lzf_of_any_bytes_expands_or_is_refused(input in prop::collection::vec(any::<u8>(), 0..64), length in 0..2000usize) {
            if let Ok(output) = decompress(&input, length) {
                prop_assert_eq!(output.len(), length);
            }
        }
    }

    #[test]
    fn lzf_table_full_of_old_places_begins_anew() {
        let mut compressor =
            Compressor { next: u32::MAX - 50, last_seen: vec![u32::MAX - 60; 1 << HASH_BITS], base: 1 };
        let text = b"a text, a text, a text, a text, a text, a text";
        let small = compressed(&mut compressor, text).unwrap();
        assert_eq!(decompress(&small, text.len()).unwrap(), text);
        assert_eq!(compressed(&mut compressor, text).unwrap(), small);
    }
}
