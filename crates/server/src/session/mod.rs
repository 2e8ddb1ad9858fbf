//! [`Session`]: what an executor keeps for one connection.
//!
//! The part that others may see (`CLIENT LIST`, `INFO`) is copied into the connection's
//! [`Client`] once per call of the service, and before a client is shown to itself.

pub(crate) mod arrivals;
pub(crate) mod import;
pub(crate) mod order;
pub(crate) mod replica;
pub(crate) mod subscriptions;
pub(crate) mod tracking;
pub(crate) mod transaction;

use std::{cell::OnceCell, sync::Arc, time::Instant};

use dunlin_acl::User;
use dunlin_engine::ClientPosition;
use dunlin_net::Client;
use dunlin_resp::{Mark, Protocol, ReplyBuffer, RequestDecoder};

use self::{
    arrivals::Arrivals,
    import::Import,
    order::AwaitedChange,
    replica::ReplicaClient,
    subscriptions::Subscriptions,
    tracking::Tracking,
    transaction::{Queue, Watching},
};
use crate::{
    access::Access,
    admission::{Check, Conditions},
    config::Config,
};

/// Properties of a client that `CLIENT LIST` shows as letters, as bits of [`Client::flags`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClientFlags(u64);

impl ClientFlags {
    /// A command waits for a key, or for the end of `CLIENT PAUSE`.
    pub(crate) const BLOCKED: Self = Self(1 << 0);
    /// The connection closes once its last reply has left.
    pub(crate) const CLOSING: Self = Self(1 << 1);
    /// `CLIENT NO-EVICT on`.
    pub(crate) const NO_EVICT: Self = Self(1 << 2);
    /// `CLIENT NO-TOUCH on`.
    pub(crate) const NO_TOUCH: Self = Self(1 << 3);
    /// `CLIENT CAPA redirect`.
    pub(crate) const CAN_REDIRECT: Self = Self(1 << 4);
    /// `READONLY`: a replica answers its reads, though the client takes redirections.
    pub(crate) const READS_REPLICAS: Self = Self(1 << 9);

    /// `MONITOR`.
    pub(crate) const MONITOR: Self = Self(1 << 5);

    /// `CLIENT TRACKING`.
    pub(crate) const TRACKING: Self = Self(1 << 6);
    /// `CLIENT TRACKING … BCAST`.
    pub(crate) const BROADCAST: Self = Self(1 << 8);

    /// The flags that a client has published.
    pub(crate) fn of(client: &Client) -> Self {
        Self(client.flags.get())
    }

    /// Whether all of `other` is set.
    #[inline]
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets or clears `other`.
    #[inline]
    pub(crate) fn set(&mut self, other: Self, on: bool) {
        if on { self.0 |= other.0 } else { self.0 &= !other.0 }
    }
}

/// Which replies a client wants (`CLIENT REPLY`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// None to the command that is running, which is `CLIENT REPLY SKIP`, nor to the one behind it.
    SkipNext,
    /// None to the next command.
    Skip,
}

/// Whether a client wants the reply to a command that has not been answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IsHeard(pub(crate) bool);

/// The place of a client's commands among the pushes to it.
#[derive(Debug)]
pub(crate) struct PushPosition(pub(crate) Arc<Client>);

impl ClientPosition for PushPosition {
    fn mark(&self) {
        self.0.mark_pushes();
    }
}

/// The durability that the replies to a client wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// `min-sync-replicas` and `appendfsync`.
    #[default]
    Configured,
    /// Nothing.
    Async,
    /// The disk.
    Disk,
    /// This many replicas.
    Sync(u8),
}

/// A command that has been offloaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OffloadedCommand {
    pub(crate) is_heard: IsHeard,
    /// Whether its place among all changes is decided: pushes about later ones come after its reply.
    pub(crate) is_decided: bool,
}

/// The condition of a WAIT or WAITAOF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurabilityWait {
    /// The offset of the log behind what the client has written.
    pub(crate) mark: u64,
    /// Whether the log here has to be durable up to there.
    pub(crate) local: bool,
    /// How many replicas have to confirm it: that they have applied it, or with WAITAOF that it is on disk.
    pub(crate) replicas: u64,
    /// Whether the answer tells of this server too.
    pub(crate) counts_local: bool,
}

/// A command that has begun, and is answered later: its part in the statistics is counted when that happens.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Its place in the command table.
    pub(crate) index: usize,
    /// Its words, if they are not kept elsewhere.
    pub(crate) words: Vec<Box<[u8]>>,
    /// Bytes of its request.
    pub(crate) request_bytes: usize,
    /// How long it has taken so far; the time that it waits is not its own.
    pub(crate) nanoseconds: u64,
}

