//! Memory, copies, files and digests of collections, whatever their type: the one trait that a new type implements, in its
//! own folder ([`Object`] then needs a variant for it, and [`each`] a line).

use std::{io, sync::Arc};

use dunlin_structures::{Element, Relocator};

use super::{
    Layout, MemberTable, Object, ValueType,
    incremental_copy::{IncrementalCopy, table::CopiedTable},
    module::read_module,
};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Input, Output, RdbError, Version, types},
    snapshot::SnapshotQueue,
};

/// A collection as the keyspace, files, snapshots and digests see it.
pub(crate) trait Stored: Sized {
    /// Its type.
    const TYPE: ValueType;

    /// The name that `OBJECT ENCODING` answers.
    fn encoding(&self) -> &'static str;

    // Copies and views.

    /// A copy that shares nothing. O(n).
    fn copied(&self) -> Self;

    /// Hands what snapshots have of this collection over to a copy that takes its place.
    fn carry_copies_to(&self, copy: &Self);

    /// Whether it is what `other` was made from by cloning, unchanged: the same large form, or equal compact ones.
    /// O(bytes) if compact.
    fn is(&self, other: &Self) -> bool;

    /// Whether changing it would copy it first, because there is a view of it.
    fn is_shared(&self) -> bool;

    /// Begins an incremental copy for a snapshot; see [`IncrementalCopy::begin`].
    fn begin_copy(&self, snapshot_queue: &Arc<SnapshotQueue>) -> Option<IncrementalCopy>;

    // Elements that expire, or whose memory is given back later.

    /// The table of its elements, if they are in one.
    fn table(&self) -> Option<&MemberTable> {
        None
    }

    /// The table that is copied in pieces, or the one that has it.
    fn copied_table(&self) -> Option<&dyn CopiedTable> {
        None
    }

    /// Whether all its elements have expired.
    fn is_expired(&self, _now_ms: u64) -> bool {
        false
    }

    /// Reclaims elements that have expired, no more than `elements_max`. Returns how many, and whether none is left.
    /// `removing` is shown each.
    fn expire(
        &mut self,
        _now_ms: u64,
        _elements_max: usize,
        _removing: impl FnMut(Element<'_>),
    ) -> (usize, bool) {
        (0, false)
    }

    /// Gives back memory of elements that were removed, of no more than `elements_max`; of how many.
    fn reap(&mut self, _elements_max: usize) -> usize {
        0
    }

    /// Moves the block of a compact form to where the general allocator would rather have it. Nothing else changes.
    fn relocate(&mut self, _relocator: &mut Relocator) {}

    // Files.

    /// The oldest version from [`Version::OLDEST`] on that carries it.
    fn oldest_version(&self) -> Version {
        Version::OLDEST
    }

    /// [`Self::oldest_version`], or the version that also carries what [`Self::auxiliary_fields`] would say.
    fn whole_version(&self) -> Version {
        self.oldest_version()
    }

    /// The version of a dump of it: [`Self::oldest_version`], or the version that also carries what must not be lost.
    fn dump_version(&self) -> Version {
        self.oldest_version()
    }

    /// Why no form of a version carries it; `None` if one does. Nearly O(1).
    fn unfit(&self, _version: Version) -> Option<&'static str> {
        None
    }

    /// The number of the form in which files of a version have it. Parts that no form of that version carries are left out,
    /// see [`Self::unfit`].
    fn rdb_type(&self, version: Version) -> u8;

    /// Writes it in that form, without elements that have expired by `now_ms`. O(n).
    fn write_rdb<W: io::Write>(
        &self,
        version: Version,
        now_ms: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()>;

    /// Whether that form is a count and, in any order, the elements: those of an incremental copy will do.
    fn is_written_in_elements(&self, _version: Version) -> bool {
        true
    }

    /// Auxiliary fields before the key in files of a version, names and values: for parts of the value that its form does not
    /// carry.
    fn auxiliary_fields(&self, _version: Version) -> Vec<(&'static [u8], Vec<u8>)> {
        Vec::new()
    }

    /// Reads it in a form; `None` if the number is that of no form of this type. A collection of the right form for a
    /// compact encoding, but over its limits, leaves it at once. O(n).
    ///
    /// Values of modules have no number of their own: [`read_module`] reads them.
    fn read_rdb<R: io::BufRead>(
        _type_number: u8,
        _version: Version,
        _input: &mut Input<R>,
        _layout: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        None
    }

    /// Writes the commands that make it, for servers that load a version of RDB files, without elements that have
    /// expired by `now_ms`; false, and nothing written, if no commands would make it as it is. O(n).
    fn write_commands(&self, version: Version, now_ms: u64, commands: &mut CommandWriter<'_>) -> bool;

    // Digests.

    /// Adds its elements, but those that have expired by `now_ms`, to a digest as `DEBUG DIGEST-VALUE` has it.
    fn digest(&self, now_ms: u64, digest: &mut Digest);
}

/// Does the same with the collection in an object, whichever its type: `each!(object, collection => collection.encoding())`.
macro_rules! each {
    ($object:expr, $collection:ident => $work:expr) => {
        match $object {
            $crate::value::Object::Hash($collection) => $work,
            $crate::value::Object::List($collection) => $work,
            $crate::value::Object::Set($collection) => $work,
            $crate::value::Object::SortedSet($collection) => $work,
            $crate::value::Object::Stream($collection) => $work,
            $crate::value::Object::Array($collection) => $work,
            $crate::value::Object::Json($collection) => $work,
            $crate::value::Object::Foreign($collection) => $work,
        }
    };
}
pub(crate) use each;

/// Reads a collection in a form; `None` if the number is that of no form of any type.
pub(crate) fn read_object<R: io::BufRead>(
    type_number: u8,
    version: Version,
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Option<Result<Object, RdbError>> {
    macro_rules! first_of {
        ($($variant:ident),*) => {
            $(
                if let Some(read) = Stored::read_rdb(type_number, version, input, layout) {
                    return Some(read.map(Object::$variant));
                }
            )*
        };
    }
    first_of!(Hash, List, Set, SortedSet, Stream, Array);
    (type_number == types::MODULE_2).then(|| read_module(input))
}
