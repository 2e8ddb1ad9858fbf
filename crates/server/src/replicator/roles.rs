//! Changes of the server's role, which the thread `replica` makes: no other thread applies anything meanwhile.

use std::sync::{Arc, atomic::Ordering::Acquire};

use dunlin_engine::LogConsumer;
use dunlin_net::Address;
use dunlin_replication::{GETACK, History, Id, Replica};

use super::{
    failover,
    link::{Link, Primary, options},
};
use crate::{
    config::PrimaryAddress,
    replication::{REPLICA, RoleOrder, STALE, ShardPrimary, new_id},
    system::host::monotonic_ms,
    workers::{WorkerMessage, blocked::Unblocked},
};

impl Link {
    pub(super) fn carry_out(&mut self, order: RoleOrder) {
        self.disconnect("the role changes");
        let may_end_failover = matches!(order, RoleOrder::Promote | RoleOrder::Follow { .. });
        match order {
            RoleOrder::Follow { primary, hands_over } => self.follow(primary, hands_over),
            RoleOrder::Promote => self.promote(),
            RoleOrder::Join { primary, begins } => self.join(primary, begins),
            RoleOrder::Lead { history, previous, from } => self.lead(history, previous, from),
            RoleOrder::Rest => self.rest(),
            RoleOrder::Clear => {
                self.join(None, None);
                self.clear();
            }
        }
        if may_end_failover {
            failover::end_pause(&self.shared);
        }
        self.publish();
        self.unblock_clients();
    }

    fn follow(&mut self, address: PrimaryAddress, hands_over: bool) {
        tracing::info!("Following the primary {}:{}", address.host, address.port);
        let shared = Arc::clone(&self.shared);
        let replication = &shared.replication;
        replication.link().begin_anew();
        replication.set_state(REPLICA | STALE, true);
        let position = match self.primary.take() {
            // The history that the former primary's stream has.
            Some(primary) => primary.replica.position(),
            None => {
                // From here on no client writes, so the own history ends here.
                let _closed = shared.engine.keyspace.close();
                // A stream that was kept in files may have selected another than 0.
                self.applier.begin(replication.database.load(Acquire));
                shared.engine.follow(true);
                let tail = shared.durability.tail();
                let has_backlog = replication.backlog(tail).is_some();
                has_backlog.then(|| (replication.history().id, replication.offset(tail)))
            }
        };
        self.begin_link(address, position).hands_over = hands_over;
    }

    fn begin_link(&mut self, address: PrimaryAddress, position: Option<(Id, u64)>) -> &mut Replica {
        let shared = Arc::clone(&self.shared);
        let replica = Replica::new(options(&shared), position, monotonic_ms());
        // Behind the gate: clients that were let in as a primary's wait by now.
        self.to_unblock = shared.blocked.all();
        shared.replication.end_commits(&shared.durability);
        &mut self.primary.insert(Primary { address, replica, is_stopped: false }).replica
    }

    /// Follows a shard's primary, or none yet. The data set says where the stream is joined; an empty one that is part
    /// of no history is the beginning of `begins`.
    fn join(&mut self, primary: Option<ShardPrimary>, begins: Option<Id>) {
        let shared = Arc::clone(&self.shared);
        let replication = &shared.replication;
        replication.link().begin_anew();
        self.primary = None;
        {
            let _closed = shared.engine.keyspace.close();
            self.applier.begin(replication.database.load(Acquire));
            shared.engine.follow(true);
        }
        if let Some(id) = begins.filter(|_| !replication.has_place()) {
            replication.restart_stream(&shared.engine, History::new(id), 0);
            replication.keep_stream(&shared.durability);
        }
        let end = replication.offset(shared.durability.tail());
        let position = replication.has_place().then(|| (replication.history().id, end));
        match primary {
            Some(ShardPrimary { address, history }) => {
                tracing::info!("Following the primary {}:{}", address.host, address.port);
                self.begin_link(address, position).copy_of = Some(history);
            }
            None => {
                self.to_unblock = shared.blocked.all();
                replication.end_commits(&shared.durability);
            }
        }
    }

