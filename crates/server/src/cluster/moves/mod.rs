//! Moves of slots between shards, as the server carries them out. The rules are `dunlin_cluster::moves`'s; decision 0059 has the
//! reasons.
//!
//! ```text
//! source: thread `move`                              target: a worker, for the connection
//! ───────────────────────────────────────            ───────────────────────────────────────────────
//! CLUSTER IMPORT BEGIN move ────────────────────▶    the record names the move; nothing is left in its slots
//! snapshot of the slots, their records ─────────▶    commands, executed and recorded like any other's
//! CLUSTER IMPORT PLACE n ───────────────────────▶    answered like any write: when the shard has committed it
//! parks the slots' commands, gives the slots away in one transaction
//! CLUSTER IMPORT OWNED move ────────────────────▶    1 as soon as its topology has them
//! MOVED to what was parked, removes the keys
//! ```
//!
//! Keys are *hidden* that stand in slots which are not this shard's: imported ones, and those that were given away and are not
//! removed yet. The record of slots alone says whose slots are whose, so nothing has to be made visible.
//!
//! Invariants:
//! - Hidden are all keys of slots that are in `stale` and not this shard's.
//! - The thread `moves` of a shard's primary removes keys of stale slots that are another shard's by the newest record that it
//!   knows, unless they were imported by a move which that record names. A slot takes no import before such keys are gone.
//! - A move belongs to one process of its source. Where that ends, or the connection does, the move is struck off the
//!   record, and what was imported is removed.

mod filter;
mod jobs;
mod manager;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use dunlin_cluster::{MoveId, NodeId, SLOTS, SlotSet};
use dunlin_engine::{command::CommandError, keyspace::SlotBits};

use super::{topology::Topology, view::View};
use crate::{session::import::Import, shared::Shared, workers::WorkerMessage};

use self::jobs::Jobs;
pub(crate) use self::jobs::{Job, JobState};
pub(super) use self::manager::start;

/// Slots whose commands wait for the outcome of a move.
pub(crate) type Parked = SlotBits;

/// An order of an operator.
#[derive(Debug)]
enum Order {
    /// Moves with these ids.
    Begin(Vec<Requested>),
    /// All moves from and to this node end.
    Cancel,
}

/// A move that an operator has asked for.
#[derive(Debug, Clone)]
pub(crate) struct Requested {
    pub(crate) id: MoveId,
    pub(crate) slots: SlotSet,
    /// The primary that is to have them.
    pub(crate) target: NodeId,
}

/// Slots on their way from and to this node.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    state: Mutex<State>,
    /// There is another view, or an order.
    news: Condvar,
    parked: ArcSwapOption<Parked>,
    jobs: Jobs,
}

#[derive(Debug, Default)]
struct State {
    /// Slots that may have keys which are not to be seen unless the slots are this shard's.
    stale: SlotSet,
    /// Imports that this process has begun, or that an earlier one may have: their keys stay while the record names them.
    begun: BTreeSet<MoveId>,
    /// By move.
    parked: BTreeMap<MoveId, SlotSet>,
    view: Option<Arc<View>>,
    /// Counts the views.
    views: u64,
    /// Whether the last view had this node as a primary.
    was_primary: bool,
    orders: VecDeque<Order>,
}

