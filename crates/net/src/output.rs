//! Replies that a socket has not taken yet.
//!
//! ```text
//! queue   [sent|waiting] [waiting] … [waiting]
//! ```
//!
//! Chunks are shared: a large value waits here by reference, however many clients it goes to.
//!
//! Invariants: no chunk is empty; `sent` is below the length of the first chunk, and 0 when there
//! is none; `bytes` is the sum of the waiting bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use dunlin_resp::{ReplyBuffer, ReplyChunk};

use super::stream::{Sent, Stream};

/// Slices of one vectored write.
pub(crate) const SLICES_MAX: usize = 64;
/// Small replies are gathered in chunks of up to this many bytes.
const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// Bytes offered to a socket at once. The socket copies what it takes there and then, on the loopback up to the
/// reader's buffers: 6 MB and 2 to 3 ms, in which the worker's other clients wait.
pub(crate) const OFFERED_BYTES_MAX: usize = 512 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Output {
    queue: VecDeque<ReplyChunk>,
    sent: usize,
    bytes: usize,
}

impl Output {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes that wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Chunks that wait.
    #[inline]
    pub(crate) fn chunks(&self) -> usize {
        self.queue.len()
    }

    /// Queues `reply` behind the waiting bytes, except for its first `sent` bytes, which have left
    /// already; then nothing else may be waiting. Leaves `reply` empty.
    pub(crate) fn push(&mut self, reply: &mut ReplyBuffer, sent: usize) {
        debug_assert!(sent == 0 || self.is_empty());
        if reply.is_contiguous() && reply.bytes().len() - sent <= GATHERED_BYTES_MAX {
            self.gather(&reply.bytes()[sent..]);
            reply.clear(usize::MAX);
        } else {
            self.bytes += reply.len() - sent;
            self.queue.extend(reply.take_chunks());
            self.skip_sent(sent);
        }
    }

    /// Queues all bytes that wait elsewhere, of which none has left yet, behind those that wait here.
    pub(crate) fn append(&mut self, other: Output) {
        debug_assert_eq!(other.sent, 0);
        self.bytes += other.bytes;
        self.queue.extend(other.queue);
    }

    /// Queues bytes that may go to other clients too: copied if they are few.
    #[inline]
    pub(crate) fn push_shared(&mut self, bytes: &Arc<Vec<u8>>) {
        if bytes.len() < ReplyBuffer::SPLICE_BYTES_MIN {
            self.gather(bytes);
        } else {
            self.bytes += bytes.len();
            self.queue.push_back(ReplyChunk::Shared(Arc::clone(bytes).into()));
        }
    }

    /// Queues bytes of which the first `sent` have left already; then nothing else may be waiting.
    pub(crate) fn push_rest(&mut self, bytes: &Arc<Vec<u8>>, sent: usize) {
        debug_assert!(self.is_empty() && sent < bytes.len());
        self.bytes += bytes.len() - sent;
        self.queue.push_back(ReplyChunk::Shared(Arc::clone(bytes).into()));
        self.sent = sent;
    }

    /// Queues a copy of bytes behind the waiting ones.
    pub(crate) fn gather(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        if let Some(ReplyChunk::Own(last)) = self.queue.back_mut()
            && last.len() + bytes.len() <= GATHERED_BYTES_MAX
        {
            last.extend_from_slice(bytes);
        } else {
            self.queue.push_back(ReplyChunk::Own(bytes.to_vec()));
        }
    }

