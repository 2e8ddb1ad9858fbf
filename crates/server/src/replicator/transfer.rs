//! A full resynchronisation: one snapshot, without a fork, straight to the sockets of all replicas that wait and
//! understand the same form.
//!
//! ```text
//! gate closed: cut, offset ─▶ +FULLRESYNC id offset ─▶ $EOF:mark ─ RDB ─ mark ─▶ (ACK) ─▶ stream from the offset
//! ```

use std::{
    io::{self, Write},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dunlin_engine::rdb::Version;
use dunlin_replication::{Framing, Place, SnapshotForm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    config::Config,
    rdb::{CutForm, Destination, thread_for_cut},
    session::replica::ReplicaClient,
    shared::Shared,
    system::host::monotonic_ms,
};

/// How long a look takes whether a socket takes more.
const LOOK: Duration = Duration::from_millis(100);
/// How long a replica that takes nothing may hold up clients that write: the copies of what they change wait for it.
const CONGESTED_TIME_MAX: Duration = Duration::from_millis(300);

/// A snapshot on its way.
pub(super) struct Transfer {
    thread: JoinHandle<()>,
}

impl Transfer {
    /// Begins one for those that wait and understand the form that the first of them does.
    pub(super) fn begin(
        server: &Arc<Shared>,
        mut waiting: Vec<Arc<ReplicaClient>>,
        config: &Config,
    ) -> Option<Self> {
        let kind = |replica: &ReplicaClient| {
            let peer = replica.peer();
            (peer.form(), peer.functions_only)
        };
        let (form, functions_only) = kind(waiting.first()?);
        waiting.retain(|replica| kind(replica) == (form, functions_only));
        let version = match form {
            SnapshotForm::Redis10 => Version::Redis(10),
            SnapshotForm::Redis12 => Version::Redis(12),
            SnapshotForm::Valkey80 | SnapshotForm::Own => Version::Valkey(80),
        };
        let timeout = Duration::from_secs(config.repl_timeout.into());
        let (members, checksum) = (waiting.clone(), config.rdbchecksum);
        let thread = thread_for_cut(server, Destination::Replicas, move |server, cut| {
            let mut mark = [0; 40];
            let mut members = members;
            if let Err(error) = getrandom::fill(&mut mark) {
                let reason = format!("there is no mark for the end of a snapshot: {error}");
                // A snapshot that nobody reads is given up at once.
                members.drain(..).for_each(|replica| replica.cut(&reason));
            }
            mark.iter_mut().for_each(|byte| *byte = b"0123456789abcdef"[usize::from(*byte & 15)]);
            let mut sink = FanOut { server, members, timeout, bytes: 0 };
            let head = sink.write_all(&Framing::Mark(mark).head());
            // Also where nobody is left: it ends the snapshot, or no other could be begun.
            let written = server.write_cut_to(cut, &mut sink, functions_only, checksum);
            let result = head.and(written).and_then(|()| sink.write_all(&mark));
            if let Err(error) = result {
                sink.members.iter().for_each(|replica| replica.cut(&format!("its snapshot failed: {error}")));
                return;
            }
            tracing::info!("A snapshot of {} bytes was sent to {} replicas", sink.bytes, sink.members.len());
            for replica in &sink.members {
                let mut peer = replica.peer();
                peer.end_sending(monotonic_ms());
                if peer.snapshot_only {
                    drop(peer);
                    // It wants nothing else, and sees by the end that there is nothing.
                    replica.cut("it has what it wanted");
                }
            }
        });
        let (thread, order) = match thread {
            Ok(thread) => thread,
            Err(error) => {
                tracing::warn!("no snapshot can be begun for replicas: {error}");
                return None;
            }
        };
        let replication = &server.replication;
        let mut begun = None;
        let cut = server.alone_unless_long(|context| {
            let tail = server.durability.tail();
            let place = replication.place_of(tail);
            let cut = server.cut_for_replicas(context, config, CutForm { version, place })?;
            begun = Some((tail, place));
            Some(cut)
        });
        let (Some(Some(cut)), Some((tail, Place { history, offset, .. }))) = (cut, begun) else {
            return None;
        };
        for replica in &waiting {
            replica.begin_at(tail);
            let line = replica.peer().begin_sending(history.id.as_str(), offset);
            if !line.is_empty() && (&*replica.socket).write(&line).ok() != Some(line.len()) {
                replica.cut("it takes no reply");
            }
        }
        tracing::info!("Full resynchronisation of {} replicas at {offset}", waiting.len());
        order.send(cut).unwrap_or_else(|_| unreachable!("the thread waits for it"));
        Some(Self { thread })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn end(self) {
        if self.thread.join().is_err() {
            tracing::error!("the thread that sends snapshots failed");
        }
    }
}

/// Writes the same to several sockets. One that does not take it for long is left behind.
struct FanOut<'a> {
    server: &'a Shared,
    members: Vec<Arc<ReplicaClient>>,
    timeout: Duration,
    bytes: u64,
}

impl Write for FanOut<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (server, timeout) = (self.server, self.timeout);
        self.members.retain(|replica| {
            let result = send_all(server, replica, bytes, timeout);
            if let Err(error) = &result {
                replica.cut(&error.to_string());
            }
            result.is_ok()
        });
        if self.members.is_empty() {
            return Err(io::Error::other("no replica is left"));
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends all of it, and waits for the socket where need be.
pub(super) fn send_all(
    server: &Shared,
    replica: &ReplicaClient,
    mut bytes: &[u8],
    timeout: Duration,
) -> io::Result<()> {
    let mut stalled: Option<Instant> = None;
    while !bytes.is_empty() {
        if replica.is_gone() || server.replication.has_ended() {
            return Err(io::Error::other("it has gone"));
        }
        match (&*replica.socket).write(bytes) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                stalled = None;
                replica.client.output_bytes_total.add(sent as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let since = *stalled.get_or_insert_with(Instant::now);
                let is_congested = server.engine.keyspace.snapshots().is_congested();
                if since.elapsed() > timeout || is_congested && since.elapsed() > CONGESTED_TIME_MAX {
                    return Err(io::Error::other("it takes its snapshot too slowly"));
                }
                let mut polled = [PollFd::new(&*replica.socket, PollFlags::OUT)];
                let time = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
                poll(&mut polled, Some(&time))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
