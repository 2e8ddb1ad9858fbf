//! JSON documents in memory, files and digests.
//!
//! ```text
//! MODULE_2   ReJSON-RL, encoding 0, 2, 3, 4 │ items           read: see `dunlin_json::forms`
//!            ReJSON-RL, encoding 3 │ string: the JSON text     written: RedisJSON 2, Redis 8 and Valkey read it
//! ```

use std::{io, sync::Arc};

use dunlin_json::{Layout as TextLayout, Writer, forms, write_text};
use dunlin_structures::Relocator;

use super::{Form, Json};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Item, ItemReader, ItemWriter, Output, RdbError, Version, types},
    snapshot::SnapshotQueue,
    value::{ValueType, incremental_copy::IncrementalCopy, module::ModuleValue, stored::Stored},
};

/// The version of the encoding that is written.
const WRITTEN: u16 = 3;
/// The newest that is read.
const READ_MAX: u16 = 4;
/// Texts of up to this many bytes are written as one string, which may be compressed.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the pieces of longer texts.
const PIECE_BYTES: usize = 64 << 10;

impl Stored for Json {
    const TYPE: ValueType = ValueType::Json;

    /// Redis's name for values of modules.
    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn copied(&self) -> Self {
        match &self.form {
            Form::Lent(_) => self.clone(),
            Form::Held(held) => Self::from(held.document.apart()),
        }
    }

    fn carry_copies_to(&self, _: &Self) {}

    fn is(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Held(one), Form::Held(other)) if one.document.is(&other.document) => true,
            _ => match (crate::value::Collection::packed(self), crate::value::Collection::packed(other)) {
                (Some(one), Some(other)) => one.bytes == other.bytes,
                _ => false,
            },
        }
    }

    /// Never: a change beside a view copies one block, not the document.
    fn is_shared(&self) -> bool {
        false
    }

    /// None: a clone shares all blocks.
    fn begin_copy(&self, _: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        None
    }

    fn relocate(&mut self, _: &mut Relocator) {}

    fn rdb_type(&self, _: Version) -> u8 {
        types::MODULE_2
    }

    fn write_rdb<W: io::Write>(&self, _: Version, _: u64, output: &mut Output<'_, W>) -> io::Result<()> {
        let mut items = ItemWriter::begin(output, Self::NAME, WRITTEN)?;
        // The text is some tenths longer than the packed form, at most.
        if self.bytes() <= WHOLE_BYTES_MAX {
            let mut text = Vec::new();
            write_text(self.root(), &mut text);
            items.string(&text)?;
            return items.end();
        }
        let mut length = 0;
        self.for_each_piece(|piece| {
            length += piece.len();
            Ok(())
        })?;
        items.string_in_pieces(length, |output| self.for_each_piece(|piece| output.raw(piece)))?;
        items.end()
    }

    fn is_written_in_elements(&self, _: Version) -> bool {
        false
    }

    /// JSON.SET of the root, as RedisJSON writes it. No server without JSON has another command for it.
    fn write_commands(&self, _: Version, _: u64, commands: &mut CommandWriter<'_>) -> bool {
        let mut text = Vec::new();
        write_text(self.root(), &mut text);
        let key = commands.key();
        commands.command(&[b"JSON.SET", key, b"$", &text]);
        true
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        let mut text = Vec::new();
        write_text(self.root(), &mut text);
        digest.mix(&text);
    }
}

impl Json {
    /// Hands the minified text over in pieces.
    fn for_each_piece(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut writer = Writer::new(self.root(), TextLayout::default(), 0);
        let mut piece = Vec::new();
        loop {
            let more = writer.write(&mut piece, PIECE_BYTES);
            take(&piece)?;
            piece.clear();
            if !more {
                return Ok(());
            }
        }
    }
}

impl ModuleValue for Json {
    const NAME: &[u8; 9] = b"ReJSON-RL";

    fn reads(version: u16) -> bool {
        version != 1 && version <= READ_MAX
    }

    fn read_items<R: io::BufRead>(version: u16, items: &mut ItemReader<'_, R>) -> Result<Self, RdbError> {
        const MALFORMED: RdbError = RdbError::Corrupt("a JSON document is malformed");
        let mut read = Vec::new();
        while let Some(item) = items.next()? {
            read.push(item);
        }
        let items = read.iter().map(|item| match item {
            Item::Signed(number) => forms::Item::Signed(*number),
            Item::Unsigned(number) => forms::Item::Unsigned(*number),
            Item::Float(number) => forms::Item::Double(f64::from(*number)),
            Item::Double(number) => forms::Item::Double(*number),
            Item::String(text) => forms::Item::String(text),
        });
        forms::load(version, items).map(Self::from).map_err(|_| MALFORMED)
    }
}
