//! Pushes: bytes that a client is sent without having asked at that moment, such as messages and invalidations. Any
//! thread queues them, and any thread may write them to the socket.
//!
//! ```text
//!  a thread that changes data         the client's owner, which serves it       any thread, before sending replies
//!  ──────────────────────────         ───────────────────────────────────       ──────────────────────────────────
//!  lock the data, change it           hold: no other thread writes now          are pushes pending?
//!  post the push, at the position     lock the data, read it, mark              flush all of them: each is written,
//!    that its client has reached      unlock                                      unless its client is held
//!  note the client as pending         settle: pushes of older positions         send the replies
//!  unlock                               before the reply, the others behind
//!                                     release, sending the replies: from
//!                                       now on any thread may write behind
//! ```
//!
//! A *position* is the number of a client's last request whose place among all changes is decided. The place is decided
//! under the locks of the data that the request looks at.
//!
//! Promises, for a change, the push about it, and a reply that has seen the change or anything behind it:
//! - *In the client's own stream the push precedes the reply.* The push was posted before the change was unlocked, so
//!   the request was marked later, and the push has an older position.
//! - *A reply that has not seen the change precedes its push*, for data that were locked when the request was marked:
//!   the change came behind the mark, and so did the look at the position. An invalidation comes after the reply with
//!   the value that it invalidates.
//! - *A reply to another client leaves after the push was written.* A thread that has seen the change sees that the
//!   client is pending, or that it was flushed since. The exceptions: the client is held, because a request of its own
//!   has not been answered yet, or because its socket is full. Then the push waits in its place in the client's stream.
//!
//! A push may have to wait for something else, such as replicas that have its change. The thread that flushes decides;
//! it writes the pushes before that one, and the client stays pending: the thread that sends replies after the wait is
//! over writes the rest first.
//!
//! No thread waits for one that serves requests, only for one that is writing to sockets, which does not block.
//!
//! Locks, each taken with none behind it: those of data, then a queue's state, then a list of pending clients. The right to
//! write is taken before a state, and never with data locked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};

/// The pushes of one client that have not been written: each a `T`. Facts about the client for posters are a `D`, the
/// means to write to it a `W`.
///
/// The owner holds a new queue.
#[derive(Debug)]
pub struct PushQueue<T, D, W> {
    /// The number of the request at hand; written by the owner.
    current: AtomicU64,
    /// The number of the last request whose place among changes is decided; written by the owner.
    position: AtomicU64,
    /// Whether there may be pushes: the owner looks at it after each request.
    has_pushes: AtomicBool,
    state: Mutex<State<T, D>>,
    /// The right to write, with the means. Nothing until the client can be written to, and when it has gone.
    writer: Mutex<Option<W>>,
}

#[derive(Debug)]
struct State<T, D> {
    /// In the order in which they were posted, with positions that grow.
    pushes: VecDeque<(u64, T)>,
    access: Access,
    /// Whether the client is among those that are pending.
    is_pending: bool,
    /// The number of the last request that has been answered; others follow it without a gap.
    answered: u64,
    details: D,
}

/// The thread that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// The one that has the writer.
    Anybody,
    /// The owner, which has something to send that comes first.
    Owner,
    /// The client has gone.
    Nobody,
}

/// The outcome of posting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Posted {
    /// The push is queued; the client is pending already, or its owner will write it.
    Queued,
    /// The push is queued, and the caller has to note the client as pending, before any lock of data is released.
    Pending,
    /// The client has gone.
    Gone,
}

/// The outcome of flushing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Flushed {
    /// All is written that others than the owner may write.
    Done,
    /// The socket has not taken all. The rest is the owner's, and the caller notifies it.
    Full,
    /// The first push that is left must not be written yet. The caller flushes the client again when it may be.
    Waiting,
}

/// Pushes that have a place around the reply at hand.
#[derive(Debug, PartialEq, Eq)]
pub struct Around<T> {
    /// Before it.
    pub before: Vec<T>,
    /// Behind it.
    pub behind: Vec<T>,
}

