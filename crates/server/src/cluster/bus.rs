//! Messages of pub/sub for subscribers at other nodes, from workers to the thread `cluster-bus`.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mio::Waker;

use crate::push::pubsub::Kind;

/// Bytes of messages that wait for the thread at most.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// A message on its way.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Whether it is for the members of this node's shard only.
    pub(crate) is_of_shard: bool,
    pub(crate) encoded: Arc<[u8]>,
}

/// Messages of workers for the thread.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) messages: Vec<Message>,
    bytes: usize,
    /// Messages that there was no room for.
    pub(crate) dropped: u64,
}

/// The workers' end.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    queue: Mutex<Queue>,
    pub(crate) waker: OnceLock<Waker>,
}

impl Bus {
    /// Sends a message to the subscribers at other nodes; whether there is a bus.
    pub(crate) fn send(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> bool {
        let Some(waker) = self.waker.get() else { return false };
        let is_of_shard = kind == Kind::ShardChannel;
        let title: &[u8] = if is_of_shard { b"smessage" } else { b"message" };
        let encoded = dunlin_replication::request(&[b"CLUSTER", b"RELAY", title, channel, payload]);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.bytes + encoded.len() > QUEUE_BYTES_MAX {
            queue.dropped += 1;
            return true;
        }
        let was_empty = queue.messages.is_empty();
        queue.bytes += encoded.len();
        queue.messages.push(Message { is_of_shard, encoded: encoded.into() });
        drop(queue);
        if was_empty {
            // It fails only where the thread has ended.
            let _ = waker.wake();
        }
        true
    }

    pub(crate) fn take(&self) -> Queue {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
