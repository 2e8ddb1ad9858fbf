//! [`Notifier`]: the audience of a worker's commands. It queues pushes for those who are to be told of what they do, while
//! that is still locked.

use std::sync::Arc;

use dunlin_engine::{Audience, Event, Notice, keyspace::ClientToken};
use dunlin_net::WorkerQueues;

use crate::{
    config::{ConfigReader, ConfigStore},
    push::{
        pubsub::{Exchange, Kind},
        tracking::Trackers,
    },
    workers::{WorkerMessage, blocked},
};

/// Tells subscribers of keyspace events, and clients that keep copies of keys.
pub(crate) struct Notifier {
    exchange: Arc<Exchange>,
    trackers: Arc<Trackers>,
    config: ConfigReader,
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
        trackers: &Arc<Trackers>,
        config: &Arc<ConfigStore>,
        queues: &WorkerQueues<WorkerMessage>,
    ) -> Self {
        Self {
            exchange: Arc::clone(exchange),
            trackers: Arc::clone(trackers),
            config: ConfigReader::new(Arc::clone(config)),
            queues: queues.clone(),
        }
    }

    fn publish(&self, Event { name, database, key, .. }: &Event) {
        if !self.exchange.is_heard() {
            return;
        }
        let kinds = self.config.config().notify_keyspace_events;
        let publish = |channel: &[u8], payload: &[u8]| {
            self.exchange.publish(Kind::Channel, channel, payload, &self.queues)
        };
        if kinds.by_key {
            let prefix = format!("__keyspace@{database}__:");
            publish(&[prefix.as_bytes(), key].concat(), name.as_bytes());
        }
        if kinds.by_event {
            publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
        }
    }
}

impl Audience for Notifier {
    fn tell(&mut self, notices: &[Notice], writer: ClientToken) {
        let mut has_invalidations = false;
        let mut has_events = false;
        for notice in notices {
            match notice {
                Notice::Event(event) => {
                    if !std::mem::replace(&mut has_events, true) {
                        self.config.refresh();
                    }
                    self.publish(event);
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
