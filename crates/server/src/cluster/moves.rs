//! Slots on their way from and to this node, as workers and the thread `moves` see them. How they move is described in
//! [`crate::node::moves`].

mod jobs;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use dunlin_cluster::{MoveId, NodeId, SLOTS, SlotSet, meta::Revision};
use dunlin_engine::{
    command::CommandError,
    keyspace::{Keyspace, SlotBits},
};

use super::{topology::Topology, view::View};
use crate::session::{import::Import, order::AwaitedChange};

use self::jobs::Jobs;
pub(crate) use self::jobs::{Job, JobState};

/// The option of REPLCONF by which a primary tells its replicas, in the stream, who owns which slots: `REPLCONF slots revision record`.
/// Servers that do not know it ignore it, as they do in a log.
pub(crate) const SLOTS_MARK: &[u8] = b"slots";

/// Slots whose commands wait for the outcome of a move.
pub(crate) type Parked = SlotBits;

/// An operator's order for the thread `moves`, which answers it once the record has it.
#[derive(Debug)]
pub(crate) struct MoveOrder {
    pub(crate) request: MoveRequest,
    pub(crate) order: Arc<AwaitedChange>,
}

/// An operator's request.
#[derive(Debug)]
pub(crate) enum MoveRequest {
    /// Moves with these ids.
    Begin(Vec<Requested>),
    /// A move with this id, which is answered when it has ended.
    Complete(Requested),
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
    heavy: Mutex<HeavySlots>,
    pub(crate) jobs: Jobs,
}

/// Slots of this primary that take much more than others, as they were weighed last.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeavySlots {
    /// Slots and their bytes, in the order of slots.
    pub(crate) heavy: Vec<(u16, u64)>,
    /// The revision of the record of slots that they were weighed under.
    pub(crate) slots: Revision,
}

#[derive(Debug, Default)]
struct State {
    /// Slots that may have keys which are not to be seen unless the slots are this shard's.
    stale: SlotSet,
    /// Imports that this process has begun, or that an earlier one may have. Their keys stay as long as the record
    /// names them.
    begun: BTreeSet<MoveId>,
    /// By move.
    parked: BTreeMap<MoveId, SlotSet>,
    /// Whether the topology names a move to this node that has begun.
    is_importing: bool,
    /// A client waits to empty databases until no import goes on.
    ends_imports: bool,
    view: Option<Arc<View>>,
    /// Counts the views.
    views: u64,
    /// A topology comes into force that knows more than the view: nothing is decided by the view until the next one is here.
    is_behind: bool,
    /// Whether the last view had this node as a primary.
    was_primary: bool,
    orders: VecDeque<MoveOrder>,
}

/// Keys that have no place here.
#[derive(Debug)]
pub(crate) struct Misplaced {
    /// Their slots: stale, and neither this shard's nor on their way to it.
    pub(crate) slots: SlotSet,
    /// The slots whose keys stay.
    pub(crate) kept: SlotSet,
    /// The view that says so.
    pub(crate) views: u64,
}

impl State {
    /// Hides the keys of slots that are stale and not this shard's. While keys are being imported, databases are not
    /// emptied.
    fn obey(&mut self, keyspace: &Keyspace, topology: &Topology) {
        keyspace.hidden().set(&self.stale.iter().filter(|slot| !topology.is_mine(*slot)).collect());
        let mut imports = topology.import_ids().filter_map(|id| id.parse().ok());
        self.is_importing = imports.any(|id: MoveId| self.begun.contains(&id));
        self.hold_flushes(keyspace);
    }

    /// Makes FLUSHALL wait until it is known whose the slots are that are changing hands. A source whose proposal is
    /// under way would give away what was emptied, and a target would be given slots whose keys it has thrown away.
    fn hold_flushes(&self, keyspace: &Keyspace) {
        keyspace.hold_flushes(self.is_importing || !self.parked.is_empty());
    }
}

