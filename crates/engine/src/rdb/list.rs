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

use std::io;

use dunlin_structures::{BlockDeque, BlockRef, Element, Listpack};

use crate::value::{Layout, List};

use super::{Input, Output, RdbError, value::read_listpack, ziplist};

/// The number of a block that is one element.
const PLAIN: u64 = 1;
/// The number of a block that is a listpack.
const PACKED: u64 = 2;

/// LIST_QUICKLIST_2, or LIST_QUICKLIST for servers without listpacks. For the latter no element is longer than
/// [`ziplist::TEXT_BYTES_MAX`].
pub(super) fn write<W: io::Write>(
    list: &List,
    has_listpacks: bool,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    output.length(list.blocks().count() as u64)?;
    list.blocks().try_for_each(|block| write_block(block, has_listpacks, output))
}

/// A block of a list.
pub(super) fn write_block<W: io::Write>(
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
pub(super) fn fits_ziplists(list: &List) -> bool {
    !list.blocks().any(|block| matches!(block, BlockRef::Plain(text) if text.len() > ziplist::TEXT_BYTES_MAX))
}

/// LIST_QUICKLIST_2.
pub(super) fn read_blocks<R: io::BufRead>(
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<List, RdbError> {
    let mut blocks = List::no_blocks(layout);
    for _ in 0..input.length()? {
        match input.length()? {
            PLAIN => blocks.push_plain(&input.string()?),
            PACKED => push(&mut blocks, read_listpack(input)?),
            _ => return Err(RdbError::Corrupt("a block of a list is neither packed nor plain")),
        }
    }
    Ok(List::from_blocks(blocks, layout))
}

/// LIST_QUICKLIST.
pub(super) fn read_ziplists<R: io::BufRead>(
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<List, RdbError> {
    let mut blocks = List::no_blocks(layout);
    for _ in 0..input.length()? {
        push(&mut blocks, ziplist::to_listpack(&input.string()?)?);
    }
    Ok(List::from_blocks(blocks, layout))
}

/// LIST.
pub(super) fn read_elements<R: io::BufRead>(
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<List, RdbError> {
    let mut blocks = List::no_blocks(layout);
    let mut element = Vec::new();
    for _ in 0..input.length()? {
        input.string_into(&mut element)?;
        blocks.push_back(&element);
    }
    Ok(List::from_blocks(blocks, layout))
}

pub(super) fn from_ziplist(bytes: &[u8], layout: Layout<'_>) -> Result<List, RdbError> {
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
