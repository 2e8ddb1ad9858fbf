//! One worker thread: its tick, its connections, its deadlines.
//!
//! ```text
//! poll ─▶ newcomers on listeners ─▶ turns of ready connections ─▶ mail ─▶ turns of addressed
//!   ▲                                                             connections ─▶ deadlines ─┐
//!   └──────────── background slice ◀── sweep of one tenth of all connections ◀──────────────┘
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::connection::{self, Connection, Kit, Outcome, SHARED_BYTES};
use super::listener::{Listener, Refusal};
use super::outbox::Outbox;
use super::post::{Mail, Newcomer};
use super::{Address, Client, Clients, Limits, Now, PostOffice, Service, To, Traffic, Transport, output};

/// The poller's token of the mailbox's bell.
pub(super) const BELL: Token = Token(usize::MAX);
/// The poller's token of the first listener; the others follow downwards.
const FIRST_LISTENER: usize = usize::MAX - 1;
/// Events of one poll.
const EVENTS_MAX: usize = 1024;
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

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared<L> {
    pub(super) post: PostOffice<L>,
    pub(super) clients: Arc<Clients>,
    pub(super) limits: Arc<ArcSwap<Limits>>,
    pub(super) traffic: Arc<[Traffic]>,
    /// Connections of each worker, those on their way included.
    pub(super) population: Box<[AtomicUsize]>,
}

/// A listening socket in worker 0's care.
#[derive(Debug)]
struct Door {
    listener: Listener,
    /// The backlog may hold connections.
    ready: bool,
    /// Accepting has failed; when to try again.
    retry_at: Option<Instant>,
}

pub(super) struct Worker<S: Service> {
    index: usize,
    poll: Poll,
    kit: Kit<S>,
    shared: Arc<Shared<S::Letter>>,
    doors: Vec<Door>,
    connections: Vec<Option<Box<Connection<S::Session>>>>,
    free_slots: Vec<u32>,
    open: usize,
    /// Slots that have more to do in the next tick.
    ready: Vec<u32>,
    /// Slots that letters of this tick were for.
    addressed: Vec<u32>,
    mail: Vec<Mail<S::Letter>>,
    /// Connections whose replies wait to be released, by the mark that they wait for: slot and client.
    withheld: VecDeque<(u64, u32, u64)>,
    /// Deadlines of parked connections, soonest first; entries of the past may have become moot.
    deadlines: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    background_at: Instant,
    sweep_at: Instant,
    sweep_from: usize,
    /// When to stop waiting for clients to read their last replies.
    stop_at: Option<Instant>,
}

