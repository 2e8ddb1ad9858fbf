//! The thread `moves`: begins the moves that the record names, obeys operators, and removes keys that have no place here.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::{
    MoveId, NodeId, ShardId, SlotSet,
    meta::{Meta, Revision, Transaction, TransactionOutcome},
    records::{Key, Keys, Move, Record, SlotsRecord},
};
use dunlin_engine::{Caller, Environment, SlotWalk, Worker, command::CommandError, keyspace::SlotBits};

use super::{
    source::{self, Handle},
    weights::{WEIGHING_PAUSE, Weighed, Weighing},
};
use crate::{
    cluster::{
        moves::{JobState, MoveOrder, MoveRequest, Requested, SLOTS_MARK},
        view::View,
    },
    config::policy,
    session::order::{AwaitedChange, Carried},
    shared::Shared,
    system::host::lower_priority,
    workers::drain::drain,
};

/// Between two looks, without news.
const WAIT: Duration = Duration::from_millis(200);
/// Between two looks while a client waits for the end of a move.
const WAIT_FOR_END: Duration = Duration::from_millis(5);
/// How long keys are removed, or slots weighed, before something else has its turn.
pub(super) const TURN: Duration = Duration::from_millis(5);
/// Between two looks whether a replica's keys of slots that are not its shard's are gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Attempts to change a record that others change, too.
const ATTEMPTS: usize = 10;

