//! A server that is to be a node: its configuration, its identity, and the way to etcd.

use std::{net::UdpSocket, sync::Arc};

use dunlin_cluster::{
    BootId,
    meta::Meta,
    records::{self, Keys, NodeRecord, NodeState, Restart},
};

use super::{cluster_wide, identity::Identity};
use crate::{
    cluster::topology::{Addresses, Health, Node, Topology},
    config::{ClusterDurability, Config},
    shared::Shared,
    system::host::draw,
};

/// The settings with which a node takes part in its cluster.
pub(crate) struct Membership {
    pub(super) identity: Identity,
    pub(super) keys: Keys,
    pub(super) meta: Arc<dyn Meta>,
    pub(super) addresses: Addresses,
    /// etcd's, in whose direction the node looks for its own address.
    endpoints: Vec<String>,
}

impl Membership {
    /// Takes the addresses of a configuration over that was changed. The error is a line for the operator, and nothing is changed.
    pub(super) fn follow(&mut self, config: &Config) -> Result<(), String> {
        self.addresses = addresses(config, &self.endpoints)?;
        Ok(())
    }

    /// The node's record.
    pub(super) fn record(
        &self,
        config: &Config,
        state: NodeState,
        boot: BootId,
        restart: Option<Restart>,
    ) -> NodeRecord {
        let addresses = &self.addresses;
        NodeRecord {
            addresses: records::Addresses {
                host: addresses.ip.clone(),
                port: addresses.port,
                tls_port: addresses.tls_port,
                replication_port: 0,
                hostname: addresses.hostname.clone(),
            },
            name: config.cluster_announce_human_nodename.clone(),
            host: match config.cluster_host.is_empty() {
                true => rustix::system::uname().nodename().to_string_lossy().into_owned(),
                false => config.cluster_host.clone(),
            },
            zone: config.cluster_zone.clone(),
            weight: config.maxmemory,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            boot,
            restart,
        }
    }

    /// The node, as its own topology has it.
    pub(super) fn node(&self, config: &Config) -> Node {
        Node {
            id: self.identity.node.to_string(),
            addresses: self.addresses.clone(),
            human_name: config.cluster_announce_human_nodename.clone(),
            zone: config.cluster_zone.clone(),
            health: Health::Online,
            is_silent: false,
            offset: 0,
        }
    }
}

/// Settles the configuration of a server that is to be a node, or not. The error is one line for the operator.
pub(crate) fn settle(config: &mut Config) -> Result<(), String> {
    if config.cluster_join.is_empty() {
        return match config.cluster_enabled {
            true => Err(
                "cluster-enabled yes: say which cluster instead, with cluster-join etcd://HOST:2379/NAME (docs/cluster.md)"
                    .to_owned(),
            ),
            false => Ok(()),
        };
    }
    let refusals = [
        (
            config.cluster_min_sync > 1 && config.cluster_durability == ClusterDurability::Async,
            "cluster-min-sync above 1 needs cluster-durability sync",
        ),
        (
            config.cluster_min_sync > config.cluster_replicas + 1,
            "cluster-min-sync is larger than a shard's number of nodes: a primary and cluster-replicas",
        ),
        (
            config.replicaof.is_some(),
            "replicaof and cluster-join exclude each other: the cluster chooses its primaries",
        ),
        (config.port == 0 && config.tls_port == 0, "a node of a cluster needs a port or a tls-port"),
    ];
    if let Some((_, why)) = refusals.iter().find(|(is_met, _)| *is_met) {
        return Err((*why).to_owned());
    }
    config.cluster_enabled = true;
    // A cluster has one database.
    config.databases = 1;
    Ok(())
}

/// Makes the server a node, if it is to be one: reads its identity, under the lock of its directory. The error is one
/// line for the operator.
pub(crate) fn prepare(shared: &Shared) -> Result<Option<Membership>, String> {
    let config = shared.config.current();
    if config.cluster_join.is_empty() {
        return Ok(None);
    }
    let member = membership(shared, &config)?;
    let topology = Topology::new(vec![member.node(&config)], Vec::new(), 0);
    shared.cluster.begin(member.identity.name.clone(), topology);
    tracing::info!("Node {} of the cluster '{}'", member.identity.node, member.identity.name);
    Ok(Some(member))
}

/// Reads the server's identity, under the lock of its directory, and finds the way to etcd. The error is one line for
/// the operator.
pub(super) fn membership(shared: &Shared, config: &Config) -> Result<Membership, String> {
    let wrong = |reason: String| format!("cluster-join {}: {reason}", config.cluster_join);
    let (endpoints, name) =
        dunlin_etcd::parse_url(&config.cluster_join).map_err(|error| wrong(error.to_string()))?;
    let keys = Keys::new(&name).map_err(|error| wrong(error.to_string()))?;
    let lock = shared.directory.hold(config);
    lock.map_err(|in_use| format!("{in_use}: stop that server, or give this one another --dir"))?;
    let identity = Identity::of(&config.dir, &name, draw)?;
    cluster_wide::load_kept(shared)?;
    let addresses = addresses(config, &endpoints)?;
    let meta = dunlin_etcd::Etcd::new(etcd_options(config, endpoints.clone())?).map_err(wrong)?;
    Ok(Membership { identity, keys, meta: Arc::new(meta), addresses, endpoints })
}

/// How etcd is reached.
fn etcd_options(config: &Config, endpoints: Vec<String>) -> Result<dunlin_etcd::Options, String> {
    let mut options = dunlin_etcd::Options::new(endpoints);
    if !config.cluster_etcd_user.is_empty() {
        let password = std::str::from_utf8(config.cluster_etcd_password.bytes())
            .map_err(|_| "cluster-etcd-password is no text".to_owned())?;
        options.user = Some((config.cluster_etcd_user.clone(), password.to_owned()));
    }
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|error| format!("{}: {}", path.display(), crate::config::describe(&error)))
    };
    let (certificate, key) = (&config.cluster_etcd_cert_file, &config.cluster_etcd_key_file);
    if !config.cluster_etcd_ca_cert_file.as_os_str().is_empty() {
        options.tls.authorities = Some(read(&config.cluster_etcd_ca_cert_file)?);
    }
    match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
        (true, true) => {}
        (false, false) => options.tls.identity = Some((read(certificate)?, read(key)?)),
        _ => return Err("cluster-etcd-cert-file and cluster-etcd-key-file belong together".to_owned()),
    }
    Ok(options)
}

/// The addresses that the node announces.
fn addresses(config: &Config, endpoints: &[String]) -> Result<Addresses, String> {
    let or = |announced: u16, own: u16| if announced == 0 { own } else { announced };
    let ip = match config.cluster_announce_ip.is_empty() {
        false => config.cluster_announce_ip.clone(),
        true => address_towards(endpoints)
            .ok_or("cannot find out this host's address; set cluster-announce-ip".to_owned())?,
    };
    Ok(Addresses {
        ip,
        port: or(config.cluster_announce_port, config.port),
        tls_port: or(config.cluster_announce_tls_port, config.tls_port),
        hostname: config.cluster_announce_hostname.clone(),
    })
}

/// The address that this host has towards etcd. Nothing is sent.
fn address_towards(endpoints: &[String]) -> Option<String> {
    endpoints.iter().find_map(|endpoint| {
        let (_, host) = endpoint.split_once("://")?;
        let any = if host.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(host).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    })
}
