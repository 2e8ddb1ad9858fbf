//! The records that the machine is fed, and where a machine begins and ends.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Instant,
};

use dunlin_cluster::{
    NodeId,
    lineage::Lineage,
    records::{Durability, ShardRecord},
    shard::{Event, Options, Shard},
    times::Leases,
};

use super::{Driver, Machine, Role, Wanted};
use crate::{
    cluster::view::{Stored, View},
    node::links::HostPort,
    replication::RoleOrder,
    system::host::lease_ms,
};

impl Driver {
    pub(super) fn take_records(&mut self, view: Arc<View>) {
        self.view = Some(Arc::clone(&view));
        let is_sync =
            view.cluster.as_ref().is_some_and(|(_, cluster)| cluster.durability == Durability::Sync);
        self.shared.cluster.is_sync.store(is_sync, SeqCst);
        if self.machine.as_ref().is_some_and(|machine| view.has_dissolved(machine.id)) {
            tracing::info!("Cluster: this node's shard is dissolved: its slots are other shards'");
            self.leave();
        }
        match self.machine {
            Some(_) => self.feed_records(&view),
            None => self.begin(),
        }
    }

    /// Gives the machine the marks of the newest state of the store that the node has obeyed.
    pub(super) fn note_lineage(&mut self) {
        let known = self.machine.as_ref().map(|machine| machine.joins);
        let (joins, lineage, revisions) = self.settings.descent.obeyed();
        if known.is_some_and(|known| known != Some(joins)) {
            self.step(Event::Obeyed(lineage, revisions));
            self.machine.iter_mut().for_each(|machine| machine.joins = Some(joins));
        }
    }

    /// The records begin anew, with any numbers: so does the machine, as after a restart, with the data as they are.
    pub(super) fn begin_anew(&mut self) {
        self.end_term();
        self.unpark();
        if let Some(machine) = self.machine.take() {
            self.before = Some((machine.id, machine.shard.anew(lease_ms())));
        }
        (self.slots, self.view, self.published) = (None, None, (0, 0, 0, 0));
        self.shared.replication.order(RoleOrder::Join { primary: None, begins: None });
        self.role = Role::Detached;
    }

    /// The node has left its shard, and its data belong to none.
    pub(super) fn leave(&mut self) {
        self.end_term();
        self.unpark();
        if let Some(machine) = self.machine.take() {
            self.replaced.insert(machine.id, machine.shard.copies() + 1);
        }
        self.shared.cluster.shard.set_status(None);
        self.publish();
        self.cleared = self.shared.replication.order(RoleOrder::Clear);
        self.role = Role::Detached;
    }

    /// Makes a machine, once the node is part of a shard.
    pub(super) fn begin(&mut self) {
        let Some(view) = self.view.clone() else { return };
        let me = self.settings.me;
        let Some((id, (_, record))) = view.shard_of(me) else { return };
        // Data that are to be thrown away are nothing to begin with.
        if !self.shared.replication.is_carried_out(self.cleared) {
            return;
        }
        let options = self.options(&view);
        let local = self.started.take().unwrap_or_else(|| self.local(true));
        let replaced = self.replaced.get(&id).copied().unwrap_or(0);
        let shard = match self.before.take().filter(|(shard, _)| *shard == id) {
            Some((_, shard)) => shard,
            None => Shard::new(me, id, self.settings.boot, options, local, replaced, lease_ms()),
        };
        tracing::info!("Cluster: this node is of the shard {id}, in epoch {}", record.epoch);
        let copies = self.shared.replication.data(&self.shared.durability, self.is_durable).copies;
        self.machine = Some(Machine {
            id,
            shard,
            copies,
            wanted: Wanted::Nothing,
            held: None,
            term: 0,
            knows_slots: false,
            asked_slots: Instant::now(),
            parked: None,
            successor: None,
            heard_epoch: 0,
            joins: None,
        });
        self.feed_records(&view);
    }

    pub(super) fn feed_records(&mut self, view: &View) {
        let me = self.settings.me;
        let Some(machine) = &self.machine else { return };
        let (id, known) = (machine.id, machine.shard.known().map(|(revision, _)| *revision));
        // A record that was read just before etcd was restored may be one that no view has shown.
        let marks: Lineage = view.marks.iter().map(|(node, (_, mark))| (*node, *mark)).collect();
        let may_begin = |stored: &Stored<ShardRecord>| {
            machine.shard.may_begin_anew(&stored.1, &self.settings.descent.kept())
                || machine.shard.contradicts(stored) && marks.covers(machine.shard.lineage())
        };
        if view.shards.get(&id).is_some_and(may_begin) {
            // An operator has decided.
            let view = Arc::new(view.clone());
            self.begin_anew();
            self.view = Some(view);
            return self.begin();
        }
        let of_view = view.shards.get(&id);
        let mut nodes = vec![me];
        for (_, record) in of_view.into_iter().chain(machine.shard.known()) {
            nodes.extend(record.nodes());
        }
        nodes.sort_unstable();
        nodes.dedup();
        self.note_lineage();
        for node in &nodes {
            if let Some((revision, record)) = view.nodes.get(node) {
                self.step(Event::Node(*node, *revision, record.boot, record.restart.clone()));
            }
        }
        // The first one is read: only that shows in what state the restart has left this node.
        if let (Some(known), Some((revision, record))) = (known, of_view)
            && *revision > known
        {
            self.step(Event::Watched((*revision, record.clone())));
        }
        self.set_links(view, &nodes);
    }

    pub(super) fn set_links(&mut self, view: &View, nodes: &[NodeId]) {
        let config = self.shared.config.current();
        let others = nodes.iter().filter(|node| **node != self.settings.me);
        let places: Vec<(NodeId, HostPort)> = others
            .filter_map(|node| {
                let addresses = &view.nodes.get(node)?.1.addresses;
                let port = if config.tls_cluster { addresses.tls_port } else { addresses.port };
                Some((*node, (addresses.host.clone(), port)))
            })
            .collect();
        self.links.set(self.poll.registry(), &places);
    }

    pub(super) fn options(&self, view: &View) -> Options {
        let settings = view.cluster.as_ref().map(|(_, cluster)| (cluster.durability, cluster.min_sync));
        let min_sync = match settings {
            Some((Durability::Sync, members)) => members.into(),
            _ => 1,
        };
        let Leases { lease_ms, promise_ms, .. } = self.leases;
        Options { min_sync, lease_ms, grace_ms: promise_ms, ..Options::default() }
    }
}
