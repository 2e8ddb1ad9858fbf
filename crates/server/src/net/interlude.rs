//! Attending to a worker's other connections while the service is in the middle of one's request.
//!
//! ```text
//! A's turn ─▶ serve ─▶ a long request … attend … attend … ─▶ its reply ─▶ A catches up
//!                            │  poll without sleep, newcomers, turns of B, C, D, mail,
//!                            ▼  replies that are released
//!                      serve (without neighbours)
//! ```
//!
//! A is out of its place. What arrives for it meanwhile is kept until it is back, in order: what the poller has seen,
//! letters, and the release of its replies. What only time brings about (deadlines, sweeps, background work) is left for
//! afterwards, for everybody.
//!
//! Invariants:
//! - The poller reports edges, so nothing that it reports is dropped; and since the tick around may not have looked at
//!   everything that it was told, the first interlude of a turn looks at every connection.
//! - A slot that becomes free in an interlude is not taken before the next tick: the tick around may know of an event
//!   for who was there.

use std::io;
use std::time::Duration;

use mio::Events;
use mio::event::Event;

use super::connection::{Connection, Kit, Outcome};
use super::post::Mail;
use super::worker::EVENTS_MAX;
use super::{Address, Client, Neighbours, Now, Service, To};

/// Whose turn it is, and what is kept for afterwards.
#[derive(Debug)]
pub(super) struct Interlude<L> {
    /// Who has left its place first.
    absent: Address,
    state: State,
    /// What the poller has seen of who is absent.
    events: Vec<Event>,
    /// What cannot be read yet.
    pub(super) kept_mail: Vec<Mail<L>>,
    /// Releases of replies of who is absent.
    released: Vec<(u64, u32, u64)>,
    /// Slots that are free from the next tick on.
    pub(super) free_slots: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There has been none in this turn.
    None,
    /// It is the others' turns.
    UnderWay,
    /// The turn goes on.
    Ended,
}

impl<L> Default for Interlude<L> {
    fn default() -> Self {
        Self {
            absent: Address { id: 0, worker: 0, slot: 0 },
            state: State::None,
            events: Vec::new(),
            kept_mail: Vec::new(),
            released: Vec::new(),
            free_slots: Vec::new(),
        }
    }
}

impl<L> Interlude<L> {
    /// A client's connection leaves its place.
    #[inline]
    pub(super) fn leave(&mut self, client: &Client) {
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
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Keeps an event for who is absent; others that are not in their place are gone.
    #[cold]
    pub(super) fn note(&mut self, event: &Event) {
        if self.is_under_way() && event.token().0 == self.absent.slot as usize {
            self.events.push(event.clone());
        }
    }

    /// Keeps the release of replies for who is absent.
    #[cold]
    pub(super) fn keep_released(&mut self, released: (u64, u32, u64)) {
        if self.is_under_way() && released.2 == self.absent.id {
            self.released.push(released);
        }
    }

    /// Frees a slot.
    pub(super) fn free(&mut self, slot: u32, free_slots: &mut Vec<u32>) {
        if self.is_under_way() { self.free_slots.push(slot) } else { free_slots.push(slot) }
    }

    /// Puts what was kept before newer mail.
    #[inline]
    pub(super) fn bring_up(&mut self, mail: &mut Vec<Mail<L>>) {
        if !self.kept_mail.is_empty() && !self.is_under_way() {
            mail.splice(0..0, self.kept_mail.drain(..));
        }
    }
}

impl<L: Clone> Interlude<L> {
    /// A piece of mail, unless it has to be kept for afterwards.
    #[inline]
    pub(super) fn sort<S: Service<Letter = L>>(&mut self, mail: Mail<L>, service: &S) -> Option<Mail<L>> {
        if self.is_under_way() { self.sort_out(mail, service) } else { Some(mail) }
    }

    #[cold]
    fn sort_out<S: Service<Letter = L>>(&mut self, mail: Mail<L>, service: &S) -> Option<Mail<L>> {
        let is_kept = match &mail {
            Mail::Letter(To::Client(address), _) | Mail::Kill(address) => *address == self.absent,
            Mail::Letter(To::Service, letter) => !service.may_receive_meanwhile(letter),
            Mail::Letter(To::EveryClient, letter) => {
                self.kept_mail.push(Mail::Letter(To::Client(self.absent), letter.clone()));
                false
            }
            // Whoever is back looks after its output by itself.
            Mail::Newcomer(_) | Mail::Callers(_) | Mail::Doors(_) | Mail::Stop(_) | Mail::Full(_) => false,
        };
        if is_kept {
            self.kept_mail.push(mail);
            return None;
        }
        Some(mail)
    }
}

impl<S: Service> Neighbours<S> {
    /// What a service is lent for a request: nothing in an interlude.
    #[inline]
    pub(super) fn lend(&mut self) -> Option<&mut Self> {
        (!self.interlude.is_under_way()).then_some(self)
    }

    /// Attends to all connections of the worker but the one whose request is being served, once and without sleep, with
    /// [`Service::serve`] and its kin. For a service that takes its time.
    pub fn attend(&mut self, service: &mut S) {
        let is_first = self.interlude.state == State::None;
        self.interlude.state = State::UnderWay;
        let mut kit = Kit::new(service);
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
            self.look_at_everything(&mut kit);
        }
        self.go_round(&mut kit, &events);
        kit.service.end_tick();
        self.release(&mut kit);
        self.depart();
        self.send_pushes();
        self.interlude.state = State::Ended;
    }

    /// What has been kept for a connection whose turn has ended; how it goes on.
    #[cold]
    pub(super) fn catch_up(&mut self, connection: &mut Connection<S::Session>, outcome: Outcome) -> Outcome {
        self.interlude.state = State::None;
        for released in self.interlude.released.drain(..).rev() {
            self.withheld.push_front(released);
        }
        if self.stop_at.is_some() {
            connection.stop();
        }
        let is_there = self
            .interlude
            .events
            .drain(..)
            .fold(true, |is_there, event| is_there & connection.note_readiness(&event));
        // There may be something to read, and something to send.
        if is_there && outcome != Outcome::Close { Outcome::Again } else { Outcome::Close }
    }
}