/// The state of a connection.
#[derive(Debug)]
pub struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) decoder: RequestDecoder,
    /// Long words of the request that is arriving, while there are any.
    pub(crate) arrivals: Option<Box<Arrivals>>,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    /// Whether the client has shown who it is, or did not have to when it came.
    pub(crate) authenticated: bool,
    /// The user that it is, as of `access_version`.
    pub(crate) user: Arc<User>,
    /// The version of the list of users that was looked at last.
    pub(crate) access_version: u64,
    /// The conditions of its own that may keep its commands from running, since [`Self::refresh_conditions`].
    pub(crate) conditions: Conditions,
    /// When its attempt to authenticate is looked at, which has to wait for that.
    pub(crate) attempt_at: Option<Instant>,
    pub(crate) replies: Replies,
    pub(crate) flags: ClientFlags,
    /// Index of the last known command in the command table.
    pub(crate) last_command: Option<usize>,
    /// Commands that have been answered.
    pub(crate) commands: u64,
    /// Its subscriptions, while there are any.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// Its tracking of keys, while it does.
    pub(crate) tracking: Option<Box<Tracking>>,
    /// Whether it has ever tracked: keys may have it among their readers.
    pub(crate) has_tracked: bool,
    /// The commands since `MULTI`.
    pub(crate) queue: Option<Box<Queue>>,
    /// The keys that it watches, while there are any.
    pub(crate) watching: Option<Box<Watching>>,
    /// The place of its commands among the pushes to it; there once that mattered.
    pub(crate) position: OnceCell<Arc<PushPosition>>,
    /// The last command has written a push, which leaves whichever replies are wanted.
    pub(crate) pushed: bool,
    /// Whether it can be sent pushes: then the place of its commands among all changes matters.
    pub(crate) is_pushed_to: bool,
    /// Whether what its replies have seen is noted one by one.
    pub(crate) notes_seen: bool,
    /// Whether `MONITOR` has shown the command at hand, which is presented again.
    pub(crate) is_shown: bool,
    /// Whether a command waits for keys, and then whether its client wants to hear of it.
    pub(crate) waiting: Option<IsHeard>,
    /// When that wait ends; `None` for never.
    pub(crate) waits_until: Option<Instant>,
    /// The command that is being offloaded, if one is.
    pub(crate) offloaded: Option<OffloadedCommand>,
    /// The time since which a command has been waiting for a view of what it may change to end.
    pub(crate) held_since: Option<Instant>,
    /// Whether its worker tells it when there is room in the log, or in the queue of a snapshot.
    pub(crate) waits_for_room: bool,
    /// Its WAIT or WAITAOF, and whether it wants the answer.
    pub(crate) durability: Option<(DurabilityWait, IsHeard)>,
    /// The time since which `DEBUG SLEEP` has been asleep, and whether its client wants the reply.
    pub(crate) asleep: Option<(Instant, IsHeard)>,
    /// The command that is answered later, if there is one.
    pub(crate) unfinished: Option<Box<Unfinished>>,
    /// Its description of itself as a replica.
    pub(crate) replica: Option<Arc<ReplicaClient>>,
    /// The durability that its replies wait for (`CLIENT DURABILITY`).
    pub(crate) durability_mode: Durability,
    /// The log's offset up to which it may have seen changes, if pushes wait for that.
    pub(crate) seen_to: u64,
    /// The log's offset behind what other workers have served it with, for WAIT and WAITAOF.
    pub(crate) served_to: u64,
    /// Whether the server was a replica when its last commands were let in.
    pub(crate) as_replica: bool,
    /// Whether its last commands were let in by the primary of a shard, in a term.
    pub(crate) has_term: bool,
    /// The change of the server's role that it has ordered and that its command waits for.
    pub(crate) role_order: Option<u64>,
    /// The slots that its commands import: it is another primary.
    pub(crate) import: Option<Box<Import>>,
    /// The change of the cluster that its command waits for, and the user that has ordered it.
    pub(crate) order: Option<(Arc<AwaitedChange>, Arc<User>)>,
}

impl Session {
    pub(crate) fn new(client: &Arc<Client>, access: &Access) -> Self {
        // The version first: a change in between costs a second look, never a missed one.
        let access_version = access.version();
        let mut session = Self {
            client: Arc::clone(client),
            decoder: RequestDecoder::default(),
            arrivals: None,
            database: 0,
            protocol: Protocol::Resp2,
            authenticated: access.is_open(),
            user: access.default_user(),
            access_version,
            conditions: Conditions::default(),
            attempt_at: None,
            replies: Replies::On,
            flags: ClientFlags::default(),
            last_command: None,
            commands: 0,
            subscriptions: None,
            tracking: None,
            has_tracked: false,
            queue: None,
            watching: None,
            position: OnceCell::new(),
            pushed: false,
            is_pushed_to: false,
            notes_seen: false,
            is_shown: false,
            waiting: None,
            waits_until: None,
            offloaded: None,
            held_since: None,
            waits_for_room: false,
            durability: None,
            asleep: None,
            unfinished: None,
            replica: None,
            durability_mode: Durability::Configured,
            seen_to: 0,
            served_to: 0,
            as_replica: false,
            has_term: false,
            role_order: None,
            import: None,
            order: None,
        };
        session.refresh_conditions(access.is_open());
        session
    }

