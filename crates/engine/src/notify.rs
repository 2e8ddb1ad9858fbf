//! Keyspace events: what happened to a key, for those who asked to be told.
//!
//! Handlers report events as they change keys ([`crate::WriteContext::notify`]); those of a wanted
//! class gather in the worker, and whoever runs the engine publishes them once the locks are
//! released, in order. Names and classes are those of Redis's keyspace notifications.

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
    pub const LETTERS: [(u8, EventClass); 11] = [
        (b'g', Self::Generic),
        (b'$', Self::String),
        (b'l', Self::List),
        (b's', Self::Set),
        (b'h', Self::Hash),
        (b'z', Self::SortedSet),
        (b'x', Self::Expired),
        (b'e', Self::Evicted),
        (b't', Self::Stream),
        (b'n', Self::New),
        (b'm', Self::KeyMiss),
    ];
}

/// A set of [`EventClass`]es.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventClasses(u32);

impl EventClasses {
    /// The set with `class` added.
    pub const fn and(self, class: EventClass) -> Self {
        Self(self.0 | class as u32)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
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
}
