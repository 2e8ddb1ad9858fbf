//! Primaries whose presence in etcd has ended, and that do not answer this node either: no node serves their slots.
//!
//! etcd alone does not say it. A primary that is cut off from etcd serves on, as long as its members renew its lease, and a cluster
//! must not stop because of that. The thread in `node/probe.rs` asks such primaries themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use arc_swap::ArcSwap;
use dunlin_cluster::{NodeId, times};

/// A primary counts as silent after this time without an answer. A node that restarts in order is there again before, as a rule.
const SILENT_AFTER_MS: u64 = times::PRESENCE_MS;

/// The silent nodes, as threads share them.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    nodes: ArcSwap<BTreeSet<NodeId>>,
    version: AtomicU64,
}

impl Silence {
    /// Returns the nodes.
    pub(crate) fn nodes(&self) -> Arc<BTreeSet<NodeId>> {
        self.nodes.load_full()
    }

    /// Counts the changes.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    /// Sets the nodes. Returns whether that is news.
    pub(crate) fn set(&self, nodes: BTreeSet<NodeId>) -> bool {
        let is_news = **self.nodes.load() != nodes;
        if is_news {
            self.nodes.store(Arc::new(nodes));
            self.version.fetch_add(1, SeqCst);
        }
        is_news
    }
}

/// How long nodes have not answered.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// Since when, in milliseconds of the caller's clock.
    since: BTreeMap<NodeId, u64>,
}

impl Probes {
    /// Takes the answers of all nodes that were asked at this time; others are forgotten. Returns the silent ones.
    pub(crate) fn take(&mut self, asked_ms: u64, answers: &[(NodeId, bool)]) -> BTreeSet<NodeId> {
        let unanswered = answers.iter().filter(|(_, answered)| !answered).map(|(node, _)| *node);
        self.since =
            unanswered.map(|node| (node, self.since.get(&node).copied().unwrap_or(asked_ms))).collect();
        let is_silent = |(_, since): &(&NodeId, &u64)| asked_ms - **since >= SILENT_AFTER_MS;
        self.since.iter().filter(is_silent).map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_silent_when_it_has_not_answered_for_long() {
        let (one, other) = (NodeId::from_bytes([1; 20]), NodeId::from_bytes([2; 20]));
        let mut probes = Probes::default();
        for (asked_ms, answers, silent) in [
            (10_000, &[(one, false), (other, false)][..], &[][..]),
            (14_999, &[(one, false), (other, true)], &[]),
            (15_000, &[(one, false), (other, false)], &[one]),
            (19_999, &[(one, false), (other, false)], &[one]),
            (20_000, &[(one, false), (other, false)], &[one, other]),
            // The first one has its presence in etcd again, and is not asked.
            (21_000, &[(other, true)], &[]),
            (22_000, &[(one, false)], &[]),
            (27_000, &[(one, false)], &[one]),
        ] {
            assert_eq!(probes.take(asked_ms, answers), silent.iter().copied().collect(), "{asked_ms}");
        }
    }

    #[test]
    fn silence_is_news_once() {
        let silence = Silence::default();
        let nodes: BTreeSet<NodeId> = [NodeId::from_bytes([1; 20])].into();
        assert!(silence.set(nodes.clone()) && !silence.set(nodes.clone()));
        assert_eq!((silence.version(), &*silence.nodes()), (1, &nodes));
    }
}
