//! The cells of the grid: which keys are compared, and the requests that make one of them.
//!
//! ```text
//! panel   hash, one field expires         (kind, expiry)
//!           1 B   16 B   64 B …           bytes of a value
//!      1     ·     ·      ·
//!     10     ·     ·      ·               members
//! ```

use std::fmt;
use std::ops::Range;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Members of collections.
const MEMBERS: [u64; 11] = [1, 3, 10, 30, 100, 128, 129, 300, 1_000, 10_000, 1_000_000];
/// Bytes of a value, of a member of a set, or of an element.
const VALUE_BYTES: [usize; 8] = [1, 16, 64, 65, 100, 500, 1_500, 4_000];
/// Bytes of a string.
const STRING_BYTES: [usize; 11] = [1, 16, 64, 65, 100, 500, 1_500, 4_000, 16_000, 32_000, 64_000];
/// Digits of the members of a set of integers.
const INTEGER_DIGITS: [usize; 3] = [4, 8, 16];
/// The small grid of `--quick`: both sides of the borders between a packed form and tables.
const QUICK_MEMBERS: [u64; 4] = [3, 30, 200, 1_000];
const QUICK_VALUE_BYTES: [usize; 2] = [16, 100];
const QUICK_STRING_BYTES: [usize; 3] = [16, 64, 500];
const QUICK_INTEGER_DIGITS: [usize; 1] = [8];

/// A cell whose values alone take more is skipped.
const PAYLOAD_BYTES_MAX: u64 = 512 << 20;
/// Members of one request, and bytes of their values: most clients send collections in such pieces.
const REQUEST_MEMBERS_MAX: u64 = 128;
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Members above which a peer keeps tables that grow step by step, with each look-up.
const PACKED_MEMBERS_MAX: u64 = 128;
/// Look-ups of one request.
const LOOKUPS: u64 = 1_024;
/// Ten days: long enough that nothing expires while it is measured.
const EXPIRY_S: &str = "864000";

/// The type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Fields `f0`, `f1` …, each with a value.
    Hash,
    /// Members of letters.
    Set,
    /// A set of integers.
    Intset,
    /// Members of letters with integer scores.
    SortedSet,
    /// Elements of letters.
    List,
    /// One value.
    String,
}

/// The parts of a key that expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expiry {
    /// Nothing.
    None,
    /// One field.
    One,
    /// Every field, or the whole key of a string.
    All,
}

/// Keys of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The keys' type.
    pub kind: Kind,
    /// The parts that expire.
    pub expiry: Expiry,
    /// Members of each key.
    pub members: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
}

/// Cells of one kind and expiry, a row for each number of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panel {
    /// The keys' type.
    pub kind: Kind,
    /// The parts that expire.
    pub expiry: Expiry,
}

/// All panels, in the order of the page.
pub const PANELS: [Panel; 9] = [
    Panel { kind: Kind::Hash, expiry: Expiry::None },
    Panel { kind: Kind::Hash, expiry: Expiry::One },
    Panel { kind: Kind::Hash, expiry: Expiry::All },
    Panel { kind: Kind::Set, expiry: Expiry::None },
    Panel { kind: Kind::Intset, expiry: Expiry::None },
    Panel { kind: Kind::SortedSet, expiry: Expiry::None },
    Panel { kind: Kind::List, expiry: Expiry::None },
    Panel { kind: Kind::String, expiry: Expiry::None },
    Panel { kind: Kind::String, expiry: Expiry::All },
];

/// Keys as applications have them.
pub const EXAMPLES: [(&str, Cell); 6] = [
    ("a session: hash of 8 fields, 1.2 KB", example(Kind::Hash, Expiry::None, 8, 145)),
    ("the same, one field expires", example(Kind::Hash, Expiry::One, 8, 145)),
    ("a profile: hash of 20 fields of 40 B", example(Kind::Hash, Expiry::None, 20, 40)),
    ("a feed: list of 500 elements of 24 B", example(Kind::List, Expiry::None, 500, 24)),
    ("a leaderboard: sorted set of 5,000 members of 20 B", example(Kind::SortedSet, Expiry::None, 5_000, 20)),
    ("tags: set of 12 members of 9 B", example(Kind::Set, Expiry::None, 12, 9)),
];

const fn example(kind: Kind, expiry: Expiry, members: u64, value_bytes: usize) -> Cell {
    Cell { kind, expiry, members, value_bytes }
}

