//! The language in which a command family describes its calls.
//!
//! A family is one table. A row names a command, how often to draw it, the shape of its arguments, and
//! how the two servers' replies have to agree:
//!
//! ```text
//! row("SETEX", 5, &[Key, FarSeconds, Value])
//! row("TTL", 5, &[Key]).near(2)
//! ```
//!
//! The shape is that of a *good* call. Bad input is made from it by the generator, for every command
//! alike: arguments dropped, added, doubled or replaced by junk, keys of another type, odd case.

/// An argument, or several, of a command.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A key of the family's own pool; sometimes of another family's, so that its type is wrong.
    Key,
    /// A key of any enabled family.
    AnyKey,
    /// Exactly this word, sometimes in odd case.
    Word(&'static str),
    /// A choice of these words, sometimes in odd case.
    Pick(&'static [&'static str]),
    /// A choice of these texts, letter for letter.
    Text(&'static [&'static str]),
    /// Any bytes: numbers, text, binary, empty, long.
    Value,
    /// Bytes from a small pool, so that they meet again: hash fields, set members.
    Member,
    /// A word over a small alphabet, for substring and pattern search.
    Letters,
    /// An integer, often near the limits of 64 bits.
    Integer,
    /// An integer that arithmetic rarely overflows.
    SmallInteger,
    /// A floating-point number in any spelling, some of them refused.
    Float,
    /// A score: few distinct values, infinities included.
    Score,
    /// A bound of a range of scores: `(1.5`, `-inf`, `3`.
    ScoreBound,
    /// A bound of a range of members: `-`, `+`, `[b`, `(b`.
    LexBound,
    /// A position from the front or the back, sometimes far out of range.
    Index,
    /// A byte offset that is written to: small enough to waste no memory.
    Offset,
    /// A bit offset that is written to: small enough to waste no memory.
    BitOffset,
    /// `u8`, `i63` and their like, and wrong ones.
    BitType,
    /// A bit offset of BITFIELD, which may count fields: `#3`.
    FieldOffset,
    /// How many, mostly small and positive.
    Count,
    /// Seconds from now: far away, or past, or not representable.
    FarSeconds,
    /// Milliseconds from now: far away, or past, or not representable.
    FarMillis,
    /// A Unix time in seconds: far away, or past.
    FarUnixSeconds,
    /// A Unix time in milliseconds: far away, or past.
    FarUnixMillis,
    /// A glob.
    Pattern,
    /// A database number.
    Database,
    /// A stream ID.
    StreamId,
    /// A longitude and a latitude: two arguments.
    Position,
    /// These arguments in `percent` of a hundred calls.
    Maybe(u32, &'static [Arg]),
    /// A choice of these sequences.
    OneOf(&'static [&'static [Arg]]),
    /// Each of these sequences in a third of the calls, in any order.
    Options(&'static [&'static [Arg]]),
    /// This sequence a random number of times, both ends included.
    Repeat(usize, usize, &'static [Arg]),
    /// A count of repetitions, then that many: `numkeys key key`. Sometimes the count is wrong.
    Counted(usize, usize, &'static [Arg]),
    /// A count, that many keys of the family, then (in half of the calls) WEIGHTS and that many.
    WeightedKeys,
}

/// How two replies have to agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compare {
    /// Byte for byte.
    Exact,
    /// Equal elements in any order, at every level.
    Unordered,
    /// Equal pairs in any order (maps and flat lists of field and value).
    UnorderedPairs,
    /// Integers no further from each other than this, of the same sign, in lists too; everything else
    /// exactly.
    Near(i64),
    /// Equal types and lengths, with any contents.
    Shape,
    /// Exactly, but for times, idle times and how an index is built; and but for the facts of a consumer
    /// that only newer servers report.
    Times,
    /// Both an error or both none; for replies whose contents are each server's own affair.
    Outcome,
    /// The replies of the queued commands, each by its own rule.
    Transaction,
}

/// The runner's treatment of a command besides sending it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Sends it.
    Send,
    /// Follows the cursor at this argument until it is 0, and compares the elements of all pages
    /// together.
    Iterate {
        /// The position of the cursor in the command.
        cursor: usize,
    },
    /// Sends it, then lets a few milliseconds pass so that keys which it made short-lived are gone from
    /// both.
    LetExpire,
    /// A random element is read: the reply has to be made of the elements that this question lists.
    Sample {
        /// The command that lists everything for the key in argument 1; `None` asks EXISTS of the reply.
        listed_by: Option<&'static str>,
    },
    /// A random element is removed: afterwards the key is deleted from both, which agree again.
    Forget,
    /// Sends argument 0 as raw bytes on a connection of its own and compares everything that comes back.
    Raw,
}

/// A command of a family.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The command's name; a subcommand follows after a space.
    pub name: &'static str,
    /// How often it is drawn, relative to the others of its family.
    pub weight: u32,
    /// The shape of a good call.
    pub arguments: &'static [Arg],
    /// How replies have to agree.
    pub compare: Compare,
    /// How it is run.
    pub action: Action,
    /// Whether bad calls are made of it too.
    pub spoiled: bool,
}

/// A command whose replies agree byte for byte.
pub const fn row(name: &'static str, weight: u32, arguments: &'static [Arg]) -> Row {
    Row { name, weight, arguments, compare: Compare::Exact, action: Action::Send, spoiled: true }
}

impl Row {
    /// Replies agree in any order.
    pub const fn unordered(mut self) -> Row {
        self.compare = Compare::Unordered;
        self
    }

    /// Pairs agree in any order.
    pub const fn pairs(mut self) -> Row {
        self.compare = Compare::UnorderedPairs;
        self
    }

    /// Integers agree within a distance.
    pub const fn near(mut self, distance: i64) -> Row {
        self.compare = Compare::Near(distance);
        self
    }

    /// Only types and lengths agree.
    pub const fn shape(mut self) -> Row {
        self.compare = Compare::Shape;
        self
    }

    /// Everything but times agrees.
    pub const fn times(mut self) -> Row {
        self.compare = Compare::Times;
        self
    }

    /// Only success or failure agree.
    pub const fn outcome(mut self) -> Row {
        self.compare = Compare::Outcome;
        self
    }

    /// The replies of queued commands follow.
    pub const fn transaction(mut self) -> Row {
        self.compare = Compare::Transaction;
        self
    }

    /// The cursor at this argument is followed to its end.
    pub const fn iterate(mut self, cursor: usize) -> Row {
        self.action = Action::Iterate { cursor };
        self.spoiled = false;
        self
    }

    /// Time passes afterwards.
    pub const fn let_expire(mut self) -> Row {
        self.action = Action::LetExpire;
        self.spoiled = false;
        self
    }

    /// The reply is drawn from the elements that `listed_by` lists.
    pub const fn sample(mut self, listed_by: Option<&'static str>) -> Row {
        self.action = Action::Sample { listed_by };
        self
    }

    /// The key is deleted afterwards.
    pub const fn forget(mut self) -> Row {
        self.action = Action::Forget;
        self
    }

    /// No bad calls are made of it.
    pub const fn unspoiled(mut self) -> Row {
        self.spoiled = false;
        self
    }
}

/// Commands that belong together and share a pool of keys.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name on the command line; also the prefix of its keys.
    pub name: &'static str,
    /// Its commands.
    pub rows: &'static [Row],
    /// Whether no other family touches its keys, nor it theirs.
    pub private: bool,
}
