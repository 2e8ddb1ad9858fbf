//! Orders of workers to the maintenance thread.

use std::sync::{
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    mpsc::{Receiver, Sender, channel},
};

use dunlin_engine::Garbage;

/// An order to the thread.
#[derive(Debug)]
pub(crate) enum MaintenanceOrder {
    /// To free this, of this many bytes.
    Discard(Garbage, usize),
    /// To get memory for growth.
    WarmUp,
    /// To look at the server as often as one at work needs.
    Awake,
}

/// The queue into which workers put their orders.
#[derive(Debug)]
pub(crate) struct Maintenance {
    orders: Sender<MaintenanceOrder>,
    /// Whether warming up has been ordered and has not begun.
    warm_up_ordered: AtomicBool,
    /// Values and keys that wait to be freed.
    pending_objects: AtomicUsize,
    /// Their bytes.
    pending_bytes: AtomicUsize,
    /// Values and keys that the thread has freed since the statistics were reset.
    freed_objects: AtomicU64,
    /// How often workers were asked to give back what they have set aside.
    purges: AtomicU64,
}

impl Maintenance {
    /// The workers' end and the thread's.
    pub(crate) fn new() -> (Self, Receiver<MaintenanceOrder>) {
        let (sender, receiver) = channel();
        let maintenance = Self {
            orders: sender,
            warm_up_ordered: AtomicBool::new(false),
            pending_objects: AtomicUsize::new(0),
            pending_bytes: AtomicUsize::new(0),
            freed_objects: AtomicU64::new(0),
            purges: AtomicU64::new(0),
        };
        (maintenance, receiver)
    }

    /// Frees garbage elsewhere, soon.
    pub(crate) fn discard(&self, garbage: Garbage) {
        self.pending_objects.fetch_add(garbage.objects(), Ordering::Relaxed);
        let bytes = garbage.bytes();
        self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        // The thread ends only when the server does; then freeing here is as good.
        let _ = self.orders.send(MaintenanceOrder::Discard(garbage, bytes));
    }

    /// Values and keys that wait to be freed (`lazyfree_pending_objects`).
    pub(crate) fn pending_objects(&self) -> usize {
        self.pending_objects.load(Ordering::Relaxed)
    }

    /// Bytes of these.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Values and keys freed in the background (`lazyfreed_objects`).
    pub(crate) fn freed_objects(&self) -> u64 {
        self.freed_objects.load(Ordering::Relaxed)
    }

    /// Notes that the thread has freed `objects` of `bytes`.
    pub(crate) fn note_freed(&self, objects: usize, bytes: usize) {
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.freed_objects.fetch_add(objects as u64, Ordering::Relaxed);
        self.pending_objects.fetch_sub(objects, Ordering::Relaxed);
    }

    /// Makes all workers give back what they have set aside, and collect the garbage of scripts.
    pub(crate) fn request_purge(&self) {
        self.purges.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often that was asked for.
    pub(crate) fn purges(&self) -> u64 {
        self.purges.load(Ordering::Relaxed)
    }

    /// Puts memory behind pages that will soon be wanted.
    pub(crate) fn warm_up(&self) {
        if !self.warm_up_ordered.swap(true, Ordering::Relaxed) {
            let _ = self.orders.send(MaintenanceOrder::WarmUp);
        }
    }

    /// Ends the thread's rest.
    pub(crate) fn awake(&self) {
        let _ = self.orders.send(MaintenanceOrder::Awake);
    }

    /// The thread begins to do that.
    pub(crate) fn note_warm_up(&self) {
        self.warm_up_ordered.store(false, Ordering::Relaxed);
    }
}
