//! The store goes back to an earlier state: nodes that have seen more keep their data, until an operator says which side is right.
//!
//! From then on there may be two lines of acknowledged writes, and no node can know of both. The check is I13: a member
//! that has obeyed a newer state than the restored one loses nothing that was committed before, whatever the store's
//! numbers say.

use dunlin_cluster::lineage::DECISION_EPOCHS;

use super::*;

/// Earlier states that are kept at most.
const BACKUPS_MAX: usize = 60;

/// The state of things since the store went back.
pub struct Restored {
    /// By node: how much of its log it must not lose, and the chain there.
    floors: Vec<Option<(usize, u64)>>,
    /// All that was committed before.
    committed: Vec<Entry>,
    /// The last record before.
    record: ShardRecord,
    /// An operator has said that the nodes are right: what was committed has to be there at the end.
    nodes_are_right: bool,
    /// Data were given up on the way.
    decisions: u64,
}

impl World {
    /// Keeps the store's state.
    pub(super) fn back_up(&mut self) {
        if self.setting.is_restored && self.restored.is_none() {
            if self.backups.len() == BACKUPS_MAX {
                let at = self.random.below(BACKUPS_MAX as u64) as usize;
                self.backups.remove(at);
            }
            self.backups.push(self.store.clone());
        }
    }

    pub(super) fn marks(&self) -> BTreeMap<NodeId, (u64, Mark)> {
        let items = self.store.range(&self.keys.marks()).items;
        let read = |item: dunlin_cluster::meta::Item| match self.keys.parse(&item.key)? {
            Key::Mark(node) => Some((node, (item.revision, Mark::decode(&item.value).expect("a mark")))),
            _ => None,
        };
        items.into_iter().filter_map(read).collect()
    }

    fn lineage(&self) -> Lineage {
        self.marks().into_iter().map(|(node, (_, mark))| (node, mark)).collect()
    }

    fn is_fault(&self) -> bool {
        self.setting.fault == Some(Fault::ObeyRestored)
    }

    /// Whether the store's state has come from the one that the node has obeyed.
    pub(super) fn may_obey(&self, at: usize) -> bool {
        self.is_fault() || self.lineage().covers(&self.nodes[at].lineage)
    }

    /// The planner is a node that has come since the store went back: it knows nothing of before.
    pub(super) fn signed_by_planner(&mut self, transaction: Transaction) -> Transaction {
        let planner = NodeId::from_bytes([if self.restored.is_some() { 202 } else { 201 }; 20]);
        let before = self.marks().get(&planner).copied();
        if self.planner.0 != planner {
            self.planner = (planner, Writer::new(planner));
        }
        let id = self.random.below(u64::MAX);
        let writer = &mut self.planner.1;
        writer.seen(before);
        writer.sign(transaction, &self.keys, id).0
    }

    /// Sends a proposal, signed, unless the node does not obey the store.
    pub(super) fn propose(&mut self, at: usize, proposal: Proposal) {
        let id = self.random.below(u64::MAX);
        let transaction = proposal.transaction(&self.keys, self.shard);
        let process = self.nodes[at].process.as_mut().expect("it runs");
        if process.strays {
            let boot = process.boot;
            let failed = TransactionOutcome::Failed(MetaError::Refused("it does not obey".to_owned()));
            let answer = Answer::Outcome(proposal.number, failed, Mark::new(0, 0));
            return self.at(1, Happening::Answer { node: at, boot, answer });
        }
        let (signed, mark) = process.writer.sign(transaction.clone(), &self.keys, id);
        let transaction = if self.is_fault() { transaction } else { signed };
        self.ask(at, Request::Propose(proposal, transaction, mark));
    }

    /// A change of the node is made.
    pub(super) fn made(&mut self, at: usize, revision: u64, mark: Mark) {
        if self.is_fault() {
            return;
        }
        let me = self.nodes[at].id;
        let process = self.nodes[at].process.as_mut().expect("it runs");
        process.writer.done(revision, mark);
        process.marks.insert(me, revision);
        self.nodes[at].join(&[(me, mark)].into_iter().collect());
        self.tell_lineage(at);
    }

    fn tell_lineage(&mut self, at: usize) {
        let lineage = self.nodes[at].lineage.clone();
        let marks = self.nodes[at].process.as_ref().expect("it runs").marks.clone();
        self.step(at, Event::Obeyed(lineage, marks));
    }

