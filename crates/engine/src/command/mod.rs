//! The machinery of commands: one declarative row a command, from which everything else derives
//! (dispatch, arity and memory checks, lock sets, `COMMAND` replies, generated documentation).
//!
//! A row stands beside its handler in `commands/`, as a `const`. The variant of [`Run`] is what the
//! command may do: a handler of [`Run::Read`] is never given anything that can write.

mod args;
mod argument;
mod blocking;
pub mod describe;
mod error;
mod key_spec;
mod table;

pub use args::Args;
pub use argument::{Argument, ArgumentKind};
pub use blocking::{Blocking, Wait};
pub use error::{CommandError, CommandResult};
pub use key_spec::{Access, BeginSearch, FindKeys, KeyFlags, KeySpec, Positions};
pub use table::{CommandTable, Entry, KeyShape, RenameError};

use std::any::Any;

use dunlin_resp::ReplyBuffer;

use crate::context::{ExclusiveContext, KeyspaceContext, ReadContext, WriteContext};

/// A question about the words of a request.
pub type WordsTest = fn(&[&[u8]]) -> bool;

/// Finds the words of a request that hold secrets: their positions, in ascending order.
pub type SecretWords = fn(&[&[u8]]) -> Vec<usize>;

/// Stands for a secret wherever a request is shown.
pub const REDACTED: &[u8] = b"(redacted)";

/// A command or subcommand: its row.
#[derive(Debug)]
pub struct Command {
    /// Lower-case name; of a subcommand, without its container's name.
    pub name: &'static str,
    /// A sentence for `COMMAND DOCS`.
    pub summary: &'static str,
    /// The version of Redis or Valkey that introduced the command.
    pub since: &'static str,
    /// The family, as documented to users.
    pub group: Group,
    /// Time complexity, for `COMMAND DOCS`.
    pub complexity: &'static str,
    /// The version that deprecated it, and its replacement.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// How many words a request has, the name (and the container's name) included.
    pub arity: Arity,
    /// The permission and the handler.
    pub run: Run,
    /// Properties that checks and clients look at.
    pub flags: Flags,
    /// The places of the keys among the words.
    pub keys: &'static [KeySpec],
    /// Whether a request (its words) may look at keys that `keys` does not find, since their names depend
    /// on values: such a request runs behind the closed gate (docs/decisions/0007).
    pub undeclared_keys: Option<WordsTest>,
    /// The words that name elements of the collection under its only key: they are fetched from memory
    /// ahead (docs/decisions/0011). Words that name none cost a little time and do no harm.
    pub elements: Option<ElementWords>,
    /// Positions of secret words: passwords. Logs and MONITOR show [`Entry::redacted`].
    pub secrets: Option<SecretWords>,
    /// Its arguments, for `COMMAND DOCS`.
    pub args: &'static [Argument],
    /// Advice to clients and proxies of a cluster (`request_policy:…`), as `COMMAND INFO` shows it.
    pub tips: &'static [&'static str],
    /// The subcommands of a container.
    pub subcommands: &'static [Command],
}

impl Command {
    /// A row whose optional parts are empty, to be completed with `..Command::DEFAULT`.
    pub const DEFAULT: Command = Command {
        name: "",
        summary: "",
        since: "1.0.0",
        group: Group::Generic,
        complexity: "O(1)",
        deprecated: None,
        arity: Arity::AtLeast(1),
        run: Run::Container,
        flags: Flags::NONE,
        keys: &[],
        undeclared_keys: None,
        elements: None,
        secrets: None,
        args: &[],
        tips: &[],
        subcommands: &[],
    };

