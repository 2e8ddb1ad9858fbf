//! The node makes itself known: its presence, on a lease, and its record.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_cluster::{
    BootId,
    meta::{LeaseId, Meta, MetaError, Revision, Transaction},
    records::{AliveRecord, Key, NodeRecord, NodeState, Record},
    shard::Local,
};

use super::{Agent, Failure, LEASE_S, PRESENCE_MARGIN};
use crate::{
    cluster::{inbox::Input, moves::HeavySlots, view::View},
    config::Config,
    node::{
        data::{is_durable, local, take_place, with_first_shard},
        identity::{Process, place_of},
        shard,
    },
};

impl Agent {
    /// Makes the node's presence known, if it is not. Another process with its id is waited out for as long as a lease
    /// lasts.
    pub(super) fn take_presence(&mut self, view: &View) -> Result<(), Failure> {
        let me = self.member.identity.node;
        let revision = match view.alive.get(&me) {
            None => 0,
            Some((revision, alive)) if alive.boot == self.boot || self.is_over(alive.boot) => *revision,
            Some(_) => {
                let since = *self.waits_since.get_or_insert_with(Instant::now);
                let until = since + Duration::from_secs(LEASE_S.into()) + PRESENCE_MARGIN;
                return Err(match Instant::now() < until {
                    true => Failure::Later(format!(
                        "the presence of an earlier process of node {me} is still recorded"
                    )),
                    false => Failure::Fatal(format!(
                        "another process is node {me}: its data directory was copied. Remove the file cluster-node from the copy"
                    )),
                });
            }
        };
        self.waits_since = None;
        let is_known = view.alive.get(&me).is_some_and(|(_, alive)| alive.boot == self.boot);
        match self.lease.filter(|lease| self.member.meta.keep_alive(*lease).is_ok()) {
            // Written anew it would be news for all, and say again what data there is.
            Some(_) if is_known => self.renewed = Instant::now(),
            lease => self.put_presence(revision, lease)?,
        }
        let place = place_of(&self.shared.config.current().dir);
        let process = place.map(|place| Process { boot: self.boot, place });
        if process != self.member.identity.process {
            self.member.identity.process = process;
            self.keep_identity()?;
        }
        Ok(())
    }

    /// Writes the node's presence, on a new lease if there is none.
    pub(super) fn put_presence(&mut self, revision: Revision, lease: Option<LeaseId>) -> Result<(), Failure> {
        let lease = match lease {
            Some(lease) => lease,
            None => self.member.meta.grant(LEASE_S)?.0,
        };
        let used_bytes = self.shared.engine.keyspace.used_bytes() as u64;
        let HeavySlots { heavy, .. } = self.shared.cluster.moves.heavy();
        let key = self.member.keys.text(Key::Alive(self.member.identity.node));
        let alive = AliveRecord { boot: self.boot, used_bytes, heavy }.encode();
        // If the answer is lost, it is unknown which lease the presence is bound to.
        self.lease = None;
        if !self
            .commit(&Transaction::default().compare(key.clone(), revision).put_leased(key, alive, lease))?
        {
            return Err(Failure::Later("the node's presence has changed".to_owned()));
        }
        (self.lease, self.renewed) = (Some(lease), Instant::now());
        Ok(())
    }

    /// Whether a process is certain to have ended: it was the last one of this directory, whose lock this one holds.
    pub(super) fn is_over(&self, boot: BootId) -> bool {
        let last = self.member.identity.process.as_ref().filter(|process| process.boot == boot);
        last.is_some_and(|last| place_of(&self.shared.config.current().dir).as_ref() == Some(&last.place))
    }

    /// Renews the presence; begins again if it has ended.
    pub(super) fn keep_presence(&mut self, view: &View) -> Result<(), Failure> {
        if self.renewed.elapsed() < Duration::from_secs(LEASE_S.into()) / 3 {
            return Ok(());
        }
        let me = self.member.identity.node;
        let is_there = view.alive.get(&me).is_some_and(|(_, alive)| alive.boot == self.boot);
        match self.lease {
            Some(lease) if is_there => match self.member.meta.keep_alive(lease) {
                Ok(_) => {
                    self.renewed = Instant::now();
                    return Ok(());
                }
                Err(MetaError::NoLease) => self.lease = None,
                Err(error) => return Err(error.into()),
            },
            _ => {}
        }
        Err(Failure::Later("the node's presence has run out".to_owned()))
    }

