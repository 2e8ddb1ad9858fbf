//! Notices of commands for other clients: keyspace events, and changes of keys that clients keep copies of.
//!
//! ```text
//! lock ─▶ handler ─▶ notices gather in the worker ─▶ its audience gets them ─▶ unlock
//! ```
//!
//! Handlers report events as they change keys ([`crate::WriteContext::notify`]); those of a wanted class gather. The
//! host's [`Audience`] gets all of them, in order, while the changed keys are locked: a client that has seen a change
//! finds that all receivers have its notice. Names and classes of events are those of Redis's keyspace notifications.

use std::{any::Any, fmt::Debug, sync::Arc};

use crate::keyspace::{ClientToken, Invalidation};

/// A kind of event; one bit of [`EventClasses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum EventClass {
    /// `g`: commands of no type, like `del` and `expire`.
    Generic = 1 << 0,
    /// `$`: commands of strings.
    String = 1 << 1,
    /// `l`: commands of lists.
    List = 1 << 2,
    /// `s`: commands of sets.
    Set = 1 << 3,
    /// `h`: commands of hashes.
    Hash = 1 << 4,
    /// `z`: commands of sorted sets.
    SortedSet = 1 << 5,
    /// `t`: commands of streams.
    Stream = 1 << 6,
    /// `a`: commands of arrays.
    Array = 1 << 11,
    /// `d`: commands that are a module's in Redis, such as those of JSON.
    Module = 1 << 12,
    /// `x`: a key's time has come.
    Expired = 1 << 7,
    /// `e`: a key gave way to `maxmemory`.
    Evicted = 1 << 8,
    /// `n`: a key that was not there before.
    New = 1 << 9,
    /// `m`: a read that missed its key.
    KeyMiss = 1 << 10,
}

impl EventClass {
    /// All of them with their letters in `notify-keyspace-events`, in the order in which it shows them.
    pub const LETTERS: [(u8, EventClass); 13] = [
        (b'g', Self::Generic),
        (b'$', Self::String),
        (b'l', Self::List),
        (b's', Self::Set),
        (b'h', Self::Hash),
        (b'z', Self::SortedSet),
        (b'x', Self::Expired),
        (b'e', Self::Evicted),
        (b't', Self::Stream),
        (b'a', Self::Array),
        (b'd', Self::Module),
        (b'n', Self::New),
        (b'm', Self::KeyMiss),
    ];
}

/// The bit of [`EventClasses`] whose events say which elements they are about.
const SUBKEYS: u32 = 1 << 31;

/// A set of [`EventClass`]es.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventClasses(u32);

impl EventClasses {
    /// The set with `class` added.
    pub const fn and(self, class: EventClass) -> Self {
        Self(self.0 | class as u32)
    }

    /// The set, of events that say which elements of the key they are about.
    pub const fn with_subkeys(self) -> Self {
        Self(self.0 | SUBKEYS)
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has `class`, and its events say which elements they are about.
    #[inline]
    pub const fn has_subkeys(self, class: EventClass) -> bool {
        self.has(class) && self.0 & SUBKEYS != 0
    }

    /// Whether the set has `class`.
    #[inline]
    pub const fn has(self, class: EventClass) -> bool {
        self.0 & class as u32 != 0
    }
}

/// Something that happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its kind.
    pub class: EventClass,
    /// Its name, such as `lpush`.
    pub name: &'static str,
    /// The key's database.
    pub database: usize,
    /// The key.
    pub key: Vec<u8>,
    /// The elements that it is about, in the order of the command, if subscribers want to know them: fields of a hash.
    pub subkeys: Vec<Vec<u8>>,
}

/// A notice of something that commands have done.
#[derive(Debug)]
pub enum Notice {
    /// An event of a key.
    Event(Event),
    /// Clients may keep copies of something that has changed.
    Invalidation(Invalidation),
    /// Something of the host's own that is to be told in this order, once the change that it speaks of is in the log.
    Host(Box<dyn Any + Send>),
    /// The client whose commands these are receives pushes itself: its place among all changes is decided under the
    /// locks of each command. This one stays.
    Client(Arc<dyn ClientPosition>),
}

/// The place of a client's command among all changes, as the host keeps it.
pub trait ClientPosition: Debug + Send + Sync {
    /// Decides it for the command at hand, whose keys are locked. Called for one command as often as it takes locks.
    fn mark(&self);
}

/// The receiver of a worker's notices.
pub trait Audience: Debug + Send {
    /// Takes notices, in order, of changes by a client (of id 0 for none). Their keys are locked, so this must neither
    /// wait nor take long; a client that sees the changes must find that this was done before.
    fn tell(&mut self, notices: &[Notice], writer: ClientToken);
}
