//! A run of entries in one listpack, in Redis's layout:
//!
//! ```text
//! master   live │ deleted │ fields │ field … │ 0            names of the fields of the first entry
//! entry    flags │ ms │ seq │ value … │ items               with the master's fields (SAMEFIELDS)
//!          flags │ ms │ seq │ fields │ field │ value … │ items
//! ```
//! `ms` and `seq` are relative to the ID that the node is filed under, that of its first entry; they
//! wrap. `items` is how many elements stand before it in the entry: the way back. An entry that is
//! removed keeps its place, with a flag; a node without live entries is removed.

use dunlin_structures::{Corrupt, Element, Elements, Listpack, Position};

use super::StreamId;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// Elements of an entry beside fields and values: flags, two differences.
const ENTRY_HEAD: usize = 3;

/// A run of entries.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The ID to which IDs inside are relative.
    pub(super) first: StreamId,
    pub(super) entries: Listpack,
    /// The counts of the master entry, kept if they need no decoding.
    live: u32,
    deleted: u32,
}

/// The part before the entries.
#[derive(Clone)]
struct Master<'a> {
    fields: usize,
    /// The names, and behind them the 0 and the entries.
    names: Elements<'a>,
}

/// An entry of a stream.
#[derive(Clone)]
pub struct StreamEntry<'a> {
    /// Its name.
    pub id: StreamId,
    fields: usize,
    names: Option<Elements<'a>>,
    items: Elements<'a>,
}

impl<'a> StreamEntry<'a> {
    /// How many fields it has.
    pub fn len(&self) -> usize {
        self.fields
    }

    /// Whether it has none, which no entry has.
    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// Its fields with their values, in order.
    pub fn fields(&self) -> impl Iterator<Item = (Element<'a>, Element<'a>)> + use<'a> {
        let (mut names, mut items) = (self.names.clone(), self.items.clone());
        (0..self.fields).map_while(move |_| {
            let name = match &mut names {
                Some(names) => names.next()?,
                None => items.next()?,
            };
            Some((name, items.next()?))
        })
    }
}

/// An entry where it stands, live or not.
#[derive(Clone)]
pub(super) struct Placed<'a> {
    pub(super) entry: StreamEntry<'a>,
    pub(super) is_live: bool,
    flags_at: Position,
    flags: i64,
    /// The entry behind it.
    next: Option<Position>,
}

impl Node {
    /// A node with its first entry; `pairs` are fields and values. `bytes_expected` is what it will
    /// probably grow to.
    pub(super) fn new(id: StreamId, pairs: &[&[u8]], bytes_expected: usize) -> Self {
        let mut entries = Listpack::with_capacity(bytes_expected);
        let fields = pairs.len() / 2;
        let counts = [1, 0, fields as i64].map(Element::Integer);
        let names = pairs.iter().step_by(2).map(|field| Element::String(field));
        entries.extend(counts.into_iter().chain(names).chain([Element::Integer(0)]));
        let mut node = Self { first: id, entries, live: 1, deleted: 0 };
        node.push_entry(id, pairs, true);
        node
    }

    /// Takes a node from outside. The listpack has been found sound; this looks at its contents.
    pub(super) fn from_listpack(first: StreamId, entries: Listpack) -> Result<Self, Corrupt> {
        let mut node = Self { first, entries, live: 0, deleted: 0 };
        let counts = node.told_counts().ok_or(Corrupt("stream node has no counts"))?;
        let master = node.master().ok_or(Corrupt("stream node has no master entry"))?;
        let mut at = node.first_entry(&master);
        let (mut live, mut deleted, mut last) = (0_u32, 0_u32, None);
        while let Some(position) = at {
            let placed = node.entry_at(position, &master).ok_or(Corrupt("stream entry is cut short"))?;
            if last.is_some_and(|last| placed.entry.id <= last) || placed.entry.id < first {
                return Err(Corrupt("stream entries are out of order"));
            }
            last = Some(placed.entry.id);
            if placed.is_live {
                live += 1
            } else {
                deleted += 1
            }
            at = placed.next;
        }
        if counts != (i64::from(live), i64::from(deleted)) {
            return Err(Corrupt("stream node counts other entries than it has"));
        }
        (node.live, node.deleted) = (live, deleted);
        Ok(node)
    }

