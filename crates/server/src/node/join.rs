//! A running server becomes the first node of a cluster, with its data: `CONFIG SET cluster-join`.
//!
//! ```text
//! worker: CONFIG SET ─▶ order ─▶ thread `cluster-join`
//!     refusals ─▶ one database ─▶ a transaction: cluster, node, shard with this data set, slots ─▶ topology, threads of the node
//!                                 (refused: nothing was changed)                                    commands wait until it leads
//! ```
//!
//! Invariant: the server is a node when etcd has the records that make its data set the cluster's. Before that, whatever fails leaves
//! it as it was.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::{
    BootId,
    meta::{Transaction, TransactionOutcome},
    records::{Key, NodeState, Record},
};
use dunlin_engine::command::CommandError;

use super::{
    AgentThread,
    agent::requested,
    data::{take_place, with_first_shard},
    identity,
    membership::{Membership, membership, settle},
};
use crate::{
    cluster::{
        ending::Ending,
        topology::{Shard, Topology},
        view::View,
    },
    config::Config,
    session::order::{AwaitedChange, Carried},
    shared::{Shared, Stop},
    system::host::draw,
};

/// How long the reply waits for the node to lead its shard.
const LEAD_TIME_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// The threads of the node, for the end of the server.
pub(crate) type AgentSlot = Arc<Mutex<Option<AgentThread>>>;

/// Makes the server ready to become a node.
pub(crate) fn register(shared: &Arc<Shared>, agent: &AgentSlot) {
    let (weak, agent) = (Arc::downgrade(shared), Arc::clone(agent));
    shared.cluster.on_join(Box::new(move |config, order: &Arc<AwaitedChange>| {
        let (weak, agent, carried) = (weak.clone(), Arc::clone(&agent), Arc::clone(order));
        let spawned = thread::Builder::new().name("cluster-join".to_owned()).spawn(move || {
            let Some(shared) = weak.upgrade() else { return };
            let joined = join(&shared, config, &agent).map(|()| Carried::Ok);
            carried.finish(joined.map_err(|reason| refusal(&reason)));
        });
        if let Err(error) = spawned {
            order.finish(Err(refusal(&format!("cannot start a thread: {error}"))));
        }
    }));
}

fn refusal(reason: &str) -> CommandError {
    CommandError::owned(format!(
        "ERR CONFIG SET failed (possibly related to argument 'cluster-join') - {reason}"
    ))
}

