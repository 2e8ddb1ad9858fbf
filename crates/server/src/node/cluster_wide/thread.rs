//! The thread `cluster-wide`: changes the records that are the same for all nodes, and puts them in force on this one.

use std::{
    sync::{
        Arc,
        atomic::Ordering::SeqCst,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::{
    ShardId,
    meta::{Meta, MetaError, Revision, Transaction, TransactionOutcome, VALUE_BYTES_MAX},
    records::{ClusterRecord, Key, Keys, NodeRecord, NodeState, Record, SlotsRecord},
};
use dunlin_engine::command::CommandError;

use super::{functions::Functions, kept, settings, users};
use crate::{
    cluster::{
        cluster_wide::{ClusterChange, Job, Seen},
        descent::Side,
        recovery,
        view::{Stored, View},
    },
    session::order::Carried,
    shared::Shared,
};

/// How long the thread sleeps without a job: how late what could not be put in force is tried again.
const WAIT: Duration = Duration::from_millis(500);
/// Attempts at a change while other nodes are faster.
const ATTEMPTS_MAX: usize = 20;
/// How long a client's answer may wait for the agent to see what the client has changed…
const AGENT_TIME_MAX: Duration = Duration::from_secs(1);
/// …and how often that is looked at.
const AGENT_STEP: Duration = Duration::from_millis(1);
/// How long the answer to an operator's decision may wait for the agent, which looks at a store that it does not obey at times.
const DECISION_TIME_MAX: Duration = Duration::from_secs(5);
/// Attempts to learn the outcome of a change that etcd has not answered.
const SETTLE_ATTEMPTS_MAX: usize = 3;

/// Starts the thread. Libraries of functions need the stack that scripts are promised.
pub(super) fn start(
    shared: &Arc<Shared>,
    meta: Arc<dyn Meta>,
    keys: Keys,
    jobs: Receiver<Job>,
) -> Result<(), String> {
    let thread = Thread {
        shared: Arc::clone(shared),
        meta,
        keys,
        users: 0,
        settings: 0,
        functions: Functions::default(),
        seen: Seen::default(),
        complaint: None,
        client: None,
    };
    thread::Builder::new()
        .name("cluster-wide".to_owned())
        .stack_size(dunlin_scripting::STACK_BYTES)
        .spawn(move || thread.run(&jobs))
        .map(drop)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

struct Thread {
    shared: Arc<Shared>,
    meta: Arc<dyn Meta>,
    keys: Keys,
    /// The revision of the users that are in force. 0: they are the node's own, or those kept in its directory.
    users: Revision,
    /// The revision of the settings that are in force.
    settings: Revision,
    functions: Functions,
    /// The records as the agent has seen them last.
    seen: Seen,
    /// The last line of the log about something that lasts.
    complaint: Option<String>,
    /// The client whose change is being made.
    client: Option<u64>,
}

impl Thread {
    fn run(mut self, jobs: &Receiver<Job>) {
        while !self.shared.cluster.ended.load(SeqCst) {
            match jobs.recv_timeout(WAIT) {
                Ok(Job::Change { change, client, order }) => {
                    self.client = Some(client);
                    order.finish(self.carry_out(&change));
                    self.client = None;
                }
                Ok(Job::Follow { seen, done, is_anew }) => {
                    if is_anew {
                        (self.users, self.settings) = (0, 0);
                        self.functions.leave_to_the_stream();
                    }
                    self.seen = seen;
                    self.follow();
                    // The agent may have given up waiting for it.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.follow(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Puts in force what the agent has seen. A record that cannot be put in force is logged once, and tried again.
    fn follow(&mut self) {
        let seen = self.seen.clone();
        let mut faults = Vec::new();
        if let Some((revision, record)) = &seen.users {
            faults.extend(self.put_users(*revision, record).err());
        }
        if let Some((revision, record)) = &seen.settings {
            faults.extend(self.put_settings(*revision, record).err());
        }
        if let Some((revision, record)) = &seen.functions {
            let put = match seen.is_primary && !self.shared.replication.is_replica() {
                true => self.functions.put(&self.shared, *revision, record, false),
                false => {
                    self.functions.leave_to_the_stream();
                    Ok(())
                }
            };
            faults.extend(put.err());
        }
        let complaint = (!faults.is_empty()).then(|| faults.join("; "));
        if complaint != self.complaint {
            match &complaint {
                Some(reason) => tracing::warn!("Cluster: {reason}"),
                None => tracing::info!("Cluster: users, functions and settings are the cluster's again"),
            }
            self.complaint = complaint;
        }
    }

    fn put_users(&mut self, revision: Revision, record: &users::UsersRecord) -> Result<(), String> {
        if revision > self.users {
            users::put(&self.shared, record, self.client)?;
            self.users = revision;
            kept::keep_users(&self.shared, record);
        }
        Ok(())
    }

    fn put_settings(&mut self, revision: Revision, record: &settings::SettingsRecord) -> Result<(), String> {
        if revision > self.settings {
            kept::keep_settings(&self.shared, record);
            // A value that this node cannot have is no reason to try all of them again.
            self.settings = revision;
            settings::put(&self.shared, record)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, change: &ClusterChange) -> Result<Carried, CommandError> {
        let shared = Arc::clone(&self.shared);
        match change {
            ClusterChange::SetUser { .. }
            | ClusterChange::RemoveUsers { .. }
            | ClusterChange::ReplaceUsers { .. } => {
                let plan = |_: &mut Self, known: Option<&Stored<_>>| users::plan(&shared, known, change);
                self.change("users", Key::Users, plan, |thread, revision, record| {
                    thread.put_users(revision, record)
                })
            }
            ClusterChange::Settings { pairs } => self.change(
                "settings",
                Key::Settings,
                |_, known| Ok((settings::plan(known, pairs), Carried::Ok)),
                |thread, revision, record| thread.put_settings(revision, record),
            ),
            ClusterChange::Drain { node, drains } => {
                let plan = |_: &mut Self, known: Option<&Stored<NodeRecord>>| {
                    let (_, record) =
                        known.ok_or(CommandError::text("ERR the node has no record in etcd"))?;
                    let state = match (drains, record.state) {
                        (true, _) => NodeState::Draining,
                        (false, NodeState::Draining) => NodeState::Active,
                        (false, state) => state,
                    };
                    Ok((NodeRecord { state, ..record.clone() }, Carried::Ok))
                };
                self.change("nodes", Key::Node(*node), plan, Self::leave_to_agent)
            }
            ClusterChange::Pins { slots, are_pinned } => {
                let plan = |_: &mut Self, known: Option<&Stored<SlotsRecord>>| {
                    let (_, record) = known.ok_or(CommandError::text("ERR no slot has a shard yet"))?;
                    let mut next = record.clone();
                    match are_pinned {
                        true => next.pinned.insert_all(slots),
                        false => next.pinned.remove_all(slots),
                    }
                    Ok((next, Carried::Ok))
                };
                self.change("pins", Key::Slots, plan, Self::leave_to_agent)
            }
            ClusterChange::Replicas { replicas } => {
                let plan = |_: &mut Self, known: Option<&Stored<ClusterRecord>>| {
                    let (_, record) =
                        known.ok_or(CommandError::text("ERR the cluster has no record in etcd"))?;
                    let next = ClusterRecord { replicas: *replicas, ..record.clone() };
                    next.check().map_err(|why| CommandError::owned(format!("ERR {why}")))?;
                    Ok((next, Carried::Ok))
                };
                self.change("replicas", Key::Cluster, plan, Self::leave_to_agent)
            }
            ClusterChange::GiveUp { shard, epoch, successor } => self.give_up(*shard, *epoch, *successor),
            ClusterChange::Decide(side) => self.decide(*side),
            ClusterChange::Functions { words } => self.change(
                "functions",
                Key::Functions,
                |thread, known| thread.functions.plan(&shared, known, words),
                |thread, revision, record| thread.functions.put(&shared, revision, record, true),
            ),
        }
    }

    /// Changes a record by compare-and-set, and puts it in force here: `plan` makes the next one of the one that is there.
    fn change<R: Record + PartialEq>(
        &mut self,
        what: &str,
        key: Key,
        plan: impl Fn(&mut Self, Option<&Stored<R>>) -> Result<(R, Carried), CommandError>,
        put: impl Fn(&mut Self, Revision, &R) -> Result<(), String>,
    ) -> Result<Carried, CommandError> {
        for _ in 0..ATTEMPTS_MAX {
            let cluster = self.cluster(what)?;
            let known: Option<Stored<R>> = self.read(what, key)?;
            let (next, carried) = plan(self, known.as_ref())?;
            let revision = match &known {
                Some((revision, record)) if *record == next => Some(*revision),
                known => {
                    let before = known.as_ref().map_or(0, |(revision, _)| *revision);
                    self.propose(what, key, cluster, before, &next)?
                }
            };
            let Some(revision) = revision else { continue };
            put(self, revision, &next).map_err(|why| {
                CommandError::owned(format!(
                    "ERR the cluster's {what} are changed, but not on this node: {why}"
                ))
            })?;
            return Ok(carried);
        }
        Err(CommandError::owned(format!("ERR other nodes keep changing the cluster's {what}; try again")))
    }

    /// [`Self::change`]'s way to put a record in force that agents and controller follow by themselves.
    fn leave_to_agent<R>(&mut self, revision: Revision, _: &R) -> Result<(), String> {
        self.await_agent(revision);
        Ok(())
    }

    /// Waits until this node's agent has seen the records of a revision: a client that has changed them then reads the
    /// change from this node. An agent that does not follow them, which the node's status shows, is not waited for
    /// long.
    fn await_agent(&self, revision: Revision) {
        let begun = Instant::now();
        let is_behind = || {
            let overview = self.shared.cluster.overview.load();
            overview.as_ref().is_some_and(|overview| overview.revision < revision)
        };
        while is_behind() && begun.elapsed() < AGENT_TIME_MAX {
            thread::sleep(AGENT_STEP);
        }
    }

    /// Carries out an operator's word about a store that was restored, and waits until this node obeys it.
    fn decide(&self, side: Side) -> Result<Carried, CommandError> {
        let descent = self.shared.cluster.descent.get();
        let descent = descent.ok_or(CommandError::text("ERR this server is no node of a cluster"))?;
        descent.decide(side).map_err(|why| CommandError::owned(format!("ERR {why}")))?;
        let begun = Instant::now();
        while descent.strays().is_some() && begun.elapsed() < DECISION_TIME_MAX {
            thread::sleep(AGENT_STEP);
        }
        Ok(Carried::Ok)
    }

    /// Ends a shard that has no nodes.
    fn give_up(
        &self,
        shard: ShardId,
        epoch: u64,
        successor: Option<ShardId>,
    ) -> Result<Carried, CommandError> {
        let what = "slots";
        for _ in 0..ATTEMPTS_MAX {
            let cluster = self.cluster(what)?;
            let range = self.meta.range(self.keys.prefix()).map_err(|error| unreachable(what, &error))?;
            let view = View::of(&self.keys, range.revision, &range.items);
            let transaction = recovery::give_up(&view, &self.keys, shard, epoch, successor)
                .map_err(|why| CommandError::owned(format!("ERR {why}")))?
                .compare(self.keys.text(Key::Cluster), cluster);
            match self.meta.commit(&transaction) {
                TransactionOutcome::Done(revision) => {
                    tracing::warn!("Cluster: the shard {shard} is given up, on an operator's word");
                    self.await_agent(revision);
                    return Ok(Carried::Ok);
                }
                TransactionOutcome::Refused(_) => {}
                TransactionOutcome::Failed(error) => return Err(unreachable(what, &error)),
                TransactionOutcome::Unknown(why) => {
                    return Err(CommandError::owned(format!(
                        "ERR etcd has not said whether the shard was given up, look at it: {why}"
                    )));
                }
            }
        }
        Err(CommandError::text("ERR other nodes keep changing the cluster's slots; try again"))
    }

    /// The revision of the cluster's own record: that of the node's cluster.
    fn cluster(&self, what: &str) -> Result<Revision, CommandError> {
        let own = self.shared.cluster.cluster_wide.cluster.get().ok_or_else(|| {
            CommandError::owned(format!("ERR {what} are the cluster's, and this node has not met it yet"))
        })?;
        match self.read::<ClusterRecord>(what, Key::Cluster)? {
            Some((revision, record)) if record.id == *own => Ok(revision),
            _ => Err(CommandError::owned(format!(
                "ERR {what} are the cluster's, and etcd has no records of this cluster: it was emptied, or is another etcd"
            ))),
        }
    }

    fn read<R: Record>(&self, what: &str, key: Key) -> Result<Option<Stored<R>>, CommandError> {
        let name = self.keys.text(key);
        let snapshot = self.meta.get(&name).map_err(|error| unreachable(what, &error))?;
        let Some(item) = snapshot.items.first() else { return Ok(None) };
        let record = R::decode(&item.value).map_err(|error| {
            CommandError::owned(format!("ERR etcd's record '{name}' is not understood: {error}"))
        })?;
        Ok(Some((item.revision, record)))
    }

    /// Sets a record. Returns its revision, or `None` if another node was faster.
    fn propose<R: Record + PartialEq>(
        &self,
        what: &str,
        key: Key,
        cluster: Revision,
        before: Revision,
        next: &R,
    ) -> Result<Option<Revision>, CommandError> {
        let value = next.encode();
        if value.len() > VALUE_BYTES_MAX {
            return Err(CommandError::owned(format!(
                "ERR the cluster's {what} would take {} bytes in etcd, and {VALUE_BYTES_MAX} is the limit",
                value.len()
            )));
        }
        let name = self.keys.text(key);
        let transaction = Transaction::default()
            .compare(self.keys.text(Key::Cluster), cluster)
            .compare(name.clone(), before)
            .put(name, value);
        let mut doubt = None;
        for _ in 0..SETTLE_ATTEMPTS_MAX {
            match self.meta.commit(&transaction) {
                TransactionOutcome::Done(revision) => return Ok(Some(revision)),
                TransactionOutcome::Refused(_) if doubt.is_none() => return Ok(None),
                // An earlier copy of the proposal may have come in.
                TransactionOutcome::Refused(_) => {
                    let now: Option<Stored<R>> = self.read(what, key)?;
                    return Ok(now.filter(|(_, record)| record == next).map(|(revision, _)| revision));
                }
                TransactionOutcome::Failed(error) if doubt.is_none() => {
                    return Err(unreachable(what, &error));
                }
                TransactionOutcome::Failed(error) => doubt = Some(error.to_string()),
                TransactionOutcome::Unknown(why) => doubt = Some(why),
            }
        }
        // An etcd without space answers a transaction that it has applied with an error, and then says nothing else.
        let now: Option<Stored<R>> = self.read(what, key)?;
        if let Some((revision, _)) = now.filter(|(revision, record)| *revision > before && record == next) {
            return Ok(Some(revision));
        }
        Err(CommandError::owned(format!(
            "ERR etcd has not said whether the cluster's {what} were changed, look at them: {}",
            doubt.unwrap_or_default()
        )))
    }
}

fn unreachable(what: &str, error: &MetaError) -> CommandError {
    CommandError::owned(format!("ERR {what} are the cluster's and nothing was changed: {error}"))
}
