//! Places of the keys of a command: a beginning is searched, then keys are found from it.
//!
//! The model is the one that `COMMAND INFO` publishes to clients, so the same rows drive lock sets,
//! `COMMAND GETKEYS` and cluster-aware clients.

/// How keys are used, in the terms of `COMMAND INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The value is read (`RO`).
    Read,
    /// The value is read and changed (`RW`).
    ReadWrite,
    /// The value is replaced, of any type (`OW`).
    Overwrite,
    /// The key is removed, with any value (`RM`).
    Remove,
}

/// Further properties of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFlags(u8);

impl KeyFlags {
    /// Data of the value may be returned.
    pub const ACCESS: Self = Self(1);
    /// Data may be changed on the basis of the present value.
    pub const UPDATE: Self = Self(2);
    /// Data may be added.
    pub const INSERT: Self = Self(4);
    /// Data may be removed.
    pub const DELETE: Self = Self(8);
    /// How the key is used depends on the arguments.
    pub const VARIABLE: Self = Self(16);
    /// The word is not a key, but is routed like one: the name of a shard channel.
    pub const NOT_KEY: Self = Self(32);
    /// A client that looks for keys by the specification may miss some.
    pub const INCOMPLETE: Self = Self(64);

    /// Whether all of `other` is in the set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names in `COMMAND INFO`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(u8, &str); 7] = [
            (1, "access"),
            (2, "update"),
            (4, "insert"),
            (8, "delete"),
            (16, "variable_flags"),
            (32, "not_key"),
            (64, "incomplete"),
        ];
        NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// The beginning from which keys are found.
#[derive(Debug, Clone, Copy)]
pub enum BeginSearch {
    /// At a fixed word; the command's name is word 0 (of a subcommand: word 1).
    Index(u16),
    /// Behind a word, searched from a position (negative: from the end).
    Keyword {
        /// The word, in any letter case.
        word: &'static str,
        /// Index at which the search starts.
        from: i16,
        /// Options before the word and how many operands each has: no operand is taken for the word.
        options: &'static [(&'static str, usize)],
        /// Index of the first option.
        options_from: usize,
    },
    /// A search that only the command itself knows: the position of its key among a request's words, if it has
    /// one there. Clients learn that it is unknown.
    Unknown(fn(&[&[u8]]) -> Option<usize>),
}

/// How keys are found from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindKeys {
    /// A run of words.
    Range {
        /// The last key, relative to the first; negative: counted from the request's last word.
        last: i16,
        /// Words from one key to the next.
        step: u16,
        /// With `last` −1: only the first 1/`limit` of the words (0 and 1: all of them).
        limit: u16,
    },
    /// The number of keys that an argument says.
    Count {
        /// The word with the number, relative to the beginning.
        count_at: u16,
        /// The first key, relative to the beginning.
        first: u16,
        /// Words from one key to the next.
        step: u16,
    },
}

/// A place at which a command has keys.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// The beginning from which keys are found.
    pub begin: BeginSearch,
    /// How keys are found from there.
    pub find: FindKeys,
    /// How they are used.
    pub access: Access,
    /// Their further properties.
    pub flags: KeyFlags,
    /// Whether an empty word at its place is not a key: the keys stand elsewhere then (MIGRATE).
    pub unless_empty: bool,
}

impl KeySpec {
    /// A key at word `index`, read.
    pub const fn at(index: u16) -> Self {
        Self {
            begin: BeginSearch::Index(index),
            find: FindKeys::Range { last: 0, step: 1, limit: 0 },
            access: Access::Read,
            flags: KeyFlags(0),
            unless_empty: false,
        }
    }

    /// A key behind a word.
    pub const fn behind(word: &'static str, from: i16) -> Self {
        Self { begin: BeginSearch::Keyword { word, from, options: &[], options_from: 1 }, ..Self::at(0) }
    }

