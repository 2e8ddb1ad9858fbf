//! Messages that clients get without having asked at that moment: pub/sub, MONITOR, invalidations of client-side caches.

pub(crate) mod monitor;
pub(crate) mod notifier;
pub(crate) mod pubsub;
pub(crate) mod rights;
pub(crate) mod tracking;
