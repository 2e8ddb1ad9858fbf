//! Words of requests that are as long as strings in chunks, and arrived in blocks of their own.
//!
//! Commands see them as any other word. A command that stores one takes its bytes over as chunks, and the log's record
//! of a command shares them, whether the command stores them or not: neither copies them (docs/decisions/0023).

use std::{ops::Deref, sync::Arc};

use dunlin_structures::RopeSource;

use crate::value::{BLOCK_BYTES_MAX, StringRope};

/// A word of more bytes than a string in one block has.
pub type LongWord = RopeSource<{ StringRope::CHUNK_BYTES }>;

/// Shorter words arrive with the rest of their request.
pub const LONG_WORD_BYTES_MIN: usize = BLOCK_BYTES_MAX + 1;

/// The long words of the command about to run, or of a transaction's commands.
#[derive(Debug, Default)]
pub struct LongWords {
    /// In the order of their addresses.
    words: Vec<Arc<LongWord>>,
}

impl FromIterator<Arc<LongWord>> for LongWords {
    fn from_iter<T: IntoIterator<Item = Arc<LongWord>>>(words: T) -> Self {
        let mut words: Vec<_> = words.into_iter().collect();
        words.sort_unstable_by_key(|word| address_of(word.bytes()));
        Self { words }
    }
}

impl LongWords {
    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.words.iter().map(|word| word.len()).sum()
    }

    /// The long word whose bytes these are; not one that merely has the same. O(log words).
    #[inline]
    pub fn find(&self, word: &[u8]) -> Option<&Arc<LongWord>> {
        if word.len() < LONG_WORD_BYTES_MIN { None } else { self.search(word) }
    }

    #[cold]
    fn search(&self, word: &[u8]) -> Option<&Arc<LongWord>> {
        let found = self.words.binary_search_by_key(&address_of(word), |long| address_of(long.bytes()));
        let long = &self.words[found.ok()?];
        (long.len() == word.len()).then_some(long)
    }
}

fn address_of(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

/// A word that outlives its request.
#[derive(Debug)]
pub enum OwnedWord {
    /// A copy.
    Short(Box<[u8]>),
    /// A share of a long word.
    Long(Arc<LongWord>),
}

impl OwnedWord {
    /// Owns the words of a request; its long ones are shared, not copied.
    pub(crate) fn all(words: &[&[u8]], long_words: &LongWords) -> Vec<Self> {
        let own = |word: &&[u8]| match long_words.find(word) {
            Some(long) => Self::Long(Arc::clone(long)),
            None => Self::Short(Box::from(*word)),
        };
        words.iter().map(own).collect()
    }

    /// The long word, if it is one.
    pub fn long(&self) -> Option<&Arc<LongWord>> {
        match self {
            Self::Short(_) => None,
            Self::Long(long) => Some(long),
        }
    }
}

impl Deref for OwnedWord {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(word) => word,
            Self::Long(long) => long.bytes(),
        }
    }
}
