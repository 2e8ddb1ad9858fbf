//! The interface between this layer and the program on top of it.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_resp::{Mark, ReplyBuffer};
use dunlin_structures::GrowingBlock;

use super::withheld::Commitment;
use super::{Client, EventLoop};

/// The clocks, read once a tick.
///
/// The wall clock dates what is shown and what expires at a date. An operator or a time server may set it, so ages, pauses
/// and timeouts are differences of the other two.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Wall clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Monotonic clock as a number, for ages that several threads look at: the wall clock's milliseconds at the first reading of
    /// the process, and those that have passed since.
    pub steady_ms: u64,
    /// Monotonic clock, for deadlines.
    pub instant: Instant,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (unix_ms, instant) = (since_epoch.as_millis() as u64, Instant::now());
        static FIRST: OnceLock<(Instant, u64)> = OnceLock::new();
        let (first, first_ms) = *FIRST.get_or_init(|| (instant, unix_ms));
        let passed = instant.saturating_duration_since(first);
        let steady_ms = first_ms + passed.as_secs() * 1000 + u64::from(passed.subsec_millis());
        Self { unix_ms, steady_ms, instant }
    }
}

/// The fate of a connection after its service has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Every complete request has been served: go on when more bytes arrive.
    Read,
    /// The input may hold more complete requests: send the reply, then serve again.
    Again,
    /// Serve nothing from this connection until [`Service::deliver`] says otherwise or the deadline
    /// passes ([`Service::resume`]). Input is still received, up to a bound, and a peer that hangs
    /// up still ends the connection.
    Park {
        /// When to resume; `None` waits for a message.
        until: Option<Instant>,
    },
    /// As [`Self::Park`] without a deadline, for a reply that is already being made: a peer that has only ended its own side still
    /// gets it.
    Await,
    /// Serve nothing more; close once all that was answered has been sent.
    CloseAfterReply,
    /// Close now, whatever waits to be sent.
    CloseNow,
}

/// The outcome of [`Service::serve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Bytes of the input that are done with. The rest is presented again, with more behind it.
    pub consumed: usize,
    /// How to go on.
    pub next: Next,
    /// How many bytes the argument that is arriving still needs, 0 when unknown: sizes the buffer.
    pub wanted: usize,
    /// How many bytes at the end of the input the service keeps itself ([`Service::arriving`]): they are not presented again.
    pub detached: usize,
}

/// A reply, or something else between two replies, among the bytes that one call has appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenReply {
    /// Its bytes.
    pub bytes: usize,
    /// The place, of the measure that its part waits for, up to which it has seen changes; 0 for what may leave at any time.
    pub mark: u64,
}

/// The replies of one call, one by one.
#[derive(Debug, Default)]
pub struct SeenReplies {
    /// The end of those in front that have seen nothing that still has to be waited for.
    pub leaving: Option<Mark>,
    /// The others, which take all bytes behind; none if they are not known one by one.
    pub waiting: Vec<SeenReply>,
}

/// Whom a service's message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// To one client; the message is dropped when it has gone.
    Client(super::Address),
    /// Every client of the worker that receives the message.
    EveryClient,
    /// The worker's service itself.
    Service,
}

/// Replies of this many bytes should leave before more requests of their connection are served.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;

