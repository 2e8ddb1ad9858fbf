//! The records that the node obeys: whether they are its own, and what of them outlives the process.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use dunlin_cluster::records::Key;

use super::{Agent, Failure, WIDE_TIME_MAX};
use crate::cluster::{descent::Descends, inbox::Input, overview::Overview, view::View};

impl Agent {
    /// Makes sure that these are the records of the node's cluster.
    pub(super) fn check_cluster(&mut self, view: &View) -> Result<(), Failure> {
        let name = self.member.identity.name.clone();
        let key = self.member.keys.text(Key::Cluster);
        if let Some(error) = view.unreadable.get(&key) {
            return Err(Failure::NotObeyed(format!("{key}: {error}")));
        }
        match (&view.cluster, self.member.identity.cluster) {
            (Some((_, cluster)), Some(own)) if cluster.id == own => {
                self.shared.cluster.cluster.get_or_init(|| own);
                Ok(())
            }
            (Some((_, cluster)), None) => {
                self.member.identity.cluster = Some(cluster.id);
                self.shared.cluster.cluster.get_or_init(|| cluster.id);
                self.keep_identity()
            }
            (Some((_, cluster)), Some(own)) => {
                let line = format!(
                    "etcd has another cluster '{name}' ({}) than the one that this node is part of ({own})",
                    cluster.id
                );
                self.refuse(line)
            }
            (None, Some(own)) => self.refuse(format!(
                "etcd has no records of the cluster '{name}' ({own}), which this node is part of: it was emptied, or is another etcd"
            )),
            (None, None) => Err(Failure::Later(format!("the cluster '{name}' is not founded"))),
        }
    }

    /// A node that serves goes on with what it knows; one that starts has nothing to go on with.
    pub(super) fn refuse(&self, line: String) -> Result<(), Failure> {
        match self.obeyed {
            0 => Err(Failure::Fatal(format!("{line}; correct cluster-join, or restore etcd"))),
            _ => Err(Failure::Later(format!("{line}; nothing is thrown away"))),
        }
    }

    pub(super) fn keep_identity(&self) -> Result<(), Failure> {
        let directory = self.shared.config.current().dir.clone();
        self.member.identity.keep(&directory).map_err(Failure::Fatal)
    }

    /// Makes the server obey the records.
    pub(super) fn obey(&mut self, view: &View) -> Result<(), Failure> {
        let asked = self.descent.joins();
        if !self.descent.covers(&view.marks) {
            // The next turn reads.
            return Ok(());
        }
        match self.descent.check(&view.marks, asked) {
            Descends::Yes if self.descent.take_anew() => self.begin_anew(),
            Descends::Yes => {}
            Descends::Unknown => return Ok(()),
            Descends::No(line) => return Err(Failure::Backup(line)),
        }
        if let Some((key, error)) = view.unreadable.iter().next() {
            return Err(Failure::NotObeyed(format!("{key}: {error}")));
        }
        for (id, (_, shard)) in &view.shards {
            let (known, primary) = self.epochs.entry(*id).or_default();
            // A node that was away may obey a backup, and bring it to the same epoch: with another primary.
            let is_other = primary.is_some_and(|primary| primary != shard.primary);
            if shard.epoch < *known || shard.epoch == *known && is_other {
                return Err(Failure::Backup(format!(
                    "the record of shard {id} has epoch {} of node {} after {known}: etcd was restored from a backup. This node keeps its data and does not obey; see docs/cluster.md",
                    shard.epoch, shard.primary
                )));
            }
            (*known, *primary) = (shard.epoch, Some(shard.primary));
        }
        self.note_newest(view)?;
        if let Some(cluster) = self.member.identity.cluster {
            self.shared.cluster.cluster_wide.found(cluster);
        }
        self.follow_wide(view);
        self.shared.cluster.trouble.store(None);
        self.shared.cluster.strays.store(false, SeqCst);
        if view.nodes.contains_key(&self.member.identity.node) && self.obeyed != view.revision {
            self.obeyed = view.revision;
            self.shared.cluster.overview.store(Some(Arc::new(Overview::of(view))));
            let view = Arc::new(view.clone());
            self.descent.keep_view(&view);
            self.shared.cluster.shard.push(Input::Records(view));
        }
        if let Some(complaint) = self.complaint.take() {
            tracing::info!("Cluster: following the records again, after: {complaint}");
        }
        Ok(())
    }

    /// Remembers the newest record of slots, and the epoch of the node's shard, in its file before they are obeyed. By an older
    /// record of slots, keys would be removed that came with a move since; by an older epoch, a node would lead beside its successor.
    ///
    /// If the file cannot be written, the node obeys all the same: the file protects only a restart onto a backup of
    /// etcd. A node that has obeyed nothing yet, or joins a shard, waits for the file: no other node needs it yet, and
    /// without the file it would recognise no backup at all.
    pub(super) fn note_newest(&mut self, view: &View) -> Result<(), Failure> {
        let mut identity = self.member.identity.clone();
        if let Some((revision, _)) = &view.slots {
            // Marks say more than a number.
            if *revision < identity.slots && identity.lineage.is_empty() {
                return Err(Failure::Backup(format!(
                    "the record of slots has revision {revision} after {}: etcd was restored from a backup. This node keeps its data and does not obey; see docs/cluster.md",
                    identity.slots
                )));
            }
            identity.slots = *revision;
        }
        if let Some((id, (_, record))) = view.shard_of(identity.node) {
            identity.epoch = Some((id, record.epoch));
        }
        identity.lineage = self.descent.kept();
        let known = &self.member.identity;
        if identity == *known && !self.is_unkept {
            return Ok(());
        }
        let is_first = self.obeyed == 0 || identity.begins_after(known);
        let kept = identity.keep(&self.shared.config.current().dir);
        match &kept {
            Ok(()) if self.is_unkept => {
                tracing::info!("Cluster: the file of this node has what it obeys again")
            }
            Ok(()) => {}
            Err(line) if is_first => return Err(Failure::NotObeyed(line.clone())),
            Err(line) if !self.is_unkept => tracing::warn!(
                "Cluster: {line}. This node follows its cluster; after a restart it would take an older backup of etcd for the truth"
            ),
            Err(_) => {}
        }
        (self.is_unkept, self.member.identity) = (kept.is_err(), identity);
        Ok(())
    }

    /// Puts users, functions and settings in force. A node that has no role yet gets none before they are.
    pub(super) fn follow_wide(&mut self, view: &View) {
        let in_force = self.cluster_wide.follow(&self.shared, view, self.shared.cluster.lease.term() != 0);
        if let Some(in_force) = in_force.filter(|_| self.obeyed == 0) {
            // The log names the parts that cannot be in force.
            let _ = in_force.recv_timeout(WIDE_TIME_MAX);
        }
    }
}
