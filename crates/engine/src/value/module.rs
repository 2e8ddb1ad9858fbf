//! Values that files hold as those of a module, of types that are here: the registry of their names.
//!
//! ```text
//! MODULE_2   id: nine characters, version │ items        rdb::module
//!              └─ a type of the registry that reads the version │ Foreign, kept as it came (decision 0095)
//! ```

use std::io;

use super::{
    Object,
    array::{ARRAY_MODULE, read_wrapped},
    foreign::Foreign,
    json::Json,
    stored::Stored,
};
use crate::rdb::{Input, ItemReader, ModuleName, RdbError, skip_items};

/// A type whose values are those of a module in files.
pub(crate) trait ModuleValue: Stored {
    /// The name of the module's type.
    const NAME: &[u8; 9];

    /// Whether it reads that version of the encoding. A value of another one is kept as it came.
    fn reads(version: u16) -> bool;

    /// Reads a value of a version that it reads, with the mark behind the items. Memory grows with what has arrived,
    /// never with what was announced.
    ///
    /// # Errors
    /// If the source ends, or the items are not those of the form.
    fn read_items<R: io::BufRead>(version: u16, items: &mut ItemReader<'_, R>) -> Result<Self, RdbError>;
}

/// Reads the value of a module as one of its type if that is here. O(bytes).
pub(super) fn read_module<R: io::BufRead>(input: &mut Input<R>) -> Result<Object, RdbError> {
    let (id, id_bytes) = input.recorded(|input| input.length())?;
    let (name, version) = (ModuleName::of_id(id), ModuleName::version_in(id));
    macro_rules! registry {
        ($($variant:ident),*) => {
            $(
                if name.as_str().as_bytes() == $variant::NAME && $variant::reads(version) {
                    return $variant::read_items(version, &mut ItemReader::new(input)).map(Object::$variant);
                }
            )*
        };
    }
    registry!(Json);
    #[expect(
        clippy::redundant_closure,
        reason = "the function itself is not general over the recording's lifetime"
    )]
    let ((), items) = input.recorded(|input| skip_items(input))?;
    let bytes = [id_bytes, items].concat();
    Ok(match id {
        ARRAY_MODULE => Object::Array(read_wrapped(&bytes)?),
        _ => Object::Foreign(Foreign::new(name, bytes, false)),
    })
}