    /// Whether the node obeys the state that an answer shows.
    pub(super) fn obeys(&mut self, at: usize, seal: &Seal) -> bool {
        if self.is_fault() {
            return true;
        }
        let found: Lineage = seal.marks.iter().map(|(node, (_, mark))| (*node, *mark)).collect();
        let node = &mut self.nodes[at];
        let covers = found.covers(&node.lineage);
        if !covers && seal.asked != node.joins {
            // Asked before the node knew what it knows.
            return false;
        }
        let id = node.id;
        let process = node.process.as_mut().expect("it runs");
        let strayed = std::mem::replace(&mut process.strays, !covers);
        if !covers {
            self.seen.strays += u64::from(!strayed);
            return false;
        }
        process.writer.seen(seal.marks.get(&id).copied());
        process.marks = seal.marks.iter().map(|(node, (revision, _))| (*node, *revision)).collect();
        node.join(&found);
        if strayed {
            self.anew(at);
        }
        self.tell_lineage(at);
        true
    }

    /// Views come one after the other. A view that was asked for after another one had come, and has an earlier revision of a record, is of
    /// a store that has gone back without losing what counts: the machine begins anew. So does a machine whose record was read before the
    /// store went back, and which no view has shown.
    pub(super) fn follow_view(
        &mut self,
        at: usize,
        known: Option<&Known>,
        nodes: &[(NodeId, u64, BootId, Option<Restart>)],
        sent: u64,
    ) {
        let now = self.now;
        let process = self.nodes[at].process.as_mut().expect("it runs");
        let record = known.map_or(0, |(revision, _)| *revision);
        let mut revisions: BTreeMap<NodeId, u64> =
            nodes.iter().map(|(id, revision, ..)| (*id, *revision)).collect();
        if sent < process.view.came {
            // This view was overtaken, and the machine hears what is newer in it all the same.
            for (id, revision) in &process.view.nodes {
                let newest = revisions.entry(*id).or_default();
                *newest = (*newest).max(*revision);
            }
            process.view = View { came: now, record: record.max(process.view.record), nodes: revisions };
            return;
        }
        let is_earlier =
            |(id, known): (&NodeId, &u64)| revisions.get(id).is_some_and(|revision| revision < known);
        let contradicts = |shard: &Shard| known.is_some_and(|known| shard.contradicts(known));
        let goes_back = record < process.view.record
            || process.view.nodes.iter().any(is_earlier)
            || process.shard.as_ref().is_some_and(contradicts);
        process.view = View { came: now, record, nodes: revisions };
        if goes_back && !self.is_fault() {
            self.anew(at);
            self.tell_lineage(at);
        }
    }

    /// Another machine begins with the data, as after a restart: the records may have any numbers now.
    fn anew(&mut self, at: usize) {
        let now = self.nodes[at].clock(self.now);
        let process = self.nodes[at].process.as_mut().expect("it runs");
        let Some(before) = process.shard.take() else { return };
        (process.parked, process.withheld) = (false, Vec::new());
        process.asked.clear();
        process.shard = Some(before.anew(now));
        self.step(at, Event::Tick);
    }

    /// A machine that has stopped begins anew once an operator has decided.
    pub(super) fn begin_anew(&mut self, at: usize, known: Option<&Known>, seal: &Seal) {
        let found: Lineage = seal.marks.iter().map(|(node, (_, mark))| (*node, *mark)).collect();
        let may = |shard: &Shard| known.is_some_and(|(_, record)| shard.may_begin_anew(record, &found));
        if self.nodes[at].shard().is_some_and(may) {
            self.anew(at);
            self.tell_lineage(at);
        }
    }

    /// A process that finds a foreign record in the place of its own writes it again: the store has gone back.
    pub(super) fn announce_again(&mut self, at: usize, nodes: &[(NodeId, u64, BootId, Option<Restart>)]) {
        let me = self.nodes[at].id;
        let (Some(shard), Some(process)) = (self.nodes[at].shard(), &self.nodes[at].process) else { return };
        if nodes.iter().any(|(id, _, boot, _)| *id == me && *boot == process.boot) {
            return;
        }
        let local = shard.local();
        let history = local.history.unwrap_or(HistoryId::from_bytes([0; 20]));
        let (shard, epoch, offset) = (self.shard, shard.epoch(), local.end);
        let restart = (!local.clean).then_some(Restart { shard, epoch, history, offset, clean: false });
        self.ask(at, Request::Announce { restart, is_start: true });
    }

