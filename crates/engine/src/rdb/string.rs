//! Strings.

use std::io;

use crate::value::StringRef;

use super::Output;

pub(super) fn write<W: io::Write>(string: StringRef<'_>, output: &mut Output<'_, W>) -> io::Result<()> {
    match string {
        StringRef::Integer(value) => output.integer(value),
        StringRef::Inline(text) => output.string(text),
        StringRef::Shared(payload) => output.string(payload.bytes()),
        StringRef::Rope(rope) => output.rope(rope.rope()),
    }
}
