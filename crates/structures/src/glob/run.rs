//! Runs: the parts of a pattern between its stars.
//!
//! A run matches texts of one length, so the first place where it matches is as good as any other: nothing is ever
//! tried again.

use memchr::memmem::Finder;

use super::{TooComplex, byte_set::ByteSet};

/// Most sets of a pattern: its classes, and every element of a run that has to be searched for and is not all bytes. A set
/// takes 32 bytes, and searching for a run takes a step for each 64 of them and byte of the text.
pub(super) const SETS_MAX: usize = 1024;

const WORD_BITS: usize = u64::BITS as usize;
/// Words of the state of a search.
const WORDS_MAX: usize = SETS_MAX / WORD_BITS;

const _: () = assert!(SETS_MAX.is_multiple_of(WORD_BITS));

/// An element of a pattern that matches one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Byte(u8),
    /// `?`.
    Any,
    Set(ByteSet),
}

/// Elements of one kind in a row; never none.
#[derive(Debug, Clone)]
enum Piece {
    Bytes(Vec<u8>),
    /// So many `?`.
    Any(usize),
    Sets(Vec<ByteSet>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Any(count) => *count,
            Self::Sets(sets) => sets.len(),
        }
    }

    #[inline]
    fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Bytes(bytes) => bytes == text,
            Self::Any(_) => true,
            Self::Sets(sets) => sets.iter().zip(text).all(|(set, byte)| set.contains(*byte)),
        }
    }

    fn append_sets(&self, sets: &mut Vec<ByteSet>) {
        match self {
            Self::Bytes(bytes) => sets.extend(bytes.iter().map(|byte| ByteSet::of(*byte))),
            Self::Any(count) => sets.resize(sets.len() + count, ByteSet::ALL),
            Self::Sets(more) => sets.extend_from_slice(more),
        }
    }
}

/// Elements in a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pieces: Vec<Piece>,
    len: usize,
}

impl Run {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an element behind the others. `sets_left` is how many sets the pattern may still have.
    #[inline]
    pub(super) fn push(&mut self, element: Element, sets_left: &mut usize) -> Result<(), TooComplex> {
        self.len += 1;
        match (self.pieces.last_mut(), element) {
            (Some(Piece::Bytes(bytes)), Element::Byte(byte)) => bytes.push(byte),
            (Some(Piece::Any(count)), Element::Any) => *count += 1,
            (_, Element::Byte(byte)) => self.pieces.push(Piece::Bytes(vec![byte])),
            (_, Element::Any) => self.pieces.push(Piece::Any(1)),
            (last, Element::Set(set)) => {
                *sets_left = sets_left.checked_sub(1).ok_or(TooComplex)?;
                match last {
                    Some(Piece::Sets(sets)) => sets.push(set),
                    _ => self.pieces.push(Piece::Sets(vec![set])),
                }
            }
        }
        Ok(())
    }

    /// Whether a text of the run's length matches. O(n).
    #[inline]
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        debug_assert_eq!(text.len(), self.len);
        let mut rest = text;
        self.pieces.iter().all(|piece| {
            let (here, behind) = rest.split_at(piece.len());
            rest = behind;
            piece.matches(here)
        })
    }

    /// The run as one to be searched for, which takes a set for each element, unless they are all bytes or all `?`.
    pub(super) fn into_needle(mut self, sets_left: &mut usize) -> Result<Needle, TooComplex> {
        if self.pieces.len() <= 1 {
            match self.pieces.pop() {
                None => return Ok(Needle::Any(0)),
                Some(Piece::Bytes(bytes)) => {
                    return Ok(Needle::Bytes(Box::new(Finder::new(&bytes).into_owned())));
                }
                Some(Piece::Any(count)) => return Ok(Needle::Any(count)),
                Some(sets) => self.pieces.push(sets),
            }
        }
        let counted = |piece: &Piece| if matches!(piece, Piece::Sets(_)) { 0 } else { piece.len() };
        let uncounted: usize = self.pieces.iter().map(counted).sum();
        *sets_left = sets_left.checked_sub(uncounted).ok_or(TooComplex)?;
        let mut sets = Vec::with_capacity(self.len);
        self.pieces.iter().for_each(|piece| piece.append_sets(&mut sets));
        Ok(Needle::Sets(SetSearch::new(&sets)))
    }
}

/// A run that may match anywhere.
#[derive(Debug, Clone)]
pub(super) enum Needle {
    Bytes(Box<Finder<'static>>),
    Any(usize),
    Sets(SetSearch),
}

impl Needle {
    /// The end of the first match. O(n), for sets times their number divided by 64.
    pub(super) fn find_end(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Bytes(finder) => finder.find(text).map(|start| start + finder.needle().len()),
            Self::Any(count) => (*count <= text.len()).then_some(*count),
            Self::Sets(search) => search.find_end(text),
        }
    }
}

/// Search for a run of sets, all places at once: Shift-And (Baeza-Yates and Gonnet, 1992).
///
/// ```text
/// state    bit i: the last i + 1 bytes match the first i + 1 sets
/// masks    for each byte, bit i: it is in set i
/// ```
#[derive(Debug, Clone)]
pub(super) struct SetSearch {
    length: usize,
    words: usize,
    /// 256 rows of `words`.
    masks: Box<[u64]>,
}

impl SetSearch {
    fn new(sets: &[ByteSet]) -> Self {
        assert!((1..=SETS_MAX).contains(&sets.len()), "bounded where the run was read");
        let words = sets.len().div_ceil(WORD_BITS);
        let mut masks = vec![0; 256 * words].into_boxed_slice();
        let mut everywhere = [0; WORDS_MAX];
        for (index, set) in sets.iter().enumerate() {
            let (word, bit) = (index / WORD_BITS, 1 << (index % WORD_BITS));
            if *set == ByteSet::ALL {
                everywhere[word] |= bit;
            } else {
                set.bytes().for_each(|byte| masks[usize::from(byte) * words + word] |= bit);
            }
        }
        for row in masks.chunks_exact_mut(words) {
            row.iter_mut().zip(everywhere).for_each(|(mask, bits)| *mask |= bits);
        }
        Self { length: sets.len(), words, masks }
    }

    fn find_end(&self, text: &[u8]) -> Option<usize> {
        let last = 1 << ((self.length - 1) % WORD_BITS);
        if self.words == 1 {
            let mut state = 0;
            let ends = |byte: &u8| {
                state = (state << 1 | 1) & self.masks[usize::from(*byte)];
                state & last != 0
            };
            return text.iter().position(ends).map(|at| at + 1);
        }
        let mut state = [0_u64; WORDS_MAX];
        let state = &mut state[..self.words];
        let ends = |byte: &u8| {
            let row = &self.masks[usize::from(*byte) * self.words..][..self.words];
            let mut carry = 1;
            for (word, mask) in state.iter_mut().zip(row) {
                let shifted = *word << 1 | carry;
                carry = *word >> (WORD_BITS - 1);
                *word = shifted & mask;
            }
            state[self.words - 1] & last != 0
        };
        text.iter().position(ends).map(|at| at + 1)
    }
}