/// The executor of requests: one instance per worker thread, made and used there only, hence plain
/// `&mut` and no locks.
///
/// A service never blocks. A service bounds one call by stopping with [`Next::Again`] once `reply`
/// holds [`REPLY_BYTES_MAX`]; the layer goes on when the client has taken most of it.
pub trait Service: Sized + 'static {
    /// The state that the service keeps for each connection.
    type Session;
    /// Messages between the services of different workers.
    type Message: Clone + Send + 'static;

    /// A connection has been accepted.
    fn open(&mut self, client: &Arc<Client>) -> Self::Session;

    /// A client's certificate was verified, before anything that it has sent is served.
    fn identify(&mut self, session: &mut Self::Session, identity: &super::Identity) {
        let _ = (session, identity);
    }

    /// Whether a client has yet to show who it is. A stranger is given very little room, and closed if it would take
    /// more.
    fn is_stranger(&self, session: &Self::Session) -> bool {
        let _ = session;
        false
    }

    /// The block that the next bytes of a connection belong into, while there is one; behind them comes input again.
    fn arriving<'s>(&mut self, session: &'s mut Self::Session) -> Option<&'s mut GrowingBlock> {
        let _ = session;
        None
    }

    /// Bytes were added to that block.
    fn has_arrived(&mut self, session: &mut Self::Session) {
        let _ = session;
    }

    /// Bytes of the request at hand that are in such blocks.
    fn detached_bytes(&self, session: &Self::Session) -> usize {
        let _ = session;
        0
    }

    /// A tick begins: this is the time until the next.
    fn tick(&mut self, now: Now);

    /// Serves complete requests off the front of `input`, which is never empty and begins with the
    /// rest of the last call. `reply` arrives empty, in whatever protocol was last used.
    ///
    /// A request that takes its time can have the `event_loop` of its connection attended to meanwhile. These are
    /// served without event_loop of their own: the service is in the middle of something.
    fn serve(
        &mut self,
        session: &mut Self::Session,
        input: &[u8],
        reply: &mut ReplyBuffer,
        event_loop: Option<&mut EventLoop<Self>>,
    ) -> Served;

    /// The deadline of [`Next::Park`] has passed.
    fn resume(&mut self, session: &mut Self::Session, reply: &mut ReplyBuffer) -> Next;

    /// A message for this client. `None` leaves the connection as it is: in particular a parked one
    /// stays parked. Requests held back while parked are served after [`Next::Read`] or
    /// [`Next::Again`], whichever is answered.
    fn deliver(
        &mut self,
        session: &mut Self::Session,
        message: Self::Message,
        reply: &mut ReplyBuffer,
    ) -> Option<Next>;

    /// Whether a message for the service may be received while it is in the middle of something; it is kept for
    /// afterwards otherwise.
    fn may_receive_nested(&self, message: &Self::Message) -> bool {
        let _ = message;
        true
    }

    /// A message for the service.
    fn receive(&mut self, message: Self::Message);

    /// Whether a request of this client has been served, its place among all changes decided, and its reply is still to come
    /// ([`Self::deliver`]): pushes about later changes come behind that.
    fn owes_reply(&self, session: &Self::Session) -> bool {
        let _ = session;
        false
    }

    /// The connection is gone. Its client is in [`Clients`](super::Clients) until this returns: undo here what others
    /// must not see of it afterwards.
    fn close(&mut self, session: Self::Session);

    /// Frees something large, elsewhere if that can be: the worker's other clients would wait for it.
    fn discard(&mut self, garbage: Box<dyn Any + Send>) {
        drop(garbage);
    }

    /// The commitment that has to be met before the reply of the last [`Self::serve`], [`Self::deliver`] or
    /// [`Self::resume`] may leave.
    fn withhold_to(&self) -> Commitment {
        Commitment::default()
    }

    /// Takes what the replies of the last [`Self::serve`] have seen, if they are withheld.
    fn take_seen(&mut self) -> SeenReplies {
        SeenReplies::default()
    }

    /// Takes the commitments of pushes that stand among the replies of the last [`Self::serve`].
    fn take_pushed_to(&mut self) -> Vec<Commitment> {
        Vec::new()
    }

    /// How far replies of a level are released; it only grows.
    fn released(&self, level: u8) -> u64 {
        let _ = level;
        u64::MAX
    }

    /// Some replies wait until [`Self::released`] has come to a commitment's mark: a message to the service, whose
    /// content does not matter, is to wake the worker then. `false`: it has come there already.
    fn await_release(&mut self, commitment: Commitment) -> bool {
        self.released(commitment.level) < commitment.mark
    }

    /// Whether replies that wait for a commitment will never be released, however far their level comes: their connections are
    /// closed, so that their clients see that the outcome is unknown.
    fn has_lost(&self, commitment: Commitment) -> bool {
        let _ = commitment;
        false
    }

    /// The error, encoded, that replies get in their place whose commitment cannot be met as things are; `None` to go on
    /// waiting.
    fn refusal(&self, commitment: Commitment) -> Option<Vec<u8>> {
        let _ = commitment;
        None
    }

    /// A tick ends: all that was ready has been served.
    fn end_tick(&mut self) {}

    /// A slice of background work; returns how long the worker may wait before the next.
    fn background(&mut self, now: Now) -> Duration;
}