fn join(shared: &Arc<Shared>, mut config: Config, agent: &AgentSlot) -> Result<(), String> {
    let mut agent = agent.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.cluster.is_on() {
        return Err("the server is a node of a cluster already".to_owned());
    }
    if shared.replication.is_replica() {
        return Err("the server is a replica: its primary has to join".to_owned());
    }
    if shared.loading.is_active() {
        return Err("the data set is being loaded".to_owned());
    }
    if !shared.replication.replicas().is_empty() {
        return Err(
            "replicas follow the server: detach them, they join with empty data directories".to_owned()
        );
    }
    settle(&mut config)?;
    let had_identity = identity::is_there(&config.dir);
    let databases = shared.engine.keyspace.databases();
    let founded = membership(shared, &config).and_then(|mut member| {
        found(shared, &config, &mut member)?;
        Ok(member)
    });
    let member = founded.inspect_err(|_| {
        shared.engine.keyspace.use_databases(databases);
        if !had_identity {
            identity::remove(&config.dir);
        }
    })?;
    // The data set is the cluster's from here on.
    let shard = Shard {
        id: String::new(),
        epoch: 0,
        primary: 0,
        replicas: Vec::new(),
        slots: Arc::from([(0, dunlin_cluster::SLOTS - 1)]),
    };
    let topology = Topology::new(vec![member.node(&config)], vec![shard], 0);
    let (node, name) = (member.identity.node, member.identity.name.clone());
    shared.config.become_node(&config);
    shared.cluster.begin(name.clone(), topology);
    tracing::info!("Node {node} of the cluster '{name}', which has this data set now");
    // Nothing that was acknowledged is missing: the process has had it all the time.
    let ending = Ending { is_durable: true, clean: None };
    let started = AgentThread::start_after(Some(ending), shared, member).inspect_err(|line| {
        // Etcd says that this node leads: it goes on after a restart, which is all that is left to do.
        let _ = shared.cluster.failure.set(line.clone());
        shared.stop(Stop::within(Duration::ZERO));
    })?;
    *agent = Some(started);
    let until = Instant::now() + LEAD_TIME_MAX;
    while shared.cluster.lease.serving_term() == 0 && Instant::now() < until {
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Makes the data set that of a new cluster, or of one that has none. The error is one line, and nothing was changed.
fn found(shared: &Shared, config: &Config, member: &mut Membership) -> Result<(), String> {
    let (keys, meta, me) = (&member.keys, &member.meta, member.identity.node);
    let range = meta.range(keys.prefix()).map_err(|error| error.to_string())?;
    let view = View::of(keys, range.revision, &range.items);
    if let Some((key, error)) = view.unreadable.iter().next() {
        return Err(format!("{key}: {error}"));
    }
    let name = &member.identity.name;
    if view.slots.is_some() || !view.shards.is_empty() {
        return Err(format!(
            "the cluster '{name}' has shards, and so may keys: a server that runs founds a cluster, and others join it when they start with empty data directories"
        ));
    }
    if let Some(own) = member.identity.cluster
        && view.cluster.as_ref().is_none_or(|(_, cluster)| cluster.id != own)
    {
        return Err(format!("etcd has not the cluster {own}, which the data directory is a node's of"));
    }
    use_one_database(shared)?;
    take_place(shared)?;
    let boot = BootId::from_bytes(draw()?);
    let key = keys.text(Key::Cluster);
    let (cluster, mut transaction) = match &view.cluster {
        Some((revision, cluster)) => (cluster.id, Transaction::default().compare(key, *revision)),
        None => {
            let cluster = requested(config)?;
            let transaction = Transaction::default().compare(key.clone(), 0).put(key, cluster.encode());
            (cluster.id, transaction)
        }
    };
    let record = member.record(config, NodeState::Active, boot, None);
    let key = keys.text(Key::Node(me));
    transaction = transaction.compare(key.clone(), 0).put(key.clone(), record.encode());
    transaction = with_first_shard(transaction, keys, shared, me)?;
    match meta.commit(&transaction) {
        TransactionOutcome::Done(_) => {}
        TransactionOutcome::Refused(_) => {
            return Err("the cluster's records have changed meanwhile; try again".to_owned());
        }
        TransactionOutcome::Failed(error) => return Err(error.to_string()),
        TransactionOutcome::Unknown(why) => {
            let is_there = meta.get(&key).is_ok_and(|found| !found.items.is_empty());
            if !is_there {
                return Err(format!("etcd has not said what became of the cluster, look at it: {why}"));
            }
        }
    }
    member.identity.cluster = Some(cluster);
    member.identity.keep(&config.dir)
}

/// Leaves the server with one database, if no client uses another one.
fn use_one_database(shared: &Shared) -> Result<(), String> {
    let keyspace = &shared.engine.keyspace;
    let databases = keyspace.databases();
    keyspace.use_databases(1);
    // No client selects one from here on.
    if let Some(database) = (1..databases).find(|database| keyspace.usage(Some(*database)).keys > 0) {
        return Err(format!("database {database} has keys, and a cluster has database 0 alone"));
    }
    let clients = shared.stats.clients().map(|clients| clients.list()).unwrap_or_default();
    match clients.iter().find(|client| client.database.get() != 0) {
        Some(client) => Err(format!(
            "client {} uses database {}, and a cluster has database 0 alone",
            client.id(),
            client.database.get()
        )),
        None => Ok(()),
    }
}
