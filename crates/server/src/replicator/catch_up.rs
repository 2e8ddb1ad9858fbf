//! A replica that lacks more than the ring has is sent the rest from the log's files, by a thread of its own.
//!
//! ```text
//! files ─ batch after batch ─▶ socket … until the ring has what follows ─▶ thread `feeder`
//! ```

use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Release, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_persist::aof::Follower;

use super::transfer::send_all;
use crate::{session::replica::ReplicaClient, shared::Shared};

/// Bytes of the ring that are kept meanwhile at least: what the log's thread has not written yet is among them.
pub(super) const KEPT_BYTES_MIN: u64 = 32 << 20;
/// Between two looks whether the log's thread has written more.
const PAUSE: Duration = Duration::from_millis(1);
/// Between two looks whether it has begun another file: a rewrite does.
const NEW_FILES_PAUSE: Duration = Duration::from_millis(20);

/// Begins to send a replica what is behind an offset of the ring. An error leaves all as it was.
pub(super) fn begin(
    server: &Arc<Shared>,
    replica: &Arc<ReplicaClient>,
    follower: Follower,
    timeout: Duration,
) -> io::Result<()> {
    replica.is_catching_up.store(true, SeqCst);
    replica.sent.store(follower.at(), Release);
    let (shared, sent_to) = (Arc::clone(server), Arc::clone(replica));
    let run = move || match send(&shared, &sent_to, follower, timeout) {
        Ok(()) => {
            tracing::info!("{} has what it lacked from the log's files", sent_to.client);
            shared.replication.feed.wake();
        }
        Err(error) => sent_to.cut(&format!("it cannot be sent the log's files: {error}")),
    };
    let begun = thread::Builder::new().name("catch-up".to_owned()).spawn(run);
    begun.map(drop).inspect_err(|_| replica.is_catching_up.store(false, SeqCst))
}

fn send(
    server: &Shared,
    replica: &ReplicaClient,
    mut follower: Follower,
    timeout: Duration,
) -> io::Result<()> {
    let replication = &server.replication;
    let (mut heard, mut learned) = (Instant::now(), Instant::now());
    loop {
        let mut sent = Ok(());
        let shown = follower.show_batch(|bytes| {
            sent = send_all(server, replica, bytes, timeout);
            Ok(())
        });
        sent?;
        // The replica comes back, and gets a snapshot.
        let has_shown = shown.inspect_err(|_| replication.files_failed.store(true, SeqCst))?;
        if has_shown {
            replica.sent.store(follower.at(), Release);
            heard = Instant::now();
            continue;
        }
        // The feeder gives up nothing meanwhile.
        let reader = replication.feed.reader();
        if follower.at() >= replication.backlog_from.load(Acquire) {
            replica.sent.store(follower.at(), Release);
            replica.is_catching_up.store(false, SeqCst);
            return Ok(());
        }
        drop(reader);
        if replica.is_gone() || replication.has_ended() {
            return Err(io::Error::other("it has gone"));
        }
        if heard.elapsed() > timeout {
            replication.files_failed.store(true, SeqCst);
            return Err(io::Error::other("the log's files end before what is in memory"));
        }
        if learned.elapsed() >= NEW_FILES_PAUSE {
            learned = Instant::now();
            server.durability.show_new_files(&server.config.current(), &mut follower)?;
        }
        thread::sleep(PAUSE);
    }
}