impl<T, D, W> PushQueue<T, D, W> {
    /// An empty queue.
    pub fn new(details: D) -> Self {
        let state =
            State { pushes: VecDeque::new(), access: Access::Owner, is_pending: false, answered: 0, details };
        Self {
            current: AtomicU64::new(1),
            position: AtomicU64::new(0),
            has_pushes: AtomicBool::new(false),
            state: Mutex::new(state),
            writer: Mutex::new(None),
        }
    }

    /// Queues a push, if `make` makes one; it may instead add to the last one that is at the same place of the client's
    /// stream, which it is given. The caller holds the locks of the data that the push is about. Any thread.
    pub fn post(&self, make: impl FnOnce(&mut D, Option<&mut T>) -> Option<T>) -> Posted {
        let mut state = self.state();
        let State { pushes, access, is_pending, details, .. } = &mut *state;
        if *access == Access::Nobody {
            return Posted::Gone;
        }
        // Looked at under the state's lock, so that positions grow along the queue.
        let position = self.position.load(Relaxed);
        let last = pushes.back_mut().and_then(|(at, last)| (*at == position).then_some(last));
        if let Some(push) = make(details, last) {
            pushes.push_back((position, push));
        }
        if pushes.is_empty() {
            return Posted::Queued;
        }
        self.has_pushes.store(true, Relaxed);
        if *access == Access::Anybody && !std::mem::replace(is_pending, true) {
            return Posted::Pending;
        }
        Posted::Queued
    }

    /// Writes the pushes, unless the owner holds the queue: `write` takes off the front those that it has written, and
    /// returns whether the first of the others must not be written yet. Any thread.
    pub fn flush(&self, write: impl FnOnce(&mut W, &mut VecDeque<(u64, T)>) -> bool) -> Flushed {
        let mut writer = lock(&self.writer);
        let mut pushes = {
            let mut state = self.state();
            state.is_pending = false;
            if state.access != Access::Anybody || state.pushes.is_empty() {
                return Flushed::Done;
            }
            self.has_pushes.store(false, Relaxed);
            std::mem::take(&mut state.pushes)
        };
        // Posters do not wait for this.
        let is_waiting = writer.as_mut().is_some_and(|writer| write(writer, &mut pushes));
        let mut state = self.state();
        if pushes.is_empty() {
            // The memory is used again.
            if state.pushes.capacity() == 0 {
                state.pushes = pushes;
            }
            return Flushed::Done;
        }
        pushes.append(&mut state.pushes);
        state.pushes = pushes;
        self.has_pushes.store(true, Relaxed);
        if !is_waiting {
            state.access = Access::Owner;
            return Flushed::Full;
        }
        // A thread that has posted meanwhile has noted the client already.
        if std::mem::replace(&mut state.is_pending, true) { Flushed::Done } else { Flushed::Waiting }
    }

    /// Reads or changes the facts about the client for posters. Any thread.
    pub fn with_details<R>(&self, look: impl FnOnce(&mut D) -> R) -> R {
        look(&mut self.state().details)
    }

    /// Lets no other thread write until [`Self::release`], and hands over the pushes whose place is behind the requests
    /// answered so far, up to the first that may not be written. Owner only.
    pub fn hold(&self, may_write: impl Fn(&T) -> bool, mut take: impl FnMut(T)) {
        // A thread that is writing finishes first.
        let _writer = lock(&self.writer);
        let mut state = self.state();
        state.access = Access::Owner;
        while state
            .pushes
            .front()
            .is_some_and(|(position, push)| *position <= state.answered && may_write(push))
            && let Some((_, push)) = state.pushes.pop_front()
        {
            take(push);
        }
        self.has_pushes.store(!state.pushes.is_empty(), Relaxed);
    }

    /// Decides the place of the request at hand among all changes. Under the locks of the data that it looks at, or, for
    /// one that locks none, at any time while it runs; again for the same request does no harm. Owner only.
    #[inline]
    pub fn mark(&self) {
        self.position.store(self.current.load(Relaxed), Relaxed);
    }

    /// Ends the request at hand, whose place is decided now if it was not before; the pushes around its reply. A
    /// request that is answered later, and has not been yet, takes only those before. Owner only.
    #[inline]
    pub fn settle(&self, is_answered: bool) -> Option<Around<T>> {
        let current = self.current.load(Relaxed);
        self.position.store(current, Relaxed);
        self.current.store(current + 1, Relaxed);
        // Pushes about changes that the reply has seen are queued, and visible here: locks were released and taken
        // since.
        self.has_pushes.load(Relaxed).then(|| self.take_around(current, is_answered))
    }

