//! [`Backoff`]: limits for the planner, from moves that have failed. The planner keeps no state, so it would begin a
//! move that has failed at once again. That move would fail again if the reason lasts: a target without memory, a
//! user without rights, a value that is too long.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use dunlin_cluster::{
    MoveId, NodeId, ShardId,
    meta::Revision,
    records::{Move, SlotsRecord},
};

use crate::cluster::{ALIVE_MS, view::View};

/// How long no move begins between two shards after the first failure. Each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a source may be away, after its presence has run out, before its moves are struck off.
const AWAY_TIME_MAX: Duration = Duration::from_millis(ALIVE_MS);

/// A source and a target.
type Pair = (ShardId, ShardId);

/// The limits that a plan has to keep.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Between which shards no move begins.
    pub(super) paused: BTreeSet<Pair>,
    /// Moves that end, because their sources stay away.
    pub(super) stranded: BTreeSet<MoveId>,
}

#[derive(Debug)]
struct Pause {
    time: Duration,
    until: Instant,
}

/// The failures that this process has seen. A controller that knows nothing of earlier ones begins with the shortest pause.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The revision of the record of slots that was seen last, and its moves.
    revision: Revision,
    open: BTreeMap<MoveId, Move>,
    pauses: BTreeMap<Pair, Pause>,
    /// Primaries that are not there, and since when.
    away: BTreeMap<NodeId, Instant>,
}

impl Backoff {
    /// Takes the records after each change: of a move that begins and ends between two looks, nothing would be noted.
    pub(super) fn follow(&mut self, view: &View, now: Instant) {
        self.away.retain(|node, _| !view.alive.contains_key(node));
        let primaries = view.shards.values().map(|(_, shard)| shard.primary);
        for node in primaries.filter(|node| !view.alive.contains_key(node)) {
            self.away.entry(node).or_insert(now);
        }
        let Some((revision, record)) = view.slots.as_ref().filter(|(revision, _)| *revision != self.revision)
        else {
            return;
        };
        self.revision = *revision;
        let open = record.moving.iter().map(|one| (one.id, one.clone())).collect();
        let before = std::mem::replace(&mut self.open, open);
        for one in before.values().filter(|one| !self.open.contains_key(&one.id)) {
            note_end(&mut self.pauses, view, record, one, now);
        }
        self.pauses.retain(|(from, to), _| view.shards.contains_key(from) && view.shards.contains_key(to));
    }

    /// Returns what holds now.
    pub(super) fn limits(&self, view: &View, now: Instant) -> Limits {
        let is_paused = |(_, pause): &(&Pair, &Pause)| now < pause.until;
        let is_stranded = |one: &&Move| {
            let primary = view.primary_of(one.from, one.from_epoch);
            let since = primary.and_then(|node| self.away.get(&node));
            since.is_some_and(|since| now.duration_since(*since) >= AWAY_TIME_MAX)
        };
        Limits {
            paused: self.pauses.iter().filter(is_paused).map(|(pair, _)| *pair).collect(),
            stranded: view.moves().filter(is_stranded).map(|one| one.id).collect(),
        }
    }
}

