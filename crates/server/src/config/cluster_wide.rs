//! The directives that are the cluster's: CONFIG SET changes them on all nodes.
//!
//! These directives decide how a client is answered, and what it was promised, whichever node it asks: limits of
//! requests, eviction, forms of small collections, durability, events. Everything about one machine or process stays
//! the node's: memory, threads, files, addresses, ports, TLS, passwords in clear, logs.

use super::directive::Directive;

/// Their names, sorted.
pub const CLUSTER_WIDE: &[&str] = &[
    "acl-pubsub-default",
    "appendfsync",
    "busy-reply-threshold",
    "client-output-buffer-limit",
    "client-query-buffer-limit",
    "cluster-allow-pubsubshard-when-down",
    "cluster-allow-reads-when-down",
    "cluster-plain-clients",
    "cluster-preferred-endpoint-type",
    "cluster-require-full-coverage",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hll-sparse-max-bytes",
    "lazyfree-lazy-eviction",
    "lazyfree-lazy-expire",
    "lazyfree-lazy-server-del",
    "lazyfree-lazy-user-del",
    "lazyfree-lazy-user-flush",
    "lfu-decay-time",
    "lfu-log-factor",
    "list-max-listpack-size",
    "maxmemory-eviction-tenacity",
    "maxmemory-policy",
    "maxmemory-samples",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "min-sync-replicas",
    "notify-keyspace-events",
    "proto-max-bulk-len",
    "replica-read-only",
    "replica-serve-stale-data",
    "sanitize-dump-payload",
    "set-max-intset-entries",
    "set-max-listpack-entries",
    "set-max-listpack-value",
    "stop-writes-on-bgsave-error",
    "stream-idmp-duration",
    "stream-idmp-maxsize",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "sync-replicas-ack",
    "sync-replicas-missing",
    "tcp-keepalive",
    "timeout",
    "tracking-table-max-keys",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
];

impl Directive {
    /// Whether it is the cluster's, if the server is a node of one.
    pub fn is_cluster_wide(&self) -> bool {
        CLUSTER_WIDE.binary_search(&self.name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Change, find};

    #[test]
    fn cluster_wide_directives_are_directives_that_can_change() {
        assert!(CLUSTER_WIDE.is_sorted());
        for name in CLUSTER_WIDE {
            let directive = find(name.as_bytes()).unwrap_or_else(|| panic!("{name} is no directive"));
            assert_eq!((directive.name, directive.change), (*name, Change::Anytime));
            assert!(!directive.is_secret(), "{name}: a record shows it");
        }
    }
}
