//! The event loop of a worker, around its service: connections, listeners, messages.
//!
//! ```text
//! connections   [A] [ ] [C] [D] …        B is out of its place while it is B's turn:
//!                    │                   its service may have the others attended to (`nested_poll`)
//!                    └▶ turn ─▶ service
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::net::SendFlags;

use super::busy_poll::BusyPoll;
use super::connection::{Connection, Scratch, TurnEnd};
use super::handshakes::Handshakes;
use super::listener::{self, Listener, Refusal};
use super::nested_poll::NestedPoll;
use super::pending_writes::PendingWrites;
use super::stages::{StageClock, record};
use super::withheld::Commitment;
use super::worker::{Shared, WAKEUP};
use super::worker_queue::{Accepted, Message};
use super::{Address, Client, Limits, Now, PeerIds, Service, Stream, To, Traffic, Transport, stream};

/// The poller's token of the first listener; the others follow downwards.
const FIRST_LISTENER: usize = usize::MAX - 1;
/// Connections accepted from one listener in one tick.
const ACCEPTED_MAX: usize = 64;
/// Pause after an accept has failed for lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How often a part of the connections is swept.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Deadlines that a worker keeps for each of its connections, at most: one is in force.
const DEADLINES_PER_CONNECTION_MAX: usize = 4;
/// Sweeps in which every connection is visited once.
const SWEEPS_PER_ROUND: usize = 10;

/// A listening socket in the worker's care.
#[derive(Debug)]
struct WatchedListener {
    listener: Listener,
    /// The backlog may hold connections.
    ready: bool,
    /// Accepting has failed; when to try again.
    retry_at: Option<Instant>,
}

impl WatchedListener {
    fn new(listener: Listener) -> Self {
        Self { listener, ready: true, retry_at: None }
    }

    /// Registers this listener, which is the worker's `number`th, with the poller for new
    /// connections.
    fn register(&self, poll: &Poll, number: usize) -> io::Result<()> {
        let mut source = SourceFd(&self.listener.socket.as_raw_fd());
        poll.registry().register(&mut source, Token(FIRST_LISTENER - number), Interest::READABLE)
    }
}

/// A reply, or a push, that waits to be released.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WithheldReply {
    pub(crate) commitment: Commitment,
    pub(crate) slot: u32,
    /// The client's number.
    pub(crate) client: u64,
}

/// All that a worker has beside its service, but for the connection whose turn it is.
pub struct EventLoop<S: Service> {
    worker: usize,
    pub(crate) poll: Poll,
    pub(crate) limits: Arc<Limits>,
    pub(crate) now: Now,
    /// When the tick at hand began, until its time is counted.
    ticking_since: Option<Instant>,
    pub(crate) shared: Arc<Shared<S::Message>>,
    listeners: Vec<WatchedListener>,
    pub(crate) connections: Vec<Option<Box<Connection<S::Session>>>>,
    free_slots: Vec<u32>,
    open: usize,
    /// Slots that have more to do in the next tick.
    pub(crate) ready: Vec<u32>,
    /// Slots that messages of this tick were for.
    addressed: Vec<u32>,
    messages: Vec<Message<S::Message>>,
    pub(crate) pending_writes: PendingWrites,
    /// By level, connections whose replies wait to be released.
    pub(crate) withheld: Vec<VecDeque<WithheldReply>>,
    /// Deadlines of parked connections, soonest first; entries of the past may have become moot.
    deadlines: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    sweep_at: Instant,
    sweep_from: usize,
    /// When to stop waiting for clients to read their last replies.
    pub(crate) stop_at: Option<Instant>,
    busy_poll: BusyPoll,
    pub(crate) nested_poll: NestedPoll<S::Message>,
    pub(crate) handshakes: Handshakes,
    pub(crate) stages: StageClock,
}