    /// The subcommand of that name, in any letter case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Command> {
        self.subcommands.iter().find(|subcommand| subcommand.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether the command may change how the data set is stored.
    pub fn may_write(&self) -> bool {
        match self.run {
            Run::Write(_) | Run::Exclusive(_) => true,
            // A blocking command that writes says so: XREAD does not.
            Run::Block(_) => self.flags.has(Flags::WRITE),
            Run::Read(_) | Run::Keyspace(_) | Run::Host(_) | Run::Help(_) | Run::Container => {
                self.flags.has(Flags::WRITE)
            }
        }
    }

    /// Whether the command replaces databases as a whole, while nothing else runs.
    pub fn is_exclusive(&self) -> bool {
        matches!(self.run, Run::Exclusive(_))
    }

    /// Whether the command may change the contents of the data set.
    pub fn is_write(&self) -> bool {
        self.may_write() && !self.flags.has(Flags::READ_ONLY)
    }

    /// Whether the command reads the data set and cannot change it.
    pub fn is_read_only(&self) -> bool {
        // As in Redis, what is asked about slots is not a read.
        let reads = matches!(self.run, Run::Read(_) | Run::Keyspace(_)) && self.group != Group::Cluster;
        reads || self.flags.has(Flags::READ_ONLY)
    }
}

/// The permission of a command, as the variant, with its handler.
#[derive(Clone, Copy)]
pub enum Run {
    /// Reads values under the locks of its keys.
    Read(fn(&mut ReadContext<'_>, &mut Args<'_>, &mut ReplyBuffer) -> CommandResult),
    /// Changes values under the locks of its keys.
    Write(fn(&mut WriteContext<'_>, &mut Args<'_>, &mut ReplyBuffer) -> CommandResult),
    /// Changes values under the locks of its keys, or waits until they are there.
    Block(BlockHandler),
    /// Looks at the keyspace as a whole, one stripe at a time.
    Keyspace(fn(&mut KeyspaceContext<'_>, &mut Args<'_>, &mut ReplyBuffer) -> CommandResult),
    /// Changes the keyspace as a whole while nothing else runs.
    Exclusive(fn(&mut ExclusiveContext<'_>, &mut Args<'_>, &mut ReplyBuffer) -> CommandResult),
    /// Belongs to the host of the engine (connections, configuration, the process): a handler of a type that only
    /// the host knows.
    Host(&'static (dyn Any + Send + Sync)),
    /// Answers these lines.
    Help(&'static [&'static str]),
    /// Only names its subcommands.
    Container,
}

impl Run {
    /// The handler, if it is the host's.
    #[inline]
    pub fn host(&self) -> Option<&'static (dyn Any + Send + Sync)> {
        match self {
            Self::Host(handler) => Some(*handler),
            _ => None,
        }
    }
}

/// The handler of a command that may wait for keys.
pub type BlockHandler =
    for<'a> fn(&mut WriteContext<'_>, &mut Args<'a>, &mut ReplyBuffer) -> Result<Blocking<'a>, CommandError>;

impl std::fmt::Debug for Run {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Read(_) => "Read",
            Self::Write(_) => "Write",
            Self::Block(_) => "Block",
            Self::Keyspace(_) => "Keyspace",
            Self::Exclusive(_) => "Exclusive",
            Self::Host(_) => "Host",
            Self::Help(_) => "Help",
            Self::Container => "Container",
        })
    }
}

/// How many words a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many.
    Exactly(u16),
    /// This many or more.
    AtLeast(u16),
}

impl Arity {
    /// Whether a request of `words` words is acceptable.
    #[inline]
    pub fn accepts(self, words: usize) -> bool {
        match self {
            Self::Exactly(count) => words == count as usize,
            Self::AtLeast(count) => words >= count as usize,
        }
    }

    /// The number that `COMMAND INFO` shows: negative for a minimum.
    pub fn signed(self) -> i64 {
        match self {
            Self::Exactly(count) => i64::from(count),
            Self::AtLeast(count) => -i64::from(count),
        }
    }
}

/// Words of a request that name elements of a collection: from `first` on, each `step`-th.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementWords {
    first: u8,
    step: u8,
}

impl ElementWords {
    /// All words from the second on, that behind the key.
    pub const REST: Self = Self { first: 2, step: 1 };
    /// The words that pairs begin with.
    pub const BEFORE_VALUES: Self = Self { first: 2, step: 2 };
    /// The words that pairs end with.
    pub const BEHIND_SCORES: Self = Self { first: 3, step: 2 };

    /// The elements among the words of a request.
    #[inline]
    pub fn of<'w, 'a>(self, words: &'w [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + use<'w, 'a> {
        words.iter().skip(self.first.into()).step_by(self.step.into()).copied()
    }
}

/// The families of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Group {
    String,
    Hash,
    List,
    Set,
    SortedSet,
    Stream,
    Array,
    Json,
    Bloom,
    Cuckoo,
    CountMin,
    TopK,
    TDigest,
    TimeSeries,
    Generic,
    Bitmap,
    HyperLogLog,
    Geo,
    PubSub,
    Transactions,
    Scripting,
    Connection,
    Server,
    Cluster,
}

impl Group {
    /// All of them, in the order of the documentation.
    pub const ALL: [Group; 24] = [
        Self::String,
        Self::Hash,
        Self::List,
        Self::Set,
        Self::SortedSet,
        Self::Stream,
        Self::Array,
        Self::Json,
        Self::Bloom,
        Self::Cuckoo,
        Self::CountMin,
        Self::TopK,
        Self::TDigest,
        Self::TimeSeries,
        Self::Generic,
        Self::Bitmap,
        Self::HyperLogLog,
        Self::Geo,
        Self::PubSub,
        Self::Transactions,
        Self::Scripting,
        Self::Connection,
        Self::Server,
        Self::Cluster,
    ];

