//! A connection: receive, serve, send.
//!
//! ```text
//!            readable                       backlog
//!  socket ────────────▶ shared or own ───────────────▶ service
//!                       input                            │ reply
//!            writable                                    ▼
//!  socket ◀──────────── output (only what the socket did not take at once)
//! ```
//!
//! A long argument is read into a block of its own ([`Service::arriving`]), so that it need not be copied to be kept.
//!
//! A connection is *serving* unless it is
//! - *stalled*: more than [`STALLED_BYTES_MIN`] of replies wait for the client, until most have left;
//! - *parked*: its service waits for a message or a deadline;
//! - *closing*: nothing more is served, the rest of the replies leaves.
//!
//! If a client is sent *pushes*, too, any worker writes them ([`ClientPushes`](super::ClientPushes)) while the
//! connection has nothing to send and no request is being served. Otherwise they wait, and leave with the next
//! bytes that are sent.
//!
//! Replies may be *withheld* until the service releases them ([`Withheld`]); whatever is said after them
//! waits behind them, and the connection is served on.
//!
//! While stalled or parked, input is still received, up to [`HELD_BYTES_MAX`]: a client that writes
//! its whole pipeline before it reads the first reply must not wait for us while we wait for it.
//!
//! A *stranger*, a client that has not authenticated, has less of everything. Its input is read in
//! pieces of [`STRANGER_INPUT_BYTES_MAX`] and held up to about as much, and it is closed if it leaves
//! more than [`STRANGER_OUTPUT_BYTES_MAX`] of replies unread.
//!
//! Invariants:
//! - `readable` stays set until a read has come back short, and `writable` until a write has: the
//!   poller reports edges only.
//! - `backlog` is set when held input may contain a complete request.
//! - The poller watches for writability exactly while output waits.
//! - The code that holds its pushes back gives it another turn: from its turn's beginning, from a message or a
//!   deadline, or while something of its own waits to be sent.

mod lent;
mod receive;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_certificates::refusal;
use dunlin_resp::ReplyBuffer;
use mio::unix::SourceFd;
use mio::{Interest, Token};

use self::lent::LentBuffers;
pub use self::lent::SHARED_BYTES;
use super::input::Input;
use super::output::Output;
use super::service::{SeenReplies, SeenReply};
use super::stream::Stream;
use super::withheld::{Commitment, Withheld};
use super::{Client, EventLoop, Next, Served, Service};

/// Above this much waiting output a connection is not served; half of it, and it is again.
const STALLED_BYTES_MIN: usize = 1024 * 1024;
/// Input that is read for a stranger at once, and held if it is not served.
const STRANGER_INPUT_BYTES_MAX: usize = 16 * 1024;
/// Above this many bytes of replies that a stranger does not read, it is closed.
const STRANGER_OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// How long a stranger may stay while others cannot connect.
pub const STRANGER_AGE_MAX: Duration = Duration::from_secs(10);
/// How long the handshake of TLS may take.
const HANDSHAKE_AGE_MAX: Duration = Duration::from_secs(10);
/// Reply memory that a worker keeps between requests.
pub(crate) const REPLY_CAPACITY_MAX: usize = 1024 * 1024;

/// Tools of a worker that the connection whose turn it is borrows.
pub(crate) struct Scratch<'s, S> {
    pub(crate) service: &'s mut S,
    /// Input of the connection whose turn it is, unless it needs a buffer of its own.
    buffers: LentBuffers,
    pub(crate) reply: ReplyBuffer,
}

impl<'s, S> Scratch<'s, S> {
    pub(crate) fn new(service: &'s mut S) -> Self {
        Self { service, buffers: LentBuffers::new(), reply: ReplyBuffer::default() }
    }
}

/// The cost of a connection before anything has arrived: its own record and its client's, in bytes,
/// for a service whose sessions are `T`.
pub const fn connection_bytes<T>() -> usize {
    size_of::<Connection<T>>() + size_of::<Client>()
}

