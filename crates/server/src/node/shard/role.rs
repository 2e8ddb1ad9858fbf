//! The role of the server in its shard, as the machine decides it, and the topology that comes with it.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use dunlin_cluster::{
    NodeId,
    shard::{Attach, Transition},
};
use dunlin_replication::{Id, LinkState};

use super::{Driver, READ_AGAIN, RECONNECT, REJOIN, Role, SUCCESSOR_TIME_MAX, Wanted, etcd_calls::EtcdCall};
use crate::{
    cluster::{inbox::ShardStatus, view::Newest},
    config::PrimaryAddress,
    node::{data::id_of, publish::publish},
    replication::{RoleOrder, ShardPrimary},
    shared::Stop,
    system::host::lease_ms,
    workers::WorkerMessage,
};

impl Driver {
    /// Publishes the cluster as it is known now.
    pub(super) fn publish(&mut self) {
        if let Some(machine) = &mut self.machine
            && machine.successor.is_some_and(|(_, since)| since.elapsed() < SUCCESSOR_TIME_MAX)
        {
            // Clients that are sent away before the other node knows that it leads would be sent to and fro.
            return;
        }
        let Some(view) = &self.view else { return };
        let newest = Newest {
            shard: self.machine.as_ref().and_then(|machine| {
                let (revision, record) = machine.shard.known()?;
                Some((machine.id, *revision, record))
            }),
            slots: self.slots.as_ref(),
        };
        let shard = newest.shard.map_or(0, |(_, revision, _)| revision);
        let silence = &self.shared.cluster.silence;
        // The version first: a change in between costs a second look.
        let version = silence.version();
        let slots = self.slots.as_ref().map_or(0, |(revision, _)| *revision);
        let sources = (view.revision, shard, slots, version);
        if self.published == sources {
            // A waiter that has gone needs no answer.
            self.awaits_slots.drain(..).for_each(|done| _ = done.send(()));
            return;
        }
        let view = view.renewed(&newest);
        let Some(topology) = view.topology(self.settings.me, &silence.nodes()) else {
            self.published = sources;
            return;
        };
        if self.shared.cluster.differs(&topology) {
            if !publish(&self.shared, topology) {
                // The next turn tries again.
                return;
            }
            self.wake_clients();
        }
        self.published = sources;
        if let Some(topology) = self.shared.cluster.topology() {
            let keyspace = &self.shared.engine.keyspace;
            self.shared.cluster.moves.follow(keyspace, &topology, self.settings.me, &view);
        }
        self.awaits_slots.drain(..).for_each(|done| _ = done.send(()));
    }

    /// Orders the role that the machine wants.
    pub(super) fn take_role(&mut self) {
        let Some(machine) = &self.machine else {
            if self.role == Role::Unknown {
                self.shared.replication.order(RoleOrder::Join { primary: None, begins: None });
                self.role = Role::Detached;
            }
            return;
        };
        let replication = &self.shared.replication;
        match machine.wanted.clone() {
            Wanted::Lead(history, from) => {
                if !matches!(self.role, Role::Leading(_)) {
                    let previous = machine.shard.known().and_then(|(_, record)| record.history.previous);
                    self.shared.config.follow(None);
                    let (history, previous) = (id_of(history), previous.map(id_of));
                    let order = replication.order(RoleOrder::Lead { history, previous, from });
                    self.role = Role::Leading(order);
                }
            }
            Wanted::Follow(primary, attach) => {
                let is_resting = machine.held.is_some() || machine.shard.takes_over();
                let history = machine.shard.known().map(|(_, record)| id_of(record.history.id));
                let begins = machine.shard.local().history.filter(|_| attach == Attach::Stream).map(id_of);
                let primary = (!is_resting && attach != Attach::Not).then(|| self.address(primary)).flatten();
                let primary =
                    primary.zip(history).map(|(address, history)| ShardPrimary { address, history });
                self.follow(primary, begins);
            }
            Wanted::Nothing => self.follow(None, None),
        }
        let leads = self.machine.as_ref().is_some_and(|machine| machine.shard.leads());
        // Changes that are added to the stream before the role has changed would be beyond the end that was handed over.
        if !leads && self.shared.replication.is_carried_out(self.joined) {
            self.unpark();
        }
        let is_member = self.machine.as_ref().is_some_and(|machine| {
            machine.shard.known().is_some_and(|(_, record)| record.in_sync.contains(&self.settings.me))
        });
        self.shared.cluster.shard.is_successor.store(is_member && !leads, Relaxed);
        self.shared.cluster.shard.set_status(self.machine.as_ref().map(|machine| ShardStatus {
            epoch: machine.shard.epoch(),
            leads,
            local: machine.shard.local(),
            heard: machine.shard.heard(),
        }));
    }