    /// Waits for commands that were let in before, and asks followers how far they are.
    fn rest(&mut self) {
        let shared = &self.shared;
        {
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.end_admissions();
            if shared.engine.log.is_on_for(LogConsumer::Replicas) {
                shared.durability.ring().append(shared.applier(), GETACK);
            }
        }
        shared.durability.wake_log(shared.durability.tail());
        shared.replication.feed.wake();
    }

    /// Becomes a shard's primary: its history goes on as this one.
    fn lead(&mut self, history: Id, previous: Option<Id>, from: u64) {
        let shared = Arc::clone(&self.shared);
        let replication = &shared.replication;
        replication.link().begin_anew();
        self.primary = None;
        if !replication.has_place() {
            // An empty data set is the beginning of the history before, too.
            let second = previous.map(|id| (id, 1));
            replication.restart_stream(&shared.engine, History { id: history, second }, 0);
        }
        {
            let _closed = shared.engine.keyspace.close();
            let offset = replication.offset(shared.durability.tail());
            if offset != from {
                return;
            }
            replication.select(0);
            replication.lock_history().continue_as(history, offset);
            // A follower that was quicker than this order goes on in the former history. Such a follower comes back for
            // the new one.
            replication.feed.cut_all();
            shared.engine.follow(false);
        }
        // Before anything of the new history is recorded.
        replication.keep_stream(&shared.durability);
        replication.set_state(REPLICA | STALE, false);
        tracing::info!("This node leads its shard, with the history {history}");
    }

    pub(super) fn promote(&mut self) {
        let shared = Arc::clone(&self.shared);
        let replication = &shared.replication;
        replication.link().begin_anew();
        if self.primary.take().is_none() {
            // An order to follow another server that was overtaken by this one.
            replication.set_state(REPLICA | STALE, false);
            return;
        }
        let Ok(id) = new_id() else {
            tracing::error!("cannot draw a random identity, so the replica stays one");
            return;
        };
        {
            let _closed = shared.engine.keyspace.close();
            // The former history ends here: others of it may have other bytes behind.
            let offset = replication.offset(shared.durability.tail());
            replication.lock_history().promote(id, offset);
        }
        // Before anything of the new history is recorded.
        replication.keep_stream(&shared.durability);
        {
            let _closed = shared.engine.keyspace.close();
            // Replicas that follow by the former history are sent nothing of the new one, and come back for the second
            // id.
            replication.feed.cut_all();
            if self.applier.database() != 0 && shared.engine.log.has_consumers() {
                // Records from here on begin in database 0.
                let select = dunlin_replication::request(&[b"SELECT", b"0"]);
                shared.durability.ring().append(shared.applier(), &select);
            }
            replication.select(0);
            shared.engine.follow(false);
        }
        replication.set_state(REPLICA | STALE, false);
        tracing::info!("This server is a primary now, with the id {id}");
    }

    /// Ends the waits of clients that have waited for a primary to serve them. Clients whose keys a script holds come
    /// later.
    pub(super) fn unblock_clients(&mut self) {
        let shared = Arc::clone(&self.shared);
        let unblocked = Arc::new(Unblocked::demoted());
        let ends = |client: &Address| {
            let Some(_inside) = shared.engine.keyspace.enter_unless_long(shared.applier()) else {
                return false;
            };
            let has_ended = match shared.blocked.end_durability(*client) {
                Some(_) => true,
                None => match shared.blocked.end(&shared.engine, *client) {
                    Ok(waiter) => waiter.is_some(),
                    Err(_) => return false,
                },
            };
            if has_ended {
                self.applier.queues().send(*client, WorkerMessage::Unblocked(Arc::clone(&unblocked)));
            }
            true
        };
        self.to_unblock.retain(|client| !ends(client));
    }
}