    /// The counts that the listpack begins with: live and deleted entries.
    fn told_counts(&self) -> Option<(i64, i64)> {
        let mut elements = self.entries.view().iter();
        Some((elements.next()?.as_integer()?, elements.next()?.as_integer()?))
    }

    fn master(&self) -> Option<Master<'_>> {
        let view = self.entries.view();
        let fields_at = view.next(view.next(view.first()?)?)?;
        let mut elements = view.iter_from(fields_at);
        let fields = usize::try_from(elements.next()?.as_integer()?).ok()?;
        Some(Master { fields, names: elements })
    }

    /// Position of the first entry.
    fn first_entry(&self, master: &Master<'_>) -> Option<Position> {
        let mut elements = master.names.clone();
        for _ in 0..master.fields {
            elements.next()?;
        }
        // A reader that goes back from the first entry stops at this.
        (elements.next()?.as_integer()? == 0).then_some(())?;
        elements.position()
    }

    /// Live entries.
    pub(super) fn live(&self) -> usize {
        self.live as usize
    }

    /// Whether one more entry of `bytes` goes elsewhere.
    pub(super) fn is_full(&self, bytes: usize, bytes_max: usize, entries_max: usize) -> bool {
        if self.entries.bytes().len() + bytes >= bytes_max {
            return true;
        }
        let total = u64::from(self.live) + u64::from(self.deleted);
        entries_max > 0 && total >= entries_max as u64
    }

    /// Appends an entry behind all others.
    pub(super) fn push(&mut self, id: StreamId, pairs: &[&[u8]]) {
        let master = self.master().expect("a node begins with its master entry");
        let names = master.names.clone().take(master.fields);
        let own = pairs.iter().step_by(2);
        let same_fields =
            master.fields == pairs.len() / 2 && names.zip(own).all(|(name, own)| name.eq_bytes(own));
        self.live += 1;
        self.write_count(0, self.live);
        self.push_entry(id, pairs, same_fields);
    }

    fn push_entry(&mut self, id: StreamId, pairs: &[&[u8]], same_fields: bool) {
        let fields = pairs.len() / 2;
        let ms = id.ms.wrapping_sub(self.first.ms) as i64;
        let seq = id.seq.wrapping_sub(self.first.seq) as i64;
        if same_fields {
            let head = [SAME_FIELDS, ms, seq].map(Element::Integer);
            let values = pairs.iter().skip(1).step_by(2).map(|value| Element::String(value));
            let way_back = Element::Integer((ENTRY_HEAD + fields) as i64);
            self.entries.extend(head.into_iter().chain(values).chain([way_back]));
        } else {
            let head = [0, ms, seq, fields as i64].map(Element::Integer);
            let items = pairs.iter().map(|item| Element::String(item));
            let way_back = Element::Integer((ENTRY_HEAD + 1 + 2 * fields) as i64);
            self.entries.extend(head.into_iter().chain(items).chain([way_back]));
        }
    }

    /// Writes the count of live (0) or deleted (1) entries to the listpack.
    fn write_count(&mut self, which: i64, count: u32) {
        let position = self.entries.view().seek(which).expect("a node begins with its counts");
        self.entries.replace(position, i64::from(count));
    }

    /// The entry whose flags stand at `position`; `None` if the bytes make none.
    fn entry_at<'a>(&'a self, position: Position, master: &Master<'a>) -> Option<Placed<'a>> {
        let mut elements = self.entries.view().iter_from(position);
        let mut integer = || elements.next()?.as_integer();
        let flags = integer()?;
        let (ms, seq) = (integer()?, integer()?);
        let same_fields = flags & SAME_FIELDS != 0;
        let fields = if same_fields { master.fields } else { usize::try_from(integer()?).ok()? };
        let items = elements.clone();
        let count = if same_fields { fields } else { fields.checked_mul(2)? };
        for _ in 0..count {
            elements.next()?;
        }
        let head = if same_fields { ENTRY_HEAD } else { ENTRY_HEAD + 1 };
        // The way back leads to the flags, or the bytes make no entry.
        (elements.next()?.as_integer()? == (head + count) as i64).then_some(())?;
        let id = StreamId {
            ms: self.first.ms.wrapping_add(ms as u64),
            seq: self.first.seq.wrapping_add(seq as u64),
        };
        let names = same_fields.then(|| master.names.clone());
        let entry = StreamEntry { id, fields, names, items };
        let is_live = flags & DELETED == 0;
        Some(Placed { entry, is_live, flags_at: position, flags, next: elements.position() })
    }

    /// Position of the entry before `position`, or of the last one.
    fn entry_before(&self, position: Option<Position>) -> Option<Position> {
        let view = self.entries.view();
        let count_at = match position {
            Some(position) => view.previous(position)?,
            None => view.last()?,
        };
        let items = view.element(count_at).as_integer()?;
        // The master entry ends with 0.
        (items > 0).then_some(())?;
        (0..items).try_fold(count_at, |position, _| view.previous(position))
    }

    /// The last entry, live or not.
    pub(super) fn last(&self) -> Option<Placed<'_>> {
        self.entry_at(self.entry_before(None)?, &self.master()?)
    }

    /// All entries in order, live or not.
    pub(super) fn iter(&self) -> NodeEntries<'_> {
        let master = self.master();
        let next = master.as_ref().and_then(|master| self.first_entry(master));
        NodeEntries { node: self, master, next, is_reversed: false }
    }

    /// All entries from the last to the first, live or not.
    pub(super) fn iter_reversed(&self) -> NodeEntries<'_> {
        NodeEntries { node: self, master: self.master(), next: self.entry_before(None), is_reversed: true }
    }

    /// Marks the live entries as deleted that `decide` chooses until it says `None`. Returns how many.
    pub(super) fn delete_while(&mut self, mut decide: impl FnMut(&Placed<'_>) -> Option<bool>) -> usize {
        let mut chosen = Vec::new();
        for placed in self.iter() {
            match decide(&placed) {
                None => break,
                Some(true) if placed.is_live => chosen.push((placed.flags_at, placed.flags)),
                Some(_) => {}
            }
        }
        if chosen.is_empty() {
            return 0;
        }
        // Flags take one byte in all cases, so positions stay.
        for (position, flags) in &chosen {
            self.entries.replace(*position, flags | DELETED);
        }
        let count = chosen.len() as u32;
        self.live -= count;
        self.deleted += count;
        self.write_count(0, self.live);
        self.write_count(1, self.deleted);
        chosen.len()
    }

    /// Marks one entry as deleted. Returns whether it was there.
    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        let deleted = self.delete_while(|placed| (placed.entry.id <= id).then_some(placed.entry.id == id));
        deleted > 0
    }
}

/// Entries of a node in one direction.
#[derive(Clone)]
pub(super) struct NodeEntries<'a> {
    node: &'a Node,
    master: Option<Master<'a>>,
    next: Option<Position>,
    is_reversed: bool,
}

impl<'a> Iterator for NodeEntries<'a> {
    type Item = Placed<'a>;

    fn next(&mut self) -> Option<Placed<'a>> {
        let position = self.next?;
        let placed = self.node.entry_at(position, self.master.as_ref()?)?;
        self.next = if self.is_reversed { self.node.entry_before(Some(position)) } else { placed.next };
        Some(placed)
    }
}