impl Moves {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots have been weighed.
    pub(crate) fn set_heavy(&self, heavy: HeavySlots) {
        *self.heavy.lock().unwrap_or_else(PoisonError::into_inner) = heavy;
    }

    /// The heavy slots, as they were weighed last.
    pub(crate) fn heavy(&self) -> HeavySlots {
        self.heavy.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        state.begun.retain(|id| view.moves().any(|one| one.id == *id));
        if state.view.is_none() || is_primary && !state.was_primary {
            // The data set was loaded, or an earlier primary has left it: what it has is unknown.
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
        state.is_behind = false;
        state.obey(keyspace, topology);
        drop(state);
        self.news.notify_all();
    }

    /// These slots are another shard's from now on; their keys are still here. [`Self::follow`] is to come.
    pub(crate) fn lose(&self, slots: impl Iterator<Item = u16>) {
        let slots: SlotSet = slots.collect();
        let mut state = self.state();
        state.stale.insert_all(&slots);
        state.is_behind = true;
    }

    /// Hides what is not to be seen under a topology, which is about to be in force.
    pub(crate) fn hide(&self, keyspace: &Keyspace, topology: &Topology) {
        self.state().obey(keyspace, topology);
    }

    /// Returns which slots have keys that are not to be seen, and takes those for settled that are this shard's. `None`
    /// if there is nothing to decide by: no record of slots, no shard, or a topology that is coming into force.
    pub(crate) fn misplaced(&self, keyspace: &Keyspace, me: NodeId) -> Option<Misplaced> {
        let mut state = self.state();
        let view = state.view.clone().filter(|_| !state.is_behind)?;
        let (mine, _) = view.shard_of(me)?;
        let (_, record) = view.slots.as_ref()?;
        let own = record.slots.slots_of(mine);
        if state.stale.intersects(&own) {
            // Slots of this shard's own are seen, whatever they have.
            state.stale.remove_all(&own);
            let hidden: SlotBits = state.stale.iter().collect();
            keyspace.hidden().set(&hidden);
        }
        let mut kept = record.slots.unowned();
        kept.insert_all(&own);
        let imported = view.moves().filter(|one| one.to == mine && state.begun.contains(&one.id));
        imported.for_each(|one| kept.insert_all(&one.slots));
        let mut slots = state.stale.clone();
        slots.remove_all(&kept);
        Some(Misplaced { slots, kept, views: state.views })
    }

    /// Notes that these slots are clean, as that view has decided: they hold nothing that is to stay hidden. Returns
    /// whether that view still holds.
    pub(crate) fn settle(&self, keyspace: &Keyspace, slots: &SlotSet, views: u64) -> bool {
        let mut state = self.state();
        if state.is_behind || state.views != views {
            return false;
        }
        state.stale.remove_all(slots);
        let hidden: SlotBits = state.stale.iter().collect();
        keyspace.hidden().set(&hidden);
        true
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
        if state.is_behind {
            return later("this node is reading the records");
        }
        if state.begun.contains(&id_read) {
            return Err(CommandError::text("ERR the import has begun before"));
        }
        if state.stale.intersects(&slots) {
            return later("keys of these slots are still being removed");
        }
        state.begun.insert(id_read);
        state.stale.insert_all(&slots);
        state.obey(keyspace, topology);
        self.jobs.begin_import(id_read, state.view.as_deref());
        Ok(Import::new(id.to_owned(), bits.clone(), keyspace.flushes()))
    }

    /// Slots whose commands wait.
    pub(crate) fn parked(&self) -> Option<Arc<Parked>> {
        self.parked.load_full()
    }

    /// Changes which slots' commands wait, by move. Workers look at it when the topology's number changes.
    pub(super) fn change_parked(
        &self,
        keyspace: &Keyspace,
        change: impl FnOnce(&mut BTreeMap<MoveId, SlotSet>),
    ) {
        let mut state = self.state();
        change(&mut state.parked);
        state.hold_flushes(keyspace);
        let parked: SlotBits = state.parked.values().flat_map(SlotSet::iter).collect();
        self.parked.store((!parked.is_empty()).then(|| Arc::new(parked)));
    }

    /// Asks for moves from this node. The order ends when the record has them.
    pub(crate) fn request(&self, moves: Vec<Requested>, me: NodeId) -> Arc<AwaitedChange> {
        moves.iter().for_each(|one| self.jobs.request(one, me));
        self.order(MoveRequest::Begin(moves))
    }

    /// Asks for a move from this node. The order ends with it.
    pub(crate) fn complete(&self, one: Requested, me: NodeId) -> Arc<AwaitedChange> {
        self.jobs.request(&one, me);
        self.order(MoveRequest::Complete(one))
    }

    /// Ends all moves from and to this node. The order ends when the record has none.
    pub(crate) fn cancel(&self) -> Arc<AwaitedChange> {
        self.order(MoveRequest::Cancel)
    }

    /// A client waits to empty databases: has moves to this node that have begun taken off the record. The planner begins anew.
    pub(crate) fn end_imports(&self) {
        let mut state = self.state();
        if state.is_importing {
            state.ends_imports = true;
            self.news.notify_all();
        }
    }

    /// Returns whether imports are to be ended, once, and those that have begun.
    pub(crate) fn take_imports_to_end(&self) -> Option<BTreeSet<MoveId>> {
        let mut state = self.state();
        std::mem::take(&mut state.ends_imports).then(|| state.begun.clone())
    }

    fn order(&self, request: MoveRequest) -> Arc<AwaitedChange> {
        let order = Arc::new(AwaitedChange::default());
        self.state().orders.push_back(MoveOrder { request, order: Arc::clone(&order) });
        self.news.notify_all();
        order
    }

    /// The records as they were read last.
    pub(crate) fn view(&self) -> (Option<Arc<View>>, u64) {
        let state = self.state();
        (state.view.clone(), state.views)
    }

    /// Waits for news, for at most `time`. Returns the next order.
    pub(crate) fn wait(&self, time: Duration) -> Option<MoveOrder> {
        let mut state = self.state();
        if state.orders.is_empty() && !state.ends_imports && !time.is_zero() {
            state = self.news.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.orders.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::{
        HistoryId, ShardId, SlotMap,
        records::{History, Move, ShardRecord, SlotsRecord},
    };

    use super::*;
    use crate::cluster::view::tests::{node_id, view_of};

    const SHARDS: [ShardId; 2] = [ShardId::from_bytes([1; 20]), ShardId::from_bytes([2; 20])];

    fn set(first: u16, last: u16) -> SlotSet {
        (first..=last).collect()
    }

    /// Two shards of one node each, of which the first has these slots and the second the others.
    fn view(first: &SlotSet, moving: Vec<Move>) -> View {
        let mut view = view_of(&["a", "b"]);
        let mut slots = SlotMap::default();
        slots.assign(&SlotSet::all(), Some(SHARDS[1]));
        slots.assign(first, Some(SHARDS[0]));
        view.slots = Some((6, SlotsRecord { slots, moving, ..SlotsRecord::default() }));
        for (shard, node) in SHARDS.into_iter().zip([node_id(1), node_id(2)]) {
            let record = ShardRecord {
                epoch: 1,
                primary: node,
                in_sync: [node].into(),
                learners: [].into(),
                history: History { id: HistoryId::from_bytes([9; 20]), from: 0, previous: None },
                requested: None,
            };
            view.shards.insert(shard, (5, record));
        }
        view
    }

    struct Scenario {
        moves: Moves,
        keyspace: Keyspace,
    }

    impl Scenario {
        /// The node has these slots, and nothing that is not to be seen.
        fn of(first: &SlotSet) -> Self {
            let scenario = Self { moves: Moves::default(), keyspace: Keyspace::new(1, 1, 1, [0; 4]) };
            let view = view(first, Vec::new());
            scenario.follow(&view);
            let misplaced = scenario.misplaced().unwrap();
            assert!(scenario.moves.settle(&scenario.keyspace, &misplaced.slots, misplaced.views));
            scenario
        }

        fn follow(&self, view: &View) {
            let me = node_id(1);
            self.moves.follow(&self.keyspace, &view.topology(me, &BTreeSet::new()).unwrap(), me, view);
        }

        fn misplaced(&self) -> Option<Misplaced> {
            self.moves.misplaced(&self.keyspace, node_id(1))
        }
    }

    #[test]
    fn slots_that_were_given_away_are_misplaced_whenever_the_thread_looks() {
        let scenario = Scenario::of(&set(0, 99));
        // The topology knows it before the view does. By the view they would be this shard's, and settled.
        scenario.moves.lose(50..100);
        assert!(scenario.misplaced().is_none());
        scenario.follow(&view(&set(0, 49), Vec::new()));
        let misplaced = scenario.misplaced().unwrap();
        assert_eq!(misplaced.slots, set(50, 99));
        assert!(!scenario.keyspace.hidden().is_empty());
        // Keys that were removed by an older view are looked at again.
        scenario.follow(&view(&set(0, 49), Vec::new()));
        assert!(!scenario.moves.settle(&scenario.keyspace, &misplaced.slots, misplaced.views));
        assert_eq!(scenario.misplaced().unwrap().slots, set(50, 99));
    }

    #[test]
    fn imported_keys_are_never_misplaced_while_the_record_names_the_move() {
        let scenario = Scenario::of(&set(0, 99));
        let id = MoveId::from_bytes([7; 20]);
        let moving =
            Move { id, slots: set(200, 299), from: SHARDS[1], to: SHARDS[0], from_epoch: 1, to_epoch: 1 };
        let begun = view(&set(0, 99), vec![moving]);
        let topology = begun.topology(node_id(1), &BTreeSet::new()).unwrap();
        let import = || scenario.moves.begin_import(&scenario.keyspace, &topology, &id.to_string());
        // The topology knows the move before the view does.
        scenario.moves.lose(std::iter::empty());
        assert!(import().is_err());
        scenario.follow(&begun);
        scenario.moves.end_imports();
        assert_eq!((scenario.keyspace.holds_flushes(), scenario.moves.take_imports_to_end()), (false, None));
        import().unwrap();
        assert!(
            scenario.keyspace.holds_flushes(),
            "what was imported would be lost, and the slots given all the same"
        );
        scenario.moves.end_imports();
        assert_eq!(scenario.moves.take_imports_to_end(), Some([id].into()));
        assert_eq!(scenario.moves.take_imports_to_end(), None);
        assert!(scenario.misplaced().unwrap().slots.is_empty());
        assert!(!scenario.keyspace.hidden().is_empty());
        scenario.follow(&view(&set(0, 99), Vec::new()));
        assert_eq!(scenario.misplaced().unwrap().slots, set(200, 299), "the move came to nothing");
        assert!(!scenario.keyspace.holds_flushes());
        assert!(scenario.moves.state().begun.is_empty(), "it grows with moves that are over");
    }

    #[test]
    fn databases_are_not_emptied_while_slots_are_parked() {
        let scenario = Scenario::of(&set(0, 99));
        let ids = [7, 8].map(|byte| MoveId::from_bytes([byte; 20]));
        for (at, id) in ids.into_iter().enumerate() {
            scenario
                .moves
                .change_parked(&scenario.keyspace, |parked| _ = parked.insert(id, set(at as u16, at as u16)));
        }
        for (id, holds) in ids.into_iter().zip([true, false]) {
            assert!(scenario.keyspace.holds_flushes());
            scenario.moves.change_parked(&scenario.keyspace, |parked| _ = parked.remove(&id));
            assert_eq!(scenario.keyspace.holds_flushes(), holds);
        }
    }
}
