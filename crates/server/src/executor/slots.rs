//! Slots, on a node of a cluster: which node runs a request, and what becomes of clients when slots leave the node.

use std::{sync::Arc, time::Duration};

use dunlin_engine::{
    command::{Command, CommandError, CommandResult, Entry, Flags},
    keyspace::{Key, slot},
};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;

use super::{Executor, admission::brought, waiting::BLOCKED_BY_SCRIPT_PAUSE};
use crate::{
    admission::{Effects, Slots, Verdict, Wait},
    cluster::{
        endpoints,
        route::{Request, Route, refusal, route},
        rules,
        topology::Topology,
    },
    push::pubsub::{Kind, unsubscribe},
    session::{ClientFlags, Session},
    shared::Shared,
    workers::blocked::{Unblocked, encode},
};

/// After what time a command is presented again that waits for the outcome of a move. The outcome wakes it earlier.
const PARKED_PAUSE: Duration = Duration::from_millis(100);

/// The slots of a command's keys and channels. `keys` are those that the window has hashed.
#[inline]
pub(super) fn slots_of(entry: &Entry, words: &[&[u8]], keys: &[Key<'_>]) -> Slots {
    // A window knows no keys of subcommands.
    match keys.is_empty() {
        false if entry.container.is_none() => keys.iter().map(|key| key.slot).collect(),
        _ => slots_of_words(entry.command, words),
    }
}

/// The slots of a command none of whose keys have been hashed.
pub(crate) fn slots_of_words(command: &Command, words: &[&[u8]]) -> Slots {
    let positions = command.keys.iter().flat_map(|spec| spec.positions(words));
    positions.map(|at| slot(words[at])).collect()
}

/// Whether a command names channels of shards.
fn is_sharded_pubsub(command: &Command) -> bool {
    command.flags.has(Flags::PUBSUB) && !command.keys.is_empty()
}

impl Executor {
    /// Looks at the topology again if it has changed.
    #[inline]
    pub(crate) fn refresh_topology(&mut self, shared: &Shared) {
        if self.topology.refresh(&shared.cluster) {
            self.follow_topology();
        }
    }

    /// Makes commands obey another topology.
    #[cold]
    pub(super) fn follow_topology(&mut self) {
        self.policy.slots = self.topology.topology().map(|topology| topology.my_slots());
        self.keep_marks();
    }

    /// Whether a command runs here because of its keys, at a glance: nearly always there is one, of a slot that this node has.
    /// The caller is inside the gate.
    #[inline]
    pub(super) fn serves(&mut self, shared: &Shared, keys: &[Key<'_>]) -> bool {
        self.refresh_topology(shared);
        matches!(keys, [key] if self.topology.serves(key.slot))
    }

    /// Why a client's command does not run here. The caller is inside the gate, and has looked whether the topology has changed.
    #[inline(never)]
    pub(super) fn route(
        &self,
        session: &Session,
        entry: &Entry,
        words: &[&[u8]],
        keys: &[Key<'_>],
    ) -> Option<Verdict> {
        let topology = self.topology.topology()?;
        let slots = match entry.command.flags.has(Flags::RUNS_QUEUE) {
            true => {
                let queued = session.queue.as_ref().map_or(Slots::None, |queue| queue.slots);
                queued.join(slots_of(entry, words, keys))
            }
            false => slots_of(entry, words, keys),
        };
        if let Some(import) = &session.import {
            let goes_on = topology.imports(&import.id) && import.has(slots);
            let ended = || CommandError::text("ERR the move of slots has ended, or is of other slots");
            return (!goes_on).then(|| Verdict::Refuse(ended()));
        }
        let is_exclusive = entry.command.is_exclusive()
            || entry.command.flags.has(Flags::RUNS_QUEUE)
                && session.queue.as_ref().is_some_and(|queue| queue.is_exclusive);
        if is_exclusive && self.shared.engine.keyspace.holds_flushes() {
            self.shared.cluster.moves.end_imports();
            return Some(Verdict::Park(Wait::Pause(self.now.instant.checked_add(PARKED_PAUSE))));
        }
        if self.topology.parks(slots) {
            return Some(Verdict::Park(Wait::Pause(self.now.instant.checked_add(PARKED_PAUSE))));
        }
        let reads_replicas = session.flags.has(ClientFlags::READS_REPLICAS);
        // A script without flags is let in by a replica, and refused when it writes. Elsewhere a primary runs all.
        let depends = reads_replicas || !topology.is_ok(rules(self.config.config()).require_full_coverage);
        let writes = entry.command.is_write()
            || depends && brought(&self.shared, session, entry, words).has_any(Effects::WRITES);
        let request = Request { writes, is_sharded_pubsub: is_sharded_pubsub(entry.command), reads_replicas };
        match route(topology, rules(self.config.config()), slots, request) {
            Route::Here => None,
            elsewhere => self.refusal(topology, elsewhere, session.client.is_tls).map(Verdict::Redirect),
        }
    }

    #[cold]
    fn refusal(&self, topology: &Topology, route: Route, is_tls: bool) -> Option<CommandError> {
        refusal(topology, route, endpoints(self.config.config(), is_tls))
    }

    /// Whether a command that was computed apart waits for the outcome of a move of its slot.
    pub(super) fn is_computed_parked(&mut self, shared: &Shared, entry: &Entry, words: &[&[u8]]) -> bool {
        self.refresh_topology(shared);
        self.topology.has_parked() && self.topology.parks(slots_of_words(entry.command, words))
    }

    /// Whether the result of an offloaded command may be stored here. The caller is inside the gate.
    pub(super) fn route_computed(
        &mut self,
        shared: &Shared,
        entry: &Entry,
        words: &[&[u8]],
        is_tls: bool,
    ) -> CommandResult {
        self.refresh_topology(shared);
        let Some(topology) = self.topology.topology() else { return Ok(()) };
        let request = Request { writes: true, ..Request::default() };
        let slots = slots_of_words(entry.command, words);
        let elsewhere = route(topology, rules(self.config.config()), slots, request);
        self.refusal(topology, elsewhere, is_tls).map_or(Ok(()), Err)
    }

    /// Whether keys of one slot that MIGRATE has sent wait for the outcome of a move of it; an error if they are
    /// another node's by now. The caller is inside the gate.
    pub(super) fn parks_departed(
        &mut self,
        shared: &Shared,
        keys: &[Box<[u8]>],
        is_tls: bool,
    ) -> Result<bool, CommandError> {
        self.refresh_topology(shared);
        let Some(topology) = self.topology.topology() else { return Ok(false) };
        let slots: Slots = keys.iter().map(|key| slot(key)).collect();
        if self.topology.parks(slots) {
            return Ok(true);
        }
        let request = Request { writes: true, ..Request::default() };
        let elsewhere = route(topology, rules(self.config.config()), slots, request);
        self.refusal(topology, elsewhere, is_tls).map_or(Ok(false), Err)
    }

    /// The route of a command that a script calls, and the one slot of its keys.
    pub(crate) fn route_in_script(
        &mut self,
        shared: &Shared,
        session: &Session,
        entry: &Entry,
        words: &[&[u8]],
    ) -> (Route, Slots) {
        self.refresh_topology(shared);
        let slots = slots_of_words(entry.command, words);
        let Some(topology) = self.topology.topology() else { return (Route::Here, slots) };
        if let Slots::One(slot) = slots
            && self.topology.parks(slots)
            && let Some(shard) = topology.owner(slot)
        {
            // A script with keys that it has not declared cannot wait.
            return (Route::Moved { slot, shard }, slots);
        }
        let request = Request {
            writes: entry.command.is_write(),
            is_sharded_pubsub: is_sharded_pubsub(entry.command),
            reads_replicas: session.flags.has(ClientFlags::READS_REPLICAS),
        };
        (route(topology, rules(self.config.config()), slots, request), slots)
    }

    /// Whether commands and scripts may name keys of several slots.
    pub(crate) fn may_cross_slots(&self) -> bool {
        let rules = rules(self.config.config());
        self.topology.topology().is_some_and(|topology| rules.may_cross_slots(topology))
    }

    /// Some slots have left this node: ends the client's subscriptions to channels of theirs, and its wait for their keys.
    #[cold]
    pub(super) fn follow_slots(&mut self, session: &mut Session, reply: &mut ReplyBuffer) -> Option<Next> {
        let shared = Arc::clone(&self.shared);
        self.refresh_topology(&shared);
        let topology = Arc::clone(self.topology.topology()?);
        self.leave_channels(&topology, session, reply);
        session.waiting?;
        let waiter = shared.blocked.waiter(session.client.address)?;
        let (command, words, _) = waiter.request();
        let slots = slots_of_words(command, &words);
        let request = Request { writes: command.is_write(), ..Request::default() };
        let elsewhere = route(&topology, rules(self.config.config()), slots, request);
        let error = self.refusal(&topology, elsewhere, session.client.is_tls)?;
        let ended = {
            let inside = self.pass(&shared.engine.keyspace);
            inside.map(|_| shared.blocked.end(&shared.engine, session.client.address))
        };
        Some(match ended {
            Some(Ok(Some(waiter))) => {
                let answer = encode(waiter.protocol, |reply| reply.error(error.line()));
                self.stop_waiting(session, reply, &Unblocked::with(answer))
            }
            // The client was served at the last moment: the reply is on its way.
            Some(Ok(None)) => Next::Park { until: None },
            None | Some(Err(_)) => {
                Next::Park { until: self.now.instant.checked_add(BLOCKED_BY_SCRIPT_PAUSE) }
            }
        })
    }

    /// Ends a client's subscriptions to channels whose slots are another shard's, and says so.
    fn leave_channels(&self, topology: &Topology, session: &mut Session, reply: &mut ReplyBuffer) {
        let lost = session.subscribed(Kind::ShardChannel);
        let lost = lost.into_iter().filter(|name| !topology.is_mine(slot(name)));
        reply.set_protocol(session.protocol);
        for name in lost {
            unsubscribe(&self.shared.exchange, session, Kind::ShardChannel, &name);
            reply.push(3);
            reply.bulk(b"sunsubscribe");
            reply.bulk(&name);
            reply.count(session.subscriptions_counted_with(Kind::ShardChannel));
        }
        session.publish();
    }
}