    /// Behind a word that these options, each with its number of operands, can stand before, the first of them at
    /// `options_from`.
    pub const fn past(mut self, options_from: usize, options: &'static [(&'static str, usize)]) -> Self {
        if let BeginSearch::Keyword { word, from, .. } = self.begin {
            self.begin = BeginSearch::Keyword { word, from, options, options_from };
        }
        self
    }

    /// Does not count an empty word as a key.
    pub const fn unless_empty(mut self) -> Self {
        self.unless_empty = true;
        self
    }

    /// A client that looks for keys by it may miss some.
    pub const fn incomplete(self) -> Self {
        self.flag(KeyFlags::INCOMPLETE)
    }

    /// A key whose position only the command itself knows.
    pub const fn found_by(find: fn(&[&[u8]]) -> Option<usize>) -> Self {
        Self { begin: BeginSearch::Unknown(find), ..Self::at(0) }
    }

    /// Keys whose names depend on values, so that no word of a request is one: see
    /// [`super::Command::undeclared_keys`].
    pub const fn computed() -> Self {
        Self::found_by(|_| None)
    }

    /// Keys up to `last` (relative; negative: from the end), every `step` words.
    pub const fn through(mut self, last: i16, step: u16) -> Self {
        self.find = FindKeys::Range { last, step, limit: 0 };
        self
    }

    /// Only the first 1/`limit` of the words up to the end.
    pub const fn limited(mut self, limit: u16) -> Self {
        self.find = FindKeys::Range { last: -1, step: 1, limit };
        self
    }

    /// As many keys as the word at the beginning says, right behind it.
    pub const fn counted(mut self) -> Self {
        self.find = FindKeys::Count { count_at: 0, first: 1, step: 1 };
        self
    }

    /// The value is read and changed.
    pub const fn read_write(mut self) -> Self {
        self.access = Access::ReadWrite;
        self
    }

    /// The value is replaced.
    pub const fn overwrite(mut self) -> Self {
        self.access = Access::Overwrite;
        self
    }

    /// The key is removed.
    pub const fn remove(mut self) -> Self {
        self.access = Access::Remove;
        self
    }

    /// Data may be returned.
    pub const fn accesses(self) -> Self {
        self.flag(KeyFlags::ACCESS)
    }

    /// Data may be changed on the basis of the present value.
    pub const fn updates(self) -> Self {
        self.flag(KeyFlags::UPDATE)
    }

    /// Data may be added.
    pub const fn inserts(self) -> Self {
        self.flag(KeyFlags::INSERT)
    }

    /// Data may be removed.
    pub const fn deletes(self) -> Self {
        self.flag(KeyFlags::DELETE)
    }

    /// Marks a word that is not a key, but is routed like one.
    pub const fn not_key(self) -> Self {
        self.flag(KeyFlags::NOT_KEY)
    }

    /// Whether it finds keys, and not something that is only routed like them.
    pub fn is_of_keys(&self) -> bool {
        !self.flags.has(KeyFlags::NOT_KEY)
    }

    /// How the key is used depends on the arguments.
    pub const fn varies(self) -> Self {
        self.flag(KeyFlags::VARIABLE)
    }

    const fn flag(mut self, flag: KeyFlags) -> Self {
        self.flags = KeyFlags(self.flags.0 | flag.0);
        self
    }

    /// The specification as this request uses it, with the parts settled that depend on the arguments (see
    /// [`KeyFlags::VARIABLE`]).
    pub fn used_by(self, command: &super::Command, words: &[&[u8]]) -> Self {
        if !self.flags.has(KeyFlags::VARIABLE) {
            return self;
        }
        let settled = KeySpec { flags: KeyFlags(0), ..self };
        match command.name {
            // SET hands the old value out only when asked to.
            "set" if !words.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"GET")) => {
                settled.overwrite().updates()
            }
            "bitfield" if only_gets(words.get(2..).unwrap_or_default()) => {
                KeySpec { access: Access::Read, ..settled }.accesses()
            }
            _ => settled.read_write().accesses().updates(),
        }
    }

    /// The positions of the keys among `words`; none if the request is too short or malformed (its handler then
    /// reports the error).
    pub fn positions(&self, words: &[&[u8]]) -> Positions {
        self.try_positions(words).unwrap_or(Positions { next: 0, step: 1, remaining: 0 })
    }

    /// Whether a word of the request says how many keys there are, and says it wrongly: it is not a number, none above
    /// zero, or more than there are words.
    pub fn is_miscounted(&self, words: &[&[u8]]) -> bool {
        matches!(self.find, FindKeys::Count { .. }) && self.positions(words).next().is_none()
    }

    fn try_positions(&self, words: &[&[u8]]) -> Option<Positions> {
        let begin = match self.begin {
            BeginSearch::Index(index) => usize::from(index),
            BeginSearch::Unknown(find) => find(words)?,
            BeginSearch::Keyword { word, from, options, options_from } => {
                let matches = |at: &usize| words[*at].eq_ignore_ascii_case(word.as_bytes());
                let found = if !options.is_empty() {
                    past_options(words, options_from, options).find(matches)
                } else if from >= 0 {
                    (from as usize..words.len()).find(matches)
                } else {
                    (1..=words.len().checked_sub(from.unsigned_abs() as usize)?).rev().find(matches)
                };
                found? + 1
            }
        };
        if self.unless_empty && words.get(begin)?.is_empty() {
            return None;
        }
        let (first, step, remaining) = match self.find {
            FindKeys::Range { last, step, limit } => {
                let last = if last >= 0 {
                    begin + last as usize
                } else if limit > 1 {
                    begin + words.len().checked_sub(begin)?.checked_div(usize::from(limit))?.checked_sub(1)?
                } else {
                    words.len().checked_sub(last.unsigned_abs() as usize)?
                };
                if last >= words.len() {
                    return None;
                }
                let step = usize::from(step);
                (begin, step, (last + 1).checked_sub(begin)?.div_ceil(step))
            }
            FindKeys::Count { count_at, first, step } => {
                let text = words.get(begin + usize::from(count_at))?;
                let count = usize::try_from(dunlin_resp::number::parse_integer(text)?).ok()?;
                let (first, step) = (begin + usize::from(first), usize::from(step));
                let end = first.checked_add(count.checked_mul(step)?)?;
                if end > words.len() {
                    return None;
                }
                (first, step, count)
            }
        };
        Some(Positions { next: first, step, remaining })
    }
}

