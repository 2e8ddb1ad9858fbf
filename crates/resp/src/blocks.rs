//! Long arguments of a request, which arrive in blocks of their own.
//!
//! ```text
//! input    *3 SET k $209715200 ┊ CR LF        the argument's bytes are cut out
//! block                        └▶ xxxxxx…     read from the socket to where they will be stored
//! ```
//!
//! Memory follows what has arrived: a block has room for no more than [`GROWTH`] times that, or for [`FIRST_ROOM_BYTES_MAX`];
//! what is not written to yet is address space alone. So a block moves twice at most until it has all of 512 MiB.

use std::sync::Arc;

/// Arguments of at least this many bytes arrive in blocks.
pub const BLOCK_BYTES_MIN: usize = 64 * 1024;
/// Room that an announcement alone is good for.
const FIRST_ROOM_BYTES_MAX: usize = 1024 * 1024;
/// How many times as much room a full block gets.
const GROWTH: usize = 16;

/// A block that is not full yet.
#[derive(Debug)]
pub struct ArrivingBlock {
    bytes: Vec<u8>,
    /// How long the argument is.
    length: usize,
}

impl ArrivingBlock {
    /// The block of an argument of `length` bytes, with its beginning.
    fn new(length: usize, beginning: &[u8]) -> Self {
        debug_assert!(beginning.len() < length);
        let mut block = Self { bytes: Vec::new(), length };
        block.grow(beginning.len().max(FIRST_ROOM_BYTES_MAX));
        block.bytes.extend_from_slice(beginning);
        block
    }

    /// Bytes that have arrived.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether none have arrived.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The block with room for more bytes, and how many of them are still its own.
    pub fn room(&mut self) -> (&mut Vec<u8>, usize) {
        if self.bytes.len() == self.bytes.capacity() {
            self.grow(self.bytes.len().saturating_mul(GROWTH));
        }
        let missing = self.length - self.bytes.len();
        (&mut self.bytes, missing)
    }

    fn grow(&mut self, capacity: usize) {
        let arrived = self.bytes.len();
        let more = self.length.min(capacity) - arrived;
        // A system that lends no address space beyond its memory may refuse what would never be used.
        if self.bytes.try_reserve_exact(more).is_err() {
            self.bytes.reserve_exact(more.min(arrived.max(BLOCK_BYTES_MIN)));
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= self.length
    }
}

/// The blocks of the command at the front of a connection's input.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// In order, each with the place in the input that its bytes are cut out of, from the command's first byte.
    full: Vec<(usize, Arc<Vec<u8>>)>,
    arriving: Option<(usize, ArrivingBlock)>,
    /// How many of the full ones decoding has come across.
    decoded: usize,
}

/// What is known of an argument whose header has been read.
pub(crate) enum Place {
    /// Its bytes are in the input.
    Input,
    /// They are all in the block of this number.
    Block(usize),
    /// This many are missing in a block.
    Arriving(usize),
}

impl Blocks {
    /// The command will be decoded from its first byte.
    pub(crate) fn restart(&mut self) {
        self.decoded = 0;
    }

    /// Begins the block of the argument at a place.
    pub(crate) fn begin(&mut self, at: usize, length: usize, beginning: &[u8]) {
        debug_assert!(self.arriving.is_none(), "an argument arrives behind the one before");
        self.arriving = Some((at, ArrivingBlock::new(length, beginning)));
    }

    /// The block that is to be read into; a full one is put with the others first.
    pub(crate) fn arriving(&mut self) -> Option<&mut ArrivingBlock> {
        if let Some((at, block)) = self.arriving.take_if(|(_, block)| block.is_full()) {
            debug_assert_eq!(block.bytes.len(), block.length);
            self.full.push((at, Arc::new(block.bytes)));
        }
        self.arriving.as_mut().map(|(_, block)| block)
    }

    /// Where the bytes of the argument at a place are.
    pub(crate) fn find(&mut self, at: usize) -> Place {
        // One that is full by now is put with the others.
        self.arriving();
        if let Some((place, block)) = &self.arriving
            && *place == at
        {
            return Place::Arriving(block.length - block.len());
        }
        match self.full.get(self.decoded) {
            Some((place, _)) if *place == at => Place::Block(self.decoded),
            _ => Place::Input,
        }
    }

    /// Decoding goes on behind the block that it has found last.
    pub(crate) fn pass(&mut self) {
        self.decoded += 1;
    }

    /// Whether the argument at a place is in a block.
    pub(crate) fn has(&self, at: usize) -> bool {
        let arriving = self.arriving.iter().map(|(place, _)| *place);
        self.full.iter().map(|(place, _)| *place).chain(arriving).any(|place| place == at)
    }

    /// Shares of the full blocks.
    pub(crate) fn share(&self) -> impl Iterator<Item = Arc<Vec<u8>>> {
        self.full.iter().map(|(_, block)| Arc::clone(block))
    }

    /// Bytes that have arrived in all of them.
    pub(crate) fn bytes(&self) -> usize {
        let arriving = self.arriving.as_ref().map_or(0, |(_, block)| block.len());
        self.full.iter().map(|(_, block)| block.len()).sum::<usize>() + arriving
    }
}