    pub(super) fn follow(&mut self, primary: Option<ShardPrimary>, begins: Option<Id>) {
        let replication = &self.shared.replication;
        let Some(primary) = primary else {
            if self.role != Role::Detached {
                self.joined = replication.order(RoleOrder::Join { primary: None, begins: None });
                self.role = Role::Detached;
            }
            return;
        };
        let mut attempt = 0;
        if let Role::Following(known, since, attempts) = &mut self.role
            && *known == primary.address
        {
            let link = replication.link();
            if link.state == LinkState::Connected {
                *attempts = 0;
            }
            // A new primary refuses its followers for a moment, and the link itself would take its time.
            let eager = RECONNECT.iter().find(|(last, _)| link.stopped.is_none() && *attempts < *last);
            let is_down = link.state == LinkState::Connect || link.stopped.is_some();
            if !is_down || since.elapsed() < eager.map_or(REJOIN, |(_, pause)| *pause) {
                return;
            }
            attempt = *attempts + 1;
        }
        let address = primary.address.clone();
        self.shared.config.follow(Some(address.clone()));
        self.joined = replication.order(RoleOrder::Join { primary: Some(primary), begins });
        self.role = Role::Following(address, Instant::now(), attempt);
    }

    pub(super) fn address(&self, node: NodeId) -> Option<PrimaryAddress> {
        let addresses = &self.view.as_ref()?.nodes.get(&node)?.1.addresses;
        let port =
            if self.shared.config.current().tls_replication { addresses.tls_port } else { addresses.port };
        Some(PrimaryAddress { host: addresses.host.clone(), port })
    }

    /// Lets commands in if the node may answer them, for as long as its lease lasts.
    pub(super) fn serve(&mut self) {
        let Some(machine) = self.machine.as_mut().filter(|machine| machine.term != 0) else { return };
        if !machine.knows_slots && machine.asked_slots.elapsed() > READ_AGAIN {
            machine.asked_slots = Instant::now();
            self.etcd_calls.run(EtcdCall::Slots(machine.term));
        }
        let (Role::Leading(order), Some((_, record))) = (&self.role, machine.shard.known()) else { return };
        let replication = &self.shared.replication;
        if !replication.is_carried_out(*order) {
            return;
        }
        if replication.is_replica() {
            let line = "the data set does not end where this node's history begins";
            tracing::error!("Cluster: {line}");
            let _ = self.shared.cluster.failure.set(line.to_owned());
            self.shared.cluster.lease.end();
            return self.shared.stop(Stop::within(Duration::ZERO));
        }
        self.shared.cluster.shard.successors.store(record.in_sync.len() - 1, Relaxed);
        self.shared.cluster.lacks_members.store(!machine.shard.is_writable(), Relaxed);
        let until_ms = machine.shard.lease_until_ms();
        let is_serving = machine.knows_slots && machine.parked.is_none() && lease_ms() < until_ms;
        if self.shared.cluster.lease.extend(until_ms, is_serving) && is_serving {
            self.wake_clients();
        }
        let is_long_gone = self.shared.cluster.lease.is_long_gone();
        if is_long_gone && !std::mem::replace(&mut self.is_refusing, is_long_gone) {
            // Commands and replies that have waited for the lease are refused.
            self.wake_clients();
            self.shared.replication.wake_withheld(&self.shared.durability);
        }
        self.is_refusing = is_long_gone;
        if self.shared.cluster.lease.take_awaited() {
            replication.wake_withheld(&self.shared.durability);
        }
    }

    /// The node has ceased to lead: no reply of that time leaves from here on, and no command is let in.
    pub(super) fn end_term(&mut self) {
        let Some(machine) = &mut self.machine else { return };
        if std::mem::take(&mut machine.term) != 0 {
            self.shared.cluster.lease.end();
            self.shared.cluster.shard.successors.store(0, Relaxed);
        }
    }

    pub(super) fn unpark(&mut self) {
        let Some(machine) = &mut self.machine else { return };
        if machine.parked.take().is_none() {
            return;
        }
        machine.held = machine.held.take().filter(|held| held.proposal.transition != Transition::HandOver);
        self.shared.replication.hold_stream(false);
        self.shared.pause.end_failover();
        self.wake_clients();
    }

    /// Makes commands that were parked look again.
    pub(super) fn wake_clients(&self) {
        if let Some(queues) = self.shared.durability.queues() {
            queues.send_to_everyone(WorkerMessage::Unpaused);
        }
    }
}
