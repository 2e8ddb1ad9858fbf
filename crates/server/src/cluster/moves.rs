//! Slots on their way from and to this node, as workers and the thread `moves` see them. How they move is told in
//! [`crate::node::moves`].

mod jobs;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use dunlin_cluster::{MoveId, NodeId, SLOTS, SlotSet};
use dunlin_engine::{
    command::CommandError,
    keyspace::{Keyspace, SlotBits},
};

use super::{topology::Topology, view::View};
use crate::session::import::Import;

use self::jobs::Jobs;
pub(crate) use self::jobs::{Job, JobState};

/// Slots whose commands wait for the outcome of a move.
pub(crate) type Parked = SlotBits;

/// An order of an operator.
#[derive(Debug)]
pub(crate) enum Order {
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
    pub(crate) jobs: Jobs,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Slots that may have keys which are not to be seen unless the slots are this shard's.
    pub(crate) stale: SlotSet,
    /// Imports that this process has begun, or that an earlier one may have: their keys stay while the record names them.
    pub(crate) begun: BTreeSet<MoveId>,
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
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves that go on or have ended lately, newest first.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        self.jobs.list()
    }

    /// Takes what the records say now. The topology in force says the same.
    pub(crate) fn follow(&self, keyspace: &Keyspace, topology: &Topology, me: NodeId, view: &View) {
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
        hide(keyspace, &state.stale, topology);
        drop(state);
        self.news.notify_all();
    }

    /// These slots are another shard's from now on; their keys are still here.
    pub(crate) fn lose(&self, slots: impl Iterator<Item = u16>) {
        let slots: SlotSet = slots.collect();
        self.state().stale.insert_all(&slots);
    }

    /// Hides what is not to be seen under a topology, which is about to be in force.
    pub(crate) fn hide(&self, keyspace: &Keyspace, topology: &Topology) {
        hide(keyspace, &self.state().stale, topology);
    }

    /// Nothing is in these slots that is not to be seen.
    pub(crate) fn settle(&self, keyspace: &Keyspace, topology: &Topology, slots: &SlotSet) {
        let mut state = self.state();
        state.stale.remove_all(slots);
        hide(keyspace, &state.stale, topology);
    }

    /// Whether keys of slots wait to be removed, or are being imported.
    pub(crate) fn is_settled(&self, keyspace: &Keyspace) -> bool {
        keyspace.hidden().is_empty()
    }

    /// Begins an import on a connection. The error is for the source; one that begins with TRYAGAIN passes by itself.
    pub(crate) fn begin_import(
        &self,
        keyspace: &Keyspace,
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
        hide(keyspace, &state.stale, topology);
        self.jobs.begin_import(id_read, state.view.as_deref());
        Ok(Import::new(id.to_owned(), bits.clone(), keyspace.flushes()))
    }

    /// Slots whose commands wait.
    pub(crate) fn parked(&self) -> Option<Arc<Parked>> {
        self.parked.load_full()
    }

    /// Changes which slots' commands wait, by move. Workers look at it when the topology's number changes.
    pub(super) fn change_parked(&self, change: impl FnOnce(&mut BTreeMap<MoveId, SlotSet>)) {
        let mut state = self.state();
        change(&mut state.parked);
        let parked: SlotBits = state.parked.values().flat_map(SlotSet::iter).collect();
        self.parked.store((!parked.is_empty()).then(|| Arc::new(parked)));
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
    pub(crate) fn view(&self) -> (Option<Arc<View>>, u64) {
        let state = self.state();
        (state.view.clone(), state.views)
    }

    /// Waits for news, for so long at most. Returns the next order.
    pub(crate) fn wait(&self, time: Duration) -> Option<Order> {
        let mut state = self.state();
        if state.orders.is_empty() && !time.is_zero() {
            state = self.news.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.orders.pop_front()
    }
}

/// Hides the keys of slots that are stale and not this shard's.
fn hide(keyspace: &Keyspace, stale: &SlotSet, topology: &Topology) {
    keyspace.hidden().set(&stale.iter().filter(|slot| !topology.is_mine(*slot)).collect());
}
