//! Clients that have the server remember which keys they cache (`CLIENT TRACKING`).

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_net::Client;

use super::Executor;
use crate::{
    push::tracking::{PREFIX_BYTES, Tracker, Walk},
    session::{ClientFlags, Session, tracking::Tracking},
};

impl Executor {
    /// Makes a client track, or track differently, with another told in its place if there is one. Prefixes that it had
    /// already are kept.
    pub(crate) fn track(
        &mut self,
        session: &mut Session,
        mut tracking: Tracking,
        redirect: Option<Arc<Client>>,
    ) {
        let before = session.tracking.take();
        session.take_pushes();
        self.follow(session);
        let trackers = &self.shared.trackers;
        session.client.broken_redirection.set(0);
        trackers.set(Tracker {
            client: Arc::clone(&session.client),
            is_broadcast: tracking.prefixes.is_some(),
            no_loop: tracking.no_loop,
            redirect,
        });
        if let Some(prefixes) = &mut tracking.prefixes {
            let known = before.and_then(|before| before.prefixes).unwrap_or_default();
            let added: Vec<Box<[u8]>> = prefixes.difference(&known).cloned().collect();
            prefixes.extend(known);
            trackers.join(session.client.id(), &added);
            let bytes: usize = prefixes.iter().map(|prefix| PREFIX_BYTES + 2 * prefix.len()).sum();
            session.client.prefix_bytes.set(bytes as u64);
        }
        session.has_tracked = true;
        session.tracking = Some(Box::new(tracking));
        self.note_tracking(session);
    }

    /// Ends tracking for a client.
    pub(crate) fn stop_tracking(&mut self, session: &mut Session) {
        let Some(tracking) = session.tracking.take() else { return };
        let trackers = &self.shared.trackers;
        if let Some(prefixes) = &tracking.prefixes {
            trackers.leave(session.client.id(), prefixes);
            session.client.prefix_bytes.set(0);
        }
        trackers.remove(session.client.id());
        session.client.broken_redirection.set(0);
        self.note_tracking(session);
    }

    /// Acts on changes of how a client tracks.
    pub(crate) fn note_tracking(&mut self, session: &mut Session) {
        let tracking = session.tracking.as_deref();
        session.client.redirection.set(tracking.map_or(0, |tracking| tracking.redirect + 1));
        let broadcasts = tracking.is_some_and(|tracking| tracking.prefixes.is_some());
        session.flags.set(ClientFlags::TRACKING, tracking.is_some());
        session.flags.set(ClientFlags::BROADCAST, broadcasts);
        self.act_for(session);
    }

    /// Removes clients that are gone from among the readers of keys, for a while. Returns how long the worker may wait
    /// before the next slice.
    pub(super) fn forget_departed(&mut self) -> Duration {
        const SLICE: Duration = Duration::from_micros(500);
        /// A walk takes a twentieth of a worker's time, however many clients come and go.
        const REST: u32 = 19;
        let keyspace = &self.shared.engine.keyspace;
        let Some(mut walk) = self.shared.trackers.walk() else { return Duration::MAX };
        let started = Instant::now();
        if let Some(due) = walk.due
            && due > started
        {
            return due - started;
        }
        let Some(_inside) = keyspace.enter_unless_long(self.worker.id()) else { return Duration::MAX };
        let Walk { leaving, position, due } = &mut *walk;
        let mut is_over = keyspace.tracked().0 == 0;
        while !is_over && started.elapsed() < SLICE {
            // A script that runs for long may hold a part of it.
            if keyspace.is_held_for_long() {
                break;
            }
            is_over = !self.shared.engine.forget_readers(leaving, position);
        }
        if is_over {
            *leaving = HashSet::new();
        }
        let rest = started.elapsed() * REST;
        *due = Some(started + rest);
        rest
    }

    /// Forgets keys that clients keep copies of if there are more than `tracking-table-max-keys`.
    pub(crate) fn limit_tracked(&mut self) {
        let keys_max = self.config.config().tracking_table_max_keys as usize;
        let keyspace = &self.shared.engine.keyspace;
        if keys_max == 0 || keyspace.tracked().0 <= keys_max {
            return;
        }
        // If a script holds a part of it, that can wait.
        let inside = keyspace.enter_unless_long(self.worker.id());
        if inside.is_none() || keyspace.is_held_for_long() {
            return;
        }
        for stripe in keyspace.stripes() {
            self.shared.engine.limit_tracked(stripe, keys_max, &mut self.worker);
        }
    }
}