    /// Writes the node's record if it says something else: always at a start, before the first message is sent.
    pub(super) fn announce(&mut self, view: &View) -> Result<(), Failure> {
        let me = self.member.identity.node;
        let before = view.nodes.get(&me);
        let is_new = before.is_none() && view.shard_of(me).is_none();
        let brings_data = is_new && self.has_keys()?;
        if brings_data {
            self.begin_with_data(view)?;
        }
        let state = before.map_or(NodeState::Active, |(_, record)| match record.state {
            NodeState::Draining => NodeState::Draining,
            NodeState::Joining | NodeState::Active => NodeState::Active,
        });
        if let Some(ending) = self.ending.take() {
            let is_durable = is_durable(&self.shared.config.current());
            let local = local(&self.shared, is_durable, false);
            let of = view.shard_of(me).map(|(id, (_, record))| (id, record));
            let (restart, clean) = shard::report(of, ending, local);
            self.restarts.set(restart);
            self.shared.cluster.shard.push(Input::Started(Local { clean, ..local }));
        }
        let record = self.record(&self.shared.config.current(), state);
        if before.is_some_and(|(_, known)| *known == record) {
            return Ok(());
        }
        let (key, revision) =
            (self.member.keys.text(Key::Node(me)), before.map_or(0, |(revision, _)| *revision));
        let mut transaction = Transaction::default().compare(key.clone(), revision).put(key, record.encode());
        if brings_data {
            let keys = &self.member.keys;
            transaction = with_first_shard(transaction, keys, &self.shared, me).map_err(Failure::Later)?;
        }
        let made = match brings_data {
            true => Self::outcome(self.descent.commit(&transaction))?,
            false => self.commit(&transaction)?,
        };
        match made {
            true if brings_data => {
                tracing::info!(
                    "Cluster: the data set of this node is the cluster's, which has one shard now"
                );
                Ok(())
            }
            true => Ok(()),
            false => Err(Failure::Later("the node's record has changed".to_owned())),
        }
    }

    /// Writes the node's record again if its addresses or names were changed by CONFIG SET.
    pub(super) fn announce_again(&mut self, view: &View) -> Result<(), Failure> {
        let me = self.member.identity.node;
        let config = self.shared.config.current();
        let Some((revision, known)) = view.nodes.get(&me).filter(|(_, known)| known.boot == self.boot) else {
            return Ok(());
        };
        if !Arc::ptr_eq(&config, &self.announced) {
            if let Err(line) = self.member.follow(&config) {
                tracing::warn!("Cluster: the addresses of this node stay as they are: {line}");
            }
            self.announced = Arc::clone(&config);
        }
        let requested = self.record(&config, known.state);
        let record = NodeRecord { addresses: requested.addresses, name: requested.name, ..known.clone() };
        if record == *known {
            return Ok(());
        }
        let key = self.member.keys.text(Key::Node(me));
        // If the record has changed meanwhile, the next view shows it.
        self.commit(&Transaction::default().compare(key.clone(), *revision).put(key, record.encode()))?;
        Ok(())
    }

    /// Refuses a data set if the cluster has one already; gives it a place in a stream, which no empty data set has.
    pub(super) fn begin_with_data(&self, view: &View) -> Result<(), Failure> {
        let name = &self.member.identity.name;
        if view.slots.is_some() || !view.shards.is_empty() {
            return Err(Failure::Fatal(format!(
                "the data set has keys, and so may the cluster '{name}', which has shards: nothing was changed. Join with an empty data directory, or bring this data set into a cluster with another name"
            )));
        }
        take_place(&self.shared).map_err(Failure::Later)
    }

    pub(super) fn has_keys(&self) -> Result<bool, Failure> {
        let survey = self.shared.engine.survey_unless_long();
        let survey = survey.ok_or_else(|| Failure::Later("a script holds the keyspace".to_owned()))?;
        Ok(survey.total().keys > 0)
    }

    pub(super) fn record(&self, config: &Config, state: NodeState) -> NodeRecord {
        self.member.record(config, state, self.boot, self.restarts.get())
    }
}
