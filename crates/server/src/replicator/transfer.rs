//! A full resynchronisation: one snapshot, without a fork, straight to the sockets of all replicas that wait and
//! understand the same form.
//!
//! ```text
//! gate closed: cut, offset ─▶ +FULLRESYNC id offset ─▶ $EOF:mark ─ RDB ─ mark ─▶ (ACK) ─▶ stream from the offset
//!                                                    $FRAMES ─ RDB, stream, RDB, stream … ─▶ the rest of the stream
//! ```
//!
//! Replicas that read frames get the stream beside the snapshot and keep it, so that it does not wait in the ring here.
//! Replicas that know no mark (SYNC of `redis-cli --cluster backup`, and of old replicas) are given the length first:
//! their snapshot is written into a file that has no name, and sent when it is complete.

use std::{
    io::{self, Read, Seek, Write},
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed, Release},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dunlin_engine::rdb::Version;
use dunlin_replication::{Framing, Peer, SnapshotForm, SnapshotFrame, StreamPosition};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::snapshot::spool_file;
use crate::{
    config::Config,
    rdb::{Cut, CutForm, Destination, thread_for_cut},
    session::replica::ReplicaClient,
    shared::Shared,
    system::host::monotonic_ms,
};

/// Bytes of a file that are sent at once.
const SPOOL_BYTES: usize = 64 * 1024;
/// How long a look takes whether a socket takes more.
const LOOK: Duration = Duration::from_millis(100);
/// How long a replica that takes nothing may hold up clients that write: the copies of their changes wait for it.
const CONGESTED_TIME_MAX: Duration = Duration::from_millis(300);

/// Bytes of a frame at most.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of the stream that are worth a frame.
const STREAM_BYTES_MIN: u64 = 32 << 10;
/// Frames of the stream that follow one of the snapshot at most, so that it goes on however much is written.
const STREAM_FRAMES_MAX: usize = 16;

/// How a replica finds the end of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Frames,
    Mark,
    Length,
}

