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

use dunlin_mailbox::{Around, Flushed, Posted, PushQueue};
use dunlin_resp::{Protocol, ReplyBuffer};

use super::{
    Client, Stream,
    output::{OFFERED_BYTES_MAX, SLICES_MAX},
    stream::Sent,
    withheld::Commitment,
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

/// A push that was not written yet.
#[derive(Debug)]
pub struct WaitingPush {
    /// The commitment that has to be met before it is written.
    pub commitment: Commitment,
    /// The push.
    pub push: Push,
}

impl WaitingPush {
    /// Whether it may be written, with `is_met` for commitments. The rest of one that was begun always may.
    pub(crate) fn may_leave(&self, is_met: impl Fn(Commitment) -> bool) -> bool {
        self.commitment.mark == 0 || matches!(self.push, Push::Rest { .. }) || is_met(self.commitment)
    }
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
    pub(crate) queue: PushQueue<WaitingPush, Listener, Arc<Stream>>,
    /// Bytes that wait in the queue.
    bytes: AtomicUsize,
    /// Bytes that were written from the queue by any worker.
    sent_bytes: AtomicU64,
    /// Something was not queued because the hard limit of output was exceeded.
    overflowed: AtomicBool,
}

/// The outcome of a flush.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushedPushes {
    /// Bytes that were written.
    pub(crate) bytes: usize,
    /// The owner has to see to the rest.
    pub(crate) is_full: bool,
    /// The commitment for which the next push waits.
    pub(crate) awaited: Option<Commitment>,
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The push is queued, or there was nothing to be pushed.
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

    /// Queues what `make` makes, to be written once a commitment is met, unless too many bytes would wait. The second
    /// is whether the owner has to look after the client.
    pub(crate) fn post(
        &self,
        commitment: Commitment,
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
            if let (Some(WaitingPush { commitment: of_last, push: Push::List(last) }), Push::List(list)) =
                (last, &push)
                && *of_last == commitment
                && last.extend(list)
            {
                self.bytes.fetch_add(push.len() - list.head.len(), Relaxed);
                return None;
            }
            self.bytes.fetch_add(push.len(), Relaxed);
            Some(WaitingPush { commitment, push })
        });
        (posted, must_close)
    }

    /// Writes what waits, unless the owner holds it, up to the first push whose commitment is not met. Any worker.
    pub(crate) fn flush(&self, is_met: impl Fn(Commitment) -> bool) -> FlushedPushes {
        let (mut bytes, mut has_unsent, mut awaited) = (0, false, Commitment::default());
        let flushed = self.queue.flush(|stream, pushes| {
            bytes = self.write(stream, pushes, &is_met);
            // Records of pushes that were taken may wait for the socket.
            has_unsent = stream.has_unsent();
            let waiting = pushes.front().filter(|(_, push)| !has_unsent && !push.may_leave(&is_met));
            awaited = waiting.map_or_else(Commitment::default, |(_, push)| push.commitment);
            awaited.mark > 0
        });
        let awaited = (flushed == Flushed::Waiting).then_some(awaited);
        FlushedPushes { bytes, is_full: flushed == Flushed::Full || has_unsent, awaited }
    }

    fn write(
        &self,
        stream: &Stream,
        pushes: &mut VecDeque<(u64, WaitingPush)>,
        is_met: impl Fn(Commitment) -> bool,
    ) -> usize {
        let mut written = 0;
        loop {
            let may_leave = |(_, push): &&(u64, WaitingPush)| push.may_leave(&is_met);
            let offered = pushes.iter().take(SLICES_MAX).take_while(may_leave).count();
            if offered == 0 {
                break;
            }
            for (_, waiting) in pushes.iter_mut().take(offered) {
                self.settle_bytes(&mut waiting.push);
            }
            match write_once(stream, pushes, offered) {
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
    pub(crate) fn hold(&self, is_met: impl Fn(Commitment) -> bool, mut take: impl FnMut(Push)) {
        self.queue.hold(
            |waiting| waiting.may_leave(&is_met),
            |WaitingPush { push, .. }| {
                self.bytes.fetch_sub(push.len(), Relaxed);
                take(push);
            },
        );
    }

    /// Ends the request at hand. Returns what is to be put around its reply.
    #[inline]
    pub fn settle(&self, is_answered: bool) -> Option<Around<WaitingPush>> {
        let around = self.queue.settle(is_answered)?;
        let taken = around.before.iter().chain(&around.behind).map(|waiting| waiting.push.len()).sum();
        self.bytes.fetch_sub(taken, Relaxed);
        Some(around)
    }

    /// Changes what posters know, at the place of the request at hand: pushes from now on come after its reply.
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

/// Offers at most `offered` bytes of encoded pushes to a socket once, and takes off those that were written.
fn write_once(
    stream: &Stream,
    pushes: &mut VecDeque<(u64, WaitingPush)>,
    offered: usize,
) -> io::Result<Sent> {
    let bytes = |push: &Push| match push {
        Push::Bytes(bytes) => (Arc::clone(bytes), 0),
        Push::Rest { bytes, sent } => (Arc::clone(bytes), *sent),
        Push::List(_) => unreachable!("it was encoded"),
    };
    let sent = if let [(_, WaitingPush { push: Push::Bytes(only), .. })] =
        &pushes.make_contiguous()[..offered]
    {
        let offered = &only[..only.len().min(OFFERED_BYTES_MAX)];
        stream.send(offered)?
    } else {
        let chunks: Vec<_> = pushes.iter().take(offered).map(|(_, waiting)| bytes(&waiting.push)).collect();
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
        && let Some((_, WaitingPush { push, .. })) = pushes.front_mut()
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