/// How a connection leaves its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum TurnEnd {
    /// The poller, a message or a deadline will bring it back.
    Wait,
    /// There is more to do right away; others first.
    Again,
    /// The connection is over.
    Close,
}

#[derive(Debug)]
pub(crate) struct Connection<T> {
    pub(crate) client: Arc<Client>,
    pub(crate) session: T,
    /// No request so far came from an authenticated client.
    stranger: bool,
    /// Whether the worker has it on its list for the next tick.
    pub(crate) queued: bool,
    /// Whether the worker has it on its list of those that messages has something to say to.
    pub(crate) addressed: bool,
    stream: Arc<Stream>,
    /// The handshake of TLS is under way.
    is_handshaking: bool,
    input: Input,
    /// Bytes of the request at hand that the service keeps.
    detached_bytes: usize,
    /// Bytes that the request at hand still needs, as far as known.
    wanted: usize,
    output: Output,
    withheld: Withheld,
    /// The worker has a reply of it that leaves soon; nothing overtakes it.
    departing: bool,
    readable: bool,
    writable: bool,
    /// The poller has seen the peer's end of stream; a short read does not mean drained then.
    hung_up: bool,
    /// The peer's end of stream has been read.
    ended: bool,
    backlog: bool,
    stalled: bool,
    closing: bool,
    watching_writable: bool,
    parked: Option<Parked>,
    /// The time since which the soft limit of output is exceeded.
    over_soft_limit: Option<Instant>,
    /// Whether others do not write pushes.
    holds_pushes: bool,
    /// Whether pushes have the socket that it takes to write them.
    has_writer: bool,
}

#[derive(Debug, Clone, Copy)]
struct Parked {
    until: Option<Instant>,
    /// Whether the reply is being made, which a peer may wait for that sends nothing more.
    is_answered: bool,
}