impl Panel {
    /// Its heading.
    pub fn title(self) -> &'static str {
        match (self.kind, self.expiry) {
            (Kind::Hash, Expiry::None) => "Hash",
            (Kind::Hash, Expiry::One) => "Hash, one field expires",
            (Kind::Hash, Expiry::All) => "Hash, all fields expire",
            (Kind::Set, _) => "Set",
            (Kind::Intset, _) => "Set of integers (digits of a member)",
            (Kind::SortedSet, _) => "Sorted set",
            (Kind::List, _) => "List",
            (Kind::String, Expiry::None) => "String",
            (Kind::String, _) => "String with an expiry",
        }
    }

    /// Its rows.
    pub fn members(self, quick: bool) -> &'static [u64] {
        match (self.kind, quick) {
            (Kind::String, _) => &[1],
            (_, true) => &QUICK_MEMBERS,
            (_, false) => &MEMBERS,
        }
    }

    /// Its columns.
    pub fn value_bytes(self, quick: bool) -> &'static [usize] {
        match (self.kind, quick) {
            (Kind::String, true) => &QUICK_STRING_BYTES,
            (Kind::String, false) => &STRING_BYTES,
            (Kind::Intset, true) => &QUICK_INTEGER_DIGITS,
            (Kind::Intset, false) => &INTEGER_DIGITS,
            (_, true) => &QUICK_VALUE_BYTES,
            (_, false) => &VALUE_BYTES,
        }
    }

    /// Its cells, row by row.
    pub fn cells(self, quick: bool) -> impl Iterator<Item = Cell> {
        let Self { kind, expiry } = self;
        let row = move |members| {
            let cell = move |value_bytes| Cell { kind, expiry, members, value_bytes };
            self.value_bytes(quick).iter().copied().map(cell)
        };
        self.members(quick).iter().copied().flat_map(row)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hash => "hash",
            Self::Set => "set",
            Self::Intset => "intset",
            Self::SortedSet => "sorted-set",
            Self::List => "list",
            Self::String => "string",
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, expiry, members, value_bytes } = self;
        write!(f, "{kind} {members} × {value_bytes} B")?;
        match expiry {
            Expiry::None => Ok(()),
            Expiry::One => f.write_str(", one expires"),
            Expiry::All => f.write_str(", all expire"),
        }
    }
}

impl Cell {
    /// Whether the values alone take more than a cell may.
    pub fn is_skipped(self) -> bool {
        self.members * self.value_bytes as u64 > PAYLOAD_BYTES_MAX
    }

    /// Whether it needs HEXPIRE, which redis-server 7.0 lacks.
    pub fn needs_field_expiry(self) -> bool {
        self.kind == Kind::Hash && self.expiry != Expiry::None
    }

    /// Keys that take at least `total_bytes` in a frugal server. Large numbers are three quarters of a power of two: tables
    /// of keys that double are then as full as they are on average.
    pub fn keys(self, total_bytes: u64) -> u64 {
        const KEY_BYTES: u64 = 48;
        const MANY: u64 = 10_000;
        let member_bytes = self.value_bytes as u64 + if self.members > PACKED_MEMBERS_MAX { 12 } else { 4 };
        let keys = total_bytes.div_ceil(KEY_BYTES + self.members * member_bytes);
        if keys < MANY { keys } else { ((keys as f64 / 0.75).log2().round().exp2() * 0.75) as u64 }
    }

    /// The requests that make the key `number`.
    pub fn make(self, number: u64) -> impl Iterator<Item = Vec<Vec<u8>>> {
        let piece = REQUEST_MEMBERS_MAX.min(REQUEST_BYTES_MAX / self.value_bytes as u64).max(1);
        let firsts = (0..self.members).step_by(piece as usize);
        firsts.flat_map(move |first| {
            let members = first..self.members.min(first + piece);
            [Some(self.add(number, members.clone())), self.expire(number, members)].into_iter().flatten()
        })
    }

    /// The request by which fields expire, of those that have just been added.
    fn expire(self, number: u64, members: Range<u64>) -> Option<Vec<Vec<u8>>> {
        let fields = match self.expiry {
            Expiry::One if members.start == 0 => 0..1,
            Expiry::All => members,
            Expiry::None | Expiry::One => return None,
        };
        if self.kind != Kind::Hash {
            return None;
        }
        let (key, count) = (key(number), (fields.end - fields.start).to_string());
        let words =
            ["HEXPIRE", &key, EXPIRY_S, "FIELDS", &count].into_iter().map(|word| word.as_bytes().to_vec());
        Some(words.chain(fields.map(field)).collect())
    }

    /// The request that adds some members.
    fn add(self, number: u64, members: Range<u64>) -> Vec<Vec<u8>> {
        let command = match self.kind {
            Kind::Hash => "HSET",
            Kind::Set | Kind::Intset => "SADD",
            Kind::SortedSet => "ZADD",
            Kind::List => "RPUSH",
            Kind::String => "SET",
        };
        let mut words = vec![command.as_bytes().to_vec(), key(number).into_bytes()];
        for member in members {
            let value = || letters(member, self.value_bytes);
            match self.kind {
                Kind::Hash => words.extend([field(member), value()]),
                Kind::Set => words.push(distinct(member, self)),
                Kind::Intset => words.push(self.integer(member)),
                // Scores in no order: members of a leaderboard do not come in that of their scores.
                Kind::SortedSet => {
                    let score = (member * 7_919) % 1_000_003;
                    words.extend([score.to_string().into_bytes(), distinct(member, self)]);
                }
                Kind::List | Kind::String => words.push(value()),
            }
        }
        if (self.kind, self.expiry) == (Kind::String, Expiry::All) {
            words.extend([b"EX".to_vec(), EXPIRY_S.into()]);
        }
        words
    }