/// A move has left the record. A move that a failover has made void has not failed.
fn note_end(pauses: &mut BTreeMap<Pair, Pause>, view: &View, record: &SlotsRecord, one: &Move, now: Instant) {
    let pair = (one.from, one.to);
    let is_given = one.slots.iter().next().is_some_and(|slot| record.slots.owner(slot) == Some(one.to));
    let lasts = |shard, epoch| view.primary_of(shard, epoch).is_some();
    if is_given {
        pauses.remove(&pair);
    } else if lasts(one.from, one.from_epoch) && lasts(one.to, one.to_epoch) {
        let time = pauses.get(&pair).map_or(PAUSE_MIN, |pause| (pause.time * 2).min(PAUSE_MAX));
        pauses.insert(pair, Pause { time, until: now + time });
    }
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::{
        HistoryId, SlotMap, SlotSet,
        records::{History, ShardRecord},
    };

    use super::*;
    use crate::cluster::view::tests::{node_id, view_of};

    const FROM: ShardId = ShardId::from_bytes([1; 20]);
    const TO: ShardId = ShardId::from_bytes([2; 20]);

    struct Scenario {
        view: View,
        backoff: Backoff,
        now: Instant,
        moves: u8,
    }

    impl Scenario {
        /// Two shards of one node each, of which the first has all slots.
        fn new() -> Self {
            let mut view = view_of(&["a", "b"]);
            for (shard, node) in [(FROM, node_id(1)), (TO, node_id(2))] {
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
            let mut slots = SlotMap::default();
            slots.assign(&SlotSet::all(), Some(FROM));
            view.slots = Some((6, SlotsRecord { slots, ..SlotsRecord::default() }));
            let mut scenario = Self { view, backoff: Backoff::default(), now: Instant::now(), moves: 0 };
            scenario.follow();
            scenario
        }

        fn follow(&mut self) {
            self.backoff.follow(&self.view, self.now);
        }

        fn change(&mut self, change: impl FnOnce(&mut SlotsRecord)) {
            let (revision, record) = self.view.slots.as_mut().unwrap();
            *revision += 1;
            change(record);
            self.follow();
        }

        fn begin(&mut self) -> Move {
            self.moves += 1;
            let (id, slots) = (MoveId::from_bytes([self.moves; 20]), [7].into_iter().collect());
            let one = Move { id, slots, from: FROM, to: TO, from_epoch: 1, to_epoch: 1 };
            self.change(|record| record.moving.push(one.clone()));
            one
        }

        fn fail(&mut self) {
            self.begin();
            self.change(|record| record.moving.clear());
        }

        fn is_paused(&self) -> bool {
            self.backoff.limits(&self.view, self.now).paused == [(FROM, TO)].into()
        }

        /// Seconds until a move may begin.
        fn pause(&mut self) -> u64 {
            let began = self.now;
            while self.is_paused() {
                self.now += Duration::from_secs(1);
            }
            (self.now - began).as_secs()
        }
    }

    #[test]
    fn backoff_pauses_moves_that_fail_for_longer_each_time() {
        let mut scenario = Scenario::new();
        let pauses: Vec<u64> = (0..9)
            .map(|_| {
                scenario.fail();
                scenario.pause()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        // A move that succeeds, the planner's or an operator's, shows that the reason is gone.
        let one = scenario.begin();
        scenario.change(|record| {
            record.moving.clear();
            record.slots.assign(&one.slots, Some(TO));
        });
        assert_eq!(scenario.pause(), 0);
        scenario.change(|record| record.slots.assign(&one.slots, Some(FROM)));
        scenario.fail();
        assert_eq!(scenario.pause(), 1);
    }

    #[test]
    fn backoff_counts_neither_failovers_nor_moves_that_go_on() {
        let mut scenario = Scenario::new();
        scenario.begin();
        scenario.change(|record| record.pinned.insert_all(&[1].into_iter().collect()));
        assert!(!scenario.is_paused(), "it goes on");
        scenario.view.shards.get_mut(&TO).unwrap().1.epoch = 2;
        scenario.change(|record| record.moving.clear());
        assert!(!scenario.is_paused(), "it was void");
    }

    #[test]
    fn backoff_gives_a_source_up_that_stays_away() {
        let mut scenario = Scenario::new();
        let one = scenario.begin();
        let stranded = |scenario: &Scenario| scenario.backoff.limits(&scenario.view, scenario.now).stranded;
        let alive = scenario.view.alive.remove(&node_id(1)).unwrap();
        scenario.follow();
        scenario.now += AWAY_TIME_MAX - Duration::from_millis(1);
        assert_eq!(stranded(&scenario), [].into());
        scenario.now += Duration::from_millis(1);
        assert_eq!(stranded(&scenario), [one.id].into());
        scenario.view.alive.insert(node_id(1), alive);
        scenario.follow();
        assert_eq!(stranded(&scenario), [].into());
    }
}