impl<S: Service> Worker<S> {
    pub(super) fn new(
        index: usize,
        poll: Poll,
        service: S,
        shared: Arc<Shared<S::Letter>>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let now = Now::read();
        for (number, listener) in listeners.iter().enumerate() {
            let token = Token(FIRST_LISTENER - number);
            poll.registry().register(
                &mut SourceFd(&listener.socket.as_raw_fd()),
                token,
                Interest::READABLE,
            )?;
        }
        let kit = Kit {
            service,
            shared: Vec::with_capacity(SHARED_BYTES),
            reply: dunlin_resp::ReplyBuffer::default(),
            limits: shared.limits.load_full(),
            registry: poll.registry().try_clone()?,
            now,
            traffic: shared.traffic.clone(),
            worker: index,
        };
        let doors =
            listeners.into_iter().map(|listener| Door { listener, ready: true, retry_at: None }).collect();
        Ok(Self {
            index,
            poll,
            kit,
            shared,
            doors,
            connections: Vec::new(),
            free_slots: Vec::new(),
            open: 0,
            ready: Vec::new(),
            addressed: Vec::new(),
            mail: Vec::new(),
            withheld: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            background_at: now.instant,
            sweep_at: now.instant,
            sweep_from: 0,
            stop_at: None,
        })
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.is_done() {
            match self.poll.poll(&mut events, self.sleep_max()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                other => other?,
            }
            self.begin_tick();
            let ready = std::mem::take(&mut self.ready);
            for event in &events {
                self.note(event);
            }
            self.accept();
            self.take_turns(ready);
            self.read_mail();
            self.pass_deadlines();
            self.sweep();
            self.kit.service.end_tick();
            self.release();
            if self.kit.now.instant >= self.background_at {
                self.background_at = self.kit.now.instant + self.kit.service.background(self.kit.now);
            }
        }
        for slot in 0..self.connections.len() {
            self.close(slot as u32);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.stop_at.is_some_and(|stop_at| self.open == 0 || self.kit.now.instant >= stop_at)
    }

    /// How long the poll may take.
    fn sleep_max(&self) -> Option<Duration> {
        let may_accept = self.may_accept();
        let busy = !self.ready.is_empty() || (may_accept && self.doors.iter().any(|door| door.ready));
        if busy || !self.shared.post.mailbox(self.index).may_sleep() {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            Some(self.background_at),
            (self.open > 0).then_some(self.sweep_at),
            self.deadlines.peek().map(|Reverse((deadline, ..))| *deadline),
            self.doors.iter().filter_map(|door| door.retry_at).filter(|_| may_accept).min(),
            self.stop_at,
        ];
        let next = deadlines.into_iter().flatten().min()?;
        // The tick's own work has taken time: the clock of its beginning would oversleep.
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn begin_tick(&mut self) {
        self.kit.now = Now::read();
        self.kit.traffic[self.index].ticks.add(1);
        let limits = self.shared.limits.load();
        if !Arc::ptr_eq(&limits, &self.kit.limits) {
            self.kit.limits = Arc::clone(&limits);
        }
        self.kit.service.tick(self.kit.now);
    }

    /// Acts on one event of the poller: connections take their turn at once.
    fn note(&mut self, event: &mio::event::Event) {
        let token = event.token();
        if token == BELL {
            return;
        }
        let listener = FIRST_LISTENER - token.0;
        if let Some(door) = self.doors.get_mut(listener) {
            door.ready = true;
            return;
        }
        // A connection closed earlier in this tick may still have an event.
        let Some(Some(connection)) = self.connections.get_mut(token.0) else { return };
        if connection.note_readiness(event) {
            self.take_turn(token.0 as u32);
        } else {
            self.close(token.0 as u32);
        }
    }

    fn take_turns(&mut self, slots: Vec<u32>) {
        for slot in slots {
            if let Some(Some(connection)) = self.connections.get_mut(slot as usize) {
                // It may have had this tick's turn already, because of an event.
                if std::mem::take(&mut connection.queued) {
                    self.take_turn(slot);
                }
            }
        }
    }

    fn take_turn(&mut self, slot: u32) {
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else { return };
        let was_until = connection.parked_until();
        match connection.turn(&mut self.kit) {
            Outcome::Close => return self.close(slot),
            Outcome::Again if !connection.queued => {
                connection.queued = true;
                self.ready.push(slot);
            }
            Outcome::Again | Outcome::Wait => {}
        }
        if let Some(mark) = connection.newly_withheld() {
            self.withheld.push_back((mark, slot, connection.client.id()));
        }
        self.watch_deadline(slot, was_until);
    }

    /// Sends replies that have been released meanwhile, and sees to it that the worker is woken for the
    /// rest.
    fn release(&mut self) {
        while let Some(&(mark, slot, id)) = self.withheld.front() {
            let released = self.kit.service.released();
            if released < mark {
                if self.kit.service.await_release(mark) {
                    return;
                }
                continue;
            }
            self.withheld.pop_front();
            if let Some(connection) = self.find(slot, id) {
                connection.release(released);
                self.take_turn(slot);
            }
        }
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

    /// Drops the deadlines of connections that are parked no more: clients that wait for long, and are
    /// served soon, over and over, must not pile them up.
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

    fn pass_deadlines(&mut self) {
        while let Some(&Reverse((deadline, slot, id))) = self.deadlines.peek() {
            if deadline > self.kit.now.instant {
                return;
            }
            self.deadlines.pop();
            let Some(connection) = self.find(slot, id) else { continue };
            if connection.parked_until() != Some(deadline) {
                continue;
            }
            let Some(Some(connection)) = self.connections.get_mut(slot as usize) else { continue };
            if !connection.resume(&mut self.kit) {
                self.close(slot);
                continue;
            }
            self.watch_deadline(slot, Some(deadline));
            self.take_turn(slot);
        }
    }

    fn find(&mut self, slot: u32, id: u64) -> Option<&mut Connection<S::Session>> {
        let connection = self.connections.get_mut(slot as usize)?.as_deref_mut()?;
        (connection.client.id() == id).then_some(connection)
    }

    fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.shared.post.mailbox(self.index).collect(&mut mail);
        for letter in mail.drain(..) {
            match letter {
                Mail::Newcomer(newcomer) => self.adopt(newcomer),
                Mail::Letter(To::Client(address), letter) => {
                    if self.find(address.slot, address.id).is_some() {
                        self.deliver(address.slot, letter);
                    }
                }
                Mail::Letter(To::EveryClient, letter) => {
                    for slot in 0..self.connections.len() {
                        self.deliver(slot as u32, letter.clone());
                    }
                }
                Mail::Letter(To::Service, letter) => {
                    let (connections, addressed) = (&mut self.connections[..], &mut self.addressed);
                    let limits = &self.kit.limits;
                    self.kit.service.receive(letter, &mut Outbox { connections, addressed, limits });
                }
                Mail::Kill(address) => {
                    if self.find(address.slot, address.id).is_some() {
                        self.close(address.slot);
                    }
                }
                Mail::Stop(grace) => self.stop(grace),
            }
        }
        self.mail = mail;
        let mut addressed = std::mem::take(&mut self.addressed);
        for slot in addressed.drain(..) {
            if let Some(Some(connection)) = self.connections.get_mut(slot as usize) {
                connection.addressed = false;
                self.take_turn(slot);
            }
        }
        self.addressed = addressed;
    }

    fn deliver(&mut self, slot: u32, letter: S::Letter) {
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else { return };
        let was_until = connection.parked_until();
        if !connection.deliver(&mut self.kit, letter) {
            return self.close(slot);
        }
        connection.address(&mut self.addressed);
        self.watch_deadline(slot, was_until);
    }

    /// Whether it is this worker that accepts connections: the first, or all others while that is held up.
    fn may_accept(&self) -> bool {
        self.index == 0 || self.shared.post.is_held_up(0)
    }

    /// Accepts a bounded burst from every listener that has connections waiting.
    fn accept(&mut self) {
        if !self.may_accept() {
            return;
        }
        for number in 0..self.doors.len() {
            let door = &mut self.doors[number];
            if door.retry_at.is_some_and(|retry_at| self.kit.now.instant >= retry_at) {
                door.ready = true;
            }
            if !door.ready {
                continue;
            }
            for _ in 0..ACCEPTED_MAX {
                let door = &mut self.doors[number];
                match door.listener.accept(&self.kit.limits) {
                    Ok((socket, transport)) => {
                        door.retry_at = None;
                        self.welcome(socket, transport);
                    }
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => {
                            door.ready = false;
                            door.retry_at = None;
                            break;
                        }
                        // The peer has given up, or a setting failed because it has.
                        io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::NotConnected => {}
                        _ => {
                            if door.retry_at.is_none() {
                                tracing::warn!("cannot accept clients for the moment: {error}");
                            }
                            door.ready = false;
                            door.retry_at = Some(self.kit.now.instant + ACCEPT_RETRY);
                            break;
                        }
                    },
                }
            }
        }
    }

    /// Admits a new connection and gives it to the worker with the fewest.
    fn welcome(&mut self, socket: socket2::Socket, transport: Transport) {
        let traffic = &self.kit.traffic[self.index];
        traffic.connections_received.add(1);
        let refusal = if self.kit.limits.loopback_only && !transport.is_local() {
            Refusal::NotLoopback
        } else if let Some(id) = self.shared.clients.admit(self.kit.limits.clients_max) {
            let population = &self.shared.population;
            let worker = (0..population.len())
                .min_by_key(|&worker| (self.shared.post.is_held_up(worker), population[worker].load(Relaxed)))
                .expect("there is a worker");
            population[worker].fetch_add(1, Relaxed);
            return self.shared.post.post(worker, Mail::Newcomer(Newcomer { id, socket, transport }));
        } else {
            Refusal::TooManyClients
        };
        traffic.connections_rejected.add(1);
        // A new socket takes a line; if it does not, the client learns it from the closing.
        let _ = output::write(&socket, refusal.reply());
        connection::finish(&socket);
    }

    /// Takes charge of a connection.
    fn adopt(&mut self, Newcomer { id, socket, transport }: Newcomer) {
        let slot = self.free_slots.pop().unwrap_or(self.connections.len() as u32);
        let address = Address { id, worker: self.index as u32, slot };
        let client = Arc::new(Client::new(address, transport, socket.as_raw_fd(), self.kit.now));
        match Connection::new(socket, client.clone(), &mut self.kit) {
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
            }
            Err(error) => {
                tracing::warn!("cannot serve {client}: {error}");
                if (slot as usize) < self.connections.len() {
                    self.free_slots.push(slot);
                }
                self.shared.population[self.index].fetch_sub(1, Relaxed);
                self.shared.clients.withdraw();
            }
        }
    }