/// The positions of the words from `first` on that are not operands of `options`.
fn past_options(
    words: &[&[u8]],
    first: usize,
    options: &'static [(&'static str, usize)],
) -> impl Iterator<Item = usize> {
    let step = move |at: &usize| {
        let known = options.iter().find(|(name, _)| words[*at].eq_ignore_ascii_case(name.as_bytes()));
        let next = at + 1 + known.map_or(0, |(_, operands)| *operands);
        (next < words.len()).then_some(next)
    };
    std::iter::successors((words.len() > first).then_some(first), step)
}

/// Whether these operations of `BITFIELD` only read; for malformed ones either answer will do.
fn only_gets(mut operations: &[&[u8]]) -> bool {
    while let [operation, operands @ ..] = operations {
        let count = match operation.to_ascii_uppercase().as_slice() {
            b"GET" => 2,
            b"OVERFLOW" => 1,
            _ => return false,
        };
        let Some(rest) = operands.get(count..) else { return false };
        operations = rest;
    }
    true
}

/// Iterator over the positions of keys among a request's words.
#[derive(Debug, Clone)]
pub struct Positions {
    next: usize,
    step: usize,
    remaining: usize,
}

impl Iterator for Positions {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.remaining = self.remaining.checked_sub(1)?;
        let position = self.next;
        self.next += self.step;
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: KeySpec, request: &str, expected: &[&str]) {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let keys: Vec<&str> =
            spec.positions(&words).map(|at| std::str::from_utf8(words[at]).unwrap()).collect();
        assert_eq!(keys, expected, "{request}");
    }

    #[test]
    fn keys_are_found_in_every_kind_of_place() {
        check(KeySpec::at(1), "get a", &["a"]);
        check(KeySpec::at(1).through(-1, 1), "del a b c", &["a", "b", "c"]);
        check(KeySpec::at(1).through(-1, 2), "mset a 1 b 2", &["a", "b"]);
        check(KeySpec::at(1).through(-1, 2), "mset a 1 b", &["a", "b"]);
        check(KeySpec::at(1).through(-2, 1), "blpop a b 0", &["a", "b"]);
        check(KeySpec::at(2).through(-1, 1), "bitop and d a b", &["d", "a", "b"]);
        check(KeySpec::at(1).counted(), "lmpop 2 a b left", &["a", "b"]);
        check(KeySpec::at(1).counted(), "lmpop 3 a b", &[]);
        check(KeySpec::at(1).counted(), "lmpop -1 a b", &[]);
        check(KeySpec::behind("STREAMS", 1).limited(2), "xread count 2 streams a b 0 0", &["a", "b"]);
        let past = KeySpec::behind("STREAMS", 4).limited(2).past(1, &[("GROUP", 2), ("COUNT", 1)]);
        check(past, "xreadgroup count 1 group streams c streams a >", &["a"]);
        check(past, "xreadgroup group g c noack streams a b > >", &["a", "b"]);
        check(past, "xreadgroup group", &[]);
        let keys = KeySpec::behind("KEYS", -2).past(4, &[("AUTH", 1)]).through(-1, 1);
        check(keys, "migrate keys k 0 auth keys keys a b", &["a", "b"]);
        check(keys, "migrate keys", &[]);
        check(KeySpec::at(2).unless_empty(), "migrate h k", &["k"]);
        check(KeySpec::at(2).unless_empty(), "migrate h  0", &[]);
        check(KeySpec::behind("STORE", -1), "georadius k 1 2 3 m store d", &["d"]);
        check(KeySpec::behind("STORE", 3), "sort k by", &[]);
    }

    #[test]
    fn key_count_that_is_wrong_differs_from_no_keys() {
        let is_miscounted = |spec: KeySpec, request: &str| {
            let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
            spec.is_miscounted(&words)
        };
        let counted = KeySpec::at(2).counted();
        for count in ["-2", "0", "3", "x", "1x", "", "1.5", "9223372036854775807", "9223372036854775808"] {
            assert!(is_miscounted(counted, &format!("zunionstore out {count} a b")), "{count}");
        }
        for count in ["1", "2"] {
            assert!(!is_miscounted(counted, &format!("zunionstore out {count} a b")), "{count}");
        }
        assert!(is_miscounted(counted, "zunionstore out"));
        assert!(!is_miscounted(KeySpec::at(1), "get"));
        assert!(!is_miscounted(KeySpec::behind("STORE", 3), "sort k by"));
    }

    #[test]
    fn bitfield_reads_when_it_has_nothing_but_gets() {
        for (operations, expected) in [
            ("GET u8 0", true),
            ("get u8 0 overflow sat GET u8 set", true),
            ("GET u8 0 SET u8 0 1", false),
            ("GET u8", false),
            ("GET u8 0 junk", false),
        ] {
            let words: Vec<&[u8]> = operations.split(' ').map(str::as_bytes).collect();
            assert_eq!(only_gets(&words), expected, "{operations}");
        }
        assert!(only_gets(&[]));
    }
}