    /// A member of a set of integers: no shorter than asked for, and longer if that many members need it.
    fn integer(self, member: u64) -> Vec<u8> {
        (10_u64.pow(self.value_bytes as u32 - 1) + member).to_string().into_bytes()
    }

    /// Look-ups of members that are not there, as many as the key has: each takes a table that a peer grows one step further.
    pub fn look_up(self, number: u64) -> impl Iterator<Item = Vec<Vec<u8>>> {
        let command = match self.kind {
            Kind::Hash => Some("HMGET"),
            Kind::Set => Some("SMISMEMBER"),
            Kind::SortedSet => Some("ZMSCORE"),
            Kind::Intset | Kind::List | Kind::String => None,
        };
        let command = command.filter(|_| self.members > PACKED_MEMBERS_MAX);
        command.into_iter().flat_map(move |command| missing(&[command, &key(number)], self.members))
    }

    /// The command that counts a key's members, and the count.
    pub fn count(self, number: u64) -> ([String; 2], u64) {
        let (command, count) = match self.kind {
            Kind::Hash => ("HLEN", self.members),
            Kind::Set | Kind::Intset => ("SCARD", self.members),
            Kind::SortedSet => ("ZCARD", self.members),
            Kind::List => ("LLEN", self.members),
            Kind::String => ("STRLEN", self.value_bytes as u64),
        };
        ([command.into(), key(number)], count)
    }
}

/// Look-ups of `count` keys that are not there, for the table of keys.
pub fn look_up_keys(count: u64) -> impl Iterator<Item = Vec<Vec<u8>>> {
    missing(&["EXISTS"], count)
}

/// Requests that look `count` names up in all.
fn missing(command: &[&str], count: u64) -> impl Iterator<Item = Vec<Vec<u8>>> + use<> {
    let command: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
    (0..count).step_by(LOOKUPS as usize).map(move |first| {
        let mut words = command.clone();
        words.resize(command.len() + LOOKUPS.min(count - first) as usize, b"?".to_vec());
        words
    })
}

/// 16 bytes.
fn key(number: u64) -> String {
    format!("key:{number:012}")
}

fn field(member: u64) -> Vec<u8> {
    format!("f{member}").into_bytes()
}

/// Letters only: no server can keep them as an integer.
fn letters(member: u64, bytes: usize) -> Vec<u8> {
    let mut random = member.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letter = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + ((random >> 33) % 26) as u8
    };
    (0..bytes).map(letter).collect()
}

/// A member unlike all others of its key: as long as the cell says, or as many letters as that many members need.
fn distinct(member: u64, cell: Cell) -> Vec<u8> {
    let mut digits = Vec::new();
    let mut rest = (member, cell.members.max(2) - 1);
    while rest.1 > 0 {
        digits.push(b'a' + (rest.0 % 26) as u8);
        rest = (rest.0 / 26, rest.1 / 26);
    }
    let padding = letters(member, cell.value_bytes.saturating_sub(digits.len()));
    digits.extend(padding);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn members_of_a_cell_are_distinct_and_of_its_length() {
        for panel in PANELS {
            for cell in panel.cells(false).filter(|cell| cell.members <= 10_000) {
                match cell.kind {
                    Kind::Set | Kind::SortedSet => {
                        let members: HashSet<_> =
                            (0..cell.members).map(|member| distinct(member, cell)).collect();
                        assert_eq!(members.len() as u64, cell.members, "{cell}");
                        let bytes_min = cell.value_bytes;
                        assert!(
                            members
                                .iter()
                                .all(|member| (bytes_min..bytes_min.max(3) + 1).contains(&member.len())),
                            "{cell}"
                        );
                    }
                    _ => assert_eq!(letters(3, cell.value_bytes).len(), cell.value_bytes),
                }
            }
        }
    }

    #[test]
    fn requests_of_a_key_come_in_pieces_with_field_expiries() {
        let cell = |expiry| Cell { kind: Kind::Hash, expiry, members: 129, value_bytes: 16 };
        for (expiry, requests, expiring) in [(Expiry::None, 2, 0), (Expiry::One, 3, 1), (Expiry::All, 4, 129)]
        {
            let made: Vec<_> = cell(expiry).make(7).collect();
            assert_eq!(made.len(), requests, "{expiry:?}");
            let (expiries, additions): (Vec<_>, Vec<_>) =
                made.into_iter().partition(|words| words[0] == b"HEXPIRE");
            let fields = |requests: &[Vec<Vec<u8>>], before: usize| -> usize {
                requests.iter().map(|words| words.len() - before).sum()
            };
            assert_eq!((fields(&expiries, 5), fields(&additions, 2)), (expiring, 2 * 129), "{expiry:?}");
        }
    }

    #[test]
    fn grid_skips_only_cells_of_a_million_long_values() {
        for panel in PANELS {
            for cell in panel.cells(false) {
                assert_eq!(
                    cell.is_skipped(),
                    cell.members == 1_000_000 && cell.value_bytes >= 1_500,
                    "{cell}"
                );
                let keys = cell.keys(64 << 20);
                assert!((1..=2_000_000).contains(&keys), "{cell}: {keys}");
            }
        }
    }
}
