//! [`Notifier`]: the audience of a worker's commands. The notifier queues pushes for clients that are to be told of
//! what the commands do, while that is still locked.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use dunlin_engine::{Audience, Event, Notice, keyspace::ClientToken};
use dunlin_net::{Commitment, WorkerQueues};

use crate::{
    config::{ConfigReader, ConfigStore, SubkeyEvents},
    push::{
        monitor::Monitor,
        pubsub::{Exchange, Kind},
        tracking::Trackers,
    },
    workers::{WorkerMessage, blocked},
};

/// A push that is made before the record of what it shows, and told behind it.
#[derive(Debug)]
pub(crate) enum HostNotice {
    /// A line for monitors.
    Line(Arc<Vec<u8>>),
    /// A message of a transaction or script.
    Message { kind: Kind, channel: Box<[u8]>, payload: Box<[u8]> },
}

impl From<HostNotice> for Notice {
    fn from(notice: HostNotice) -> Self {
        let notice: Box<dyn Any + Send> = Box::new(notice);
        Self::Host(notice)
    }
}

/// Tells subscribers of keyspace events, and clients that keep copies of keys.
pub(crate) struct Notifier {
    exchange: Arc<Exchange>,
    monitor: Arc<Monitor>,
    trackers: Arc<Trackers>,
    config: ConfigReader,
    /// Whether what is shown waits for the commit of a cluster's shard.
    is_shard_sync: Arc<AtomicBool>,
    queues: WorkerQueues<WorkerMessage>,
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Notifier")
    }
}

impl Notifier {
    pub(crate) fn new(
        exchange: &Arc<Exchange>,
        monitor: &Arc<Monitor>,
        trackers: &Arc<Trackers>,
        config: &Arc<ConfigStore>,
        is_shard_sync: Arc<AtomicBool>,
        queues: &WorkerQueues<WorkerMessage>,
    ) -> Self {
        Self {
            exchange: Arc::clone(exchange),
            monitor: Arc::clone(monitor),
            trackers: Arc::clone(trackers),
            config: ConfigReader::new(Arc::clone(config)),
            is_shard_sync,
            queues: queues.clone(),
        }
    }

    fn publish(&self, Event { name, database, key, subkeys, .. }: &Event, commitment: Commitment) {
        if !self.exchange.is_heard() {
            return;
        }
        let kinds = self.config.config().notify_keyspace_events;
        let publish = |channel: &[u8], payload: &[u8]| {
            self.exchange.publish(Kind::Channel, channel, payload, commitment, &self.queues);
        };
        if kinds.by_key {
            let prefix = format!("__keyspace@{database}__:");
            publish(&[prefix.as_bytes(), key].concat(), name.as_bytes());
        }
        if kinds.by_event {
            publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
        }
        if !subkeys.is_empty() {
            publish_subkeys(kinds.subkeys, name, *database, key, subkeys, publish);
        }
    }
}

/// Publishes an event of elements of a key, as Redis 8.8 does. Names of events have no `|`, which ends them in a payload.
fn publish_subkeys(
    kinds: SubkeyEvents,
    name: &str,
    database: usize,
    key: &[u8],
    subkeys: &[Vec<u8>],
    publish: impl Fn(&[u8], &[u8]),
) {
    let named = |kind: &str, name: &[u8]| [format!("__{kind}@{database}__:").as_bytes(), name].concat();
    let mut listed = Vec::new();
    for subkey in subkeys {
        if !listed.is_empty() {
            listed.push(b',');
        }
        append_with_length(&mut listed, subkey);
    }
    if kinds.by_key {
        publish(&named("subkeyspace", key), &[name.as_bytes(), b"|", &listed].concat());
    }
    if kinds.by_event {
        let mut payload = Vec::new();
        append_with_length(&mut payload, key);
        publish(&named("subkeyevent", name.as_bytes()), &[&payload[..], b"|", &listed].concat());
    }
    // A key with a line break would make the channel's name ambiguous.
    if kinds.by_item && !key.contains(&b'\n') {
        for subkey in subkeys {
            publish(&named("subkeyspaceitem", &[key, b"\n", subkey].concat()), name.as_bytes());
        }
    }
    if kinds.by_event_and_key {
        publish(&named("subkeyspaceevent", &[name.as_bytes(), b"|", key].concat()), &listed);
    }
}

/// Appends a text behind its length and a colon.
fn append_with_length(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text.len().to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(text);
}

impl Notifier {
    fn tell_host(&self, notice: Option<&HostNotice>, commitment: Commitment) {
        match notice {
            Some(HostNotice::Line(line)) => {
                self.monitor.show(Arc::clone(line), commitment, &self.queues);
            }
            Some(HostNotice::Message { kind, channel, payload }) => {
                self.exchange.publish(*kind, channel, payload, commitment, &self.queues);
                self.exchange.bus.send(*kind, channel, payload, commitment);
            }
            None => debug_assert!(false, "the host has no other notices"),
        }
    }
}

impl Audience for Notifier {
    fn tell(&mut self, notices: &[Notice], writer: ClientToken) {
        let mut has_invalidations = false;
        let mut commitment = None;
        for notice in notices {
            match notice {
                Notice::Event(_) | Notice::Host(_) => {
                    // The records of the changes are in the log by now.
                    let commitment = *commitment.get_or_insert_with(|| {
                        self.config.refresh();
                        match self.config.config().withholds_pushes() || self.is_shard_sync.load(Relaxed) {
                            true => self.queues.commitment_of_push(),
                            false => Commitment::default(),
                        }
                    });
                    match notice {
                        Notice::Event(event) => self.publish(event, commitment),
                        Notice::Host(notice) => self.tell_host(notice.downcast_ref(), commitment),
                        _ => {}
                    }
                }
                Notice::Invalidation(_) => has_invalidations = true,
                Notice::Client(_) => {}
            }
        }
        if has_invalidations {
            let invalidations = notices.iter().filter_map(|notice| match notice {
                Notice::Invalidation(invalidation) => Some(invalidation),
                _ => None,
            });
            self.trackers.tell(invalidations, blocked::address(writer).id, &self.queues);
        }
    }
}