    #[cold]
    fn take_around(&self, current: u64, is_answered: bool) -> Around<T> {
        let mut state = self.state();
        let mut around = Around { before: Vec::new(), behind: Vec::new() };
        while state.pushes.front().is_some_and(|(position, _)| is_answered || *position < current)
            && let Some((position, push)) = state.pushes.pop_front()
        {
            let side = if position < current { &mut around.before } else { &mut around.behind };
            side.push(push);
        }
        self.has_pushes.store(!state.pushes.is_empty(), Relaxed);
        around
    }

    /// Whether there may be pushes. Owner only: others post them at any time.
    #[inline]
    pub fn has_pushes(&self) -> bool {
        self.has_pushes.load(Relaxed)
    }

    /// Makes it possible to write to the client. Owner only.
    pub fn set_writer(&self, writer: W) {
        *lock(&self.writer) = Some(writer);
    }

    /// Whether it is possible to write to the client. Any thread.
    pub fn has_writer(&self) -> bool {
        lock(&self.writer).is_some()
    }

    /// Ends the hold of [`Self::hold`]: `write` writes the answers to all requests served so far, and says whether
    /// nothing is left. Before it writes, its argument says whether it has to note the client as pending. Owner
    /// only.
    ///
    /// Other threads may write from before the answers are written, though they wait until these were: a client that
    /// has read its answer is not held.
    pub fn release(&self, write: impl FnOnce(bool) -> bool) {
        let _writer = lock(&self.writer);
        let is_pending = {
            let mut state = self.state();
            state.answered = self.position.load(Relaxed);
            state.access = Access::Anybody;
            !state.pushes.is_empty() && !std::mem::replace(&mut state.is_pending, true)
        };
        if !write(is_pending) {
            self.state().access = Access::Owner;
        }
    }

    /// The client has gone: nothing more is queued or written. Waits for a thread that is writing. Returns whether the
    /// client is noted as pending. Owner only.
    pub fn close(&self) -> bool {
        let mut writer = lock(&self.writer);
        let mut state = self.state();
        state.access = Access::Nobody;
        state.pushes = VecDeque::new();
        *writer = None;
        state.is_pending
    }

    fn state(&self) -> MutexGuard<'_, State<T, D>> {
        lock(&self.state)
    }
}

/// The clients whose pushes are to be written before replies leave, in partitions that are flushed side by side. A `K` is
/// the condition under which a push may be written that has to wait.
#[derive(Debug)]
#[repr(align(128))]
pub struct PendingPushes<C, K> {
    /// The clients of all partitions, those that are being flushed and those that wait included.
    count: AtomicUsize,
    partitions: Box<[Partition<C, K>]>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Partition<C, K> {
    pending: Mutex<Vec<C>>,
    /// The thread that flushes the partition holds it.
    flushing: Mutex<Flushing<C, K>>,
}

#[derive(Debug)]
struct Flushing<C, K> {
    /// Memory for the clients to flush.
    clients: Vec<C>,
    /// Clients whose first push waits, by its condition.
    waiting: BTreeMap<K, Vec<C>>,
}

impl<C, K: Copy + Ord> PendingPushes<C, K> {
    /// No client is pending.
    pub fn new(partitions: usize) -> Self {
        let flushing = || Flushing { clients: Vec::new(), waiting: BTreeMap::new() };
        let partition = || Partition { pending: Mutex::new(Vec::new()), flushing: Mutex::new(flushing()) };
        Self { count: AtomicUsize::new(0), partitions: (0..partitions).map(|_| partition()).collect() }
    }

    /// Notes a client as pending. Any thread, before it releases the locks of the push's data.
    pub fn add(&self, partition: usize, client: C) {
        self.count.fetch_add(1, Relaxed);
        lock(&self.partitions[partition].pending).push(client);
    }

    /// Whether any client is pending. A thread that has seen a change sees its client here, or behind the work of
    /// `flush` for it.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Acquire) != 0
    }

