//! Sessions that clients resume: `tls-session-caching`, `tls-session-cache-size` and `tls-session-cache-timeout`.
//!
//! Clients that take tickets keep their session themselves; a ticket is good for the timeout at most, since its key is
//! gone afterwards. Sessions of clients of TLS 1.2 without tickets are kept here, limited in number and time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::crypto::ring::Ticketer;
use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls::ticketer::TicketRotator;

/// Sessions that are kept if no limit is set.
const SESSIONS_MAX: usize = 1 << 20;

/// A source of tickets, with its key.
#[derive(Debug)]
struct Tickets(Arc<dyn ProducesTickets>);

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}

/// Tickets that are good for `timeout_s` seconds.
pub(super) fn ticketer(timeout_s: u32) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    // A key is used for half of the time, and accepted for the other half.
    let rotator = TicketRotator::new((timeout_s / 2).max(1), || {
        Ok(Box::new(Tickets(Ticketer::new().map_err(|_| rustls::crypto::GetRandomFailed)?)))
    })?;
    Ok(Arc::new(rotator))
}

/// Sessions by their ids, oldest out first.
#[derive(Debug)]
pub(super) struct SessionCache {
    sessions_max: usize,
    timeout: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<Vec<u8>, (Instant, Vec<u8>)>,
    in_order: VecDeque<(Instant, Vec<u8>)>,
}

impl SessionCache {
    /// An empty one; 0 sessions are as many as are bearable.
    pub(super) fn new(sessions: usize, timeout_s: u32) -> Self {
        let sessions_max = if sessions == 0 { SESSIONS_MAX } else { sessions.min(SESSIONS_MAX) };
        Self { sessions_max, timeout: Duration::from_secs(timeout_s.into()), kept: Mutex::default() }
    }

    fn put_at(&self, now: Instant, id: Vec<u8>, session: Vec<u8>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { by_id, in_order } = &mut *kept;
        while let Some((since, _)) = in_order.front()
            && (in_order.len() >= self.sessions_max || now.duration_since(*since) >= self.timeout)
            && let Some((since, id)) = in_order.pop_front()
        {
            // Another thread may have replaced or taken it since.
            if by_id.get(&id).is_some_and(|(newest, _)| *newest == since) {
                by_id.remove(&id);
            }
        }
        in_order.push_back((now, id.clone()));
        by_id.insert(id, (now, session));
    }

    fn get_at(&self, now: Instant, id: &[u8], is_taken: bool) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, session) = if is_taken { kept.by_id.remove(id)? } else { kept.by_id.get(id)?.clone() };
        (now.duration_since(since) < self.timeout).then_some(session)
    }
}

impl StoresServerSessions for SessionCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.put_at(Instant::now(), key, value);
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get_at(Instant::now(), key, false)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get_at(Instant::now(), key, true)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_sessions_are_kept_so_many_and_so_long() {
        let (cache, start) = (SessionCache::new(2, 10), Instant::now());
        for number in 0..3 {
            cache.put_at(start, vec![number], vec![number]);
        }
        assert_eq!(cache.get_at(start, &[0], false), None, "the oldest had to go");
        assert_eq!(cache.get_at(start, &[1], false), Some(vec![1]));
        assert_eq!(cache.get_at(start + Duration::from_secs(10), &[1], false), None, "its time is over");
        assert_eq!(cache.get_at(start, &[2], true), Some(vec![2]));
        assert_eq!(cache.get_at(start, &[2], true), None, "it was taken");
        for number in 0..10_000_u32 {
            cache.put_at(start, number.to_le_bytes().to_vec(), Vec::new());
        }
        let kept = cache.kept.lock().unwrap();
        assert!(kept.by_id.len() <= 2 && kept.in_order.len() <= 2);
    }
}
