//! Clients whose commands wait for keys, or for the log to be durable: finding them, and ending their wait.
//!
//! The engine knows the place of a waiting client (its [`Waiter`]); this module knows the clients that
//! wait. Each worker has one table: that worker writes it, and a thread that unblocks or kills one of its
//! clients reads it.
//!
//! A wait ends once: with [`Engine::withdraw`] or by being served, which exclude each other under the locks
//! of its keys. The thread that ends a wait owes the client the reply; the client's worker waits for that
//! reply if the engine says that another thread was faster.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dunlin_engine::{
    Engine,
    command::CommandError,
    keyspace::{ClientToken, Waiter},
};
use dunlin_net::{Address, Client};
use dunlin_resp::{Protocol, ReplyBuffer};

use crate::session::DurabilityWait;

/// Why a wait ends before its command could be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its time is over, or `CLIENT UNBLOCK` pretends so.
    Timeout,
    /// `CLIENT UNBLOCK … ERROR`.
    Error,
    /// The server has ceased to be a primary.
    Demoted,
}

impl Ending {
    /// Answers the command that has waited.
    pub(crate) fn answer(self, reply: &mut ReplyBuffer) {
        match self {
            Self::Timeout => reply.null_array(),
            Self::Error => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            Self::Demoted => reply.error(
                "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            ),
        }
    }

    /// The answer, encoded for a client.
    pub(crate) fn encode(self, waiter: &Waiter) -> Unblocked {
        Unblocked::with(encode(waiter.protocol, |reply| self.answer(reply)))
    }
}

/// The answer to a client that has waited.
#[derive(Debug)]
pub struct Unblocked {
    /// The reply, encoded.
    pub(crate) reply: Vec<u8>,
    /// The time that it took to serve the command, which is not the time that it has waited.
    pub(crate) nanoseconds: u64,
    /// Whether the connection ends with this reply. A client that takes redirections gets one instead.
    pub(crate) closes: bool,
}

impl Unblocked {
    /// An unblocking with a reply that took no time.
    pub(crate) fn with(reply: Vec<u8>) -> Self {
        Self { reply, nanoseconds: 0, closes: false }
    }

    /// An unblocking by a server that has become a replica.
    pub(crate) fn demoted() -> Self {
        // An error line is the same in both protocols.
        let reply = encode(Protocol::Resp2, |reply| Ending::Demoted.answer(reply));
        Self { reply, nanoseconds: 0, closes: true }
    }
}

/// The line of a whole reply, if that is an error.
pub(crate) fn error_line(encoded: &[u8]) -> Option<&[u8]> {
    encoded.strip_prefix(b"-")?.strip_suffix(b"\r\n")
}

/// An answer, encoded for a client.
pub(crate) fn encode(protocol: Protocol, answer: impl FnOnce(&mut ReplyBuffer)) -> Vec<u8> {
    let mut reply = ReplyBuffer::default();
    reply.set_protocol(protocol);
    answer(&mut reply);
    reply.chunks().flatten().copied().collect()
}

/// The token by which the engine knows a client.
pub(crate) fn token(address: Address) -> ClientToken {
    ClientToken(address.id, u64::from(address.worker) << 32 | u64::from(address.slot))
}

/// The client that the engine knows by a token.
pub(crate) fn address(token: ClientToken) -> Address {
    Address { id: token.0, worker: (token.1 >> 32) as u32, slot: token.1 as u32 }
}

/// The clients of a worker that wait, by their numbers.
type Waiters = HashMap<u64, Arc<Waiter>>;

/// The waiting clients, by worker.
#[derive(Debug)]
pub(crate) struct BlockedClients {
    workers: Box<[Mutex<Waiters>]>,
    /// Clients that wait for the disk or for replicas (WAITAOF, WAIT), by number. The remover of one owes it the reply.
    durability: Mutex<HashMap<u64, (Address, DurabilityWait)>>,
}

impl BlockedClients {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Mutex::default()).collect(), durability: Mutex::default() }
    }

    /// Enters a client. Its worker only.
    pub(crate) fn enter(&self, client: &Client, waiter: &Arc<Waiter>) {
        debug_assert_eq!(client.address, address(waiter.client()));
        self.table(client.address).insert(client.id(), Arc::clone(waiter));
        if client.is_killed() {
            // Its killer may not have found it here yet.
            waiter.leave();
        }
    }

    /// The waiter of a client; it may have been served already.
    pub(crate) fn waiter(&self, address: Address) -> Option<Arc<Waiter>> {
        self.table(address).get(&address.id).cloned()
    }

    /// Marks a client as gone: nothing serves it from now on. Its wait is still to be ended.
    pub(crate) fn cancel_wait(&self, address: Address) {
        if let Some(waiter) = self.table(address).get(&address.id) {
            waiter.leave();
        }
    }

    /// Removes a client whose wait has ended. Returns what it has waited with. Its worker only.
    pub(crate) fn leave(&self, address: Address) -> Option<Arc<Waiter>> {
        self.table(address).remove(&address.id)
    }

    /// Ends the wait of a client. Returns what it waited with, unless it waits for nothing or has been served.
    /// Refused if a script has been holding a key that it waits for. The caller is inside the gate, and owes the
    /// client an answer.
    pub(crate) fn end(&self, engine: &Engine, address: Address) -> Result<Option<Arc<Waiter>>, CommandError> {
        let Some(waiter) = self.waiter(address) else { return Ok(None) };
        let has_waited = engine.withdraw(&waiter).ok_or(CommandError::Busy)?;
        Ok(has_waited.then_some(waiter))
    }

    /// Enters a client that waits for the disk or for replicas. Its worker only.
    pub(crate) fn enter_durability(&self, address: Address, wanted: DurabilityWait) {
        self.durability().insert(address.id, (address, wanted));
    }

    /// Ends such a wait. Returns what the client waits for, unless its wait has ended. The caller owes it an answer.
    pub(crate) fn end_durability(&self, address: Address) -> Option<DurabilityWait> {
        self.durability().remove(&address.id).map(|(_, wanted)| wanted)
    }

    /// All clients that wait, for whatever.
    pub(crate) fn all(&self) -> Vec<Address> {
        let mut all: Vec<Address> = self.durability().values().map(|(address, _)| *address).collect();
        for table in &self.workers {
            let table = table.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(table.values().map(|waiter| address(waiter.client())));
        }
        all
    }

    fn durability(&self) -> MutexGuard<'_, HashMap<u64, (Address, DurabilityWait)>> {
        self.durability.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self, address: Address) -> MutexGuard<'_, Waiters> {
        self.workers[address.worker as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
