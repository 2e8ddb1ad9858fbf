//! A console's connection to another node of the cluster: `/connect?node=HOST:PORT`.
//!
//! A browser reaches the node whose page it shows, and perhaps no other: `http-port` may be closed there, and the page's
//! policy names no other host. So this node carries the bytes on, as it does to its own workers. Its target is a node of
//! the topology, never an address of the caller's choice. The caller's address has a console that has logged in here
//! (`consoles.rs`), and the other node authenticates the client itself.

use std::io;

use hyper::StatusCode;
use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{Ends, HEAD_MAX, guard::Refused};
use crate::{cluster::topology::Topology, shared::Shared};

/// The address of the node that a request's query names; `None` for this server itself.
pub(super) fn target(
    query: Option<&str>,
    shared: &Shared,
    ends: Ends,
) -> Result<Option<(String, u16)>, Refused> {
    let Some(query) = query else { return Ok(None) };
    let refused = |reason: &str| Refused::new(StatusCode::NOT_FOUND, reason);
    let wanted = query.strip_prefix("node=").ok_or_else(|| refused("/connect takes node=HOST:PORT"))?;
    let topology = shared.cluster.topology().ok_or_else(|| refused("this server is no node of a cluster"))?;
    // The other node sees this one as the client, so its protected mode cannot judge the browser.
    let is_remote = !ends.peer.ip().to_canonical().is_loopback();
    if is_remote && shared.config.current().protected_mode && shared.access.is_open() {
        return Err(Refused::new(StatusCode::FORBIDDEN, "protected mode: the default user has no password"));
    }
    find(&topology, wanted).map(Some).map_err(refused)
}

/// The plain address of the node that a client knows as `wanted`.
fn find(topology: &Topology, wanted: &str) -> Result<(String, u16), &'static str> {
    let unknown = "there is no such node in this cluster";
    let (host, port) = wanted.rsplit_once(':').ok_or(unknown)?;
    let port: u16 = port.parse().map_err(|_| unknown)?;
    let mut addresses = topology.nodes().iter().map(|node| &node.addresses);
    let node = addresses
        .find(|node| {
            port != 0
                && (node.port == port || node.tls_port == port)
                && (node.ip == host || !host.is_empty() && node.hostname.eq_ignore_ascii_case(host))
        })
        .ok_or(unknown)?;
    match node.port {
        0 => Err("that node speaks TLS only: use its own console"),
        port => Ok((node.ip.clone(), port)),
    }
}

/// A connection whose other end is the node at `address`. A node that cannot be reached answers with an error in its place.
pub(super) fn open(address: (String, u16)) -> io::Result<UnixStream> {
    let (own, mut other) = UnixStream::pair()?;
    tokio::spawn(async move {
        let (host, port) = &address;
        let connected = timeout(HEAD_MAX, TcpStream::connect((host.as_str(), *port))).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(mut node) => {
                let _ = node.set_nodelay(true);
                // An end of either side ends both.
                let _ = copy_bidirectional(&mut other, &mut node).await;
            }
            Err(error) => {
                let line = format!("-ERR the node {host}:{port} cannot be reached: {error}\r\n");
                let _ = other.write_all(line.as_bytes()).await;
            }
        }
    });
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::topology::tests::three_shards;

    #[test]
    fn relay_leads_only_to_nodes_of_the_cluster() {
        let topology = three_shards(0);
        let node = &topology.nodes()[1].addresses;
        let known = format!("{}:{}", node.ip, node.port);
        assert_eq!(find(&topology, &known), Ok((node.ip.clone(), node.port)));
        for wanted in ["", "x", "10.1.2.3:22", ":0", "127.0.0.1:22", "127.0.0.1:99999", &node.ip] {
            assert!(find(&topology, wanted).is_err(), "{wanted}");
        }
    }
}