impl<S: Service> EventLoop<S> {
    pub(crate) fn new(
        worker: usize,
        poll: Poll,
        shared: Arc<Shared<S::Message>>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let now = Now::read();
        let listeners = listeners.into_iter().map(WatchedListener::new).collect::<Vec<_>>();
        for (number, listener) in listeners.iter().enumerate() {
            listener.register(&poll, number)?;
        }
        Ok(Self {
            worker,
            poll,
            limits: shared.limits.load_full(),
            now,
            ticking_since: None,
            shared,
            listeners,
            connections: Vec::new(),
            free_slots: Vec::new(),
            open: 0,
            ready: Vec::new(),
            addressed: Vec::new(),
            messages: Vec::new(),
            pending_writes: PendingWrites::default(),
            withheld: Vec::new(),
            deadlines: BinaryHeap::new(),
            sweep_at: now.instant,
            sweep_from: 0,
            stop_at: None,
            busy_poll: BusyPoll::new(),
            nested_poll: NestedPoll::default(),
            handshakes: Handshakes::default(),
            stages: StageClock::default(),
        })
    }

    /// The counts of the worker.
    #[inline]
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.shared.traffic[self.worker]
    }

    /// Notes that requests of a turn that began then have been served, in a tick that is measured.
    #[inline]
    pub(crate) fn note_served(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            let times = &self.traffic().stages;
            record(&times.queue, self.now.instant, begun);
            record(&times.run, begun, Instant::now());
        }
    }

    /// Notes a write to a socket that began then, in a tick that is measured.
    #[inline]
    pub(crate) fn note_written(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            record(&self.traffic().stages.write, begun, Instant::now());
        }
    }

    /// Whether the worker has been told to stop: nothing more is accepted or served.
    pub fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stop_at.is_some_and(|stop_at| self.open == 0 || self.now.instant >= stop_at)
    }

    /// Waits until there is something to do, with something else to do at `background_at`. Events are for the next tick.
    pub(crate) fn wait(&mut self, events: &mut Events, background_at: Instant) -> io::Result<()> {
        self.send_pushes();
        let Some(until) = self.rests_until(background_at) else {
            return self.poll.poll(events, Some(Duration::ZERO));
        };
        // The tick's own work has taken time: the clock of its beginning would oversleep.
        let begun = Instant::now();
        self.end_tick(begun);
        let mailbox = self.shared.queues.mailbox(self.worker);
        for _ in 0..self.busy_poll.looks(begun) {
            thread::yield_now();
            self.poll.poll(events, Some(Duration::ZERO))?;
            if !events.is_empty() || mailbox.has_messages() {
                self.busy_poll.has_looked(begun);
                return Ok(());
            }
        }
        if !mailbox.may_sleep() {
            return self.poll.poll(events, Some(Duration::ZERO));
        }
        let now = Instant::now();
        self.busy_poll.sleeps(now);
        self.poll.poll(events, Some(until.saturating_duration_since(now)))
    }

    /// Looks for events without waiting. Returns whether there is anything to do.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn look(&mut self, events: &mut Events) -> io::Result<bool> {
        self.poll.poll(events, Some(Duration::ZERO))?;
        let has_messages = self.shared.queues.mailbox(self.worker).has_messages();
        Ok(!events.is_empty() || !self.ready.is_empty() || has_messages)
    }

    /// Until when to wait at most; `None`: there is something to do.
    fn rests_until(&self, background_at: Instant) -> Option<Instant> {
        let may_accept = self.may_accept();
        let busy = !self.ready.is_empty()
            || !self.nested_poll.kept_messages.is_empty()
            || (may_accept && self.listeners.iter().any(|listener| listener.ready));
        if busy {
            return None;
        }
        let deadlines = [
            (self.open > 0).then_some(self.sweep_at),
            self.deadlines.peek().map(|Reverse((deadline, ..))| *deadline),
            self.listeners.iter().filter_map(|listener| listener.retry_at).filter(|_| may_accept).min(),
            self.stop_at,
        ];
        Some(deadlines.into_iter().flatten().fold(background_at, Instant::min))
    }

    pub(crate) fn begin_tick(&mut self) {
        self.now = Now::read();
        // The tick before has not waited: its end is the beginning of this one.
        self.end_tick(self.now.instant);
        self.ticking_since = Some(self.now.instant);
        self.busy_poll.learn(self.now.instant);
        self.stages.begin_tick();
        self.traffic().ticks.add(1);
        self.handshakes.begin_tick();
        let limits = self.shared.limits.load();
        if !Arc::ptr_eq(&limits, &self.limits) {
            self.limits = Arc::clone(&limits);
        }
        self.free_slots.append(&mut self.nested_poll.free_slots);
    }

    /// Counts the time of the tick at hand, if that has not been done: it ends at `now`.
    #[inline]
    fn end_tick(&mut self, now: Instant) {
        if let Some(since) = self.ticking_since.take() {
            self.traffic().tick_ns.add(now.duration_since(since).as_nanos() as u64);
        }
    }

    /// Acts on the poller's events, on work that was left for this tick, and on messages.
    pub(crate) fn go_round(&mut self, scratch: &mut Scratch<'_, S>, events: &Events) {
        let ready = std::mem::take(&mut self.ready);
        for event in events {
            self.note(scratch, event);
        }
        self.accept();
        self.take_turns(scratch, ready);
        self.depart();
        self.read_messages(scratch);
        self.depart();
    }

    /// Acts on one event of the poller: connections take their turn at once.
    fn note(&mut self, scratch: &mut Scratch<'_, S>, event: &mio::event::Event) {
        let token = event.token();
        if token == WAKEUP {
            return;
        }
        let listener = FIRST_LISTENER - token.0;
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.ready = true;
            return;
        }
        // A connection closed earlier in this tick may still have an event.
        let Some(Some(connection)) = self.connections.get_mut(token.0) else {
            return self.nested_poll.note(event);
        };
        if connection.note_readiness(event) {
            self.take_turn(scratch, token.0 as u32);
        } else {
            self.close(scratch, token.0 as u32);
        }
    }

    fn take_turns(&mut self, scratch: &mut Scratch<'_, S>, slots: Vec<u32>) {
        for slot in slots {
            if let Some(Some(connection)) = self.connections.get_mut(slot as usize) {
                // An event may have given it this tick's turn already.
                if std::mem::take(&mut connection.queued) {
                    self.take_turn(scratch, slot);
                }
            }
        }
    }

    pub(crate) fn take_turn(&mut self, scratch: &mut Scratch<'_, S>, slot: u32) {
        let Some(mut connection) = self.connections.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        if connection.is_departing() {
            self.connections[slot as usize] = Some(connection);
            return self.depart_before(scratch, slot);
        }
        let was_until = connection.parked_until();
        self.nested_poll.leave(&connection.client);
        let mut outcome = connection.turn(scratch, self);
        if self.nested_poll.has_ended() {
            outcome = self.catch_up(&mut connection, outcome);
        }
        if outcome == TurnEnd::Again && !connection.queued {
            connection.queued = true;
            self.ready.push(slot);
        }
        let client = connection.client.id();
        let withheld = connection.newly_withheld();
        self.connections[slot as usize] = Some(connection);
        if outcome == TurnEnd::Close {
            return self.close(scratch, slot);
        }
        withheld
            .into_iter()
            .for_each(|commitment| self.watch_withheld(WithheldReply { commitment, slot, client }));
        self.watch_deadline(slot, was_until);
        if self.pending_writes.is_full() {
            self.depart();
        }
    }

    /// Gives a connection its turn after its last reply has left.
    #[cold]
    fn depart_before(&mut self, scratch: &mut Scratch<'_, S>, slot: u32) {
        self.depart();
        self.take_turn(scratch, slot);
    }

    /// Sends the replies that were gathered. Nothing is closed here: a connection that is done has another turn.
    pub fn depart(&mut self) {
        if self.pending_writes.is_empty() {
            return;
        }
        self.send_pushes();
        let pending_writes = std::mem::take(&mut self.pending_writes);
        for (Address { id, slot, .. }, reply) in pending_writes.iter() {
            let Some(mut connection) = self.connections[slot as usize].take() else { continue };
            if connection.client.id() == id && connection.depart(reply, self) && !connection.queued {
                connection.queued = true;
                self.ready.push(slot);
            }
            self.connections[slot as usize] = Some(connection);
        }
        self.pending_writes = pending_writes.recycle();
    }

    /// Writes the pushes that may be about what the next replies have seen, to clients of all workers. Before any reply is
    /// written, and before the worker sleeps.
    #[inline]
    pub fn send_pushes(&self) {
        if self.shared.queues.has_pending_pushes() {
            self.shared.queues.flush_pushes(self.worker, self.traffic());
        }
    }

    /// Sends replies that have been released meanwhile, and makes sure that the worker is woken for the
    /// rest.
    pub(crate) fn release(&mut self, scratch: &mut Scratch<'_, S>) {
        if self.withheld.iter().any(|replies| !replies.is_empty()) {
            // Pushes that waited for the same precede them.
            self.send_pushes();
        }
        for level in 0..self.withheld.len() {
            while let Some(&reply) = self.withheld[level].front() {
                let WithheldReply { commitment, slot, client } = reply;
                let is_lost = scratch.service.has_lost(commitment);
                let is_met = !is_lost && scratch.service.released(commitment.level) >= commitment.mark;
                let mut refusal = None;
                if !is_met && !is_lost {
                    // Looked at again after the request to be woken: the refusal's cause may have come in between.
                    refusal = scratch.service.refusal(commitment);
                    if refusal.is_none() && scratch.service.await_release(commitment) {
                        refusal = scratch.service.refusal(commitment);
                        if refusal.is_none() {
                            break;
                        }
                    }
                    if refusal.is_none() {
                        continue;
                    }
                }
                self.withheld[level].pop_front();
                match self.find(slot, client) {
                    Some(_) if is_lost => self.close(scratch, slot),
                    Some(connection) => {
                        let service = &*scratch.service;
                        if let Some(error) = refusal
                            && !connection.refuse(service, commitment.level, &error)
                        {
                            self.close(scratch, slot);
                            continue;
                        }
                        connection.release(|commitment| {
                            !service.has_lost(commitment)
                                && service.released(commitment.level) >= commitment.mark
                        });
                        self.take_turn(scratch, slot);
                    }
                    None => self.nested_poll.keep_released(reply),
                }
            }
        }
    }

    /// Watches a withheld reply.
    pub(crate) fn watch_withheld(&mut self, reply: WithheldReply) {
        let level = usize::from(reply.commitment.level);
        if self.withheld.len() <= level {
            self.withheld.resize_with(level + 1, VecDeque::new);
        }
        self.withheld[level].push_back(reply);
    }

    /// Notes the deadline of a connection that has just been parked.
    fn watch_deadline(&mut self, slot: u32, was_until: Option<Instant>) {
        let Some(Some(connection)) = self.connections.get(slot as usize) else { return };
        let until = connection.parked_until();
        if let Some(deadline) = until
            && until != was_until
        {
            self.deadlines.push(Reverse((deadline, slot, connection.client.id())));
            if self.deadlines.len() > DEADLINES_PER_CONNECTION_MAX * self.connections.len() {
                self.forget_moot_deadlines();
            }
        }
    }

    /// Drops the deadlines of connections that are no longer parked: clients that wait for long, and
    /// are served soon, over and over, must not pile them up.
    #[cold]
    fn forget_moot_deadlines(&mut self) {
        let connections = &self.connections;
        self.deadlines.retain(|Reverse((deadline, slot, id))| {
            let connection = connections[*slot as usize].as_ref();
            connection.is_some_and(|connection| {
                connection.client.id() == *id && connection.parked_until() == Some(*deadline)
            })
        });
    }

    pub(crate) fn pass_deadlines(&mut self, scratch: &mut Scratch<'_, S>) {
        while let Some(&Reverse((deadline, slot, id))) = self.deadlines.peek() {
            if deadline > self.now.instant {
                return;
            }
            self.deadlines.pop();
            let Some(connection) = self.find(slot, id) else { continue };
            if connection.parked_until() != Some(deadline) {
                continue;
            }
            if connection.is_departing() {
                self.depart();
            }
            let Some(Some(connection)) = self.connections.get_mut(slot as usize) else { continue };
            if !connection.resume(scratch) {
                self.close(scratch, slot);
                continue;
            }
            self.watch_deadline(slot, Some(deadline));
            self.take_turn(scratch, slot);
        }
    }

    fn find(&mut self, slot: u32, id: u64) -> Option<&mut Connection<S::Session>> {
        let connection = self.connections.get_mut(slot as usize)?.as_deref_mut()?;
        (connection.client.id() == id).then_some(connection)
    }

    fn read_messages(&mut self, scratch: &mut Scratch<'_, S>) {
        let mut messages = std::mem::take(&mut self.messages);
        self.shared.queues.mailbox(self.worker).collect(&mut messages);
        self.nested_poll.bring_up(&mut messages);
        for message in messages.drain(..) {
            let Some(message) = self.nested_poll.sort(message, scratch.service) else { continue };
            match message {
                Message::Accepted(accepted) => self.adopt(scratch, accepted),
                Message::Handed(socket, transport) => self.welcome(socket, transport, false),
                Message::Service(To::Client(address), message) => {
                    if self.find(address.slot, address.id).is_some() {
                        self.deliver(scratch, address.slot, message);
                    }
                }
                Message::Service(To::EveryClient, message) => {
                    for slot in 0..self.connections.len() {
                        self.deliver(scratch, slot as u32, message.clone());
                    }
                }
                Message::Service(To::Service, message) => scratch.service.receive(message),
                Message::Full(address) => {
                    if let Some(Some(connection)) = self.connections.get_mut(address.slot as usize)
                        && connection.client.id() == address.id
                    {
                        connection.address(&mut self.addressed);
                    }
                }
                Message::Waiting(Address { id: client, slot, .. }, commitment) => {
                    if self.find(slot, client).is_some() {
                        self.watch_withheld(WithheldReply { commitment, slot, client });
                    }
                }
                Message::Kill(address) => {
                    if self.find(address.slot, address.id).is_some() {
                        self.close(scratch, address.slot);
                    }
                }
                Message::Backlog(backlog) => {
                    for (socket, peer, is_tls) in backlog {
                        // A connection that cannot be prepared has gone.
                        if let Ok((socket, transport)) = listener::prepare_tcp(socket, &peer, &self.limits) {
                            self.welcome(socket, transport, is_tls);
                        }
                    }
                }
                Message::Listeners(listeners) => self.exchange_listeners(listeners),
                Message::Stop(grace) => self.stop(scratch, grace),
            }
        }
        self.messages = messages;
        let mut addressed = std::mem::take(&mut self.addressed);
        for slot in addressed.drain(..) {
            if let Some(Some(connection)) = self.connections.get_mut(slot as usize) {
                connection.addressed = false;
                self.take_turn(scratch, slot);
            }
        }
        self.addressed = addressed;
    }

    fn deliver(&mut self, scratch: &mut Scratch<'_, S>, slot: u32, message: S::Message) {
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else { return };
        let was_until = connection.parked_until();
        if !connection.deliver(scratch, message) {
            return self.close(scratch, slot);
        }
        connection.address(&mut self.addressed);
        self.watch_deadline(slot, was_until);
    }

    /// Whether it is this worker that accepts connections: the first, or all others while that is held up.
    fn may_accept(&self) -> bool {
        self.worker == 0 || self.shared.queues.is_held_up(0)
    }

    /// Looks at every connection and every listener, whatever the poller has said.
    pub(crate) fn look_at_everything(&mut self, scratch: &mut Scratch<'_, S>) {
        for slot in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[slot] else { continue };
            connection.suppose_ready();
            // Connections on a list of the tick around are attended to now.
            (connection.queued, connection.addressed) = (false, false);
            self.take_turn(scratch, slot as u32);
        }
        self.listeners.iter_mut().for_each(|listener| listener.ready = true);
    }

    /// Listens for TCP with these from now on; the Unix socket stays.
    fn exchange_listeners(&mut self, listeners: Vec<Listener>) {
        if self.is_stopping() {
            return;
        }
        let former = std::mem::take(&mut self.listeners);
        for listener in &former {
            // A socket that the poller does not know of needs no removing.
            let _ = self.poll.registry().deregister(&mut SourceFd(&listener.listener.socket.as_raw_fd()));
        }
        let stays = former.into_iter().filter(|listener| listener.listener.is_unix());
        self.listeners = listeners.into_iter().map(WatchedListener::new).chain(stays).collect();
        for (number, listener) in self.listeners.iter_mut().enumerate() {
            // Events may have been for others that stood here.
            listener.ready = true;
            if let Err(error) = listener.register(&self.poll, number) {
                tracing::warn!("cannot wait for new clients: {error}");
            }
        }
    }

    /// Accepts a bounded burst from every listener that has connections waiting.
    fn accept(&mut self) {
        if !self.may_accept() {
            return;
        }
        for number in 0..self.listeners.len() {
            let listener = &mut self.listeners[number];
            if listener.retry_at.is_some_and(|retry_at| self.now.instant >= retry_at) {
                listener.ready = true;
            }
            if !listener.ready {
                continue;
            }
            for _ in 0..ACCEPTED_MAX {
                let listener = &mut self.listeners[number];
                match listener.listener.accept(&self.limits) {
                    Ok((socket, transport)) => {
                        listener.retry_at = None;
                        let is_tls = listener.listener.is_tls;
                        self.welcome(socket, transport, is_tls);
                    }
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => {
                            listener.ready = false;
                            listener.retry_at = None;
                            break;
                        }
                        // The peer has given up, or a setting failed because it has.
                        io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::NotConnected => {}
                        _ => {
                            if listener.retry_at.is_none() {
                                tracing::warn!("cannot accept clients for the moment: {error}");
                            }
                            listener.ready = false;
                            listener.retry_at = Some(self.now.instant + ACCEPT_RETRY);
                            break;
                        }
                    },
                }
            }
        }
    }

    /// Admits a new connection and gives it to the worker with the fewest.
    pub(crate) fn welcome(&mut self, socket: socket2::Socket, transport: Transport, is_tls: bool) {
        let traffic = &self.shared.traffic[self.worker];
        traffic.connections_received.add(1);
        let refusal = if self.limits.loopback_only && !transport.is_local() {
            Refusal::NotLoopback
        } else if let Some(id) = self.shared.clients.admit(self.limits.clients_max) {
            let population = &self.shared.population;
            let worker = (0..population.len())
                .min_by_key(|&worker| {
                    (self.shared.queues.is_held_up(worker), population[worker].load(Relaxed))
                })
                .expect("there is a worker");
            population[worker].fetch_add(1, Relaxed);
            return self
                .shared
                .queues
                .post(worker, Message::Accepted(Accepted { id, socket, transport, is_tls }));
        } else {
            Refusal::TooManyClients
        };
        traffic.connections_rejected.add(1);
        // A client that awaits a handshake would not understand it.
        if !is_tls {
            // A new socket takes a line; if it does not, the client learns it from the closing.
            let _ = rustix::net::send(&socket, refusal.reply(), SendFlags::NOSIGNAL);
        }
        stream::finish(&socket);
    }

    /// Whether no further client can connect.
    pub(crate) fn is_crowded(&self) -> bool {
        self.shared.clients.connected() >= self.limits.clients_max
    }

    /// Takes charge of a connection.
    fn adopt(&mut self, scratch: &mut Scratch<'_, S>, Accepted { id, socket, transport, is_tls }: Accepted) {
        let slot = self.free_slots.pop().unwrap_or(self.connections.len() as u32);
        let address = Address { id, worker: self.worker as u32, slot };
        let peer = matches!(transport, Transport::Unix(_)).then(|| PeerIds::of(&socket)).flatten();
        let client = Client::new(address, transport, is_tls, peer, socket.as_raw_fd(), self.now);
        let client = Arc::new(client);
        let stream = if is_tls { self.accept_tls(socket) } else { Ok(Stream::plain(socket)) };
        match stream.and_then(|stream| Connection::new(stream, client.clone(), scratch.service, self)) {
            Ok(mut connection) => {
                if self.stop_at.is_some() {
                    connection.stop();
                    connection.address(&mut self.addressed);
                }
                let connection = Some(Box::new(connection));
                match self.connections.get_mut(slot as usize) {
                    Some(place) => *place = connection,
                    None => self.connections.push(connection),
                }
                self.open += 1;
                self.shared.clients.register(&client);
                if is_tls {
                    self.begin_handshake(scratch, slot, id);
                }
            }
            Err(error) => {
                tracing::warn!("cannot serve {client}: {error}");
                if (slot as usize) < self.connections.len() {
                    self.free_slots.push(slot);
                }
                self.shared.population[self.worker].fetch_sub(1, Relaxed);
                self.shared.clients.withdraw();
            }
        }
    }

    /// The server's side of TLS over a socket, with what the configuration has now.
    fn accept_tls(&self, socket: socket2::Socket) -> io::Result<Stream> {
        let tls = self.shared.tls.load();
        let Some(server) = &*tls else { return Err(io::Error::other("TLS is not configured")) };
        Stream::accept(socket, server)
    }

    /// Notes a handshake that begins, and gives up the oldest ones if there are too many.
    fn begin_handshake(&mut self, scratch: &mut Scratch<'_, S>, slot: u32, id: u64) {
        self.handshakes.begin(slot, id);
        let workers = self.shared.population.len();
        while let Some((slot, id)) = self.handshakes.excess(self.limits.clients_max, workers) {
            if self.find(slot, id).is_some_and(|connection| connection.is_handshaking()) {
                self.traffic().handshakes_given_up.add(1);
                self.close(scratch, slot);
            }
        }
    }

    pub(crate) fn close(&mut self, scratch: &mut Scratch<'_, S>, slot: u32) {
        if let Some(Some(connection)) = self.connections.get(slot as usize)
            && connection.is_departing()
        {
            self.depart();
        }
        let Some(connection) = self.connections.get_mut(slot as usize).and_then(Option::take) else { return };
        self.nested_poll.free(slot, &mut self.free_slots);
        self.open -= 1;
        if connection.is_handshaking() {
            self.handshakes.note_end();
        }
        self.shared.population[self.worker].fetch_sub(1, Relaxed);
        let id = connection.client.id();
        let (session, unsent) = connection.close(self);
        scratch.service.close(session);
        if let Some(unsent) = unsent {
            scratch.service.discard(Box::new(unsent));
        }
        // Last: a client that is no longer listed receives nothing more.
        self.shared.clients.remove(id);
    }

    /// Visits a part of the connections for work that is due by time.
    pub(crate) fn sweep(&mut self, scratch: &mut Scratch<'_, S>) {
        if self.now.instant < self.sweep_at {
            return;
        }
        self.sweep_at = self.now.instant + SWEEP_INTERVAL;
        let count = self.connections.len().div_ceil(SWEEPS_PER_ROUND);
        let end = (self.sweep_from + count).min(self.connections.len());
        for slot in self.sweep_from..end {
            let Some(mut connection) = self.connections[slot].take() else { continue };
            let is_overdue = connection.is_overdue(self);
            self.connections[slot] = Some(connection);
            if is_overdue {
                self.close(scratch, slot as u32);
            }
        }
        self.sweep_from = if end == self.connections.len() { 0 } else { end };
    }

    /// Accepts and serves nothing more; replies on their way get `grace` to leave.
    fn stop(&mut self, scratch: &mut Scratch<'_, S>, grace: Duration) {
        self.listeners.clear();
        self.stop_at.get_or_insert(self.now.instant + grace);
        for slot in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[slot] {
                connection.stop();
                self.take_turn(scratch, slot as u32);
            }
        }
    }
}