impl Way {
    fn of(peer: &Peer) -> Self {
        match (peer.reads_frames(), peer.reads_eof()) {
            (true, _) => Self::Frames,
            (false, true) => Self::Mark,
            (false, false) => Self::Length,
        }
    }
}

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
            (peer.form(), peer.functions_only, Way::of(&peer))
        };
        let (form, functions_only, way) = kind(waiting.first()?);
        waiting.retain(|replica| kind(replica) == (form, functions_only, way));
        let version = match form {
            SnapshotForm::Redis10 => Version::Redis(10),
            SnapshotForm::Redis12 => Version::Redis(12),
            SnapshotForm::Valkey80 | SnapshotForm::Own => Version::Valkey(80),
        };
        let timeout = Duration::from_secs(config.repl_timeout.into());
        let (members, checksum, folder) = (waiting.clone(), config.rdbchecksum, config.dir.clone());
        let thread = thread_for_cut(server, Destination::Replicas, move |server, cut| {
            // The members have the offset of the cut.
            let streamed = members.first().map_or(0, |replica| replica.sent.load(Acquire));
            let in_frames = way == Way::Frames;
            let mut sink =
                FanOut { server, members, timeout, bytes: 0, in_frames, streamed, frame: Vec::new() };
            let snapshot = Snapshot { cut, functions_only, checksum };
            let result = match way {
                Way::Frames => snapshot.send_framed(&mut sink, &Framing::Frames, &SnapshotFrame::End.head(0)),
                Way::Mark => snapshot.send_with_mark(&mut sink),
                Way::Length => snapshot.send_with_length(&mut sink, &folder),
            };
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
                    // The replica wants nothing else, and sees by the end that there is nothing.
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
        let (Some(Some(cut)), Some((tail, StreamPosition { history, offset, .. }))) = (cut, begun) else {
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

/// A snapshot that is to be sent.
struct Snapshot {
    cut: Cut,
    functions_only: bool,
    checksum: bool,
}

impl Snapshot {
    /// Sends it while it is being made, between a head and an end.
    fn send_framed(self, sink: &mut FanOut<'_>, framing: &Framing, end: &[u8]) -> io::Result<()> {
        let head = sink.send(&framing.head());
        // Also if no replica is left: writing ends the snapshot, or no other could be begun.
        let written = sink.server.write_cut_to(self.cut, sink, self.functions_only, self.checksum);
        head.and(written).and_then(|()| sink.send(end))
    }

    fn send_with_mark(self, sink: &mut FanOut<'_>) -> io::Result<()> {
        let mut mark = [0; 40];
        if let Err(error) = getrandom::fill(&mut mark) {
            return self.give_up(sink, &format!("there is no mark for the end of a snapshot: {error}"));
        }
        mark.iter_mut().for_each(|byte| *byte = b"0123456789abcdef"[usize::from(*byte & 15)]);
        self.send_framed(sink, &Framing::Mark(mark), &mark)
    }

    /// Sends it when it is complete.
    fn send_with_length(self, sink: &mut FanOut<'_>, folder: &Path) -> io::Result<()> {
        let mut file = match spool_file(folder) {
            Ok(file) => file,
            Err(error) => return self.give_up(sink, &format!("{}: {error}", folder.display())),
        };
        sink.server.write_cut_to(self.cut, &mut file, self.functions_only, self.checksum)?;
        let length = file.stream_position()?;
        file.rewind()?;
        sink.send(&Framing::Size(length).head())?;
        let mut bytes = vec![0; SPOOL_BYTES];
        loop {
            match file.read(&mut bytes)? {
                0 => return Ok(()),
                count => sink.write_all(&bytes[..count])?,
            }
        }
    }

    /// Ends a snapshot that cannot be sent, or no other could be begun: a snapshot without readers is given up at once.
    fn give_up(self, sink: &mut FanOut<'_>, reason: &str) -> io::Result<()> {
        sink.members.drain(..).for_each(|replica| replica.cut(reason));
        sink.server.write_cut_to(self.cut, sink, self.functions_only, self.checksum)
    }
}

/// Writes the same to several sockets. A socket that takes nothing for long is left behind.
struct FanOut<'a> {
    server: &'a Shared,
    members: Vec<Arc<ReplicaClient>>,
    timeout: Duration,
    /// Bytes of the snapshot that were sent.
    bytes: u64,
    in_frames: bool,
    /// The ring's offset behind what was sent of the stream in frames.
    streamed: u64,
    /// The frame at hand.
    frame: Vec<u8>,
}

impl FanOut<'_> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
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
        Ok(())
    }

    fn send_frame(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(&SnapshotFrame::Snapshot.head(bytes.len() as u32));
        frame.extend_from_slice(bytes);
        let sent = self.send(&frame);
        self.frame = frame;
        sent?;
        for _ in 0..STREAM_FRAMES_MAX {
            if !self.send_stream()? {
                break;
            }
        }
        Ok(())
    }

    /// Sends what was recorded meanwhile, if that is much. Returns whether it was. The ring is held for the members
    /// from `streamed` on.
    fn send_stream(&mut self) -> io::Result<bool> {
        let mut frame = std::mem::take(&mut self.frame);
        let replication = &self.server.replication;
        let to = {
            let mut reader = replication.feed.reader();
            let Some(reader) = reader.as_mut() else { return Ok(false) };
            let to = reader.published().min(self.streamed + FRAME_BYTES_MAX as u64);
            // Another stream has begun, and the links are cut.
            let is_over = !replication.has_backlog.load(Acquire)
                || replication.backlog_from.load(Acquire) > self.streamed
                || self.members.iter().any(|replica| replica.is_gone());
            if is_over || to < self.streamed + STREAM_BYTES_MIN {
                self.frame = frame;
                return Ok(false);
            }
            frame.clear();
            frame.extend_from_slice(&SnapshotFrame::Stream.head((to - self.streamed) as u32));
            reader.read(self.streamed, to, |part| frame.extend_from_slice(part));
            to
        };
        let sent = self.send(&frame);
        self.frame = frame;
        sent?;
        self.streamed = to;
        self.members.iter().for_each(|replica| replica.sent.store(to, Release));
        Ok(true)
    }
}

impl Write for FanOut<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.in_frames {
            true => bytes.chunks(FRAME_BYTES_MAX).try_for_each(|piece| self.send_frame(piece))?,
            false => self.send(bytes)?,
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
                server.stats.links.to_replicas.fetch_add(sent as u64, Relaxed);
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
