//! Sorted sets.
//!
//! ```text
//! ZSET_2          count │ member │ score: f64 LE │ …    the greatest first
//! ZSET_LISTPACK   a string: the listpack               member, score, member, score … in order
//! ZSET_ZIPLIST    a string: the ziplist                as the listpack; before Redis 7.0
//! ```
//!
//! Only read:
//!
//! ```text
//! ZSET            count │ member │ score │ …           a score: length: u8, so many characters
//!                                                      253 NaN │ 254 infinity │ 255 minus infinity
//! ```

use std::{cmp::Ordering, io, sync::Arc};

use dunlin_structures::{Element, Listpack};

use super::{Gathered, Members, SortedSet, exact_text};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Input, Output, RdbError, Version, all_differ, read_listpack, types, ziplist},
    snapshot::SnapshotQueue,
    value::{
        Collection, Layout, MemberTable, ValueType,
        incremental_copy::{IncrementalCopy, RecordForm, table::CopiedTable},
        parse_float,
        stored::Stored,
    },
};

const TWICE: RdbError = RdbError::Corrupt("a sorted set has a member twice");
const NO_SCORE: RdbError = RdbError::Corrupt("a score is not a number");
const NAN: u8 = 253;
const INFINITY: u8 = 254;
const MINUS_INFINITY: u8 = 255;

impl Stored for SortedSet {
    const TYPE: ValueType = ValueType::SortedSet;

