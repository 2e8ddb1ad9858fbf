//! Values of types that Dunlin does not have: those of modules. Such values are kept as they were read, and can be
//! copied, renamed, expired, evicted, moved and written again, byte for byte. No command looks into them.
//!
//! ```text
//! MODULE_2   module id: length │ items                                        see rdb::module
//! ```
//!
//! Sources: `module.c` and `rdb.c` of Redis 7.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{ValueType, incremental_copy::IncrementalCopy, stored::Stored};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{ModuleName, Output, Version, types},
    snapshot::SnapshotQueue,
};

/// A value of a type that Dunlin does not have. Clones share it: it never changes.
#[derive(Debug, Clone)]
pub struct Foreign(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    name: ModuleName,
    /// The value as files have it, behind its type, with the module's id.
    bytes: Box<[u8]>,
    /// Whether the module has changed the value elsewhere since.
    is_stale: AtomicBool,
}

impl Foreign {
    /// The name that `TYPE` answers: that of the module's type.
    pub fn type_name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Bytes outside the object that holds it.
    #[inline]
    pub(crate) fn outside_bytes(&self) -> usize {
        /// The counts before what an `Arc` holds.
        const COUNTS_BYTES: usize = 2 * size_of::<usize>();
        COUNTS_BYTES + size_of::<Kept>() + self.0.bytes.len()
    }

    /// Never: what it holds is not known.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        false
    }

    /// Never: nothing in it is known to expire.
    #[inline]
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Notes that the module has changed the value elsewhere: these bytes are no longer the value, nor those of copies that share
    /// them. Returns whether that was not noted before.
    pub(crate) fn mark_stale(&self) -> bool {
        !self.0.is_stale.swap(true, Relaxed)
    }

    pub(super) fn new(name: ModuleName, bytes: Vec<u8>, is_stale: bool) -> Self {
        Self(Arc::new(Kept { name, bytes: bytes.into(), is_stale: AtomicBool::new(is_stale) }))
    }
}

impl Stored for Foreign {
    const TYPE: ValueType = ValueType::Foreign;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn copied(&self) -> Self {
        Self::new(self.0.name, self.0.bytes.to_vec(), self.0.is_stale.load(Relaxed))
    }

    fn carry_copies_to(&self, _: &Self) {}

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn is_shared(&self) -> bool {
        // No command changes it.
        false
    }

    fn begin_copy(&self, _: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        None
    }

    fn rdb_type(&self, _: Version) -> u8 {
        types::MODULE_2
    }

    fn write_rdb<W: io::Write>(&self, _: Version, _: u64, output: &mut Output<'_, W>) -> io::Result<()> {
        output.raw(&self.0.bytes)
    }

    fn is_written_in_elements(&self, _: Version) -> bool {
        false
    }

    /// No commands make it here; RESTORE does.
    fn write_commands(&self, _: Version, _: u64, _: &mut CommandWriter<'_>) -> bool {
        false
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        digest.mix(&self.0.bytes);
    }
}
