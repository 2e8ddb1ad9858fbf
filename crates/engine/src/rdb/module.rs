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

use super::{Input, RdbError};

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
            return Err(RdbError::Corrupt("data of a module has no known form"));
        }
        let place = input.length()?;
        skip_items(input)?;
        Ok((module, place == BEHIND))
    })?;
    Ok(ModuleAux { module, is_behind, bytes })
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
            _ => return Err(RdbError::Corrupt("data of a module has no known form")),
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