    fn copied(&self) -> Self {
        match &self.members {
            Members::Ranked(ranked) => Self { members: Members::Ranked(ranked.copied()) },
            _ => self.clone(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (&self.members, &other.members) {
            (Members::Packed(one), Members::Packed(other)) => one.bytes() == other.bytes(),
            (Members::Block(one), Members::Block(other)) => one == other,
            (Members::Ranked(one), Members::Ranked(other)) => one.is(other),
            _ => false,
        }
    }

    #[inline]
    fn is_shared(&self) -> bool {
        matches!(&self.members, Members::Ranked(ranked) if ranked.is_shared())
    }

    fn copied_table(&self) -> Option<&dyn CopiedTable> {
        match &self.members {
            Members::Ranked(ranked) => Some(&**ranked),
            Members::Packed(_) | Members::Block(_) => None,
        }
    }

    fn table(&self) -> Option<&MemberTable> {
        match &self.members {
            Members::Packed(_) | Members::Block(_) => None,
            Members::Ranked(ranked) => Some(ranked.table()),
        }
    }

    fn encoding(&self) -> &'static str {
        match &self.members {
            Members::Packed(_) => "listpack",
            Members::Block(_) | Members::Ranked(_) => "skiplist",
        }
    }

    fn carry_copies_to(&self, copy: &Self) {
        if let (Some(copy), Some(table)) = (copy.table(), self.table()) {
            copy.carry_copies(table);
        }
    }

    /// None if some of its table's records are those of former members.
    fn begin_copy(&self, snapshot_queue: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        if self.next_deadline_ms().is_some() {
            return None;
        }
        let table = self.copied_table()?;
        Some(IncrementalCopy::Records(RecordForm::ScoredMember, table.begin(self.len(), snapshot_queue)))
    }

    fn reap(&mut self, elements_max: usize) -> usize {
        Self::reap(self, elements_max)
    }

    fn rdb_type(&self, version: Version) -> u8 {
        match self.compact_bytes() {
            None => types::ZSET_2,
            Some(_) if version.has_listpacks() => types::ZSET_LISTPACK,
            Some(_) => types::ZSET_ZIPLIST,
        }
    }

    fn write_rdb<W: io::Write>(
        &self,
        version: Version,
        _now_ms: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()> {
        match self.compact_bytes() {
            Some(bytes) if !version.has_listpacks() => ziplist::write(bytes, output),
            _ => write(self, output),
        }
    }

    fn read_rdb<R: io::BufRead>(
        type_number: u8,
        _: Version,
        input: &mut Input<R>,
        layout: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        Some(match type_number {
            types::ZSET => read_pairs(input, layout, score_text),
            types::ZSET_2 => read_pairs(input, layout, Input::double),
            types::ZSET_ZIPLIST => input.string().and_then(|bytes| from_ziplist(&bytes, layout)),
            types::ZSET_LISTPACK => read_listpack(input).and_then(|listpack| from_listpack(listpack, layout)),
            _ => return None,
        })
    }

    /// ZADD, which may not keep a score that is -0.
    fn write_commands(&self, _: Version, _: u64, commands: &mut CommandWriter<'_>) -> bool {
        if has_negative_zero(self) {
            return false;
        }
        let mut batch = commands.batch(b"ZADD");
        self.for_each(|member, score| {
            batch.item(&[Element::String(exact_text(score).as_bytes()), member]);
        });
        batch.finish();
        true
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        self.for_each(|member, score| digest.xor_pair(&member.text(), exact_text(score).as_bytes()));
    }
}

/// Whether a score is the zero below zero: ZADD begins with a listpack, which knows one zero only.
fn has_negative_zero(set: &SortedSet) -> bool {
    let mut has = false;
    set.for_each(|_, score| has |= score == 0.0 && score.is_sign_negative());
    has
}

fn write<W: io::Write>(set: &SortedSet, output: &mut Output<'_, W>) -> io::Result<()> {
    if let Some(bytes) = set.compact_bytes() {
        return output.string(bytes);
    }
    output.length(set.len() as u64)?;
    let mut result = Ok(());
    // From behind, as Redis, whose loading then appends to the front of its list.
    set.for_range(0..set.len(), true, |member, score| {
        if result.is_ok() {
            result = output.element(member).and_then(|()| output.double(score));
        }
    });
    result
}

/// ZSET_2 or ZSET, which differ in the form that `read_score` reads.
fn read_pairs<R: io::BufRead>(
    input: &mut Input<R>,
    layout: Layout<'_>,
    read_score: impl Fn(&mut Input<R>) -> Result<f64, RdbError>,
) -> Result<SortedSet, RdbError> {
    let mut gathered = Gathered::new(layout);
    let mut member = Vec::new();
    for _ in 0..input.length()? {
        input.string_into(&mut member)?;
        let score = read_score(input)?;
        if score.is_nan() {
            return Err(NO_SCORE);
        }
        add(&mut gathered, &member, score)?;
    }
    Ok(gathered.finish(layout))
}

/// The score of ZSET.
fn score_text<R: io::BufRead>(input: &mut Input<R>) -> Result<f64, RdbError> {
    match input.byte()? {
        NAN => Err(NO_SCORE),
        INFINITY => Ok(f64::INFINITY),
        MINUS_INFINITY => Ok(f64::NEG_INFINITY),
        length => parse_float(&input.bytes(length.into())?).ok_or(NO_SCORE),
    }
}

fn add(gathered: &mut Gathered, member: &[u8], score: f64) -> Result<(), RdbError> {
    let mut is_new = true;
    gathered.add(member, |there| {
        is_new = there.is_none();
        score
    });
    if is_new { Ok(()) } else { Err(TWICE) }
}

fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Result<SortedSet, RdbError> {
    if !listpack.len().is_multiple_of(2) {
        return Err(RdbError::Corrupt("a sorted set has a member without a score"));
    }
    if !all_differ(listpack.view().iter().step_by(2)) {
        return Err(TWICE);
    }
    let mut before: Option<(Element<'_>, f64)> = None;
    let mut elements = listpack.view().iter();
    while let (Some(member), Some(score)) = (elements.next(), elements.next()) {
        let score = score_of(score)?;
        if before.is_some_and(|(former, former_score)| {
            let by_score = former_score.partial_cmp(&score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| former.text().cmp(&member.text())).is_gt()
        }) {
            return Err(RdbError::Corrupt("a sorted set is not in order"));
        }
        before = Some((member, score));
    }
    Ok(SortedSet::from_listpack(listpack, layout))
}

fn score_of(element: Element<'_>) -> Result<f64, RdbError> {
    match element {
        Element::Integer(integer) => Ok(integer as f64),
        Element::String(text) => parse_float(text).ok_or(NO_SCORE),
    }
}

fn from_ziplist(bytes: &[u8], layout: Layout<'_>) -> Result<SortedSet, RdbError> {
    from_listpack(ziplist::to_listpack(bytes)?, layout)
}
