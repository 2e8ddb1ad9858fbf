//! Long words of a request while it arrives: read from the socket into blocks of their own, in which they can stay.

use std::sync::Arc;

use dunlin_engine::{GrowingBlock, LongWord};
use dunlin_resp::Detached;

/// The long words of the request at the front of a client's input.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) arriving: Option<GrowingBlock>,
    /// The complete words.
    pub(crate) words: Vec<Arc<LongWord>>,
}

impl Arrivals {
    /// Begins a block with those bytes of the word that have come with the input.
    pub(crate) fn begin(&mut self, detached: Detached, beginning: &[u8]) {
        let mut block = GrowingBlock::new(detached.length);
        let taken = block.append(beginning);
        debug_assert!(taken == detached.arrived && block.missing() > 0, "it is still arriving");
        self.arriving = Some(block);
    }

    /// Takes the block over as a word once it is full.
    pub(crate) fn complete(&mut self) -> Option<Arc<LongWord>> {
        let block = self.arriving.take_if(|block| block.missing() == 0)?;
        let word = Arc::new(LongWord::from(block));
        self.words.push(Arc::clone(&word));
        Some(word)
    }

    /// Bytes that have arrived.
    pub(crate) fn bytes(&self) -> usize {
        let arriving = self.arriving.as_ref().map_or(0, GrowingBlock::arrived);
        self.words.iter().map(|word| word.len()).sum::<usize>() + arriving
    }
}
