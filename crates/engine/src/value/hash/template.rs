//! Hashes whose names of fields stand elsewhere, as Redis 8.10 writes them: hashes with equal names share one template.
//!
//! ```text
//! template                id: length │ count │ name …                 in a file, before the keys
//! HASH_TEMPLATE_REF       a string: the listpack                      template's id, value, value …
//! HASH_TEMPLATE_ARRAY_REF template's id: length │ value …
//! HASH_TEMPLATE           names │ a string: the listpack              an id that says nothing, value, value …
//! HASH_TEMPLATE_ARRAY     names │ value …
//! names                   00 │ a string: their listpack      or      01 │ count │ name …
//! ```
//!
//! The forms with a reference stand in files, the others in dumps; a file may hold both. Names ascend, shorter ones first. A
//! hash becomes an ordinary one here: its form depends on its fields alone.
//!
//! Sources: Redis pull requests 15364 and 15519, librdb pull request 107; payloads of Redis's tests. No file of a server of that
//! version has been read yet (docs/formats/rdb.md).

use std::{collections::HashMap, io};

use dunlin_structures::Element;

use super::{Hash, stored::add};
use crate::{
    rdb::{Input, RdbError, read_listpack, types},
    value::Layout,
};

const UNSORTED: RdbError = RdbError::Corrupt("the fields of a template do not ascend");
const NO_FIELDS: RdbError = RdbError::Corrupt("a template has no fields");
const OTHER_COUNT: RdbError =
    RdbError::Corrupt("a hash has another number of values than its template has fields");
const NO_TEMPLATE: RdbError = RdbError::Corrupt("a hash refers to a template that the file does not have");

/// Before names that are a listpack.
const NAMES_LISTPACK: u8 = 0;
/// Before names that are counted strings.
const NAMES_COUNTED: u8 = 1;

/// The templates of a file by their ids. Memory follows the bytes that were read, whatever the ids are.
#[derive(Debug, Default)]
pub struct HashTemplates(HashMap<u64, Names>);

/// The names of fields of a template.
#[derive(Debug)]
struct Names(Vec<Box<[u8]>>);

impl HashTemplates {
    /// Reads a template. O(bytes).
    ///
    /// # Errors
    /// If it breaks a rule of the format, or there is one of its id.
    pub fn read<R: io::BufRead>(&mut self, input: &mut Input<R>) -> Result<(), RdbError> {
        let id = input.length()?;
        let names = Names::read_counted(input)?;
        match self.0.insert(id, names) {
            None => Ok(()),
            Some(_) => Err(RdbError::Corrupt("two templates have the same id")),
        }
    }

    /// Reads a hash that refers to a template; `None` if the number is that of no such form. O(bytes).
    pub(crate) fn read_hash<R: io::BufRead>(
        &self,
        type_number: u8,
        input: &mut Input<R>,
        layout: Layout<'_>,
    ) -> Option<Result<Hash, RdbError>> {
        Some(match type_number {
            types::HASH_TEMPLATE_REF => read_packed(input, |id| self.names(id), layout),
            types::HASH_TEMPLATE_ARRAY_REF => {
                input.length().and_then(|id| self.names(id)?.read_values(input, layout))
            }
            _ => return None,
        })
    }

    fn names(&self, id: u64) -> Result<&Names, RdbError> {
        self.0.get(&id).ok_or(NO_TEMPLATE)
    }
}

impl Names {
    fn read<R: io::BufRead>(input: &mut Input<R>) -> Result<Self, RdbError> {
        match input.byte()? {
            NAMES_LISTPACK => {
                let listpack = read_listpack(input)?;
                Self::ascending(listpack.view().iter().map(|name| name.text().into_owned().into()).collect())
            }
            NAMES_COUNTED => Self::read_counted(input),
            _ => Err(RdbError::Corrupt("the fields of a template have no known form")),
        }
    }

    fn read_counted<R: io::BufRead>(input: &mut Input<R>) -> Result<Self, RdbError> {
        let mut names = Vec::new();
        for _ in 0..input.length()? {
            names.push(input.string()?.into());
        }
        Self::ascending(names)
    }

    fn ascending(names: Vec<Box<[u8]>>) -> Result<Self, RdbError> {
        let order = |name: &[u8], next: &[u8]| (name.len(), name).cmp(&(next.len(), next));
        match &names[..] {
            [] => Err(NO_FIELDS),
            names_ if names_.windows(2).all(|pair| order(&pair[0], &pair[1]).is_lt()) => Ok(Self(names)),
            _ => Err(UNSORTED),
        }
    }

    /// Reads as many values as there are names.
    fn read_values<R: io::BufRead>(
        &self,
        input: &mut Input<R>,
        layout: Layout<'_>,
    ) -> Result<Hash, RdbError> {
        let mut hash = Hash::for_fields(self.0.len() as u64, layout);
        let mut value = Vec::new();
        for name in &self.0 {
            input.string_into(&mut value)?;
            add(&mut hash, name, &value, None, layout)?;
        }
        Ok(hash)
    }
}

/// Reads a listpack of a template's id and values. `names` finds the names for the id.
fn read_packed<'n, R: io::BufRead>(
    input: &mut Input<R>,
    names: impl FnOnce(u64) -> Result<&'n Names, RdbError>,
    layout: Layout<'_>,
) -> Result<Hash, RdbError> {
    let listpack = read_listpack(input)?;
    let mut values = listpack.view().iter();
    let Some(Element::Integer(id)) = values.next() else {
        return Err(RdbError::Corrupt("the values of a hash do not begin with the id of a template"));
    };
    let Names(names) = names(u64::try_from(id).map_err(|_| NO_TEMPLATE)?)?;
    if listpack.len() != names.len() + 1 {
        return Err(OTHER_COUNT);
    }
    let mut hash = Hash::for_fields(names.len() as u64, layout);
    for (name, value) in names.iter().zip(values) {
        add(&mut hash, name, &value.text(), None, layout)?;
    }
    Ok(hash)
}

/// Reads a hash with its own names; `None` if the number is that of no such form. O(bytes).
pub(super) fn read_whole<R: io::BufRead>(
    type_number: u8,
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Option<Result<Hash, RdbError>> {
    Some(match type_number {
        types::HASH_TEMPLATE => {
            Names::read(input).and_then(|names| read_packed(input, |_| Ok(&names), layout))
        }
        types::HASH_TEMPLATE_ARRAY => Names::read(input).and_then(|names| names.read_values(input, layout)),
        _ => return None,
    })
}
