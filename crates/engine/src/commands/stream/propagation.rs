//! Records of changes to streams, as commands that do the same again.
//!
//! A record states the ID that was made, and the length that an approximate trim came to. Deliveries are listed
//! one by one, as claims that state everything about them; Redis does it so.

use std::collections::BTreeMap;

use crate::{
    context::WriteContext,
    value::{Stream, stream::StreamId},
};

/// Records a command that trims, and adds an entry where the place of its ID among the words, and the ID
/// that it became, are given.
///
/// An approximate trim becomes an exact one to the length that is left, also one to an ID: it removes the oldest
/// entries, or the oldest without references, so their number tells which. The first ID that is left does not: there
/// may be none, or an older one that a group refers to.
pub(super) fn record_edit(
    context: &mut WriteContext<'_>,
    key: &[u8],
    words: &[&[u8]],
    added: Option<(usize, StreamId)>,
) {
    if !context.is_recorded() {
        return;
    }
    let Ok(Some(stream)) = context.collection::<Stream>(key) else { return };
    let length = stream.log().len().to_string();
    let id = added.map_or(String::new(), |(_, id)| id.to_string());
    let (options, entry) = words.split_at(added.map_or(words.len(), |(at, _)| at));
    let (command, mut rest) = options.split_at(2.min(options.len()));
    let mut out = command.to_vec();
    while let [word, behind @ ..] = rest {
        rest = behind;
        if word.eq_ignore_ascii_case(b"KEEPREF") {
            // The default, which servers before Redis 8.2 do not know.
            continue;
        }
        if word.eq_ignore_ascii_case(b"LIMIT") {
            // LIMIT has done its part: the threshold is its result.
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let is_trim =
            [b"MAXLEN".as_slice(), b"MINID"].into_iter().any(|name| word.eq_ignore_ascii_case(name));
        if is_trim && let [b"~", _, behind @ ..] = rest {
            out.extend([b"MAXLEN".as_slice(), b"=", length.as_bytes()]);
            rest = behind;
            continue;
        }
        out.push(word);
        let operands = [(b"IDMP".as_slice(), 2), (b"IDMPAUTO", 1)]
            .into_iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name));
        if let Some((_, operands)) = operands {
            // Names, of any form.
            let (names, behind) = rest.split_at(operands.min(rest.len()));
            out.extend_from_slice(names);
            rest = behind;
        }
    }
    if let [_, pairs @ ..] = entry {
        out.push(id.as_bytes());
        out.extend_from_slice(pairs);
    }
    context.propagate(&out);
}

/// The changes of a consumer of a group.
pub(super) struct Deliveries<'a> {
    pub(super) key: &'a [u8],
    pub(super) group: &'a [u8],
    pub(super) consumer: &'a [u8],
    /// Whether the consumer is new.
    pub(super) is_new: bool,
    /// The entries whose deliveries have changed or gone.
    pub(super) ids: Vec<StreamId>,
    /// Whether the group has read on.
    pub(super) has_read: bool,
}

/// Records the changes of a consumer.
pub(super) fn record_deliveries(context: &mut WriteContext<'_>, done: &Deliveries<'_>) {
    if !context.is_recorded() {
        return;
    }
    let Deliveries { key, group: name, consumer, .. } = *done;
    let Ok(Some(stream)) = context.collection::<Stream>(key) else { return };
    let Some(group) = stream.group(name) else { return };
    let last = group.last_id().to_string();
    let entries_read = group.entries_read().map(|count| count.to_string());
    let mut deliveries = Vec::with_capacity(done.ids.len());
    for id in &done.ids {
        let delivery = group.pending().get(id);
        let told = delivery.map(|delivery| {
            (delivery.owner().to_vec(), delivery.time_ms.to_string(), delivery.count.to_string())
        });
        deliveries.push((id.to_string(), told));
    }
    if done.is_new && !deliveries.iter().any(|(_, told)| told.is_some()) {
        context.propagate(&[b"XGROUP", b"CREATECONSUMER", key, name, consumer]);
    }
    for (id, told) in &deliveries {
        let id = id.as_bytes();
        let Some((consumer, time_ms, count)) = told else {
            context.propagate(&[b"XACK", key, name, id]);
            continue;
        };
        let head: [&[u8]; 6] = [b"XCLAIM", key, name, consumer, b"0", id];
        let state: [&[u8]; 8] = [
            b"TIME",
            time_ms.as_bytes(),
            b"RETRYCOUNT",
            count.as_bytes(),
            b"FORCE",
            b"JUSTID",
            b"LASTID",
            last.as_bytes(),
        ];
        context.propagate(&[head.as_slice(), state.as_slice()].concat());
    }
    if done.has_read {
        let mut words: Vec<&[u8]> = vec![b"XGROUP", b"SETID", key, name, last.as_bytes()];
        if let Some(count) = &entries_read {
            words.extend([b"ENTRIESREAD".as_slice(), count.as_bytes()]);
        }
        context.propagate(&words);
    }
}

/// The entries and deliveries that a command has removed.
#[derive(Debug, Default)]
pub(super) struct Removals {
    pub(super) entries: Vec<StreamId>,
    /// Deliveries, by group.
    deliveries: BTreeMap<Box<[u8]>, Vec<StreamId>>,
}

impl Removals {
    /// Notes that a group has ceased to list an entry.
    pub(super) fn acknowledge(&mut self, group: &[u8], id: StreamId) {
        match self.deliveries.get_mut(group) {
            Some(ids) => ids.push(id),
            None => drop(self.deliveries.insert(group.into(), vec![id])),
        }
    }
}

/// Records removals in commands that servers before Redis 8.2 know, too.
pub(super) fn record_removals(context: &mut WriteContext<'_>, key: &[u8], done: &Removals) {
    if !context.is_recorded() {
        return;
    }
    for (group, ids) in &done.deliveries {
        propagate_with_ids(context, &[b"XACK", key, group], ids);
    }
    if !done.entries.is_empty() {
        propagate_with_ids(context, &[b"XDEL", key], &done.entries);
    }
}

fn propagate_with_ids(context: &mut WriteContext<'_>, words: &[&[u8]], ids: &[StreamId]) {
    let ids: Vec<String> = ids.iter().map(StreamId::to_string).collect();
    let mut words = words.to_vec();
    words.extend(ids.iter().map(String::as_bytes));
    context.propagate(&words);
}
