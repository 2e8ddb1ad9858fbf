//! [`Descent`]: the store as this node obeys it. The node reads nothing from a store that has not come from the state
//! that it has obeyed, and writes nothing into it.
//!
//! ```text
//! agent ── views ─────────▶ check ◀── marks of the newest state obeyed, in `cluster-node`
//! machines, moves, users ─▶ get ──▶ the marks are read behind the record: a restored store is an error
//!                           commit ▶ signed: the node's next mark, if the one before is still there
//! operator ───────────────▶ decide  writes what is right under marks that both sides obey
//! ```
//!
//! Invariants:
//! - Marks that were read before others were joined say nothing: an answer of yesterday is no backup.
//! - Only one change of this process is under way at a time, so its marks have an order.
//! - The threads of the node have this in place of the store. Presence, progress and the node's own announcement are unsigned: they
//!   are hints, or written after a check.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dunlin_cluster::{
    NodeId, ShardId,
    lineage::{DECISION_EPOCHS, Lineage, Writer},
    meta::{LeaseId, Meta, MetaError, Revision, Snapshot, Transaction, TransactionOutcome, Watch},
    records::{Key, Keys, Mark, Record, ShardRecord, SlotsRecord},
};

use super::view::{Stored, View};
use crate::system::host::draw;

/// Attempts at a change, while earlier ones of unknown outcome come in.
const ATTEMPTS_MAX: usize = 3;
/// Changes of one transaction of an operator's decision: etcd takes 128.
const OPERATIONS_MAX: usize = 100;

/// The marks of a state of the store, with their revisions.
pub(crate) type Marks = BTreeMap<NodeId, Stored<Mark>>;

/// A state of the store, beside the one that was obeyed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Descends {
    /// The state has come from that one.
    Yes,
    /// Unknown: it was read before the node knew what it knows.
    Unknown,
    /// The state has not: a line for the operator.
    No(String),
}

/// The side that is right, in an operator's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The records in etcd.
    Etcd,
    /// The records as this node has obeyed them last.
    Node,
}

#[derive(Debug)]
struct State {
    /// The marks of the newest state that was obeyed.
    kept: Lineage,
    /// The revisions of the marks, as they were seen last.
    revisions: BTreeMap<NodeId, Revision>,
    writer: Writer,
    /// The store's own mark of this node has been seen.
    is_primed: bool,
    /// Counts the changes of `kept`.
    joins: u64,
    /// The store is not the one that was obeyed: a line for the operator.
    strays: Option<String>,
    /// The store is the right one again, and the node has not begun anew yet.
    is_anew: bool,
    /// How its records differ from those that were obeyed, for people.
    differences: Vec<String>,
    /// The records of the newest state that was obeyed.
    view: Option<Arc<View>>,
}

/// See the module.
pub(crate) struct Descent {
    me: NodeId,
    keys: Keys,
    meta: Arc<dyn Meta>,
    state: Mutex<State>,
    /// Held by a change that is under way.
    changing: Mutex<()>,
}

impl std::fmt::Debug for Descent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Descent")
    }
}