impl<T> Connection<T> {
    /// Registers the socket with the poller.
    pub(crate) fn new<S: Service<Session = T>>(
        stream: Stream,
        client: Arc<Client>,
        service: &mut S,
        event_loop: &EventLoop<S>,
    ) -> io::Result<Self> {
        let token = Token(client.address.slot as usize);
        event_loop.poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), token, Interest::READABLE)?;
        let session = service.open(&client);
        let stream = Arc::new(stream);
        let _ = client.stream.set(Arc::downgrade(&stream));
        Ok(Self {
            stranger: service.is_stranger(&session),
            session,
            client,
            queued: false,
            addressed: false,
            is_handshaking: stream.is_tls(),
            stream,
            input: Input::default(),
            detached_bytes: 0,
            wanted: 0,
            output: Output::default(),
            withheld: Withheld::default(),
            departing: false,
            readable: false,
            writable: true,
            hung_up: false,
            ended: false,
            backlog: false,
            stalled: false,
            closing: false,
            watching_writable: false,
            parked: None,
            over_soft_limit: None,
            holds_pushes: true,
            has_writer: false,
        })
    }

    /// Notes what the poller has seen. `false`: the peer is gone.
    pub(crate) fn note_readiness(&mut self, event: &mio::event::Event) -> bool {
        self.hung_up |= event.is_read_closed();
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        match self.parked {
            None => true,
            // A client that has ended its own side only reads what is being made for it.
            Some(Parked { is_answered: true, .. }) => !event.is_write_closed(),
            // A client that waits for others is gone when it has hung up.
            Some(_) => !self.hung_up,
        }
    }

    /// Supposes that there is input and that the peer reads: this connection does not know yet what the poller has
    /// seen last.
    pub(crate) fn suppose_ready(&mut self) {
        (self.readable, self.writable) = (true, true);
    }

    /// Receives, serves and sends what can be, each at most once.
    pub(crate) fn turn<S: Service<Session = T>>(
        &mut self,
        scratch: &mut Scratch<'_, S>,
        event_loop: &mut EventLoop<S>,
    ) -> TurnEnd {
        let outcome = self.try_turn(scratch, event_loop).unwrap_or_else(|error| {
            tracing::debug!("{}: {error}", self.client);
            if self.is_handshaking {
                self.note_failed_handshake(event_loop, &error);
            }
            TurnEnd::Close
        });
        if outcome == TurnEnd::Close {
            // Bytes that could not be sent must not reach another client.
            scratch.reply.clear(REPLY_CAPACITY_MAX);
        }
        debug_assert!(scratch.reply.is_empty(), "a reply stays with its connection");
        outcome
    }

    fn try_turn<S: Service<Session = T>>(
        &mut self,
        scratch: &mut Scratch<'_, S>,
        event_loop: &mut EventLoop<S>,
    ) -> io::Result<TurnEnd> {
        if let Some(pushes) = self.client.pushes.get() {
            let is_open = !self.holds_pushes && !pushes.queue.has_pushes() && !self.stream.has_unsent();
            if !is_open {
                self.begin_pushed_turn(&*scratch.service, event_loop)?;
            }
        } else if self.has_output() && self.writable {
            self.flush(event_loop)?;
        }
        if self.is_handshaking && self.readable && !event_loop.handshakes.may_step() {
            return Ok(TurnEnd::Again);
        }
        let serving = self.is_serving();
        if !self.closing && self.receive(scratch, event_loop, serving)? == TurnEnd::Close {
            return Ok(TurnEnd::Close);
        }
        let outcome = self.settle(event_loop);
        if self.client.pushes.get().is_some() && self.holds_pushes && !self.has_output() {
            self.release_pushes(scratch.service.owes_reply(&self.session), event_loop)?;
        }
        Ok(outcome)
    }

    /// Sends what waits, pushes that others have left to the owner included.
    fn begin_pushed_turn<S: Service<Session = T>>(
        &mut self,
        service: &S,
        event_loop: &EventLoop<S>,
    ) -> io::Result<()> {
        // Others may have found the socket full.
        self.hold_pushes(service);
        if self.has_output() && self.writable {
            self.release_pushes(service.owes_reply(&self.session), event_loop)?;
        }
        Ok(())
    }

    /// Keeps other workers from writing pushes, and queues those that come before the next reply.
    #[inline]
    fn hold_pushes<S: Service<Session = T>>(&mut self, service: &S) {
        if let Some(pushes) = self.client.pushes.get() {
            self.holds_pushes = true;
            let (withheld, output) = (&mut self.withheld, &mut self.output);
            let is_met = |commitment: Commitment| service.released(commitment.level) >= commitment.mark;
            pushes.hold(is_met, |push| {
                let (bytes, sent) = push.into_bytes();
                if sent > 0 {
                    output.push_rest(&bytes, sent);
                } else if !withheld.push_shared(&bytes) {
                    output.push_shared(&bytes);
                }
            });
        }
    }

    /// Sends what waits, and lets others write pushes behind it if that is all there is.
    fn release_pushes<S: Service<Session = T>>(
        &mut self,
        owes_reply: bool,
        event_loop: &EventLoop<S>,
    ) -> io::Result<()> {
        if owes_reply || self.closing || self.departing || !self.withheld.is_empty() {
            return if self.has_output() { self.flush(event_loop) } else { Ok(()) };
        }
        event_loop.send_pushes();
        let client = Arc::clone(&self.client);
        let Some(pushes) = client.pushes.get() else { return Ok(()) };
        if !std::mem::replace(&mut self.has_writer, true) {
            pushes.queue.set_writer(Arc::clone(&self.stream));
        }
        let mut result = Ok(());
        pushes.queue.release(|is_pending| {
            if is_pending {
                event_loop.shared.queues.note_pending(&client);
            }
            if self.has_output() {
                result = self.flush_output(event_loop);
            }
            self.holds_pushes = self.has_output();
            !self.holds_pushes
        });
        result
    }

    /// Whether replies wait for the socket, or records of those that it has taken.
    #[inline]
    fn has_output(&self) -> bool {
        !self.output.is_empty() || self.stream.has_unsent()
    }

    fn is_serving(&self) -> bool {
        !self.closing && !self.stalled && self.parked.is_none()
    }

    /// Counts a handshake that has failed, and tells operators if they can do something about it.
    #[cold]
    fn note_failed_handshake<S: Service<Session = T>>(
        &self,
        event_loop: &mut EventLoop<S>,
        error: &io::Error,
    ) {
        event_loop.traffic().handshakes_failed.add(1);
        let Some(reason) = refusal(error) else { return };
        match event_loop.handshakes.may_log(event_loop.now.instant) {
            Some(0) => tracing::warn!("TLS: closing {}: {reason}", self.client),
            Some(unlogged) => tracing::warn!(
                "TLS: closing {}: {reason} ({unlogged} more were closed without a line)",
                self.client
            ),
            None => {}
        }
    }

    /// Whether the handshake of TLS is under way.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    /// Lets the service take requests off the input, and sends its reply. The input is `lent`, or the connection's own.
    fn serve<S: Service<Session = T>>(
        &mut self,
        service: &mut S,
        reply: &mut ReplyBuffer,
        event_loop: &mut EventLoop<S>,
        lent: Option<&[u8]>,
    ) -> io::Result<TurnEnd> {
        self.hold_pushes(&*service);
        let input = lent.unwrap_or_else(|| self.input.held());
        if input.is_empty() {
            self.backlog = false;
            return Ok(TurnEnd::Wait);
        }
        let was_stranger = service.is_stranger(&self.session);
        let begun = event_loop.stages.now();
        let loan = event_loop.lend();
        let Served { consumed, next, wanted, detached } =
            service.serve(&mut self.session, input, reply, loan);
        assert!(consumed + detached <= input.len(), "a service consumes what it was given");
        event_loop.note_served(begun);
        event_loop.pending_writes.note_served(consumed);
        let rest = consumed..input.len() - detached;
        match lent {
            None => {
                self.input.consume(consumed);
                self.input.detach(detached);
            }
            Some(lent) if !rest.is_empty() => self.input.hold(&lent[rest]),
            Some(_) => {}
        }
        self.detached_bytes = service.detached_bytes(&self.session);
        self.stranger = was_stranger && service.is_stranger(&self.session);
        self.wanted = wanted;
        self.backlog = false;
        if !self.apply(next) {
            return Ok(TurnEnd::Close);
        }
        let withheld_to = service.withhold_to();
        if self.client.pushes.get().is_some() {
            let pushed_to = service.take_pushed_to();
            pushed_to.into_iter().for_each(|commitment| self.withheld.bar(commitment));
        }
        if withheld_to.mark > 0 || !self.withheld.is_empty() {
            self.withhold(service, reply, withheld_to);
        } else if self.client.pushes.get().is_none() {
            self.send(reply, event_loop)?;
        } else if !self.output.is_empty() || !reply.is_empty() {
            self.output.push(reply, 0);
            reply.clear(REPLY_CAPACITY_MAX);
            if self.writable {
                self.release_pushes(service.owes_reply(&self.session), event_loop)?;
            }
        }
        Ok(if self.exceeds_query_buffer(event_loop) { TurnEnd::Close } else { TurnEnd::Wait })
    }

    /// Withholds replies that have been served, but for those in front that may leave.
    #[cold]
    fn withhold<S: Service<Session = T>>(
        &mut self,
        service: &mut S,
        reply: &mut ReplyBuffer,
        withheld_to: Commitment,
    ) {
        let SeenReplies { leaving, mut waiting } = service.take_seen();
        if let Some(end) = leaving {
            let mut rest = reply.split_off(end);
            if self.withheld.is_empty() {
                self.output.push(reply, 0);
            } else {
                waiting.insert(0, SeenReply { bytes: reply.len(), mark: 0 });
            }
            reply.append(&mut rest);
        }
        self.withheld.push(withheld_to, reply, &waiting);
        reply.clear(REPLY_CAPACITY_MAX);
    }

    /// Follows the service's word. `false`: close now.
    fn apply(&mut self, next: Next) -> bool {
        self.parked = None;
        match next {
            // Requests held back while parked are a backlog already.
            Next::Read => {}
            Next::Again => self.backlog = true,
            Next::Park { until } => {
                self.backlog = true;
                self.parked = Some(Parked { until, is_answered: false });
            }
            Next::Await => {
                self.backlog = true;
                self.parked = Some(Parked { until: None, is_answered: true });
            }
            Next::CloseAfterReply => self.closing = true,
            Next::CloseNow => return false,
        }
        true
    }

    /// Lets the worker's reply buffer leave with the replies of others, or sends it if it is large; what the socket
    /// does not take is queued.
    fn send<S: Service<Session = T>>(
        &mut self,
        reply: &mut ReplyBuffer,
        event_loop: &mut EventLoop<S>,
    ) -> io::Result<()> {
        if reply.is_empty() {
            return Ok(());
        }
        if !self.output.is_empty() || !self.writable {
            self.output.push(reply, 0);
        } else if reply.is_contiguous() && event_loop.pending_writes.has_room(reply.len()) {
            event_loop.pending_writes.push(self.client.address, reply);
            self.departing = true;
        } else if reply.is_contiguous() {
            event_loop.send_pushes();
            let begun = event_loop.stages.now();
            let sent = self.stream.send(reply.bytes())?;
            event_loop.note_written(begun);
            self.count_sent(event_loop, sent.bytes);
            self.writable = !sent.is_full;
            if sent.bytes < reply.bytes().len() {
                self.output.push(reply, sent.bytes);
            }
        } else {
            self.output.push(reply, 0);
            self.flush(event_loop)?;
        }
        reply.clear(REPLY_CAPACITY_MAX);
        Ok(())
    }

    /// Whether the worker has a reply of it that leaves soon.
    #[inline]
    pub(crate) fn is_departing(&self) -> bool {
        self.departing
    }

    /// Sends the reply that the worker has gathered with those of others. Returns whether a turn is needed soon.
    pub(crate) fn depart<S: Service<Session = T>>(
        &mut self,
        reply: &[u8],
        event_loop: &EventLoop<S>,
    ) -> bool {
        debug_assert!(self.departing && self.output.is_empty(), "nothing overtakes a reply");
        self.departing = false;
        let mut has_output = false;
        let begun = event_loop.stages.now();
        match self.stream.send(reply) {
            Ok(sent) => {
                event_loop.note_written(begun);
                self.count_sent(event_loop, sent.bytes);
                if sent.is_full || sent.bytes < reply.len() {
                    self.writable = !sent.is_full;
                    self.output.gather(&reply[sent.bytes..]);
                    has_output = true;
                }
            }
            Err(error) => {
                tracing::debug!("{}: {error}", self.client);
                self.closing = true;
            }
        }
        self.closing || has_output
    }

    /// Offers waiting output to the socket once.
    fn flush<S: Service<Session = T>>(&mut self, event_loop: &EventLoop<S>) -> io::Result<()> {
        event_loop.send_pushes();
        self.flush_output(event_loop)
    }

    fn flush_output<S: Service<Session = T>>(&mut self, event_loop: &EventLoop<S>) -> io::Result<()> {
        let begun = event_loop.stages.now();
        let sent = self.output.flush(&self.stream)?;
        event_loop.note_written(begun);
        self.writable = !sent.is_full;
        self.count_sent(event_loop, sent.bytes);
        Ok(())
    }

    fn count_sent<S: Service<Session = T>>(&self, event_loop: &EventLoop<S>, count: usize) {
        self.client.output_bytes_total.add(count as u64);
        event_loop.traffic().output_bytes.add(count as u64);
        event_loop.traffic().writes.add(1);
    }

    /// The commitments of replies that were withheld since this was last asked, for the worker to watch.
    #[inline]
    pub(crate) fn newly_withheld(&mut self) -> Vec<Commitment> {
        self.withheld.take_news()
    }

    /// Lets the replies go whose commitments are met; the next turn sends them.
    pub(crate) fn release(&mut self, is_met: impl Fn(Commitment) -> bool) {
        self.withheld.release(is_met, &mut self.output);
    }

    /// Makes replies that wait for a level leave as errors; the next turn sends them. `false`: close now.
    pub(crate) fn refuse<S: Service<Session = T>>(&mut self, service: &S, level: u8, error: &[u8]) -> bool {
        self.withheld.refuse(level, service.released(level), error)
    }

    /// Queues a reply for the next turn, behind all others.
    fn queue(&mut self, withheld_to: Commitment, reply: &mut ReplyBuffer) {
        if withheld_to.mark == 0 && self.withheld.is_empty() {
            self.output.push(reply, 0);
        } else {
            self.withheld.push_one(withheld_to, reply);
        }
    }

    /// Bytes of replies that have not left.
    fn waiting_bytes(&self) -> usize {
        self.output.len() + self.withheld.len()
    }

    /// Bytes of pushes that wait behind them, and whether there were too many.
    fn waiting_pushes(&self) -> (usize, bool) {
        self.client.pushes.get().map_or((0, false), |pushes| (pushes.bytes(), pushes.has_overflowed()))
    }

    /// Draws the conclusions at the end of a turn.
    fn settle<S: Service<Session = T>>(&mut self, event_loop: &EventLoop<S>) -> TurnEnd {
        if self.ended {
            if self.parked.is_some_and(|parked| !parked.is_answered) {
                return TurnEnd::Close;
            }
            self.closing |= !self.backlog;
        }
        let has_output = self.has_output();
        if self.closing && !has_output && self.withheld.is_empty() && !self.departing {
            return TurnEnd::Close;
        }
        if self.stranger && self.waiting_bytes() > STRANGER_OUTPUT_BYTES_MAX {
            tracing::warn!(
                "closing {}: it has not authenticated, and does not read its replies",
                self.client
            );
            event_loop.traffic().output_buffer_disconnections.add(1);
            return TurnEnd::Close;
        }
        let threshold = if self.stalled { STALLED_BYTES_MIN / 2 } else { STALLED_BYTES_MIN };
        self.stalled = self.waiting_bytes() > threshold;
        if self.exceeds_output_limit(event_loop) {
            return TurnEnd::Close;
        }
        if self.watching_writable != has_output && self.watch_writable(event_loop, has_output).is_err() {
            return TurnEnd::Close;
        }
        self.client.query_buffer_bytes.set((self.input.len() + self.detached_bytes) as u64);
        self.client.query_buffer_free_bytes.set(self.input.unused_bytes() as u64);
        self.client.output_chunks.set(self.output.chunks() as u64);
        self.client.output_bytes.set(self.waiting_bytes() as u64);
        let serving = self.is_serving();
        let more = (serving && self.backlog)
            || self.wants_input(event_loop, serving)
            || (has_output && self.writable);
        if more { TurnEnd::Again } else { TurnEnd::Wait }
    }

    fn watch_writable<S: Service<Session = T>>(
        &mut self,
        event_loop: &EventLoop<S>,
        has_output: bool,
    ) -> io::Result<()> {
        self.watching_writable = has_output;
        let interest =
            if self.watching_writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let token = Token(self.client.address.slot as usize);
        event_loop.poll.registry().reregister(&mut SourceFd(&self.stream.as_raw_fd()), token, interest)
    }

    fn exceeds_output_limit<S: Service<Session = T>>(&mut self, event_loop: &EventLoop<S>) -> bool {
        let (pushed, has_overflowed) = self.waiting_pushes();
        let waiting = (self.waiting_bytes() + pushed) as u64;
        let limit = &event_loop.limits.output[self.client.output_class() as usize];
        let over_hard = has_overflowed || limit.is_over_hard(waiting);
        self.over_soft_limit = (limit.soft_bytes > 0 && waiting > limit.soft_bytes)
            .then(|| self.over_soft_limit.unwrap_or(event_loop.now.instant));
        let over_soft = self
            .over_soft_limit
            .is_some_and(|since| event_loop.now.instant.duration_since(since) >= limit.soft_duration);
        if over_hard || over_soft {
            tracing::warn!(
                "closing {}: {waiting} bytes of replies that it does not read exceed client-output-buffer-limit",
                self.client
            );
            event_loop.traffic().output_buffer_disconnections.add(1);
        }
        over_hard || over_soft
    }

    /// Hands a message to the service. Its answer leaves in the next turn, together with the
    /// answers to further messages. `false`: close now.
    pub(crate) fn deliver<S: Service<Session = T>>(
        &mut self,
        scratch: &mut Scratch<'_, S>,
        message: S::Message,
    ) -> bool {
        if self.closing {
            return true;
        }
        self.hold_pushes(&*scratch.service);
        let next = scratch.service.deliver(&mut self.session, message, &mut scratch.reply);
        self.queue(scratch.service.withhold_to(), &mut scratch.reply);
        next.is_none_or(|next| self.apply(next))
    }

    /// Notes that the next turn has something to send.
    #[inline]
    pub(crate) fn address(&mut self, addressed: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.addressed, true) {
            addressed.push(self.client.address.slot);
        }
    }

    /// When a parked connection is to be resumed.
    pub(crate) fn parked_until(&self) -> Option<Instant> {
        self.parked.and_then(|parked| parked.until)
    }

    /// Tells the service that the deadline has passed. `false`: close now.
    pub(crate) fn resume<S: Service<Session = T>>(&mut self, scratch: &mut Scratch<'_, S>) -> bool {
        self.hold_pushes(&*scratch.service);
        let next = scratch.service.resume(&mut self.session, &mut scratch.reply);
        self.queue(scratch.service.withhold_to(), &mut scratch.reply);
        self.apply(next)
    }

    /// The checks that only time brings about: the idle `timeout`, the soft limit of output, and strangers that keep others
    /// out.
    pub(crate) fn is_overdue<S: Service<Session = T>>(&mut self, event_loop: &EventLoop<S>) -> bool {
        let since = |then_ms: u64| Duration::from_millis(event_loop.now.steady_ms.saturating_sub(then_ms));
        let idle_for = since(self.client.last_interaction_ms.get());
        let is_listening =
            self.client.listening.get() != 0 || self.client.output_class() != super::OutputClass::Normal;
        let may_idle = self.parked.is_some() || is_listening;
        if !may_idle && event_loop.limits.idle_max.is_some_and(|idle_max| idle_for >= idle_max) {
            tracing::debug!("closing {}: idle for {idle_for:?}", self.client);
            return true;
        }
        let age = since(self.client.created_ms);
        if self.is_handshaking && age >= HANDSHAKE_AGE_MAX {
            tracing::debug!("closing {}: its TLS handshake takes too long", self.client);
            event_loop.traffic().handshakes_given_up.add(1);
            return true;
        }
        if self.stranger && event_loop.is_crowded() && age >= STRANGER_AGE_MAX {
            tracing::debug!("closing {}: it has not authenticated, and others cannot connect", self.client);
            return true;
        }
        self.exceeds_output_limit(event_loop)
    }

    /// Serves nothing more; the worker gives it another turn to send the rest.
    pub(crate) fn stop(&mut self) {
        self.closing = true;
    }

    /// Ends the connection; the service gets its session back, and what was not sent, if that is large: it may be all
    /// that is left of a value.
    pub(crate) fn close<S: Service<Session = T>>(self, event_loop: &EventLoop<S>) -> (T, Option<Output>) {
        if self.client.pushes.get().is_some_and(|pushes| pushes.queue.close()) {
            event_loop.shared.queues.forget_pushes(&self.client);
        }
        if self.output.is_empty() && (self.stream.is_tls() || self.closing && !self.ended) {
            self.stream.finish();
        }
        let unsent = (self.output.len() >= STALLED_BYTES_MIN).then_some(self.output);
        (self.session, unsent)
    }
}
