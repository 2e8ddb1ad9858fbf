//! Failed authentications by address: clients that guess passwords are slowed down.
//!
//! The first [`FREE_FAILURES`] failures of an address cost nothing. From then on each attempt waits before it is looked
//! at, twice as long with each further failure, [`DELAY_MAX`] at most. A failure is forgotten after
//! [`FORGOTTEN_AFTER`]. An attempt that waits occupies its connection only, never a worker.
//!
//! A success forgives nothing, or the owner of one account could guess at others without delay.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use dunlin_net::Transport;

/// Failures of an address that are not held against it.
const FREE_FAILURES: u32 = 10;
/// The wait behind the first failure that is.
const DELAY_MIN: Duration = Duration::from_millis(10);
/// The longest wait.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// How long one failure is remembered.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);
/// Addresses that are remembered. If there are more, those with the fewest failures are forgotten.
const ADDRESSES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Record {
    failures: u32,
    /// When the last one was forgotten, or the first one happened.
    since: Instant,
}

impl Record {
    /// Forgets what is old enough.
    fn forget(&mut self, now: Instant) {
        let periods = now.saturating_duration_since(self.since).as_secs() / FORGOTTEN_AFTER.as_secs();
        let forgotten = u32::try_from(periods).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_sub(forgotten);
        self.since += FORGOTTEN_AFTER.saturating_mul(forgotten);
    }

    fn delay(self) -> Option<Duration> {
        let held_against = self.failures.checked_sub(FREE_FAILURES)?;
        let doubled = DELAY_MIN.saturating_mul(1 << held_against.min(20));
        Some(doubled.min(DELAY_MAX))
    }
}

/// Failed authentications by address.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    by_origin: Mutex<HashMap<IpAddr, Record>>,
    /// Attempts that had to wait.
    delayed: AtomicU64,
}

impl Failures {
    /// How long an attempt from there has to wait.
    pub(crate) fn delay(&self, transport: &Transport, now: Instant) -> Option<Duration> {
        let origin = origin(transport)?;
        let mut by_origin = self.by_origin.lock().unwrap_or_else(PoisonError::into_inner);
        let record = by_origin.get_mut(&origin)?;
        record.forget(now);
        let delay = record.delay();
        if delay.is_some() {
            self.delayed.fetch_add(1, Relaxed);
        }
        delay
    }

    /// Notes a failure. Returns whether it is the first that is held against its address.
    pub(crate) fn note(&self, transport: &Transport, now: Instant) -> bool {
        let Some(origin) = origin(transport) else { return false };
        let mut by_origin = self.by_origin.lock().unwrap_or_else(PoisonError::into_inner);
        if by_origin.len() >= ADDRESSES_MAX && !by_origin.contains_key(&origin) {
            make_room(&mut by_origin, now);
        }
        let record = by_origin.entry(origin).or_insert(Record { failures: 0, since: now });
        record.forget(now);
        if record.failures == 0 {
            record.since = now;
        }
        record.failures = record.failures.saturating_add(1);
        record.failures == FREE_FAILURES
    }

    /// Attempts that had to wait.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed.load(Relaxed)
    }
}

/// Forgets the half of the addresses that have failed least.
fn make_room(by_origin: &mut HashMap<IpAddr, Record>, now: Instant) {
    by_origin.values_mut().for_each(|record| record.forget(now));
    let mut counts: Vec<u32> = by_origin.values().map(|record| record.failures).collect();
    counts.sort_unstable();
    let median = counts[counts.len() / 2];
    by_origin.retain(|_, record| record.failures > median);
    if by_origin.len() >= ADDRESSES_MAX {
        by_origin.clear();
    }
}

/// The address that an attempt comes from. Unix sockets have no address: their permissions say who may try.
fn origin(transport: &Transport) -> Option<IpAddr> {
    match transport {
        Transport::Tcp { peer, .. } => Some(match peer.ip().to_canonical() {
            // A host has as many addresses as it likes within its network.
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
            address => address,
        }),
        Transport::Unix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Transport {
        let peer = text.parse().unwrap();
        Transport::Tcp { peer, local: peer }
    }

    #[test]
    fn auth_is_slowed_down_behind_many_failures() {
        let (failures, start) = (Failures::default(), Instant::now());
        let (guesser, other) = (from("192.0.2.1:1"), from("192.0.2.2:1"));
        for number in 1..FREE_FAILURES {
            assert_eq!(
                (failures.delay(&guesser, start), failures.note(&guesser, start)),
                (None, false),
                "{number}"
            );
        }
        assert!(failures.note(&guesser, start));
        assert_eq!(failures.delay(&guesser, start), Some(DELAY_MIN));
        assert!(!failures.note(&from("192.0.2.1:2"), start), "said once");
        assert_eq!(failures.delay(&guesser, start), Some(2 * DELAY_MIN));
        for _ in 0..40 {
            failures.note(&guesser, start);
        }
        assert_eq!(failures.delay(&guesser, start), Some(DELAY_MAX));
        assert_eq!(failures.delay(&other, start), None);
        assert_eq!(failures.delayed(), 3);
        let later = start + 42 * FORGOTTEN_AFTER;
        assert_eq!(failures.delay(&guesser, later), None);
        assert!(failures.note(&guesser, later), "said again");
    }

    #[test]
    fn auth_is_not_slowed_down_on_unix_sockets() {
        let (failures, now) = (Failures::default(), Instant::now());
        let socket = Transport::Unix(std::path::Path::new("/tmp/socket").into());
        for _ in 0..2 * FREE_FAILURES {
            assert!(!failures.note(&socket, now));
        }
        assert_eq!(failures.delay(&socket, now), None);
    }

    #[test]
    fn auth_failures_are_of_a_network_with_ipv6() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..FREE_FAILURES {
            failures.note(&from(&format!("[2001:db8::{number}]:1")), now);
        }
        assert!(failures.delay(&from("[2001:db8::ff:1]:1"), now).is_some());
        assert_eq!(failures.delay(&from("[2001:db8:0:1::1]:1"), now), None);
    }

    #[test]
    fn auth_failures_of_few_addresses_are_remembered() {
        let (failures, now) = (Failures::default(), Instant::now());
        let guesser = from("192.0.2.1:1");
        for _ in 0..FREE_FAILURES {
            failures.note(&guesser, now);
        }
        for number in 0..3 * ADDRESSES_MAX {
            failures.note(&from(&format!("10.{}.{}.1:1", number / 256, number % 256)), now);
        }
        assert!(failures.by_origin.lock().unwrap().len() <= ADDRESSES_MAX);
        assert!(failures.delay(&guesser, now).is_some());
    }
}