    fn close(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize).and_then(Option::take) else { return };
        self.free_slots.push(slot);
        self.open -= 1;
        self.shared.population[self.index].fetch_sub(1, Relaxed);
        self.shared.clients.remove(connection.client.id());
        self.kit.service.close(connection.close());
    }

    /// Visits a part of the connections for what only time brings about.
    fn sweep(&mut self) {
        if self.kit.now.instant < self.sweep_at {
            return;
        }
        self.sweep_at = self.kit.now.instant + SWEEP_INTERVAL;
        let count = self.connections.len().div_ceil(SWEEPS_PER_ROUND);
        let end = (self.sweep_from + count).min(self.connections.len());
        for slot in self.sweep_from..end {
            let Some(connection) = &mut self.connections[slot] else { continue };
            if connection.is_overdue(&self.kit) {
                self.close(slot as u32);
            }
        }
        self.sweep_from = if end == self.connections.len() { 0 } else { end };
    }

    /// Accepts and serves nothing more; replies on their way get `grace` to leave.
    fn stop(&mut self, grace: Duration) {
        self.doors.clear();
        self.stop_at.get_or_insert(self.kit.now.instant + grace);
        for slot in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[slot] {
                connection.stop();
                self.take_turn(slot as u32);
            }
        }
    }
}