/// Starts the thread.
pub(in super::super) fn start(
    shared: &Arc<Shared>,
    me: NodeId,
    keys: Keys,
    meta: Arc<dyn Meta>,
) -> Result<(), String> {
    let manager = Manager {
        shared: Arc::clone(shared),
        me,
        keys,
        meta,
        handles: Vec::new(),
        known: BTreeSet::new(),
        requested: Vec::new(),
        is_first: true,
        complaint: None,
        removal: None,
        weighing: None,
        weighed: None,
        looks_again: Instant::now(),
        awaited: Vec::new(),
    };
    let thread = thread::Builder::new().name("moves".to_owned()).spawn(move || manager.run());
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

pub(super) struct Manager {
    pub(super) shared: Arc<Shared>,
    me: NodeId,
    keys: Keys,
    meta: Arc<dyn Meta>,
    handles: Vec<(MoveId, Handle)>,
    /// Moves from here that this process has begun, or struck off, while they go on or the record names them.
    known: BTreeSet<MoveId>,
    /// Moves that operators have asked for and that have not begun, with the revisions at which the record had them.
    requested: Vec<(MoveId, Revision)>,
    /// No view with this node as a primary has come yet.
    is_first: bool,
    /// The last line of the log about moves that cannot begin.
    complaint: Option<String>,
    pub(super) removal: Option<Removal>,
    /// The walk that weighs slots, and the one before.
    pub(super) weighing: Option<Weighing>,
    pub(super) weighed: Option<Weighed>,
    /// When a replica's walk may begin anew.
    looks_again: Instant,
    /// Moves whose ends clients wait for.
    awaited: Vec<(MoveId, Arc<AwaitedChange>)>,
}

/// Keys that are being removed, or counted if they are the primary's to remove.
pub(super) struct Removal {
    slots: SlotSet,
    bits: SlotBits,
    walk: SlotWalk,
    is_primary: bool,
}

impl Manager {
    fn run(mut self) {
        lower_priority();
        while !self.shared.cluster.ended.load(SeqCst) {
            let time = match (&self.removal, &self.weighing) {
                (Some(_), _) => Duration::ZERO,
                (None, _) if !self.awaited.is_empty() => WAIT_FOR_END,
                (None, Some(_)) => WEIGHING_PAUSE,
                (None, None) => WAIT,
            };
            let order = self.shared.cluster.moves.wait(time);
            let (view, _) = self.shared.cluster.moves.view();
            if let Some(order) = order {
                self.obey(view.as_deref(), order);
            }
            if let Some(begun) = self.shared.cluster.moves.take_imports_to_end()
                && let Err(why) = self.strike_off(|one| begun.contains(&one.id))
            {
                // The client that waits asks again.
                tracing::warn!("Cluster: imports cannot be ended for FLUSHALL: {why}");
            }
            let Some(view) = view else { continue };
            self.answer_awaited();
            self.handles.retain(|(_, handle)| !handle.is_over());
            let Some((mine, primary)) = view.shard_of(self.me).map(|(id, (_, shard))| (id, shard.primary))
            else {
                continue;
            };
            let is_mine =
                |slot| view.slots.as_ref().and_then(|(_, record)| record.slots.owner(slot)) == Some(mine);
            self.shared.cluster.moves.jobs.settle_imports(&view, is_mine);
            self.end_requested(&view);
            let leads = primary == self.me && self.leads();
            if leads {
                self.begin(&view, mine);
            }
            self.remove(leads);
            self.weigh(&view, mine, leads);
        }
    }

    /// Whether this node answers as a primary: it may add to the data set.
    fn leads(&self) -> bool {
        self.shared.cluster.lease.serving_term() != 0 && !self.shared.replication.is_replica()
    }

    /// Changes the record of slots; `change` says whether there is something to be changed. The revision at which the record is as it
    /// should be, or why it is not.
    fn change(
        &self,
        mut change: impl FnMut(&mut Vec<Move>) -> Result<bool, String>,
    ) -> Result<Revision, String> {
        let key = self.keys.text(Key::Slots);
        for _ in 0..ATTEMPTS {
            let snapshot = self.meta.get(&key).map_err(|error| error.to_string())?;
            let item = snapshot.items.first().ok_or_else(|| "there is no record of slots".to_owned())?;
            let mut record = SlotsRecord::decode(&item.value).map_err(|error| error.to_string())?;
            if !change(&mut record.moving)? {
                return Ok(item.revision);
            }
            record.check()?;
            let transaction =
                Transaction::default().compare(&*key, item.revision).put(&*key, record.encode());
            match self.meta.commit(&transaction) {
                TransactionOutcome::Done(revision) => return Ok(revision),
                // The next read shows its outcome.
                TransactionOutcome::Refused(_) | TransactionOutcome::Unknown(_) => {
                    thread::sleep(Duration::from_millis(20))
                }
                TransactionOutcome::Failed(error) => return Err(error.to_string()),
            }
        }
        Err("the record of slots is changed by others all the time".to_owned())
    }

    /// Carries out an operator's order.
    fn obey(&mut self, view: Option<&View>, MoveOrder { request, order }: MoveOrder) {
        let Some(view) = view else {
            return order
                .finish(Err(CommandError::text("ERR this node has not seen the cluster's records yet")));
        };
        let result = match &request {
            MoveRequest::Begin(moves) => self.request(view, moves),
            MoveRequest::Complete(one) => self.request(view, std::slice::from_ref(one)),
            MoveRequest::Cancel => self.cancel(view),
        };
        match (result, request) {
            (Ok(()), MoveRequest::Complete(one)) => self.awaited.push((one.id, order)),
            (Ok(()), _) => order.finish(Ok(Carried::Ok)),
            (Err(why), _) => order.finish(Err(CommandError::owned(format!("ERR {why}")))),
        }
    }

    /// Answers clients whose moves have ended, once this node sends others to where the slots are.
    fn answer_awaited(&mut self) {
        let cluster = &self.shared.cluster;
        let jobs = if self.awaited.is_empty() { Vec::new() } else { cluster.moves.jobs() };
        let topology = cluster.topology();
        let has_gone = |slots: &SlotSet| {
            topology.as_ref().is_none_or(|topology| !slots.iter().any(|slot| topology.is_mine(slot)))
        };
        self.awaited.retain(|(id, order)| {
            let job = jobs.iter().find(|job| job.id == *id && job.is_export);
            let result = match job.map(|job| (job.state, job)) {
                Some((JobState::Success, job)) if has_gone(&job.slots) => Ok(Carried::Ok),
                Some((JobState::Failed | JobState::Cancelled, job)) => {
                    Err(CommandError::owned(format!("ERR the slots stay: {}", job.message)))
                }
                None => Err(CommandError::text("ERR nothing is known of the move any more")),
                Some(_) => return true,
            };
            order.finish(result);
            false
        });
    }

    /// Puts moves into the record that an operator asks for.
    fn request(&mut self, view: &View, moves: &[Requested]) -> Result<(), String> {
        let added = moves.iter().map(|one| self.new_move(view, one)).collect::<Result<Vec<Move>, _>>();
        let result = added.and_then(|added| {
            self.change(|moving| {
                if moving.iter().any(|one| added.iter().any(|new| new.id == one.id)) {
                    return Ok(false);
                }
                moving.extend(added.iter().cloned());
                Ok(true)
            })
        });
        let requested = result.map(|revision| moves.iter().map(move |one| (one.id, revision)));
        requested.map(|requested| self.requested.extend(requested)).map_err(|why| {
            tracing::warn!("Cluster: slots cannot be moved: {why}");
            for one in moves {
                self.shared.cluster.moves.jobs.note(one.id, true, |job| {
                    (job.state, job.message) = (JobState::Failed, why.clone());
                });
            }
            format!("slots cannot be moved: {why}")
        })
    }

    fn new_move(&self, view: &View, one: &Requested) -> Result<Move, String> {
        let (from, (_, source)) = view.shard_of(self.me).ok_or("this node has no shard")?;
        let (to, (_, target)) = view.shard_of(one.target).ok_or("the target has no shard")?;
        Ok(Move {
            id: one.id,
            slots: one.slots.clone(),
            from,
            to,
            from_epoch: source.epoch,
            to_epoch: target.epoch,
        })
    }

    /// Takes all moves from and to this node's shard off the record.
    fn cancel(&mut self, view: &View) -> Result<(), String> {
        let (mine, _) = view.shard_of(self.me).ok_or("this node has no shard")?;
        self.strike_off(|one| one.from == mine || one.to == mine)
            .inspect_err(|why| tracing::warn!("Cluster: moves cannot be cancelled: {why}"))
            .map_err(|why| format!("moves cannot be cancelled: {why}"))
    }

    fn strike_off(&self, which: impl Fn(&Move) -> bool) -> Result<(), String> {
        let struck_off = self.change(|moving| {
            let before = moving.len();
            moving.retain(|one| !which(one));
            Ok(moving.len() < before)
        });
        struck_off.map(drop)
    }

    /// Ends moves that were taken off the record before they began: by an operator, by FLUSHALL, or by the planner because one of
    /// the shards has another primary. This node's view may never have named them.
    fn end_requested(&mut self, view: &View) {
        let jobs = &self.shared.cluster.moves.jobs;
        self.requested.retain(|(id, revision)| {
            let is_open = view.revision < *revision || view.moves().any(|one| one.id == *id);
            if !is_open {
                let message = "it was taken off the record before it began".to_owned();
                jobs.note(*id, true, |job| (job.state, job.message) = (JobState::Cancelled, message));
            }
            is_open
        });
    }

    /// Begins the moves of the record from this node. Moves that an earlier process has begun are struck off:
    /// afterwards a proposal of it can have no effect.
    fn begin(&mut self, view: &View, mine: ShardId) {
        let from_here: Vec<&Move> = view.moves().filter(|one| one.from == mine).collect();
        if self.is_first {
            let ids = of_earlier_process(&from_here, &self.requested);
            if !ids.is_empty()
                && let Err(why) = self.strike_off(|one| ids.contains(&one.id))
            {
                return self.complain(format!("moves of an earlier process cannot be ended: {why}"));
            }
            self.known.extend(ids);
            self.is_first = false;
        }
        let handles = &self.handles;
        self.known.retain(|id| {
            from_here.iter().any(|one| one.id == *id) || handles.iter().any(|(running, _)| running == id)
        });
        for one in from_here {
            if self.known.contains(&one.id) || view.primary_of(one.from, one.from_epoch) != Some(self.me) {
                continue;
            }
            let target = view.primary_of(one.to, one.to_epoch).and_then(|node| view.nodes.get(&node));
            let Some((_, target)) = target else { continue };
            self.shared.cluster.moves.jobs.begin_export(one.id, view);
            let handle = Handle::start(source::SourceTask {
                shared: Arc::clone(&self.shared),
                meta: Arc::clone(&self.meta),
                keys: self.keys.clone(),
                one: one.clone(),
                target: target.clone(),
            });
            match handle {
                Ok(handle) => {
                    self.handles.push((one.id, handle));
                    self.known.insert(one.id);
                    self.requested.retain(|(id, _)| *id != one.id);
                }
                // The next turn tries again.
                Err(error) => self.complain(format!("a thread for a move cannot be started: {error}")),
            }
        }
    }

    /// Logs what keeps moves from beginning, once for as long as that lasts.
    fn complain(&mut self, why: String) {
        if self.complaint.as_ref() != Some(&why) {
            tracing::warn!("Cluster: {why}");
            self.complaint = Some(why);
        }
    }

    /// Removes keys of slots that are neither this shard's nor on their way to it. A replica sees them go.
    fn remove(&mut self, is_primary: bool) {
        let (moves, keyspace) = (&self.shared.cluster.moves, &self.shared.engine.keyspace);
        let Some(misplaced) = moves.misplaced(keyspace, self.me) else { return };
        // A walk that is under way begins anew if a move came in between, or another role.
        let goes_on = |removal: &Removal| {
            removal.is_primary == is_primary && !removal.slots.intersects(&misplaced.kept)
        };
        let is_early = !is_primary && Instant::now() < self.looks_again;
        let mut removal = match self.removal.take().filter(goes_on) {
            Some(removal) => removal,
            None if misplaced.slots.is_empty() || is_early => return,
            None => {
                let bits = misplaced.slots.iter().collect();
                if is_primary && !self.mark_slots() {
                    return;
                }
                Removal { slots: misplaced.slots, bits, walk: SlotWalk::default(), is_primary }
            }
        };
        if !self.walk(&mut removal) {
            self.removal = Some(removal);
            return;
        }
        self.looks_again = Instant::now() + LOOK_AGAIN;
        if removal.is_primary && removal.walk.found > 0 {
            tracing::info!(
                "Cluster: {} keys of slots that are not this shard's were removed",
                removal.walk.found
            );
        }
        if removal.is_primary || removal.walk.found == 0 {
            moves.settle(keyspace, &removal.slots, misplaced.views);
        }
    }

    /// Puts the record of slots into the stream, before the removals that it is the reason for: a replica may not have
    /// heard of it, and would show that keys are gone that are another shard's. Returns whether that is done.
    fn mark_slots(&self) -> bool {
        let shared = &self.shared;
        let (Some(view), Some(queues)) = (shared.cluster.moves.view().0, shared.durability.queues()) else {
            return false;
        };
        let Some((revision, record)) = &view.slots else { return false };
        let mut worker = Worker::new(shared.mover(), 0);
        {
            let Some(_inside) = shared.engine.keyspace.enter_unless_long(worker.id()) else { return false };
            if !self.leads() {
                return false;
            }
            let (revision, record) = (revision.to_string(), record.encode());
            let words: [&[u8]; 4] = [b"REPLCONF", SLOTS_MARK, revision.as_bytes(), &record];
            shared.engine.propagate(0, &mut worker, &words, false);
        }
        drain(&mut worker, &shared.maintenance, queues);
        shared.durability.wake_log(shared.durability.tail());
        shared.replication.note_recorded();
        true
    }

    /// Goes on with a walk for a turn. Returns whether it has come to the end.
    fn walk(&self, removal: &mut Removal) -> bool {
        let shared = &self.shared;
        let until = Instant::now() + TURN;
        let Some(queues) = shared.durability.queues() else { return false };
        let policy = policy(&shared.config.current());
        let caller = Caller { broadcasts: shared.trackers.broadcasts(), ..Caller::default() };
        let mut worker = Worker::new(shared.mover(), 0);
        worker.statistics = Arc::clone(&shared.stats.keyspace[shared.workers]);
        worker.audience = Some(Box::new(shared.notifier(queues)));
        let mut is_over = false;
        while !is_over && Instant::now() < until {
            let is_congested = shared.engine.keyspace.snapshots().is_congested();
            if removal.is_primary && (is_congested || !shared.durability.has_room()) {
                thread::sleep(Duration::from_millis(1));
                break;
            }
            {
                let Some(_inside) = shared.engine.keyspace.enter_unless_long(worker.id()) else { break };
                // A role is left behind the closed gate.
                if removal.is_primary && !self.leads() {
                    break;
                }
                let environment = Environment::new(&policy, &caller);
                is_over = shared.engine.walk_slots(
                    &mut removal.walk,
                    &removal.bits,
                    removal.is_primary,
                    environment,
                    &mut worker,
                );
            }
            drain(&mut worker, &shared.maintenance, queues);
        }
        shared.durability.wake_log(shared.durability.tail());
        shared.replication.note_recorded();
        is_over
    }
}

/// Returns the moves that an earlier process of this node may have begun: those that this one was not asked for. An operator may ask
/// before the node has led for the first time.
fn of_earlier_process(from_here: &[&Move], requested: &[(MoveId, Revision)]) -> BTreeSet<MoveId> {
    let ids = from_here.iter().map(|one| one.id);
    ids.filter(|id| requested.iter().all(|(own, _)| own != id)).collect()
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::SlotRange;

    use super::*;

    #[test]
    fn move_that_was_asked_for_at_once_is_not_of_an_earlier_process() {
        let id = |number| MoveId::from_bytes([number; 20]);
        let one = |number| Move {
            id: id(number),
            slots: SlotRange::new(0, 9).unwrap().into(),
            from: ShardId::from_bytes([1; 20]),
            to: ShardId::from_bytes([2; 20]),
            from_epoch: 1,
            to_epoch: 1,
        };
        let (old, new) = (one(7), one(8));
        assert_eq!(of_earlier_process(&[&old, &new], &[(id(8), 12)]), [id(7)].into());
        assert!(of_earlier_process(&[], &[(id(8), 12)]).is_empty());
    }
}
