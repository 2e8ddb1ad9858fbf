//! Sets.
//!
//! ```text
//! SET            count │ member │ …       strings
//! SET_INTSET     a string: the intset
//! SET_LISTPACK   a string: the listpack   Redis 7.2 and newer; only read, so that 7.0 can read ours
//! ```

use std::{io, sync::Arc};

use dunlin_structures::{IntSet, Listpack, Relocator};

use super::{Members, Set};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Input, Output, RdbError, Version, all_differ, read_listpack, types},
    snapshot::SnapshotQueue,
    value::{
        Layout, MemberTable, ValueType,
        incremental_copy::{IncrementalCopy, RecordForm, table::CopiedTable},
        stored::Stored,
    },
};

const TWICE: RdbError = RdbError::Corrupt("a set has a member twice");

impl Stored for Set {
    const TYPE: ValueType = ValueType::Set;

    fn copied(&self) -> Self {
        match &self.members {
            Members::Table(table) => Self { members: Members::Table(table.copied()) },
            _ => self.clone(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (&self.members, &other.members) {
            (Members::IntSet(one), Members::IntSet(other)) => one.bytes() == other.bytes(),
            (Members::Listpack(one), Members::Listpack(other)) => one.bytes() == other.bytes(),
            (Members::Block(one), Members::Block(other)) => one == other,
            (Members::Table(one), Members::Table(other)) => one.is(other),
            _ => false,
        }
    }

    #[inline]
    fn is_shared(&self) -> bool {
        matches!(&self.members, Members::Table(table) if table.is_shared())
    }

    fn relocate(&mut self, relocator: &mut Relocator) {
        match &mut self.members {
            Members::IntSet(set) => set.relocate(relocator),
            Members::Listpack(listpack) => listpack.relocate(relocator),
            Members::Block(block) => block.relocate(relocator),
            Members::Table(_) => {}
        }
    }

    fn copied_table(&self) -> Option<&dyn CopiedTable> {
        match &self.members {
            Members::Table(table) => Some(&**table),
            _ => None,
        }
    }

    fn table(&self) -> Option<&MemberTable> {
        match &self.members {
            Members::Table(table) => Some(table),
            _ => None,
        }
    }

    fn encoding(&self) -> &'static str {
        match &self.members {
            Members::IntSet(_) => "intset",
            Members::Listpack(_) => "listpack",
            Members::Block(_) | Members::Table(_) => "hashtable",
        }
    }

    fn carry_copies_to(&self, copy: &Self) {
        if let (Some(copy), Some(table)) = (copy.table(), self.table()) {
            copy.carry_copies(table);
        }
    }

    fn begin_copy(&self, snapshot_queue: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        let table = self.copied_table()?;
        Some(IncrementalCopy::Records(RecordForm::Member, table.begin(self.len(), snapshot_queue)))
    }

    fn reap(&mut self, elements_max: usize) -> usize {
        Self::reap(self, elements_max)
    }

    fn rdb_type(&self, _: Version) -> u8 {
        if self.integers().is_some() { types::SET_INTSET } else { types::SET }
    }

    fn write_rdb<W: io::Write>(
        &self,
        _: Version,
        _now_ms: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()> {
        write(self, output)
    }

    fn read_rdb<R: io::BufRead>(
        type_number: u8,
        _: Version,
        input: &mut Input<R>,
        layout: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        Some(match type_number {
            types::SET => read_members(input, layout),
            types::SET_INTSET => input.string().and_then(|bytes| from_intset(bytes, layout)),
            types::SET_LISTPACK => read_listpack(input).and_then(|listpack| from_listpack(listpack, layout)),
            _ => return None,
        })
    }

    /// SADD.
    fn write_commands(&self, _: Version, _: u64, commands: &mut CommandWriter<'_>) -> bool {
        let mut batch = commands.batch(b"SADD");
        self.for_each(|member| batch.item(&[member]));
        batch.finish();
        true
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        self.for_each(|member| digest.xor(&member.text()));
    }
}

fn write<W: io::Write>(set: &Set, output: &mut Output<'_, W>) -> io::Result<()> {
    if let Some(integers) = set.integers() {
        return output.string(integers.bytes());
    }
    output.length(set.len() as u64)?;
    let mut result = Ok(());
    set.for_each(|member| {
        if result.is_ok() {
            result = output.element(member);
        }
    });
    result
}

fn read_members<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<Set, RdbError> {
    let count = input.length()?;
    let mut set = Set::for_members(count, layout);
    let mut member = Vec::new();
    for _ in 0..count {
        input.string_into(&mut member)?;
        if !set.insert(&member, layout) {
            return Err(TWICE);
        }
    }
    Ok(set)
}

fn from_intset(bytes: Vec<u8>, layout: Layout<'_>) -> Result<Set, RdbError> {
    Ok(Set::from_intset(IntSet::from_bytes(bytes)?, layout))
}

fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Result<Set, RdbError> {
    if !all_differ(listpack.view().iter()) {
        return Err(TWICE);
    }
    Ok(Set::from_listpack(listpack, layout))
}