    /// How many clients of a partition wait to be flushed.
    pub fn len(&self, partition: usize) -> usize {
        lock(&self.partitions[partition].pending).len()
    }

    /// Forgets a client of a partition that waits: it has gone. O(clients that wait).
    pub fn remove(&self, partition: usize, is_it: impl Fn(&C) -> bool) {
        let mut flushing = lock(&self.partitions[partition].flushing);
        let before: usize = flushing.waiting.values().map(Vec::len).sum();
        flushing.waiting.retain(|_, clients| {
            clients.retain(|client| !is_it(client));
            !clients.is_empty()
        });
        let after: usize = flushing.waiting.values().map(Vec::len).sum();
        self.count.fetch_sub(before - after, Release);
    }

    /// Flushes all clients that were pending when it was called, but for those that wait for a condition that is not met;
    /// those that another thread flushes, it waits for. The partition `first` comes first. `flush` returns the condition of
    /// a client whose first push has to wait: O(conditions) for each later call.
    pub fn flush(&self, first: usize, is_met: impl Fn(K) -> bool, mut flush: impl FnMut(&C) -> Option<K>) {
        for number in (0..self.partitions.len()).map(|number| (first + number) % self.partitions.len()) {
            let partition = &self.partitions[number];
            let mut flushing = lock(&partition.flushing);
            let Flushing { clients, waiting } = &mut *flushing;
            std::mem::swap(clients, &mut *lock(&partition.pending));
            while let Some(met) = waiting.keys().copied().find(|condition| is_met(*condition)) {
                clients.append(&mut waiting.remove(&met).unwrap_or_default());
            }
            let mut count = clients.len();
            for client in clients.drain(..) {
                if let Some(condition) = flush(&client) {
                    waiting.entry(condition).or_default().push(client);
                    count -= 1;
                }
            }
            self.count.fetch_sub(count, Release);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section leaves anything half done that others would trip over.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Queue = PushQueue<&'static str, (), Vec<&'static str>>;

    fn post(queue: &Queue, push: &'static str) -> Posted {
        queue.post(|(), _| Some(push))
    }

    /// Writes at most `most` pushes.
    fn flush(queue: &Queue, most: usize) -> bool {
        let flushed = queue.flush(|written, pushes| {
            written.extend(pushes.drain(..most.min(pushes.len())).map(|(_, push)| push));
            false
        });
        assert_ne!(flushed, Flushed::Waiting);
        flushed == Flushed::Done
    }

    /// Writes those before the first whose name is this one.
    fn flush_before(queue: &Queue, unmet: &str) -> Flushed {
        queue.flush(|written, pushes| {
            let met = pushes.iter().take_while(|(_, push)| *push != unmet).count();
            written.extend(pushes.drain(..met).map(|(_, push)| push));
            true
        })
    }

    fn written(queue: &Queue) -> Vec<&'static str> {
        std::mem::take(lock(&queue.writer).as_mut().unwrap())
    }

    fn held(queue: &Queue) -> Vec<&'static str> {
        let mut pushes = Vec::new();
        queue.hold(|_| true, |push| pushes.push(push));
        pushes
    }

    fn around(queue: &Queue, is_answered: bool) -> (Vec<&'static str>, Vec<&'static str>) {
        queue.settle(is_answered).map_or_else(Default::default, |around| (around.before, around.behind))
    }

    #[test]
    fn pushes_are_written_by_others_unless_the_owner_holds_the_queue() {
        let queue = Queue::new(());
        queue.set_writer(Vec::new());
        assert_eq!(post(&queue, "a"), Posted::Queued, "the owner has it");
        assert!(flush(&queue, 9) && written(&queue).is_empty());
        queue.release(|is_pending| {
            assert!(is_pending, "from now on");
            true
        });
        assert_eq!(post(&queue, "b"), Posted::Queued, "once is enough");
        assert!(flush(&queue, 9));
        assert_eq!(written(&queue), ["a", "b"]);
        assert_eq!(post(&queue, "c"), Posted::Pending);
        assert_eq!(held(&queue), ["c"]);
        assert!(flush(&queue, 9) && written(&queue).is_empty());
        queue.release(|_| false);
        assert_eq!(post(&queue, "d"), Posted::Queued);
        queue.close();
        assert_eq!(post(&queue, "e"), Posted::Gone);
        assert!(flush(&queue, 9));
    }

