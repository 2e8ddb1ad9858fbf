//! Lists.
//!
//! ```text
//! LIST_QUICKLIST_2   count │ block │ …
//! block              2 │ a string: the listpack
//!                    1 │ a string: one large element
//! LIST_QUICKLIST     count │ a string: a ziplist │ …    before Redis 7.0
//! ```
//!
//! Only read:
//!
//! ```text
//! LIST               count │ element │ …                strings
//! LIST_ZIPLIST       a string: the ziplist
//! ```

use std::{io, sync::Arc};

use dunlin_structures::{BlockDeque, BlockRef, Element, Listpack, Relocator};

use super::{Items, List};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Input, Output, RdbError, Version, read_listpack, types, ziplist},
    snapshot::SnapshotQueue,
    value::{Layout, ValueType, incremental_copy::IncrementalCopy, stored::Stored},
};

/// The number of a block that is one element.
const PLAIN: u64 = 1;
/// The number of a block that is a listpack.
const PACKED: u64 = 2;

/// Blocks of a list that are moved at once.
const RELOCATED_BLOCKS_MAX: usize = 128;

impl Stored for List {
    const TYPE: ValueType = ValueType::List;

    fn copied(&self) -> Self {
        match &self.items {
            Items::Quicklist(deque) => Self { items: Items::Quicklist(deque.copied()) },
            _ => self.clone(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (&self.items, &other.items) {
            (Items::Listpack(one), Items::Listpack(other)) => one.bytes() == other.bytes(),
            (Items::Quicklist(one), Items::Quicklist(other)) => one.is(other),
            _ => false,
        }
    }

    #[inline]
    fn is_shared(&self) -> bool {
        matches!(&self.items, Items::Quicklist(deque) if deque.is_shared())
    }

    fn relocate(&mut self, relocator: &mut Relocator) {
        match &mut self.items {
            Items::Listpack(listpack) => listpack.relocate(relocator),
            // Under the lock of the stripe: a long list would hold it for long.
            Items::Quicklist(deque) if !deque.is_shared() && deque.blocks().len() <= RELOCATED_BLOCKS_MAX => {
                deque.relocate(relocator);
            }
            Items::Quicklist(_) => {}
        }
    }

    fn encoding(&self) -> &'static str {
        match &self.items {
            Items::Listpack(_) => "listpack",
            Items::Quicklist(_) => "quicklist",
        }
    }

    fn carry_copies_to(&self, copy: &Self) {
        if let (Some(copy), Some(deque)) = (copy.deque(), self.deque()) {
            copy.carry_pasts(deque);
        }
    }

    fn begin_copy(&self, snapshot_queue: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        let holder = Arc::clone(snapshot_queue);
        let past = self.deque()?.remember(move |bytes| holder.hold(bytes));
        Some(IncrementalCopy::Blocks(past, Arc::clone(snapshot_queue)))
    }

    fn unfit(&self, version: Version) -> Option<&'static str> {
        let is_too_long = !version.has_listpacks() && !fits_ziplists(self);
        is_too_long.then_some("an element of the list is too long for the packed form of this version")
    }

    fn rdb_type(&self, version: Version) -> u8 {
        if version.has_listpacks() { types::LIST_QUICKLIST_2 } else { types::LIST_QUICKLIST }
    }

    fn write_rdb<W: io::Write>(
        &self,
        version: Version,
        _now_ms: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()> {
        write(self, version.has_listpacks(), output)
    }

    fn read_rdb<R: io::BufRead>(
        type_number: u8,
        _: Version,
        input: &mut Input<R>,
        layout: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        Some(match type_number {
            types::LIST => read_elements(input, layout),
            types::LIST_ZIPLIST => input.string().and_then(|bytes| from_ziplist(&bytes, layout)),
            types::LIST_QUICKLIST => read_ziplists(input, layout),
            types::LIST_QUICKLIST_2 => read_blocks(input, layout),
            _ => return None,
        })
    }

    /// RPUSH.
    fn write_commands(&self, _: Version, _: u64, commands: &mut CommandWriter<'_>) -> bool {
        let mut batch = commands.batch(b"RPUSH");
        self.iter().for_each(|element| batch.item(&[element]));
        batch.finish();
        true
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        self.iter().for_each(|element| digest.mix(&element.text()));
    }
}

/// LIST_QUICKLIST_2, or LIST_QUICKLIST for servers without listpacks. For the latter no element is longer than
/// [`ziplist::TEXT_BYTES_MAX`].
fn write<W: io::Write>(list: &List, has_listpacks: bool, output: &mut Output<'_, W>) -> io::Result<()> {
    output.length(list.blocks().count() as u64)?;
    list.blocks().try_for_each(|block| write_block(block, has_listpacks, output))
}

/// A block of a list.
pub(crate) fn write_block<W: io::Write>(
    block: BlockRef<'_>,
    has_listpacks: bool,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    match block {
        BlockRef::Plain(text) if has_listpacks => {
            output.length(PLAIN)?;
            output.string(text)
        }
        BlockRef::Packed(listpack) if has_listpacks => {
            output.length(PACKED)?;
            output.string(listpack.bytes())
        }
        BlockRef::Plain(text) => output.string(&ziplist::from_elements([Element::String(text)])),
        BlockRef::Packed(listpack) => output.string(&ziplist::from_elements(listpack.iter())),
    }
}

/// Whether LIST_QUICKLIST can carry all elements.
fn fits_ziplists(list: &List) -> bool {
    !list.blocks().any(|block| matches!(block, BlockRef::Plain(text) if text.len() > ziplist::TEXT_BYTES_MAX))
}

/// LIST_QUICKLIST_2.
fn read_blocks<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<List, RdbError> {
    let mut blocks = List::no_blocks(layout);
    for _ in 0..input.length()? {
        match input.length()? {
            // An element without bytes is never large enough to be a block.
            PLAIN => match input.string()? {
                text if text.is_empty() => return Err(RdbError::Corrupt("a plain block of a list is empty")),
                text => blocks.push_plain(&text),
            },
            PACKED => push(&mut blocks, read_listpack(input)?),
            _ => return Err(RdbError::Corrupt("a block of a list is neither packed nor plain")),
        }
    }
    Ok(List::from_blocks(blocks, layout))
}

/// LIST_QUICKLIST.
fn read_ziplists<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<List, RdbError> {
    let mut blocks = List::no_blocks(layout);
    for _ in 0..input.length()? {
        push(&mut blocks, ziplist::to_listpack(&input.string()?)?);
    }
    Ok(List::from_blocks(blocks, layout))
}

/// LIST.
fn read_elements<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<List, RdbError> {
    let mut blocks = List::no_blocks(layout);
    let mut element = Vec::new();
    for _ in 0..input.length()? {
        input.string_into(&mut element)?;
        blocks.push_back(&element);
    }
    Ok(List::from_blocks(blocks, layout))
}

fn from_ziplist(bytes: &[u8], layout: Layout<'_>) -> Result<List, RdbError> {
    let mut blocks = List::no_blocks(layout);
    push(&mut blocks, ziplist::to_listpack(bytes)?);
    Ok(List::from_blocks(blocks, layout))
}

/// Adds a block: whole, unless it is larger than one that can be edited.
fn push(blocks: &mut BlockDeque, listpack: Listpack) {
    if listpack.fits(0) {
        blocks.push_packed(listpack);
    } else {
        listpack.view().iter().for_each(|element| blocks.push_back(element));
    }
}
