//! The thread `recorder`: reads the state of the whole server once a second, for the flight recorder
//! ([`crate::observe::recorder`]).

mod second;

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use self::second::Sampler;
use crate::{
    observe::recorder::EventKind,
    shared::Shared,
    system::host::{lower_priority, unix_us},
};

/// How often the recorder's file is written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// Starts the thread; it ends with the server.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    shared.recorder.load(&shared.config.current(), &shared.commands);
    shared
        .recorder
        .note(EventKind::Server, format!("the server started, version {}", env!("CARGO_PKG_VERSION")));
    let shared = Arc::downgrade(shared);
    let run = move || {
        lower_priority();
        let mut sampler = Sampler::default();
        if let Some(shared) = shared.upgrade() {
            // The first second is compared with this.
            sampler.look(&shared, 0);
        }
        let mut flush_at = Instant::now() + FLUSH_INTERVAL;
        loop {
            let now_us = unix_us();
            let left_us = 1_000_000 - (now_us % 1_000_000) as u64;
            thread::sleep(Duration::from_micros(left_us));
            let Some(shared) = shared.upgrade() else { return };
            // The second that has just ended.
            let time_s = (unix_us() / 1_000_000) as u32 - 1;
            if let Some(seen) = sampler.look(&shared, time_s) {
                shared.recorder.add(seen.sample);
                if let Some(hot) = seen.hot_key {
                    shared.recorder.rings().note_hot_key(hot);
                }
                // The events happened before the second was over.
                let time_ms = u64::from(time_s) * 1000 + 999;
                for (kind, text) in seen.events {
                    shared.recorder.note_at(time_ms, kind, text);
                }
            }
            if Instant::now() >= flush_at {
                flush(&shared);
                flush_at = Instant::now() + FLUSH_INTERVAL;
            }
        }
    };
    thread::Builder::new().name("recorder".to_owned()).spawn(run).map(drop)
}

/// The server ends.
pub(crate) fn finish(shared: &Shared) {
    shared.recorder.note(EventKind::Server, "the server ended".to_owned());
    flush(shared);
}

fn flush(shared: &Shared) {
    shared.recorder.flush(&shared.config.current(), &shared.commands, shared.stats.process.uptime());
}
