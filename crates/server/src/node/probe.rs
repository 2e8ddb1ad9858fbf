//! The thread `cluster-probe`: asks primaries whose presence in etcd has ended whether they still answer ([`crate::cluster::silence`]).
//!
//! Any reply is an answer: a node that is cut off from etcd serves on. A node that is loading, or wants a password, is there, too.

use std::{
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use dunlin_cluster::NodeId;

use crate::{
    cluster::{
        silence::Probes,
        topology::{Addresses, Health, Topology},
    },
    replication::connection::Connection,
    shared::Shared,
    system::host::monotonic_ms,
    workers::migration::MigrationTarget,
};

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a connection may take to be made, and an answer to come.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Nodes that are asked at the same time at most.
const ASKED_MAX: usize = 16;

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(), String> {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("cluster-probe".to_owned()).spawn(move || run(&shared));
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

fn run(shared: &Shared) {
    let mut probes = Probes::default();
    while !shared.cluster.ended.load(SeqCst) {
        thread::sleep(PAUSE);
        let suspects = shared.cluster.topology().map_or(Vec::new(), |topology| suspects(&topology));
        let asked_ms = monotonic_ms();
        let mut answers = Vec::new();
        for some in suspects.chunks(ASKED_MAX) {
            thread::scope(|scope| {
                let ask = |(node, addresses)| scope.spawn(move || (node, ask(shared, addresses).is_ok()));
                let threads: Vec<_> = some.iter().map(|(node, addresses)| ask((*node, addresses))).collect();
                // A thread that fails has heard nothing that counts against its node.
                answers.extend(threads.into_iter().filter_map(|thread| thread.join().ok()));
            });
        }
        if shared.cluster.silence.set(probes.take(asked_ms, &answers)) {
            shared.cluster.shard.wake();
        }
    }
}

/// Returns the primaries of shards with slots whose presence has ended.
fn suspects(topology: &Topology) -> Vec<(NodeId, Addresses)> {
    let primaries = topology.shards().iter().filter(|shard| !shard.slots.is_empty());
    let nodes = primaries.map(|shard| &topology.nodes()[shard.primary]);
    let failed = nodes.filter(|node| node.health == Health::Failed);
    failed.filter_map(|node| Some((node.id.parse().ok()?, node.addresses.clone()))).collect()
}

/// Asks a node.
fn ask(shared: &Shared, addresses: &Addresses) -> io::Result<()> {
    let config = shared.config.current();
    let port = if config.tls_cluster { addresses.tls_port } else { addresses.port };
    let target = MigrationTarget {
        host: addresses.ip.clone().into_bytes(),
        port: port.to_string().into_bytes(),
        database: 0,
        timeout: ANSWER_TIME_MAX,
        copy: false,
        replace: false,
        credentials: None,
    };
    let mut connection = Connection::make(&shared.tls, &config, shared.ending_flag(), &target)?;
    connection.write_all(b"PING\r\n", ANSWER_TIME_MAX)?;
    connection.line(ANSWER_TIME_MAX).map(drop)
}