    /// The store goes back.
    pub(super) fn restore(&mut self) {
        if self.backups.is_empty() || self.restored.is_some() {
            return;
        }
        let (_, record) = self.record();
        let newest = self.lineage();
        let pick = self.random.below(self.backups.len() as u64) as usize;
        self.store = self.backups.swap_remove(pick);
        for node in 0..self.nodes.len() {
            let alive = self.alive(node);
            // Presences of the backup run out, and are renewed.
            let transaction = match self.nodes[node].process.is_some() {
                true => Transaction::default().put(alive, Vec::new()),
                false => Transaction::default().delete(alive),
            };
            self.store.commit(&transaction);
        }
        let found = self.lineage();
        let is_ahead = |node: &Node| !found.covers(&node.lineage);
        let floor = |node: &Node| {
            let is_whole = node.clean
                && node.has_base()
                && node.before_copy.is_none()
                && node.shard().is_none_or(|shard| shard.local().clean && shard.attach() != Attach::Copy);
            let shared = node.log.iter().zip(&self.oracle.committed).take_while(|(one, other)| one == other);
            let kept = shared.count().min(node.synced);
            let last = node.log[..kept].last()?;
            let counts = is_whole && is_ahead(node) && record.in_sync.contains(&node.id);
            counts.then_some((kept, last.chain))
        };
        let floors: Vec<_> = self.nodes.iter().map(floor).collect();
        if self.trace {
            println!(
                "{:>6} the store goes back from {record:?} to {:?}; ahead: {:?}, floors {floors:?}",
                self.now,
                self.record(),
                self.nodes.iter().filter(|node| is_ahead(node)).map(|node| node.id).collect::<Vec<_>>()
            );
        }
        // A change counts although no node has heard yet that it is made.
        let is_forked = !found.covers(&newest);
        self.oracle.is_forked |= is_forked;
        self.seen.forks += u64::from(is_forked);
        self.restored = Some(Restored {
            floors,
            committed: self.oracle.committed.clone(),
            record,
            nodes_are_right: false,
            decisions: self.oracle.recoveries + self.oracle.forced,
        });
    }

    /// I13: nodes that have seen more than the restored store have what they had, until an operator has decided.
    pub(super) fn kept(&self) -> Result<(), Violation> {
        let floors = self.restored.iter().flat_map(|restored| restored.floors.iter().zip(&self.nodes));
        for (floor, node) in floors {
            let Some((kept, chain)) = floor else { continue };
            if node.log.get(kept - 1).is_none_or(|entry| entry.chain != *chain) {
                let what = format!("{:?} has lost what it had up to {kept}, by a restored store", node.id);
                return Err(Violation { name: "I13", what });
            }
        }
        Ok(())
    }

    /// An operator says which side is right, at a node that does not obey; and once more, if another one still does
    /// not.
    pub(super) fn decide(&mut self) {
        self.at(1_000, Happening::Decide);
        if self.restored.is_none() {
            return;
        }
        let found = self.lineage();
        let strays: Vec<usize> =
            (0..self.nodes.len()).filter(|node| !found.covers(&self.nodes[*node].lineage)).collect();
        let most = strays.iter().copied().find(|one| {
            strays.iter().all(|other| self.nodes[*one].lineage.covers(&self.nodes[*other].lineage))
        });
        let Some(at) = most.or(strays.first().copied()) else { return };
        let restored = self.restored.as_mut().expect("it went back");
        // The node's own record is that of the shard.
        let own = self.nodes[at].shard().and_then(Shard::known).map(|(_, record)| record.clone());
        let is_newest = own.as_ref().is_some_and(|own| *own == restored.record);
        let nodes_are_right = is_newest && self.random.chance(50) && !restored.nodes_are_right;
        restored.floors.fill(None);
        restored.nodes_are_right |= nodes_are_right;
        let (_, stored) = self.record();
        let known = own.as_ref().map_or(0, |own| own.epoch);
        let base = if nodes_are_right { own.expect("it is the newest") } else { stored.clone() };
        let record =
            ShardRecord { epoch: stored.epoch.max(known) + DECISION_EPOCHS, requested: None, ..base };
        let mut next = self.random.below(u64::MAX / 2);
        let decided = found.reconciled(&self.nodes[at].lineage, || {
            next += 1;
            next
        });
        let mut transaction =
            Transaction::default().put(self.keys.text(Key::Shard(self.shard)), record.encode());
        for (node, mark) in decided.iter().filter(|(node, mark)| found.mark(*node) != Some(*mark)) {
            transaction = transaction.put(self.keys.text(Key::Mark(node)), mark.encode());
        }
        if self.trace {
            println!(
                "{:>6} {:?} decides, nodes are right: {nodes_are_right}: {record:?}",
                self.now, self.nodes[at].id
            );
        }
        assert!(matches!(self.store.commit(&transaction), TransactionOutcome::Done(_)));
    }

    /// If the nodes were right, all is there that was committed before the store went back.
    pub(super) fn kept_at_the_end(&self, primary: &Node) -> Result<(), Violation> {
        let Some(restored) = self.restored.as_ref().filter(|restored| restored.nodes_are_right) else {
            return Ok(());
        };
        let decisions = self.oracle.recoveries + self.oracle.forced;
        let shared = primary.log.iter().zip(&restored.committed).take_while(|(one, other)| one == other);
        let shared = shared.count();
        if shared < restored.committed.len() && decisions == restored.decisions {
            let what =
                format!("{shared} of {} are left, where the nodes were right", restored.committed.len());
            return Err(Violation { name: "I13", what });
        }
        Ok(())
    }
}