impl Moves {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves that go on or have ended lately, newest first.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        self.jobs.list()
    }

    /// Takes what the records say now. The topology in force says the same.
    pub(super) fn follow(&self, shared: &Shared, me: NodeId, view: &View) {
        let Some(topology) = shared.cluster.topology() else { return };
        let mut state = self.state();
        let is_primary = topology.is_primary();
        let mine = view.shard_of(me).map(|(id, _)| id);
        if state.view.is_none() {
            // An earlier process may have begun them. A takeover voids them: its epoch is not theirs.
            state.begun.extend(view.moves().filter(|one| Some(one.to) == mine).map(|one| one.id));
        }
        if state.view.is_none() || is_primary && !state.was_primary {
            // Nobody knows what the data set has that was loaded, or that an earlier primary has left.
            state.stale = SlotSet::all();
        }
        if !is_primary {
            // The primary's stream has what it imports.
            view.moves()
                .filter(|one| Some(one.to) == mine)
                .for_each(|one| state.stale.insert_all(&one.slots));
        }
        state.was_primary = is_primary;
        state.view = Some(Arc::new(view.clone()));
        state.views += 1;
        hide(shared, &state.stale, &topology);
        drop(state);
        self.news.notify_all();
    }

    /// These slots are another shard's from now on; their keys are still here.
    pub(super) fn lose(&self, slots: impl Iterator<Item = u16>) {
        let slots: SlotSet = slots.collect();
        self.state().stale.insert_all(&slots);
    }

    /// Hides what is not to be seen under a topology, which is about to be in force.
    pub(super) fn hide(&self, shared: &Shared, topology: &Topology) {
        hide(shared, &self.state().stale, topology);
    }

    /// Whether keys of slots wait to be removed, or are being imported.
    pub(crate) fn is_settled(&self, shared: &Shared) -> bool {
        shared.engine.keyspace.hidden().is_empty()
    }

    /// Begins an import on a connection. The error is for the source; one that begins with TRYAGAIN passes by itself.
    pub(crate) fn begin_import(
        &self,
        shared: &Shared,
        topology: &Topology,
        id: &str,
    ) -> Result<Import, CommandError> {
        let later = |why: &str| Err(CommandError::owned(format!("TRYAGAIN {why}")));
        let Some(bits) = topology.import(id) else {
            return later("this node knows no such move to it");
        };
        let id_read: MoveId = id.parse().map_err(|_| CommandError::text("ERR this is no id of a move"))?;
        let slots: SlotSet = (0..SLOTS).filter(|slot| bits.contains(*slot)).collect();
        let mut state = self.state();
        if state.begun.contains(&id_read) {
            return Err(CommandError::text("ERR the import has begun before"));
        }
        if state.stale.intersects(&slots) {
            return later("keys of these slots are still being removed");
        }
        state.begun.insert(id_read);
        state.stale.insert_all(&slots);
        hide(shared, &state.stale, topology);
        self.jobs.begin_import(id_read, state.view.as_deref());
        Ok(Import::new(id.to_owned(), bits.clone(), shared.engine.keyspace.flushes()))
    }

    /// Slots whose commands wait.
    pub(crate) fn parked(&self) -> Option<Arc<Parked>> {
        self.parked.load_full()
    }

    /// Has commands on slots wait. None runs any more when this returns.
    fn park(&self, shared: &Shared, id: MoveId, slots: &SlotSet) {
        self.change_parked(shared, |parked| _ = parked.insert(id, slots.clone()));
    }

    /// Has commands on the slots of a move run again, or be sent away.
    fn unpark(&self, shared: &Shared, id: MoveId) {
        self.change_parked(shared, |parked| _ = parked.remove(&id));
        if let Some(queues) = shared.durability.queues() {
            queues.send_to_everyone(WorkerMessage::Unpaused);
        }
    }

    fn change_parked(&self, shared: &Shared, change: impl FnOnce(&mut BTreeMap<MoveId, SlotSet>)) {
        let _closed = shared.engine.keyspace.close();
        let mut state = self.state();
        change(&mut state.parked);
        let parked: SlotBits = state.parked.values().flat_map(SlotSet::iter).collect();
        self.parked.store((!parked.is_empty()).then(|| Arc::new(parked)));
        shared.cluster.touch();
    }

    /// Asks for moves from this node.
    pub(crate) fn request(&self, moves: Vec<Requested>, me: NodeId) {
        moves.iter().for_each(|one| self.jobs.request(one, me));
        self.order(Order::Begin(moves));
    }

    /// Ends all moves from and to this node.
    pub(crate) fn cancel(&self) {
        self.order(Order::Cancel);
    }

    fn order(&self, order: Order) {
        self.state().orders.push_back(order);
        self.news.notify_all();
    }

    /// The records as they were read last.
    fn view(&self) -> (Option<Arc<View>>, u64) {
        let state = self.state();
        (state.view.clone(), state.views)
    }

    /// Waits for news, for so long at most. Returns the next order.
    fn wait(&self, time: Duration) -> Option<Order> {
        let mut state = self.state();
        if state.orders.is_empty() && !time.is_zero() {
            state = self.news.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.orders.pop_front()
    }
}

/// Hides the keys of slots that are stale and not this shard's.
fn hide(shared: &Shared, stale: &SlotSet, topology: &Topology) {
    shared.engine.keyspace.hidden().set(&stale.iter().filter(|slot| !topology.is_mine(*slot)).collect());
}
