//! Wakes a poller at a nanosecond: its own clock counts milliseconds, and to poll without end instead takes a
//! processor from the threads that share it.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use mio::{Interest, Registry, Token, unix::SourceFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer among a poller's sources.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
    /// The time that it was set to last.
    set_to: Option<Instant>,
}

impl Alarm {
    /// An alarm that is not set.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { timer, set_to: None })
    }

    /// Wakes the poller at that time, or at once if it has passed.
    pub fn set(&mut self, at: Instant) -> io::Result<()> {
        if self.set_to == Some(at) {
            return Ok(());
        }
        // A time of zero would turn the timer off.
        let wait = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos().into() },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.set_to = Some(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};

    #[test]
    fn alarm_wakes_the_poller_at_each_time_and_not_before() {
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(4));
        let mut alarm = Alarm::new(poll.registry(), Token(7)).unwrap();
        for wait in [Duration::from_micros(1500), Duration::from_micros(300), Duration::ZERO] {
            let at = Instant::now() + wait;
            alarm.set(at).unwrap();
            alarm.set(at).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
            assert!(Instant::now() >= at && events.iter().all(|event| event.token() == Token(7)));
            assert!(!events.is_empty(), "the alarm rang, after {wait:?}");
        }
    }
}