    #[test]
    fn owner_sends_what_a_full_socket_leaves() {
        let queue = Queue::new(());
        queue.set_writer(Vec::new());
        queue.release(|_| true);
        for push in ["a", "b", "c"] {
            let _ = post(&queue, push);
        }
        assert!(!flush(&queue, 1), "the owner is told");
        assert_eq!(post(&queue, "d"), Posted::Queued);
        assert!(flush(&queue, 9));
        assert_eq!(written(&queue), ["a"]);
        assert_eq!(held(&queue), ["b", "c", "d"]);
    }

    #[test]
    fn waiting_push_holds_up_later_ones_and_leaves_the_queue_open() {
        let queue = Queue::new(());
        queue.set_writer(Vec::new());
        queue.release(|_| true);
        assert_eq!(post(&queue, "a"), Posted::Pending);
        assert_eq!((post(&queue, "unmet"), post(&queue, "c")), (Posted::Queued, Posted::Queued));
        assert_eq!(flush_before(&queue, "unmet"), Flushed::Waiting);
        assert_eq!(written(&queue), ["a"]);
        assert_eq!(post(&queue, "d"), Posted::Queued, "the client is pending all the time");
        let mut taken = Vec::new();
        queue.hold(|push| *push != "unmet", |push| taken.push(push));
        assert!(taken.is_empty(), "nor does the owner take it");
        queue.release(|is_pending| {
            assert!(!is_pending, "it is still noted");
            true
        });
        assert!(flush(&queue, 9));
        assert_eq!(written(&queue), ["unmet", "c", "d"]);
    }

    #[test]
    fn pushes_stand_before_replies_that_may_have_seen_their_changes() {
        let queue = Queue::new(());
        let _ = post(&queue, "seen");
        queue.mark();
        let _ = post(&queue, "unseen");
        assert_eq!(around(&queue, true), (vec!["seen"], vec!["unseen"]));
        assert_eq!(around(&queue, true), (vec![], vec![]));
        // Without a mark of its own a request is taken to have seen everything.
        let _ = post(&queue, "seen");
        assert_eq!(around(&queue, true), (vec!["seen"], vec![]));
        // A request that is answered later.
        let _ = post(&queue, "seen");
        queue.mark();
        let _ = post(&queue, "unseen");
        assert_eq!(around(&queue, false), (vec!["seen"], vec![]));
        assert!(held(&queue).is_empty(), "the answer comes first");
        queue.release(|_| true);
        assert_eq!(held(&queue), ["unseen"]);
    }

    #[test]
    fn last_push_can_be_extended_in_place() {
        let queue = PushQueue::<String, (), ()>::new(());
        let add = |text: &str| {
            let _ = queue.post(|(), last| match last {
                Some(last) => {
                    last.push_str(text);
                    None
                }
                None => Some(text.to_owned()),
            });
        };
        add("a");
        add("b");
        queue.mark();
        add("c");
        let around = queue.settle(true).unwrap();
        assert_eq!((around.before, around.behind), (vec!["ab".to_owned()], vec!["c".to_owned()]));
    }

    #[test]
    fn pending_clients_are_flushed_once_each() {
        let pending = PendingPushes::new(3);
        for (partition, client) in [(0, "a"), (2, "b"), (2, "c"), (1, "d")] {
            pending.add(partition, client);
        }
        assert!(pending.any() && pending.len(2) == 2);
        let mut flushed = Vec::new();
        pending.flush(
            2,
            |()| true,
            |client| {
                flushed.push(*client);
                None
            },
        );
        assert_eq!(flushed, ["b", "c", "a", "d"]);
        assert!(!pending.any());
    }

