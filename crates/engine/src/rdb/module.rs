//! Data that modules write: self-describing items, which can be passed over without the module.
//!
//! ```text
//! module id      length: nine characters of six bits │ version of its encoding: 10 bits
//! items          (1 signed │ 2 unsigned: length │ 3 float: 4 bytes │ 4 double: 8 bytes │ 5 string) … │ 0, all marks lengths
//! key metadata   F3 │ classes: length, at most 7 │ (class: 4 bytes │ items) …       before a type, from Redis 8.6 on
//! ```
//!
//! Sources: `redismodule.h` and `module.c` of Redis 7, pull request 14445 of Redis, librdb.

use std::{fmt, io};

use super::{Input, Output, RdbError};

/// Stands before the metadata that modules have attached to a key, in Redis's versions.
pub const KEY_METADATA: u8 = 243;

/// Classes of metadata of a key, at most.
const CLASSES_MAX: u64 = 7;

/// The marks of items.
mod item {
    pub(super) const END: u64 = 0;
    pub(super) const SIGNED: u64 = 1;
    pub(super) const UNSIGNED: u64 = 2;
    pub(super) const FLOAT: u64 = 3;
    pub(super) const DOUBLE: u64 = 4;
    pub(super) const STRING: u64 = 5;
}

const UNKNOWN_ITEM: RdbError = RdbError::Corrupt("data of a module has no known form");

/// The name of a module's type: nine characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleName([u8; 9]);

impl ModuleName {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    /// Returns the id of a name, with the version 0 of its encoding.
    ///
    /// # Panics
    /// If a character is none of the 64.
    pub(crate) const fn id_of(name: &[u8; 9]) -> u64 {
        let (mut id, mut at) = (0, 0);
        while at < name.len() {
            let mut number = 0;
            while Self::CHARACTERS[number] != name[at] {
                number += 1;
            }
            id = id << 6 | number as u64;
            at += 1;
        }
        id << 10
    }

    /// Returns the version of the encoding in a module's id.
    pub(crate) fn version_in(id: u64) -> u16 {
        (id & 0x3ff) as u16
    }

    /// Returns the name in a module's id.
    pub fn of_id(id: u64) -> Self {
        Self(std::array::from_fn(|at| Self::CHARACTERS[(id >> (58 - 6 * at) & 0x3f) as usize]))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("its characters are ASCII")
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Data of a module beside the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleAux {
    /// The module's name.
    pub module: ModuleName,
    /// Whether the data stand behind the keys.
    pub is_behind: bool,
    /// The data as files have them: from the module's id to the end of its items.
    pub bytes: Vec<u8>,
}

/// Reads data of a module behind their opcode. O(bytes), which are kept.
///
/// # Errors
/// If the source ends, or the data have no known form.
pub fn read_module_aux<R: io::BufRead>(input: &mut Input<R>) -> Result<ModuleAux, RdbError> {
    /// The place of data behind the keys.
    const BEHIND: u64 = 2;
    let ((module, is_behind), bytes) = input.recorded(|input| {
        let module = ModuleName::of_id(input.length()?);
        if input.length()? != item::UNSIGNED {
            return Err(UNKNOWN_ITEM);
        }
        let place = input.length()?;
        skip_items(input)?;
        Ok((module, place == BEHIND))
    })?;
    Ok(ModuleAux { module, is_behind, bytes })
}

/// Reads the items of a value one by one.
#[derive(Debug)]
pub(crate) struct ItemReader<'i, R> {
    input: &'i mut Input<R>,
}

/// An item of a module's value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Signed(i64),
    Unsigned(u64),
    Float(f32),
    Double(f64),
    String(Vec<u8>),
}

impl<'i, R: io::BufRead> ItemReader<'i, R> {
    /// Reads items from behind the module's id.
    pub(crate) fn new(input: &'i mut Input<R>) -> Self {
        Self { input }
    }

    /// Reads the next item, whatever it is; `None` behind the last.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, RdbError> {
        Ok(Some(match self.input.length()? {
            item::END => return Ok(None),
            item::SIGNED => Item::Signed(self.input.length()? as i64),
            item::UNSIGNED => Item::Unsigned(self.input.length()?),
            item::FLOAT => Item::Float(f32::from_le_bytes(self.input.array()?)),
            item::DOUBLE => Item::Double(self.input.double()?),
            item::STRING => Item::String(self.input.string()?),
            _ => return Err(UNKNOWN_ITEM),
        }))
    }
}

/// Writes a value as that of a module: its id, its items, the mark behind them.
#[derive(Debug)]
pub(crate) struct ItemWriter<'o, 'c, W> {
    output: &'o mut Output<'c, W>,
}

impl<'o, 'c, W: io::Write> ItemWriter<'o, 'c, W> {
    /// Writes the id of a module's type with the version of the encoding.
    pub(crate) fn begin(output: &'o mut Output<'c, W>, name: &[u8; 9], version: u16) -> io::Result<Self> {
        output.length(ModuleName::id_of(name) | u64::from(version))?;
        Ok(Self { output })
    }

    /// Writes a string in its smallest form.
    pub(crate) fn string(&mut self, text: &[u8]) -> io::Result<()> {
        self.output.length(item::STRING)?;
        self.output.string(text)
    }

    /// Writes a string of `length` bytes that `write` hands over in pieces.
    pub(crate) fn string_in_pieces(
        &mut self,
        length: usize,
        write: impl FnOnce(&mut Output<'c, W>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.output.length(item::STRING)?;
        self.output.length(length as u64)?;
        write(self.output)
    }

    /// Writes the mark behind the last item.
    pub(crate) fn end(self) -> io::Result<()> {
        self.output.length(item::END)
    }
}

/// Reads over items up to their end. O(bytes), in memory for one string.
///
/// # Errors
/// If the source ends, or an item has no known form.
pub fn skip_items<R: io::BufRead>(input: &mut Input<R>) -> Result<(), RdbError> {
    let mut scratch = Vec::new();
    loop {
        match input.length()? {
            item::END => return Ok(()),
            item::SIGNED | item::UNSIGNED => {
                input.length()?;
            }
            item::FLOAT => {
                input.array::<4>()?;
            }
            item::DOUBLE => {
                input.array::<8>()?;
            }
            item::STRING => input.string_into(&mut scratch)?,
            _ => return Err(UNKNOWN_ITEM),
        }
    }
}

/// Reads over the metadata of a key, behind its mark. Redis drops it likewise if the module is not there.
///
/// # Errors
/// If the source ends, or the metadata has no known form.
pub fn skip_key_metadata<R: io::BufRead>(input: &mut Input<R>) -> Result<(), RdbError> {
    let classes = input.length()?;
    if classes > CLASSES_MAX {
        return Err(RdbError::Corrupt("a key has more classes of metadata than there can be"));
    }
    for _ in 0..classes {
        input.array::<4>()?;
        skip_items(input)?;
    }
    Ok(())
}