    /// The name in `COMMAND DOCS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Stream => "stream",
            Self::Array => "array",
            Self::Json => "json",
            Self::Bloom => "bf",
            Self::Cuckoo => "cf",
            Self::CountMin => "cms",
            Self::TopK => "topk",
            Self::TDigest => "tdigest",
            Self::TimeSeries => "timeseries",
            Self::Generic => "generic",
            Self::Bitmap => "bitmap",
            Self::HyperLogLog => "hyperloglog",
            Self::Geo => "geo",
            Self::PubSub => "pubsub",
            Self::Transactions => "transactions",
            Self::Scripting => "scripting",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Cluster => "cluster",
        }
    }

    /// The access-control category that every command of the group belongs to, if there is one.
    pub fn category(self) -> Option<&'static str> {
        Some(match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sortedset",
            Self::Stream => "stream",
            Self::Array => "array",
            Self::Json => "json",
            Self::Bloom => "bloom",
            Self::Cuckoo => "cuckoo",
            Self::CountMin => "cms",
            Self::TopK => "topk",
            Self::TDigest => "tdigest",
            Self::TimeSeries => "timeseries",
            Self::Generic => "keyspace",
            Self::Bitmap => "bitmap",
            Self::HyperLogLog => "hyperloglog",
            Self::Geo => "geo",
            Self::Transactions => "transaction",
            Self::Scripting => "scripting",
            Self::Connection => "connection",
            // Commands that publish or subscribe say so by a property.
            Self::PubSub | Self::Server | Self::Cluster => return None,
        })
    }
}

/// Declares the flags once each, so that no two can share a bit.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The number of each flag's bit.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "named as the constants are")]
        enum Bit {
            $($name,)*
        }

        impl Flags {
            $($(#[$doc])* pub const $name: Self = Self(1 << Bit::$name as u64);)*

            /// All flags with their names.
            #[cfg(test)]
            const ALL: &[(&'static str, Self)] = &[$((stringify!($name), Self::$name),)*];
        }
    };
}

/// Properties of a command beside what [`Run`] says; a small set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(u64);

flags! {
    /// May need memory: refused while the server is over `maxmemory`.
    DENY_OOM,
    /// Constant or logarithmic time.
    FAST,
    /// For operators.
    ADMIN,
    /// Not available to scripts.
    NO_SCRIPT,
    /// Allowed while the data set is being loaded.
    LOADING,
    /// Allowed on a replica whose data may be stale.
    STALE,
    /// Allowed before authentication.
    NO_AUTH,
    /// Publish and subscribe.
    PUBSUB,
    /// May block its client.
    BLOCKING,
    /// Not available inside MULTI.
    NO_MULTI,
    /// Never in the slow log.
    SKIP_SLOWLOG,
    /// Never shown to MONITOR.
    SKIP_MONITOR,
    /// Allowed while a script has been running for too long.
    ALLOW_BUSY,
    /// Not while a replica loads a data set beside the one it serves.
    NO_ASYNC_LOADING,
    /// A command of the host, or one that may wait, that changes the data set.
    WRITE,
    /// A command of the host that reads the data set, or one that keeps its result in the
    /// value that it reads.
    READ_ONLY,
    /// Dangerous beyond what the other properties imply.
    DANGEROUS,
    /// The access-control category `keyspace`, for commands outside the generic group.
    KEYSPACE,
    /// May run with no key if a cluster would otherwise demand one.
    NO_MANDATORY_KEYS,
    /// The access-control category `connection` in place of the group's, for commands outside the connection group.
    CONNECTION,
    /// The access-control category `admin`, for commands without the property of that name.
    ADMIN_CATEGORY,
    /// The access-control categories of lists, sets and sorted sets, in place of the group's.
    ELEMENTS,
    /// A command of the host that looks at the keyspace as a whole, or stops it.
    WHOLE_KEYSPACE,
    /// Runs at once inside MULTI, instead of being queued.
    UNQUEUED,
    /// A node of a cluster runs it on a slot that is being moved there, without `ASKING` before it.
    ASKING,
    /// Refused while writes are, though it writes nothing: a client that checks the server's health must see the
    /// refusal.
    HEALTH_CHECK,
    /// Runs the commands that were queued before.
    RUNS_QUEUE,
    /// Runs a script, which runs commands.
    RUNS_SCRIPT,
    /// Watches keys until the next transaction.
    WATCHES_KEYS,
    /// Not held by a pause of all commands: it ends one, or belongs to a link between servers.
    UNPAUSED,
    /// Sends a message to subscribers.
    PUBLISHES,
    /// For clients that listen, and could not distinguish messages from other replies.
    FOR_LISTENERS,
}

impl Flags {
    /// No property.
    pub const NONE: Self = Self(0);

    /// Both sets together.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in the set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_bits_of_their_own() {
        for (index, (name, flag)) in Flags::ALL.iter().enumerate() {
            assert_eq!(flag.0.count_ones(), 1, "{name}");
            for (other, earlier) in &Flags::ALL[..index] {
                assert!(!flag.has(*earlier), "{name} and {other}");
            }
        }
    }
}
