//! Bytes that are sent without having been copied.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

/// The owner that keeps shared bytes alive.
type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A range of bytes that others may hold, too. The bytes stay as they are for as long as one holder
/// does.
#[derive(Clone)]
pub struct SharedSlice {
    owner: Owner,
    range: Range<usize>,
}

impl SharedSlice {
    /// A range of an owner's bytes.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn new(owner: Owner, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= (*owner).as_ref().len(), "the range is inside");
        Self { owner, range }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl Deref for SharedSlice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl From<Arc<Vec<u8>>> for SharedSlice {
    fn from(bytes: Arc<Vec<u8>>) -> Self {
        let range = 0..bytes.len();
        Self { owner: bytes, range }
    }
}

impl From<Vec<u8>> for SharedSlice {
    fn from(bytes: Vec<u8>) -> Self {
        Arc::new(bytes).into()
    }
}

impl fmt::Debug for SharedSlice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SharedSlice").field("len", &self.range.len()).finish_non_exhaustive()
    }
}

/// A run of bytes that leaves a reply buffer.
#[derive(Debug)]
pub enum ReplyChunk {
    /// Encoded for this reply.
    Own(Vec<u8>),
    /// A payload, or part of one.
    Shared(SharedSlice),
}

impl Deref for ReplyChunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(slice) => slice,
        }
    }
}
