//! Pushes to a client: queued by any worker, written by any worker ([`dunlin_mailbox::PushQueue`]).
//!
//! A client has a queue once it can be sent pushes; others pay nothing. A push is bytes that are encoded already, or a list
//! that can still be added to until it is written.
//!
//! Decision 0021 has why workers write to each other's sockets.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use dunlin_mailbox::{Around, Posted, PushQueue};
use dunlin_resp::{Protocol, ReplyBuffer};

use super::{
    Client, Stream,
    output::{OFFERED_BYTES_MAX, SLICES_MAX},
    stream::Sent,
};

/// Bytes that a client is sent without having asked.
#[derive(Debug)]
pub enum Push {
    /// Encoded bytes, which may go to other clients, too.
    Bytes(Arc<Vec<u8>>),
    /// Bytes, then an array of bulk strings.
    List(PushList),
    /// The rest of bytes that a socket has taken a part of.
    Rest {
        /// All of them.
        bytes: Arc<Vec<u8>>,
        /// How many were taken, not all.
        sent: usize,
    },
}

/// A push that ends with an array of bulk strings, each once, in order.
#[derive(Debug)]
pub struct PushList {
    /// The part before the array, encoded.
    pub head: &'static [u8],
    /// Lists of different groups are pushes of their own.
    pub group: Arc<[u8]>,
    /// The strings.
    pub items: Arc<Vec<Box<[u8]>>>,
}

impl PushList {
    /// Adds to it what another would say, if they are of a kind.
    pub fn extend(&mut self, other: &Self) -> bool {
        let is_same = std::ptr::eq(self.head, other.head) && self.group == other.group;
        if is_same {
            Arc::make_mut(&mut self.items).extend_from_slice(&other.items);
        }
        is_same
    }

    fn encode(&self) -> Vec<u8> {
        let mut items: Vec<&[u8]> = self.items.iter().map(|item| &**item).collect();
        items.sort_unstable();
        items.dedup();
        let mut reply = ReplyBuffer::default();
        reply.raw(self.head);
        reply.array(items.len());
        items.iter().for_each(|item| reply.bulk(item));
        reply.into_bytes()
    }
}

impl Push {
    /// Bytes that it takes, roughly.
    pub(crate) fn len(&self) -> usize {
        const ITEM_BYTES: usize = 24;
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Rest { bytes, sent } => bytes.len() - sent,
            Self::List(list) => {
                list.head.len() + list.items.iter().map(|item| item.len() + ITEM_BYTES).sum::<usize>()
            }
        }
    }

    /// All of its bytes.
    pub fn encode(self) -> Vec<u8> {
        let (bytes, sent) = self.into_bytes();
        bytes[sent..].to_vec()
    }

    /// Its bytes, and how many of them were sent.
    pub(crate) fn into_bytes(self) -> (Arc<Vec<u8>>, usize) {
        match self {
            Self::Bytes(bytes) => (bytes, 0),
            Self::Rest { bytes, sent } => (bytes, sent),
            Self::List(list) => (Arc::new(list.encode()), 0),
        }
    }
}

/// A client as posters have to know it.
#[derive(Debug)]
pub struct Listener {
    /// The protocol that pushes are encoded for.
    pub protocol: Protocol,
    /// Whether it has subscribed to something: without, clients that speak RESP2 understand no push.
    pub is_subscribed: bool,
}

/// The pushes of one client.
#[derive(Debug)]
pub struct ClientPushes {
    pub(crate) queue: PushQueue<Push, Listener, Arc<Stream>>,
    /// Bytes that wait in the queue.
    bytes: AtomicUsize,
    /// Bytes that were written from the queue by any worker.
    sent_bytes: AtomicU64,
    /// Something was not queued because the hard limit of output was exceeded.
    overflowed: AtomicBool,
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is queued, or there was nothing to be pushed.
    Queued,
    /// The client cannot be sent pushes, or not yet.
    Unable,
    /// The client has gone.
    Gone,
}