    /// The database of the command that comes next: after a SELECT that waits for EXEC, the one that it selects.
    pub(crate) fn next_database(&self) -> usize {
        self.queue.as_ref().and_then(|queue| queue.database).unwrap_or(self.database)
    }

    /// Looks again at the parts of its own state that may keep its commands from running. To be called after
    /// whatever changes that: commands of the server, and changes of users. `is_open` says whether clients are let
    /// in without authentication.
    #[inline]
    pub(crate) fn refresh_conditions(&mut self, is_open: bool) {
        self.conditions = Conditions::ALWAYS
            .with(Check::Authentication, !self.authenticated && !is_open)
            .with(Check::Nesting, self.queue.is_some())
            .with(Check::Access, !self.user.is_unrestricted())
            .with(Check::Listening, self.only_listens())
            .with(Check::Monitoring, self.flags.has(ClientFlags::MONITOR))
            .with(Check::Queue, self.queue.is_some());
    }

    /// How many replicas have to have what its replies show.
    #[inline]
    pub(crate) fn sync_replicas(&self, config: &Config) -> u8 {
        match self.durability_mode {
            Durability::Configured => config.min_sync_replicas,
            Durability::Sync(replicas) => replicas,
            Durability::Async | Durability::Disk => 0,
        }
    }

    /// `RESET`: as if it had just connected, except for its identity: its number and its library.
    /// If the reply to `RESET` itself is to be skipped, it is.
    pub(crate) fn reset(&mut self, access: &Access) {
        self.database = 0;
        self.speak(Protocol::Resp2);
        self.access_version = access.version();
        self.user = access.default_user();
        self.authenticated = access.is_open();
        if self.replies != Replies::Skip {
            self.replies = Replies::On;
        }
        self.flags.set(ClientFlags::NO_EVICT, false);
        self.flags.set(ClientFlags::NO_TOUCH, false);
        self.flags.set(ClientFlags::READS_REPLICAS, false);
        self.durability_mode = Durability::Configured;
        let mut names = self.client.names();
        names.name.clear();
        names.user.clear();
    }

    /// Makes it possible to send it pushes; those from now on come after the reply to the command at hand.
    pub(crate) fn take_pushes(&mut self) {
        self.client.take_pushes(self.protocol).mark();
        self.is_pushed_to = true;
    }

    /// Changes the protocol that it speaks, from the command at hand on.
    pub(crate) fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        if let Some(pushes) = self.client.pushes.get() {
            pushes.change(|listener| listener.protocol = protocol);
        }
    }

    /// Whether the command at hand is presented again since another thread carries its work out.
    #[cold]
    pub(crate) fn awaits_order(&self) -> bool {
        self.held_since.is_some() && (self.role_order.is_some() || self.order.is_some())
    }

    /// Whether it may do little more than listen: RESP2 cannot tell messages from replies.
    #[inline]
    pub(crate) fn only_listens(&self) -> bool {
        self.subscriptions.is_some() && self.protocol == Protocol::Resp2
    }

    /// Withdraws the reply written since `mark` if the client does not want it. To be called after
    /// every command while replies are not [`Replies::On`].
    #[cold]
    pub(crate) fn settle_reply(&mut self, mark: Mark, reply: &mut ReplyBuffer) {
        self.replies = match self.replies {
            Replies::On => return,
            Replies::Off => Replies::Off,
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
        };
        if !std::mem::take(&mut self.pushed) {
            reply.rewind(mark);
        }
    }

    /// Notes that a command was answered with an error, if it is part of an import: nothing of that may be missing.
    #[cold]
    pub(crate) fn note_failed_import(&mut self, line: &[u8]) {
        if let Some(import) = &mut self.import {
            import.fail(line);
        }
    }

    /// Shows others how it stands.
    #[inline]
    pub(crate) fn publish(&self) {
        let client = &*self.client;
        client.database.set(self.database as u64);
        client.protocol.set(if self.protocol == Protocol::Resp3 { 3 } else { 2 });
        client.command.set(self.last_command.map_or(u64::MAX, |index| index as u64));
        client.commands_total.set(self.commands);
        client.flags.set(self.flags.0);
        let (commands, bytes) = self.queue.as_ref().map_or((0, 0), |queue| (queue.len() + 1, queue.bytes()));
        client.queued_commands.set(commands as u64);
        client.queued_bytes.set(bytes as u64);
    }
}