    /// A copy of all that waits.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes + self.sent);
        self.queue.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        bytes.split_off(self.sent)
    }

    /// Offers what waits to the socket, once, up to [`OFFERED_BYTES_MAX`].
    pub(crate) fn flush(&mut self, stream: &Stream) -> io::Result<Sent> {
        if self.queue.is_empty() {
            // Records of what was taken before may wait.
            return Ok(Sent { bytes: 0, is_full: !stream.flush()? });
        }
        // A single run of bytes, the usual case, needs no list of them.
        if self.queue.len() == 1 {
            let only = &self.queue[0];
            let offered = (only.len() - self.sent).min(OFFERED_BYTES_MAX);
            let sent = stream.send(&only[self.sent..][..offered])?;
            self.bytes -= sent.bytes;
            self.skip_sent(sent.bytes);
            return Ok(sent);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut offered, mut skip) = (0, 0, self.sent);
        for chunk in self.queue.iter().take(SLICES_MAX) {
            let length = (chunk.len() - skip).min(OFFERED_BYTES_MAX - offered);
            slices[count] = IoSlice::new(&chunk[skip..][..length]);
            offered += length;
            (count, skip) = (count + 1, 0);
            if offered == OFFERED_BYTES_MAX {
                break;
            }
        }
        let sent = stream.send_slices(&slices[..count])?;
        self.bytes -= sent.bytes;
        self.skip_sent(sent.bytes);
        Ok(sent)
    }

    fn skip_sent(&mut self, count: usize) {
        self.sent += count;
        while let Some(first) = self.queue.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            // The queue of a client that was slow once is not kept for its lifetime.
            debug_assert_eq!((self.sent, self.bytes), (0, 0));
            self.queue = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn output_offers_the_socket_a_limited_piece_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = Stream::plain(ours.into());
        let mut output = Output::default();
        output.push_shared(&Arc::new(vec![1; 16 << 20]));
        let taken = output.flush(&ours).unwrap().bytes;
        assert!((1..=OFFERED_BYTES_MAX).contains(&taken), "{taken}");

        // This takes all that it is offered.
        let null = File::options().write(true).open("/dev/null").unwrap();
        let null = Stream::plain(OwnedFd::from(null).into());
        let all = Sent { bytes: OFFERED_BYTES_MAX, is_full: false };
        for length in [OFFERED_BYTES_MAX / 4, OFFERED_BYTES_MAX / 3, 3 * OFFERED_BYTES_MAX] {
            let mut output = Output::default();
            for _ in 0..8 {
                output.push_shared(&Arc::new(vec![1; length]));
            }
            assert_eq!(output.flush(&null).unwrap(), all, "not full, and not empty");
            assert_eq!(output.flush(&null).unwrap(), all);
            assert_eq!(output.len(), 8 * length - 2 * OFFERED_BYTES_MAX);
        }
    }

    /// Replies of every shape, queued with any part already sent, arrive whole however little the
    /// socket takes at a time.
    #[test]
    fn output_sends_every_byte_once_and_in_order() {
        let large = Arc::new((0..40_000_u32).map(|number| number as u8).collect::<Vec<u8>>());
        let write_reply = |reply: &mut ReplyBuffer| {
            reply.ok();
            reply.bulk_shared(&large);
            reply.integer(7);
            reply.bulk_shared(&large);
        };
        let mut whole = ReplyBuffer::default();
        write_reply(&mut whole);
        let whole: Vec<u8> = whole.chunks().flatten().copied().collect();
        for sent in [0, 1, 5, 6, 100, 40_000, 40_013, 40_014, 40_020, whole.len() - 1] {
            let mut output = Output::default();
            let mut reply = ReplyBuffer::default();
            write_reply(&mut reply);
            output.push(&mut reply, sent);
            assert!(reply.is_empty());
            assert_eq!(output.len(), whole.len() - sent);
            reply.ok();
            output.push(&mut reply, 0);
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            socket2::SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
            let ours = Stream::plain(OwnedFd::from(ours).into());
            let mut received = whole[..sent].to_vec();
            let mut piece = vec![0; 3001];
            while !output.is_empty() {
                output.flush(&ours).unwrap();
                let count = theirs.read(&mut piece).unwrap();
                received.extend_from_slice(&piece[..count]);
            }
            assert_eq!(output.len(), 0);
            drop(ours);
            theirs.read_to_end(&mut received).unwrap();
            assert_eq!(received, [&whole[..], b"+OK\r\n"].concat(), "{sent} bytes had been sent");
        }
    }

    #[test]
    fn small_replies_share_a_chunk() {
        let mut output = Output::default();
        for _ in 0..1000 {
            let mut reply = ReplyBuffer::default();
            reply.ok();
            output.push(&mut reply, 0);
        }
        assert_eq!((output.len(), output.chunks()), (5000, 1));
    }
}