impl ClientPushes {
    fn new(protocol: Protocol) -> Self {
        Self {
            queue: PushQueue::new(Listener { protocol, is_subscribed: false }),
            bytes: AtomicUsize::new(0),
            sent_bytes: AtomicU64::new(0),
            overflowed: AtomicBool::new(false),
        }
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Bytes that were written by other than the usual way of replies.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Relaxed)
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed.load(Relaxed)
    }

    /// Queues what `make` makes, unless so many bytes may not wait. The second is whether the owner has to look after the
    /// client.
    pub(crate) fn post(
        &self,
        is_over_hard: impl FnOnce(u64) -> bool,
        make: impl FnOnce(&Listener) -> Option<Push>,
    ) -> (Posted, bool) {
        let mut must_close = false;
        let posted = self.queue.post(|listener, last| {
            let push = make(listener)?;
            if is_over_hard(self.bytes() as u64) {
                must_close = !self.overflowed.swap(true, Relaxed);
                return None;
            }
            if let (Some(Push::List(last)), Push::List(list)) = (last, &push)
                && last.extend(list)
            {
                self.bytes.fetch_add(push.len() - list.head.len(), Relaxed);
                return None;
            }
            self.bytes.fetch_add(push.len(), Relaxed);
            Some(push)
        });
        (posted, must_close)
    }

    /// Writes what waits, unless the owner holds it; the bytes that were written, and whether the owner has to see to the
    /// rest. Any worker.
    pub(crate) fn flush(&self) -> (usize, bool) {
        let (mut written, mut has_unsent) = (0, false);
        let is_done = self.queue.flush(|stream, pushes| {
            written = self.write(stream, pushes);
            // Records of pushes that were taken may wait for the socket.
            has_unsent = stream.has_unsent();
        });
        (written, !is_done || has_unsent)
    }

    fn write(&self, stream: &Stream, pushes: &mut VecDeque<(u64, Push)>) -> usize {
        let mut written = 0;
        while !pushes.is_empty() {
            let offered = pushes.len().min(SLICES_MAX);
            for (_, push) in pushes.iter_mut().take(offered) {
                self.settle_bytes(push);
            }
            match write_once(stream, pushes) {
                // The owner comes to know of the error when it writes.
                Err(_) => break,
                Ok(Sent { bytes, is_full }) => {
                    written += bytes;
                    self.bytes.fetch_sub(bytes, Relaxed);
                    if is_full || written >= OFFERED_BYTES_MAX {
                        break;
                    }
                }
            }
        }
        self.sent_bytes.fetch_add(written as u64, Relaxed);
        written
    }

    /// Encodes a push for good.
    fn settle_bytes(&self, push: &mut Push) {
        if let Push::List(list) = push {
            let encoded = Push::Bytes(Arc::new(list.encode()));
            let before = std::mem::replace(push, encoded);
            self.bytes.fetch_add(push.len(), Relaxed);
            self.bytes.fetch_sub(before.len(), Relaxed);
        }
    }

    /// Lets only the owner write, who gets what is to be sent now.
    pub(crate) fn hold(&self, mut take: impl FnMut(Push)) {
        self.queue.hold(|push| {
            self.bytes.fetch_sub(push.len(), Relaxed);
            take(push);
        });
    }

    /// Ends the request at hand; what is to be put around its reply.
    #[inline]
    pub fn settle(&self, is_answered: bool) -> Option<Around<Push>> {
        let around = self.queue.settle(is_answered)?;
        let taken = around.before.iter().chain(&around.behind).map(Push::len).sum();
        self.bytes.fetch_sub(taken, Relaxed);
        Some(around)
    }

    /// Changes what posters know, at the place of the request at hand: pushes from now on come behind its reply.
    pub fn change(&self, change: impl FnOnce(&mut Listener)) {
        self.queue.with_details(|listener| {
            self.queue.mark();
            change(listener);
        });
    }

    /// The client as posters know it.
    pub fn with_listener<R>(&self, look: impl FnOnce(&mut Listener) -> R) -> R {
        self.queue.with_details(look)
    }

    /// Decides the place of the request at hand among all changes.
    pub fn mark(&self) {
        self.queue.mark();
    }
}

impl Client {
    /// Makes it possible to send it pushes, in this protocol: once it has had a turn ([`WorkerQueues::prepare_pushes`]).
    ///
    /// [`WorkerQueues::prepare_pushes`]: super::WorkerQueues::prepare_pushes
    pub fn take_pushes(&self, protocol: Protocol) -> &ClientPushes {
        self.pushes.get_or_init(|| Box::new(ClientPushes::new(protocol)))
    }

    /// Bytes that wait to be sent.
    pub fn waiting_bytes(&self) -> u64 {
        self.output_bytes.get() + self.pushes.get().map_or(0, |pushes| pushes.bytes() as u64)
    }

    /// Bytes that were sent.
    pub fn sent_bytes_total(&self) -> u64 {
        self.output_bytes_total.get() + self.pushes.get().map_or(0, |pushes| pushes.sent_bytes())
    }
}

impl Client {
    /// Decides the place of the client's command among all pushes to it: those that were queued before go out before the reply.
    pub fn mark_pushes(&self) {
        if let Some(pushes) = self.pushes.get() {
            pushes.mark();
        }
    }
}

/// Offers encoded pushes to a socket once, and takes those off that were written.
fn write_once(stream: &Stream, pushes: &mut VecDeque<(u64, Push)>) -> io::Result<Sent> {
    let bytes = |push: &Push| match push {
        Push::Bytes(bytes) => (Arc::clone(bytes), 0),
        Push::Rest { bytes, sent } => (Arc::clone(bytes), *sent),
        Push::List(_) => unreachable!("it was encoded"),
    };
    let sent = if let [(_, Push::Bytes(only))] = pushes.make_contiguous() {
        let offered = &only[..only.len().min(OFFERED_BYTES_MAX)];
        stream.send(offered)?
    } else {
        let chunks: Vec<_> = pushes.iter().take(SLICES_MAX).map(|(_, push)| bytes(push)).collect();
        let mut left = OFFERED_BYTES_MAX;
        let slices: Vec<_> = chunks
            .iter()
            .map(|(bytes, sent)| {
                let slice = &bytes[*sent..];
                let slice = &slice[..slice.len().min(left)];
                left -= slice.len();
                IoSlice::new(slice)
            })
            .take_while(|slice| !slice.is_empty())
            .collect();
        stream.send_slices(&slices)?
    };
    let mut rest = sent.bytes;
    while rest > 0
        && let Some((_, push)) = pushes.front_mut()
    {
        if push.len() <= rest {
            rest -= push.len();
            pushes.pop_front();
            continue;
        }
        let (bytes, sent) = bytes(push);
        *push = Push::Rest { bytes, sent: sent + rest };
        rest = 0;
    }
    Ok(sent)
}