impl Descent {
    pub(crate) fn new(me: NodeId, keys: Keys, meta: Arc<dyn Meta>, kept: Lineage) -> Self {
        let state = State {
            kept,
            revisions: BTreeMap::new(),
            writer: Writer::new(me),
            is_primed: false,
            joins: 0,
            strays: None,
            is_anew: false,
            differences: Vec::new(),
            view: None,
        };
        Self { me, keys, meta, state: Mutex::new(state), changing: Mutex::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the changes of the known marks: read it before the store is asked.
    pub(crate) fn joins(&self) -> u64 {
        self.state().joins
    }

    /// Returns the marks of the newest state that was obeyed.
    pub(crate) fn kept(&self) -> Lineage {
        self.state().kept.clone()
    }

    /// Returns the same with the revisions of the marks, for a machine, and the number of their state.
    pub(crate) fn obeyed(&self) -> (u64, Lineage, BTreeMap<NodeId, Revision>) {
        let state = self.state();
        (state.joins, state.kept.clone(), state.revisions.clone())
    }

    /// Why the store is not obeyed; `None`: it is.
    pub(crate) fn strays(&self) -> Option<String> {
        self.state().strays.clone()
    }

    /// Takes marks over that another node has obeyed, whose record this one follows.
    pub(crate) fn join(&self, lineage: &Lineage) {
        let mut state = self.state();
        if !state.kept.covers(lineage) {
            state.kept.join(lineage);
            state.joins += 1;
        }
    }

    /// Whether the store is the right one again after it was not, for the first caller.
    pub(crate) fn take_anew(&self) -> bool {
        std::mem::take(&mut self.state().is_anew)
    }

    /// Whether a state that may be obeyed has an earlier revision of a record than the one that was obeyed last. If so,
    /// etcd was restored from a backup that lacks nothing of what counts, and its revisions say nothing beside those
    /// that are known.
    pub(crate) fn goes_back(&self, view: &View) -> bool {
        let known = self.state().view.clone();
        known.is_some_and(|known| {
            fn earlier<I: Ord, R>(known: &BTreeMap<I, Stored<R>>, now: &BTreeMap<I, Stored<R>>) -> bool {
                known.iter().any(|(id, (revision, _))| now.get(id).is_some_and(|(now, _)| now < revision))
            }
            view.revision < known.revision
                || earlier(&known.nodes, &view.nodes)
                || earlier(&known.shards, &view.shards)
                || earlier(&known.marks, &view.marks)
        })
    }

    /// Keeps the records that are obeyed.
    pub(crate) fn keep_view(&self, view: &Arc<View>) {
        self.state().view = Some(Arc::clone(view));
    }

    /// Whether a state has all that is known. A state that a watch shows may lack what this node has read since.
    pub(crate) fn covers(&self, marks: &Marks) -> bool {
        let found: Lineage = marks.iter().map(|(node, (_, mark))| (*node, *mark)).collect();
        found.covers(&self.state().kept)
    }

    /// Whether a state has come from the one that was obeyed. `asked` is [`Self::joins`] of before it was read.
    pub(crate) fn check(&self, marks: &Marks, asked: u64) -> Descends {
        let found: Lineage = marks.iter().map(|(node, (_, mark))| (*node, *mark)).collect();
        let mut state = self.state();
        if let Some(lost) = found.lacks(&state.kept) {
            if asked != state.joins {
                return Descends::Unknown;
            }
            let known = state.kept.mark(lost).map_or(0, |mark| mark.count);
            let line = format!(
                "the records lack change {known} of node {lost}, which this node has obeyed: etcd was restored from a backup. This node keeps its data, does not obey and changes no record; `dunlin cluster records` shows what differs, and takes the decision"
            );
            state.strays = Some(line.clone());
            return Descends::No(line);
        }
        state.is_anew |= state.strays.take().is_some();
        state.is_primed = true;
        state.writer.seen(marks.get(&self.me).copied());
        let revisions: BTreeMap<NodeId, Revision> =
            marks.iter().map(|(node, (revision, _))| (*node, *revision)).collect();
        if !state.kept.covers(&found) || state.revisions != revisions {
            state.kept.join(&found);
            state.revisions = revisions;
            state.joins += 1;
        }
        Descends::Yes
    }

    /// Reads the marks, and looks whether their state has come from the one that was obeyed.
    fn look(&self) -> Result<Marks, MetaError> {
        loop {
            let asked = self.joins();
            let items = self.meta.range(&self.keys.marks())?.items;
            let marks = items.iter().filter_map(|item| match self.keys.parse(&item.key)? {
                Key::Mark(node) => Some(Mark::decode(&item.value).map(|mark| (node, (item.revision, mark)))),
                _ => None,
            });
            let marks: Result<Marks, _> = marks.collect();
            let marks = marks.map_err(|error| MetaError::Refused(format!("a mark: {error}")))?;
            match self.check(&marks, asked) {
                Descends::Yes => return Ok(marks),
                Descends::Unknown => {}
                Descends::No(line) => return Err(MetaError::Refused(line)),
            }
        }
    }

    /// Returns how the records of a store that is not obeyed differ from this node's, for people.
    pub(crate) fn known_differences(&self) -> Vec<String> {
        self.state().differences.clone()
    }

    /// Keeps how the records of a store that is not obeyed differ from this node's.
    pub(crate) fn compare(&self, found: &View) {
        let view = self.state().view.clone();
        let lines = view.map_or_else(
            || vec!["this process has obeyed no records since it started".to_owned()],
            |own| Self::differences(&own, found),
        );
        self.state().differences = lines;
    }

    fn differences(own: &View, found: &View) -> Vec<String> {
        let mut lines = Vec::new();
        let shards = own.shards.keys().chain(found.shards.keys().filter(|id| !own.shards.contains_key(*id)));
        for id in shards {
            let describe = |view: &View| match view.shards.get(id) {
                Some((_, shard)) => format!("epoch {} of node {}", shard.epoch, shard.primary),
                None => "no such shard".to_owned(),
            };
            let (here, there) = (describe(own), describe(found));
            if here != there {
                lines.push(format!("shard {id}: {there} in etcd, {here} here"));
            }
        }
        let owner = |view: &View, slot| view.slots.as_ref().and_then(|(_, record)| record.slots.owner(slot));
        let moved =
            (0..dunlin_cluster::SLOTS).filter(|slot| owner(own, *slot) != owner(found, *slot)).count();
        if moved > 0 {
            lines.push(format!("{moved} slots have another shard"));
        }
        for (what, differs) in [
            (
                "users",
                own.users.as_ref().map(|(_, record)| record)
                    != found.users.as_ref().map(|(_, record)| record),
            ),
            (
                "functions",
                own.functions.as_ref().map(|(_, record)| record)
                    != found.functions.as_ref().map(|(_, record)| record),
            ),
            (
                "settings",
                own.settings.as_ref().map(|(_, record)| record)
                    != found.settings.as_ref().map(|(_, record)| record),
            ),
        ] {
            if differs {
                lines.push(format!("the cluster's {what} are others"));
            }
        }
        lines
    }

    /// Reads all records, whatever they have come from.
    fn fresh(&self) -> Result<View, String> {
        let snapshot = self.meta.range(self.keys.prefix()).map_err(|error| error.to_string())?;
        Ok(View::of(&self.keys, snapshot.revision, &snapshot.items))
    }

    /// Carries an operator's word out: writes the records of the side that is right, in new epochs, under marks that all nodes obey
    /// whose records are among those of etcd or of this node.
    pub(crate) fn decide(&self, side: Side) -> Result<(), String> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.fresh()?;
        let (kept, own) = {
            let state = self.state();
            (state.kept.clone(), state.view.clone())
        };
        let marks: Lineage = found.marks.iter().map(|(node, (_, mark))| (*node, *mark)).collect();
        if marks.covers(&kept) {
            return Err("this node obeys the records: there is nothing to decide".to_owned());
        }
        if let (Some(own), Some((_, cluster))) = (&own, &found.cluster)
            && own.cluster.as_ref().is_some_and(|(_, record)| record.id != cluster.id)
        {
            return Err("etcd has another cluster".to_owned());
        }
        let base = match (side, &own) {
            (Side::Etcd, _) => &found,
            (Side::Node, Some(own)) => own,
            (Side::Node, None) => {
                return Err(
                    "this process has obeyed no records since it started: ask a node that has run on"
                        .to_owned(),
                );
            }
        };
        let mut changes = self.records(base, &found, own.as_deref());
        let drawn = || draw().map(|bytes| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")));
        let mut failed = None;
        let decided = marks.reconciled(&kept, || drawn().map_err(|error| failed = Some(error)).unwrap_or(0));
        if let Some(error) = failed {
            return Err(error);
        }
        for (node, mark) in decided.iter().filter(|(node, mark)| marks.mark(*node) != Some(*mark)) {
            let revision = found.marks.get(&node).map_or(0, |(revision, _)| *revision);
            changes.push((Key::Mark(node), revision, Some(mark.encode())));
        }
        // The marks come last: until they are there, nodes that do not obey do not.
        for part in changes.chunks(OPERATIONS_MAX) {
            let transaction =
                part.iter().fold(Transaction::default(), |transaction, (key, revision, value)| {
                    let key = self.keys.text(*key);
                    let transaction = transaction.compare(&*key, *revision);
                    match value {
                        Some(value) => transaction.put(key, value.clone()),
                        None => transaction.delete(key),
                    }
                });
            match self.meta.commit(&transaction) {
                TransactionOutcome::Done(_) => {}
                TransactionOutcome::Refused(_) => {
                    return Err("the records are being changed by others: say it again".to_owned());
                }
                TransactionOutcome::Unknown(why) => {
                    return Err(format!("etcd has not said what became of it, look at it: {why}"));
                }
                TransactionOutcome::Failed(error) => return Err(error.to_string()),
            }
        }
        tracing::warn!("Cluster: an operator has decided that {side:?} is right");
        Ok(())
    }

    /// Returns the records to be written: key, revision that is compared, and value.
    fn records(
        &self,
        base: &View,
        found: &View,
        own: Option<&View>,
    ) -> Vec<(Key, Revision, Option<Vec<u8>>)> {
        let mut changes = Vec::new();
        let epoch_of = |view: Option<&View>, id: &ShardId| {
            view.and_then(|view| view.shards.get(id)).map_or(0, |(_, shard)| shard.epoch)
        };
        let revision_of = |id: &ShardId| found.shards.get(id).map_or(0, |(revision, _)| *revision);
        for (id, (_, shard)) in &base.shards {
            let epoch = shard.epoch.max(epoch_of(Some(found), id)).max(epoch_of(own, id)) + DECISION_EPOCHS;
            let record = ShardRecord { epoch, requested: None, ..shard.clone() };
            changes.push((Key::Shard(*id), revision_of(id), Some(record.encode())));
        }
        let strange = found.shards.keys().filter(|id| !base.shards.contains_key(*id));
        changes.extend(strange.map(|id| (Key::Shard(*id), revision_of(id), None)));
        if let Some((_, slots)) = &base.slots {
            // Moves end with the epochs in which they began.
            let record = SlotsRecord { moving: Vec::new(), ..slots.clone() };
            changes.push((
                Key::Slots,
                found.slots.as_ref().map_or(0, |(revision, _)| *revision),
                Some(record.encode()),
            ));
        }
        let mut put = |key, before: Option<Stored<Vec<u8>>>, now: Option<Vec<u8>>| {
            let revision = before.as_ref().map_or(0, |(revision, _)| *revision);
            if before.map(|(_, value)| value) != now {
                changes.push((key, revision, now));
            }
        };
        fn stored<R: Record>(one: &Option<Stored<Arc<R>>>) -> Option<Stored<Vec<u8>>> {
            one.as_ref().map(|(revision, record)| (*revision, record.encode()))
        }
        put(Key::Users, stored(&found.users), stored(&base.users).map(|(_, value)| value));
        put(Key::Functions, stored(&found.functions), stored(&base.functions).map(|(_, value)| value));
        put(Key::Settings, stored(&found.settings), stored(&base.settings).map(|(_, value)| value));
        let cluster =
            |view: &View| view.cluster.as_ref().map(|(revision, record)| (*revision, record.encode()));
        put(Key::Cluster, cluster(found), cluster(base).map(|(_, value)| value));
        for (id, (_, node)) in base.nodes.iter().filter(|(id, _)| !found.nodes.contains_key(*id)) {
            put(Key::Node(*id), None, Some(node.encode()));
        }
        changes
    }
}

impl Meta for Descent {
    /// Reads records; an error if the store has not come from the one that was obeyed.
    fn range(&self, prefix: &str) -> Result<Snapshot, MetaError> {
        let snapshot = self.meta.range(prefix)?;
        self.look()?;
        Ok(snapshot)
    }

    /// Takes a snapshot of one record.
    fn get(&self, key: &str) -> Result<Snapshot, MetaError> {
        let snapshot = self.meta.get(key)?;
        self.look()?;
        Ok(snapshot)
    }

    /// Makes a change of records, signed.
    fn commit(&self, transaction: &Transaction) -> TransactionOutcome {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.state().is_primed
            && let Err(error) = self.look()
        {
            return TransactionOutcome::Failed(error);
        }
        for _ in 0..ATTEMPTS_MAX {
            let id = match draw() {
                Ok(bytes) => u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
                Err(error) => return TransactionOutcome::Failed(MetaError::Refused(error)),
            };
            let (signed, mark) = {
                let mut state = self.state();
                if let Some(line) = &state.strays {
                    return TransactionOutcome::Failed(MetaError::Refused(line.clone()));
                }
                state.writer.sign(transaction.clone(), &self.keys, id)
            };
            let outcome = self.meta.commit(&signed);
            if matches!(outcome, TransactionOutcome::Refused(_) | TransactionOutcome::Failed(_)) {
                self.state().writer.undone(mark);
            }
            match outcome {
                TransactionOutcome::Done(revision) => {
                    let mut state = self.state();
                    state.writer.done(revision, mark);
                    state.kept.set(self.me, mark);
                    state.revisions.insert(self.me, revision);
                    state.joins += 1;
                    return outcome;
                }
                // The record may have moved, or this node's mark: an earlier change of unknown outcome has come in.
                TransactionOutcome::Refused(_) => {
                    let before = self.state().revisions.get(&self.me).copied();
                    match self.look() {
                        Ok(marks) if marks.get(&self.me).map(|(revision, _)| *revision) == before => {
                            return outcome;
                        }
                        Ok(_) => {}
                        Err(error @ MetaError::Refused(_)) => return TransactionOutcome::Failed(error),
                        // Which of them it was decides the next attempt.
                        Err(_) => return outcome,
                    }
                }
                _ => return outcome,
            }
        }
        TransactionOutcome::Refused(0)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, MetaError> {
        self.meta.watch(prefix, after)
    }

    fn grant(&self, ttl_s: u32) -> Result<(LeaseId, u32), MetaError> {
        self.meta.grant(ttl_s)
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<u32, MetaError> {
        self.meta.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetaError> {
        self.meta.revoke(lease)
    }
}
