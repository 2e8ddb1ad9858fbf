//! Attending to a worker's other connections while the service is in the middle of one's request.
//!
//! ```text
//! A's turn ─▶ serve ─▶ a long request … attend … attend … ─▶ its reply ─▶ A catches up
//!                            │  poll without sleep, new connections, turns of B, C, D, messages,
//!                            ▼  replies that are released
//!                      serve (without event_loop)
//! ```
//!
//! A is out of its place. The worker keeps what arrives for it meanwhile until it is back, in order: what the poller
//! has seen, messages, and the release of its replies. Work that is due by time (deadlines, sweeps, background work) is
//! left for afterwards, for all connections.
//!
//! Invariants:
//! - The poller reports edges, so nothing that it reports is dropped. The tick around may not have looked at
//!   everything that it was told, so the first nested poll of a turn looks at every connection.
//! - A slot that becomes free in a nested poll is not taken before the next tick: the tick around may know of an event
//!   for the connection that was there.

use std::io;
use std::time::Duration;

use mio::Events;
use mio::event::Event;

use super::connection::{Connection, Scratch, TurnEnd};
use super::event_loop::WithheldReply;
use super::worker::EVENTS_MAX;
use super::worker_queue::Message;
use super::{Address, Client, EventLoop, Now, Service, To};

/// The client whose turn it is, and events that are kept for afterwards.
#[derive(Debug)]
pub(crate) struct NestedPoll<M> {
    /// The connection that has left its place first.
    absent: Address,
    state: State,
    /// Events that the poller has seen of absent connections.
    events: Vec<Event>,
    /// Events of connections that cannot be read yet.
    pub(crate) kept_messages: Vec<Message<M>>,
    /// Releases of replies of the absent connection.
    released: Vec<WithheldReply>,
    /// Slots that are free from the next tick on.
    pub(crate) free_slots: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There has been none in this turn.
    None,
    /// The other connections have their turns.
    UnderWay,
    /// The turn goes on.
    Ended,
}

impl<M> Default for NestedPoll<M> {
    fn default() -> Self {
        Self {
            absent: Address { id: 0, worker: 0, slot: 0 },
            state: State::None,
            events: Vec::new(),
            kept_messages: Vec::new(),
            released: Vec::new(),
            free_slots: Vec::new(),
        }
    }
}

impl<M> NestedPoll<M> {
    /// A client's connection leaves its place.
    #[inline]
    pub(crate) fn leave(&mut self, client: &Client) {
        if self.state != State::UnderWay {
            self.absent = client.address;
        }
    }

    #[inline]
    fn is_under_way(&self) -> bool {
        self.state == State::UnderWay
    }

    /// Whether there has been one in the turn that has just ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Keeps an event for the absent connection; others that are not in their place are gone.
    #[cold]
    pub(crate) fn note(&mut self, event: &Event) {
        if self.is_under_way() && event.token().0 == self.absent.slot as usize {
            self.events.push(event.clone());
        }
    }

    /// Keeps the release of replies for the absent connection.
    #[cold]
    pub(crate) fn keep_released(&mut self, released: WithheldReply) {
        if self.is_under_way() && released.client == self.absent.id {
            self.released.push(released);
        }
    }

    /// Frees a slot.
    pub(crate) fn free(&mut self, slot: u32, free_slots: &mut Vec<u32>) {
        if self.is_under_way() { self.free_slots.push(slot) } else { free_slots.push(slot) }
    }

    /// Puts what was kept before newer messages.
    #[inline]
    pub(crate) fn bring_up(&mut self, messages: &mut Vec<Message<M>>) {
        if !self.kept_messages.is_empty() && !self.is_under_way() {
            messages.splice(0..0, self.kept_messages.drain(..));
        }
    }
}

impl<M: Clone> NestedPoll<M> {
    /// A piece of messages, unless it has to be kept for afterwards.
    #[inline]
    pub(crate) fn sort<S: Service<Message = M>>(
        &mut self,
        messages: Message<M>,
        service: &S,
    ) -> Option<Message<M>> {
        if self.is_under_way() { self.sort_out(messages, service) } else { Some(messages) }
    }

    #[cold]
    fn sort_out<S: Service<Message = M>>(&mut self, messages: Message<M>, service: &S) -> Option<Message<M>> {
        let is_kept = match &messages {
            Message::Service(To::Client(address), _)
            | Message::Kill(address)
            | Message::Waiting(address, _) => *address == self.absent,
            Message::Service(To::Service, message) => !service.may_receive_nested(message),
            Message::Service(To::EveryClient, message) => {
                self.kept_messages.push(Message::Service(To::Client(self.absent), message.clone()));
                false
            }
            // A connection that is back looks after its output by itself.
            Message::Accepted(_)
            | Message::Handed(..)
            | Message::Backlog(_)
            | Message::Listeners(_)
            | Message::Stop(_)
            | Message::Full(_) => false,
        };
        if is_kept {
            self.kept_messages.push(messages);
            return None;
        }
        Some(messages)
    }
}

impl<S: Service> EventLoop<S> {
    /// The loan of a service for a request: nothing in a nested poll.
    #[inline]
    pub(crate) fn lend(&mut self) -> Option<&mut Self> {
        (!self.nested_poll.is_under_way()).then_some(self)
    }

    /// Attends to all connections of the worker but the one whose request is being served, once and without sleep, with
    /// [`Service::serve`] and its kin. For a service that takes its time.
    pub fn attend(&mut self, service: &mut S) {
        let is_first = self.nested_poll.state == State::None;
        // A turn that others interrupt is not a measure of itself.
        self.stages.give_up();
        self.nested_poll.state = State::UnderWay;
        let mut scratch = Scratch::new(service);
        self.depart();
        let mut events = Events::with_capacity(EVENTS_MAX);
        match self.poll.poll(&mut events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                tracing::warn!("cannot attend to clients while one of them takes its time: {error}");
            }
            _ => {}
        }
        self.now = Now::read();
        if is_first {
            self.look_at_everything(&mut scratch);
        }
        self.go_round(&mut scratch, &events);
        scratch.service.end_tick();
        self.release(&mut scratch);
        self.depart();
        self.send_pushes();
        self.nested_poll.state = State::Ended;
    }

    /// Acts on events that were kept for a connection whose turn has ended. Returns how it goes on.
    #[cold]
    pub(crate) fn catch_up(&mut self, connection: &mut Connection<S::Session>, outcome: TurnEnd) -> TurnEnd {
        self.nested_poll.state = State::None;
        for released in self.nested_poll.released.drain(..).rev() {
            self.withheld[usize::from(released.commitment.level)].push_front(released);
        }
        if self.stop_at.is_some() {
            connection.stop();
        }
        let is_there = self
            .nested_poll
            .events
            .drain(..)
            .fold(true, |is_there, event| is_there & connection.note_readiness(&event));
        // There may be something to read, and something to send.
        if is_there && outcome != TurnEnd::Close { TurnEnd::Again } else { TurnEnd::Close }
    }
}