    #[test]
    fn clients_that_wait_stay_pending_until_their_condition_is_met() {
        let pending = PendingPushes::new(2);
        let flush = |reached: u64, mut waits: Vec<(&'static str, u64)>| {
            let mut flushed = Vec::new();
            pending.flush(
                0,
                |mark| mark <= reached,
                |client: &&'static str| {
                    flushed.push(*client);
                    let at = waits.iter().position(|(waiting, _)| waiting == client)?;
                    Some(waits.remove(at).1)
                },
            );
            flushed
        };
        ["a", "b", "c"].into_iter().for_each(|client| pending.add(1, client));
        assert_eq!(flush(0, vec![("a", 5), ("b", 7), ("c", 7)]), ["a", "b", "c"]);
        assert!(flush(4, vec![]).is_empty() && pending.any());
        assert_eq!(flush(5, vec![("a", 6)]), ["a"]);
        pending.remove(1, |client| *client == "b");
        assert_eq!(flush(9, vec![]), ["a", "c"]);
        assert!(!pending.any());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{
        sync::{Arc, Mutex},
        thread,
    };
    use std::sync::atomic::Ordering::SeqCst;

    /// An item of the client's stream.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Item {
        /// `k` has changed.
        Push,
        /// A reply: the values of `k` and `f` that it has seen, as far as it has looked.
        Saw { k: Option<u8>, f: Option<u8> },
    }

    /// Two data with locks of their own, and a client that keeps a copy of `k`.
    struct Model {
        k: Mutex<u8>,
        f: Mutex<u8>,
        stream: Mutex<Vec<Item>>,
        queue: PushQueue<Item, (), ()>,
        pending: PendingPushes<(), ()>,
        /// Whether pushes may be written.
        is_committed: AtomicBool,
    }

    impl Model {
        fn new() -> Arc<Self> {
            let queue = PushQueue::new(());
            queue.set_writer(());
            queue.release(|_| true);
            Arc::new(Self {
                k: Mutex::new(0),
                f: Mutex::new(0),
                stream: Mutex::new(Vec::new()),
                queue,
                pending: PendingPushes::new(1),
                is_committed: AtomicBool::new(true),
            })
        }

        fn write(&self, item: Item) {
            self.stream.lock().unwrap().push(item);
        }

        fn stream(&self) -> Vec<Item> {
            self.stream.lock().unwrap().clone()
        }

        /// The work of a thread before it sends replies.
        fn flush(&self) {
            if self.pending.any() {
                let is_met = |()| self.is_committed.load(SeqCst);
                self.pending.flush(0, is_met, |()| {
                    let flushed = self.queue.flush(|(), pushes| {
                        if is_met(()) {
                            pushes.drain(..).for_each(|(_, push)| self.write(push));
                        }
                        true
                    });
                    assert_ne!(flushed, Flushed::Full);
                    (flushed == Flushed::Waiting).then_some(())
                });
            }
        }

        /// Another client sets `k`, then `f`.
        fn change(&self) {
            let mut k = self.k.lock().unwrap();
            *k = 1;
            if self.queue.post(|(), _| Some(Item::Push)) == Posted::Pending {
                self.pending.add(0, ());
            }
            drop(k);
            *self.f.lock().unwrap() = 1;
        }

        /// The client's own thread serves a request that reads one of the two.
        fn turn(&self, reads_k: bool) {
            self.queue.hold(|_| self.is_committed.load(SeqCst), |push| self.write(push));
            let datum = if reads_k { &self.k } else { &self.f };
            let seen = {
                let datum = datum.lock().unwrap();
                self.queue.mark();
                Some(*datum)
            };
            let reply = if reads_k { Item::Saw { k: seen, f: None } } else { Item::Saw { k: None, f: seen } };
            let around = self.queue.settle(true).unwrap_or(Around { before: vec![], behind: vec![] });
            self.flush();
            self.queue.release(|is_pending| {
                if is_pending {
                    self.pending.add(0, ());
                }
                around.before.into_iter().for_each(|push| self.write(push));
                self.write(reply);
                around.behind.into_iter().for_each(|push| self.write(push));
                true
            });
            self.flush();
        }
    }

    fn model(check: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    /// A thread that has seen the new `k`, or the value that was set behind it, finds the push written; so does the
    /// thread that has set it.
    #[test]
    fn loom_whoever_sees_the_change_or_a_later_one_has_had_the_push_written() {
        for reads_k in [false, true] {
            model(move || third_client_reads(reads_k));
        }
    }

    fn third_client_reads(reads_k: bool) {
        let model = Model::new();
        let writer = {
            let model = model.clone();
            thread::spawn(move || {
                model.change();
                model.flush();
                assert_eq!(model.stream(), [Item::Push], "the writer's own reply leaves now");
            })
        };
        let reader = {
            let model = model.clone();
            thread::spawn(move || {
                let seen = *if reads_k { &model.k } else { &model.f }.lock().unwrap();
                model.flush();
                if seen == 1 {
                    assert_eq!(model.stream(), [Item::Push], "so does a third client's");
                }
            })
        };
        writer.join().unwrap();
        reader.join().unwrap();
    }

    /// In the client's own stream the push precedes a reply that has seen what was set behind `k`, and follows one that
    /// has seen `k` as it was before. Otherwise the client would keep a copy that is stale.
    #[test]
    fn loom_a_push_has_its_place_in_the_clients_stream() {
        for reads_k in [false, true] {
            model(move || {
                let model = Model::new();
                let writer = {
                    let model = model.clone();
                    thread::spawn(move || {
                        model.change();
                        model.flush();
                    })
                };
                model.turn(reads_k);
                writer.join().unwrap();
                let stream = model.stream();
                let place = |wanted: fn(&Item) -> bool| stream.iter().position(wanted);
                let push = place(|item| *item == Item::Push).expect("no push is lost");
                let reply = place(|item| *item != Item::Push).expect("nor is a reply");
                match stream[reply] {
                    Item::Saw { f: Some(1), .. } => assert!(push < reply, "{stream:?}"),
                    Item::Saw { k: Some(0), .. } => assert!(reply < push, "{stream:?}"),
                    _ => {}
                }
                assert_eq!(stream.len(), 2, "{stream:?}");
            });
        }
    }

    /// A client that has read its answer is not held, though its thread may still be at work.
    #[test]
    fn loom_an_answered_client_has_its_push_at_once() {
        model(|| {
            let model = Model::new();
            let writer = {
                let model = model.clone();
                thread::spawn(move || {
                    let has_answer = !model.stream().is_empty();
                    model.change();
                    model.flush();
                    if has_answer {
                        assert_eq!(model.stream().last(), Some(&Item::Push));
                    }
                })
            };
            model.turn(true);
            writer.join().unwrap();
        });
    }

    /// A push that has to wait is written before a reply leaves that has seen its change committed, whichever thread flushes
    /// it first, and not before that.
    #[test]
    fn loom_a_push_that_waits_precedes_replies_that_have_seen_it_committed() {
        model(|| {
            let model = Model::new();
            model.is_committed.store(false, SeqCst);
            let writer = {
                let model = model.clone();
                thread::spawn(move || {
                    model.change();
                    model.flush();
                    model.is_committed.store(true, SeqCst);
                    model.flush();
                    assert_eq!(model.stream(), [Item::Push], "the writer's own reply leaves now");
                })
            };
            let reader = {
                let model = model.clone();
                thread::spawn(move || {
                    let is_committed = model.is_committed.load(SeqCst);
                    model.flush();
                    if is_committed {
                        assert_eq!(model.stream(), [Item::Push], "so does a third client's");
                    }
                })
            };
            writer.join().unwrap();
            reader.join().unwrap();
        });
    }

    /// A third client reads while the push's client is being served: a push that it cannot have written yet is in the
    /// stream in the end, and the rules of the stream hold all the same.
    #[test]
    fn loom_three_threads_lose_nothing() {
        model(|| {
            let model = Model::new();
            let threads = [
                {
                    let model = model.clone();
                    thread::spawn(move || {
                        model.change();
                        model.flush();
                    })
                },
                {
                    let model = model.clone();
                    thread::spawn(move || {
                        let _ = *model.f.lock().unwrap();
                        model.flush();
                    })
                },
            ];
            model.turn(false);
            for thread in threads {
                thread.join().unwrap();
            }
            let stream = model.stream();
            assert_eq!(stream.iter().filter(|item| **item == Item::Push).count(), 1, "{stream:?}");
            if let Some(reply) = stream.iter().position(|item| *item == Item::Saw { k: None, f: Some(1) }) {
                assert_eq!((reply, stream[0]), (1, Item::Push));
            }
        });
    }
}
