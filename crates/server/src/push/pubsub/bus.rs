//! Messages for subscribers at other nodes of a cluster, on their way to the thread that sends them.

use std::sync::{Mutex, OnceLock, PoisonError};

use dunlin_net::Commitment;
use mio::Waker;

use super::Kind;

/// Bytes of messages that wait for the thread at most.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// A message on its way.
#[derive(Debug)]
pub(crate) struct BusMessage {
    /// Whether it is for the members of this node's shard only.
    pub(crate) is_of_shard: bool,
    /// The request that brings it to another node.
    pub(crate) encoded: Vec<u8>,
    /// The message may not leave before this is met.
    pub(crate) commitment: Commitment,
}

/// Messages of workers for the thread.
#[derive(Debug, Default)]
pub(crate) struct BusQueue {
    pub(crate) messages: Vec<BusMessage>,
    bytes: usize,
    /// Messages that there was no room for.
    pub(crate) dropped: u64,
}

/// The workers' end.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    queue: Mutex<BusQueue>,
    /// The thread's, once there is one.
    waker: OnceLock<Waker>,
}

impl Bus {
    /// A thread sends messages from now on, which this wakes.
    pub(crate) fn attach(&self, waker: Waker) {
        // There is one thread.
        let _ = self.waker.set(waker);
    }

    /// Whether messages are sent to other nodes.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.waker.get().is_some()
    }

    /// Sends a message to the subscribers at other nodes, if there is a bus.
    pub(crate) fn send(&self, kind: Kind, channel: &[u8], payload: &[u8], commitment: Commitment) {
        let Some(waker) = self.waker.get() else { return };
        let is_of_shard = kind == Kind::ShardChannel;
        let title: &[u8] = if is_of_shard { b"smessage" } else { b"message" };
        let encoded = dunlin_replication::request(&[b"CLUSTER", b"RELAY", title, channel, payload]);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.bytes + encoded.len() > QUEUE_BYTES_MAX {
            queue.dropped += 1;
            return;
        }
        let was_empty = queue.messages.is_empty();
        queue.bytes += encoded.len();
        queue.messages.push(BusMessage { is_of_shard, encoded, commitment });
        drop(queue);
        if was_empty {
            // Waking fails only if the thread has ended.
            let _ = waker.wake();
        }
    }

    /// All that has come.
    pub(crate) fn take(&self) -> BusQueue {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
