//! Turns rows of the tables into commands, good and bad, from a seed.

use dunlin_test_support::random::Random;

use crate::grammar::{Action, Arg, Compare, Family, Row};

/// A command ready to be sent.
#[derive(Clone, Debug)]
pub struct Step {
    /// The command and its arguments; for [`Action::Raw`] one element, the bytes.
    pub arguments: Vec<Vec<u8>>,
    /// How replies have to agree.
    pub compare: Compare,
    /// How it is run.
    pub action: Action,
}

/// How many keys a family has.
const KEYS_PER_FAMILY: usize = 8;

fn key(family: &Family, index: usize) -> Vec<u8> {
    match index {
        // A hash tag for all families, so that keys of several types share a shard and a slot.
        0 | 1 => format!("{{tag}}{}:{index}", family.name).into_bytes(),
        2 => format!("{}\0\r\n\u{e9}", family.name).into_bytes(),
        3 => format!("{}:{}", family.name, "long".repeat(40)).into_bytes(),
        _ => format!("{}:{index}", family.name).into_bytes(),
    }
}

/// Draws commands from the rows of some families.
pub struct Generator<'a> {
    random: Random,
    /// The families that rows are drawn from.
    drawn: &'a [&'static Family],
    /// The families whose keys exist.
    known: &'a [&'static Family],
    resp3: bool,
}

impl<'a> Generator<'a> {
    /// Commands of `drawn`; keys of `known` (which includes them) for wrong types and for any type.
    pub fn new(seed: u64, drawn: &'a [&'static Family], known: &'a [&'static Family]) -> Self {
        let mut random = Random::new(seed);
        let resp3 = random.chance(50);
        Generator { random, drawn, known, resp3 }
    }

    /// A stream: the greeting that chooses the protocol version, then `count` commands.
    pub fn stream(mut self, count: usize) -> Vec<Step> {
        let version = if self.resp3 { "3" } else { "2" };
        let mut steps = vec![Step {
            arguments: vec![b"HELLO".to_vec(), version.into()],
            compare: Compare::Outcome,
            action: Action::Send,
        }];
        steps.extend((0..count).map(|_| self.step()));
        steps
    }

    fn step(&mut self) -> Step {
        let family = *self.random.pick(self.drawn);
        let total: u32 = family.rows.iter().map(|row| row.weight).sum();
        let mut drawn = self.random.below(total as usize) as u32;
        let row = family
            .rows
            .iter()
            .find(|row| {
                let hit = drawn < row.weight;
                drawn = drawn.wrapping_sub(row.weight);
                hit
            })
            .expect("the weights add up");
        self.command(family, row)
    }

    fn command(&mut self, family: &'static Family, row: &'static Row) -> Step {
        let mut arguments = Vec::new();
        for word in row.name.split(' ').filter(|word| !word.is_empty()) {
            let word = self.word(word);
            arguments.push(word);
        }
        let name_length = arguments.len();
        self.append(family, row.arguments, &mut arguments);
        if row.spoiled && self.random.chance(6) {
            self.spoil(family, name_length, &mut arguments);
        }
        tame(&mut arguments, row.action);
        if row.action == Action::Raw {
            arguments = vec![arguments.concat()];
        }
        // Redis keeps a key that was written with a past time until a command meets it.
        let action = if is_born_expired(&arguments) { Action::LetExpire } else { row.action };
        Step { arguments, compare: row.compare, action }
    }

    /// Makes a bad call of a good one.
    fn spoil(&mut self, family: &'static Family, name_length: usize, arguments: &mut Vec<Vec<u8>>) {
        let length = arguments.len();
        match self.random.below(6) {
            0 => arguments.truncate(name_length + self.random.below(length - name_length + 1)),
            1 => {
                let junk = self.value();
                arguments.push(junk);
            }
            2 if length > name_length => {
                let at = name_length + self.random.below(length - name_length);
                arguments.remove(at);
            }
            3 if length > name_length => {
                let at = name_length + self.random.below(length - name_length);
                let twice = arguments[at].clone();
                arguments.insert(at, twice);
            }
            4 if length > name_length + 1 => {
                let a = name_length + self.random.below(length - name_length);
                let b = name_length + self.random.below(length - name_length);
                arguments.swap(a, b);
            }
            _ if length > name_length => {
                let at = name_length + self.random.below(length - name_length);
                let mut junk = Vec::new();
                let kind =
                    *self.random.pick(&[Arg::Value, Arg::Integer, Arg::Float, Arg::Word("GET"), Arg::AnyKey]);
                self.append(family, &[kind], &mut junk);
                arguments[at] = junk.remove(0);
            }
            _ => {}
        }
    }

    fn append(&mut self, family: &'static Family, shape: &[Arg], out: &mut Vec<Vec<u8>>) {
        for arg in shape {
            match arg {
                Arg::Maybe(percent, inner) => {
                    if self.random.chance(*percent) {
                        self.append(family, inner, out);
                    }
                }
                Arg::OneOf(choices) => {
                    let inner = *self.random.pick(choices);
                    self.append(family, inner, out);
                }
                Arg::Options(choices) => {
                    let mut chosen: Vec<_> = choices.iter().filter(|_| self.random.chance(33)).collect();
                    self.random.shuffle(&mut chosen);
                    for inner in chosen {
                        self.append(family, inner, out);
                    }
                }
                Arg::Repeat(low, high, inner) => {
                    for _ in 0..self.random.between(*low as i64, *high as i64) {
                        self.append(family, inner, out);
                    }
                }
                Arg::Counted(low, high, inner) => {
                    let count = self.random.between(*low as i64, *high as i64);
                    out.push(self.claimed(count));
                    for _ in 0..count {
                        self.append(family, inner, out);
                    }
                }
                Arg::WeightedKeys => {
                    let count = self.random.between(1, 3);
                    out.push(self.claimed(count));
                    for _ in 0..count {
                        self.append(family, &[Arg::Key], out);
                    }
                    if self.random.chance(50) {
                        out.push(self.word("WEIGHTS"));
                        for _ in 0..count {
                            self.append(family, &[Arg::Score], out);
                        }
                    }
                }
                Arg::Position => {
                    let (longitude, latitude) = self.position();
                    out.push(longitude);
                    out.push(latitude);
                }
                single => {
                    let bytes = self.single(family, single);
                    out.push(bytes);
                }
            }
        }
    }

    /// The count, or in a few calls another one.
    fn claimed(&mut self, count: i64) -> Vec<u8> {
        let claim = if self.random.chance(4) { self.random.between(-1, 6) } else { count };
        claim.to_string().into_bytes()
    }

    fn single(&mut self, family: &'static Family, arg: &Arg) -> Vec<u8> {
        match arg {
            Arg::Key if !family.private && self.random.chance(6) => self.any_key(),
            Arg::Key => {
                let index = self.random.below(KEYS_PER_FAMILY);
                key(family, index)
            }
            Arg::AnyKey => self.any_key(),
            Arg::Word(word) => self.word(word),
            Arg::Pick(words) => {
                let word = *self.random.pick(words);
                self.word(word)
            }
            Arg::Text(texts) => self.random.pick(texts).as_bytes().to_vec(),
            Arg::Value => self.value(),
            Arg::Member => self.member(),
            Arg::Letters => self.letters(),
            Arg::Integer => self.integer(),
            Arg::SmallInteger => self.between(-20, 20),
            Arg::Float => self.float(),
            Arg::Score => self.score(),
            Arg::ScoreBound => {
                let score = self.score();
                if self.random.chance(30) { [b"(".to_vec(), score].concat() } else { score }
            }
            Arg::LexBound => match self.random.below(10) {
                0 | 1 => b"-".to_vec(),
                2 | 3 => b"+".to_vec(),
                4 => self.member(),
                n => [if n < 7 { b"(" } else { b"[" }.to_vec(), self.member()].concat(),
            },
            Arg::Index => match self.random.below(12) {
                0 => self.integer(),
                1 => self.between(-5000, 5000),
                _ => self.between(-12, 12),
            },
            Arg::Offset => match self.random.below(20) {
                0 => self.pick(&["-1", "536870912", "9223372036854775807", "x", "1.5", ""]),
                1 => self.between(0, 3000),
                _ => self.between(0, 40),
            },
            Arg::BitOffset => match self.random.below(20) {
                0 => {
                    self.pick(&["-1", "4294967296", "9223372036854775807", "18446744073709551616", "x", "#1"])
                }
                1 => self.between(0, 100_000),
                _ => self.between(0, 200),
            },
            Arg::BitType => self.bit_type(),
            Arg::FieldOffset => match self.random.below(10) {
                0 => self.pick(&["-1", "#-1", "4294967296", "#4294967296", "x", "#"]),
                1..=4 => [b"#".to_vec(), self.between(0, 20)].concat(),
                _ => self.between(0, 300),
            },
            Arg::Count => match self.random.below(12) {
                0 => self.integer(),
                1 => self.pick(&["0", "-1", "x", "1.0"]),
                2 => self.between(-8, 8),
                _ => self.between(1, 12),
            },
            Arg::FarSeconds => self.far(1),
            Arg::FarMillis => self.far(1000),
            // Far from now in both directions: the year 2096 and later, and the years before 2001.
            Arg::FarUnixSeconds => self.far_unix(1),
            Arg::FarUnixMillis => self.far_unix(1000),
            Arg::Pattern => self.pattern(),
            Arg::Database => match self.random.below(16) {
                0 => self.pick(&["-1", "16", "x", "1.5", "9223372036854775808"]),
                n if n < 8 => b"0".to_vec(),
                _ => self.between(0, 3),
            },
            Arg::StreamId => match self.random.below(12) {
                0 => self.pick(&[
                    "0-0",
                    "0",
                    "-",
                    "+",
                    "x",
                    "1-x",
                    "18446744073709551615-18446744073709551615",
                    "-1-1",
                    "1-1-1",
                ]),
                1..=3 => self.between(0, 40),
                _ => format!("{}-{}", self.random.between(0, 40), self.random.between(0, 3)).into_bytes(),
            },
            Arg::Maybe(..)
            | Arg::OneOf(_)
            | Arg::Options(_)
            | Arg::Repeat(..)
            | Arg::Counted(..)
            | Arg::WeightedKeys
            | Arg::Position => unreachable!("not a single argument"),
        }
    }

    fn any_key(&mut self) -> Vec<u8> {
        if self.random.chance(3) {
            return self.pick(&["", "nobody", " ", "0"]);
        }
        let family = *self.random.pick(self.known);
        let index = self.random.below(KEYS_PER_FAMILY);
        key(family, index)
    }

    fn pick(&mut self, texts: &[&str]) -> Vec<u8> {
        self.random.pick(texts).as_bytes().to_vec()
    }

    fn between(&mut self, low: i64, high: i64) -> Vec<u8> {
        self.random.between(low, high).to_string().into_bytes()
    }

    fn word(&mut self, word: &str) -> Vec<u8> {
        let mut bytes = word.as_bytes().to_vec();
        if self.random.chance(10) {
            for byte in &mut bytes {
                if self.random.chance(50) && byte.is_ascii_alphabetic() {
                    *byte ^= 0x20;
                }
            }
        }
        bytes
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(100) {
            0..=19 => self.between(-20, 200),
            20..=29 => self.integer(),
            30..=37 => self.float(),
            38..=62 => self.letters(),
            63..=72 => {
                let length = self.random.below(33);
                self.binary(length)
            }
            73..=76 => Vec::new(),
            77..=86 => {
                // Around the lengths at which encodings change.
                let length = *self.random.pick(&[19, 20, 21, 43, 44, 45, 63, 64, 65, 127, 128, 255, 256]);
                self.binary(length)
            }
            87..=97 => {
                let length = self.random.below(60);
                self.binary(length)
            }
            98 => {
                let length = self.random.below(5000);
                self.binary(length)
            }
            _ if self.random.chance(20) => {
                let length = self.random.below(70_000);
                self.binary(length)
            }
            _ => {
                let length = self.random.below(300);
                vec![b'z'; length]
            }
        }
    }

    fn binary(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.random.bits() as u8).collect()
    }

    fn letters(&mut self) -> Vec<u8> {
        let length = self.random.below(14);
        (0..length).map(|_| *self.random.pick(b"abcAB")).collect()
    }

    fn member(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0..=8 => self.pick(&["a", "b", "c", "d", "e", "f", "g", "h"]),
            9..=14 => self.between(0, 15),
            15 => self.integer(),
            16 => self.float(),
            17 => b"m".repeat(self.random.between(60, 70) as usize),
            18 => Vec::new(),
            _ => self.value(),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0 | 1 => self.pick(&[
                "9223372036854775807",
                "9223372036854775806",
                "9223372036854775808",
                "-9223372036854775808",
                "-9223372036854775807",
                "-9223372036854775809",
                "18446744073709551615",
                "18446744073709551616",
                "2147483647",
                "2147483648",
                "-2147483649",
                "4294967295",
                "4294967296",
                "9999",
                "10000",
            ]),
            2 => {
                self.pick(&["+1", "01", "-0", " 1", "1 ", "", "-", "1.0", "0x10", "1e3", "00", "--1", "1\n"])
            }
            3 => (self.random.bits() as i64).to_string().into_bytes(),
            4 => self.between(-100_000, 100_000),
            _ => self.between(-20, 20),
        }
    }

    fn float(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0 => self.pick(&[
                "nan",
                "NaN",
                "inf",
                "-inf",
                "+inf",
                "infinity",
                "1e400",
                "-1e400",
                "1e-400",
                "5e-324",
                "1.7976931348623157e308",
                "0x10",
                "0x1p3",
                " 1.5",
                "1.5 ",
                "",
                ".",
                "-",
                "1e",
                "1,5",
                "+1.5",
            ]),
            1 => self.pick(&[
                "0",
                "-0",
                "0.0",
                "-0.0",
                "1.",
                ".5",
                "3.0e3",
                "1e-5",
                "100000000000000000000",
                "1e17",
                "0.1",
                "0.2",
            ]),
            2 => self.integer(),
            3 => format!("{}e{}", self.random.between(-99, 99), self.random.between(-20, 20)).into_bytes(),
            4 => format!("{:.12}", self.random.bits() as f64 / u64::MAX as f64).into_bytes(),
            _ => format!("{}.{}", self.random.between(-50, 50), self.random.below(1000)).into_bytes(),
        }
    }

    fn score(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => self.float(),
            1 => self.integer(),
            2 => self.pick(&["inf", "-inf", "+inf"]),
            3..=6 => format!("{}.5", self.random.between(-5, 5)).into_bytes(),
            _ => self.between(-5, 5),
        }
    }

    fn bit_type(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0 => self.pick(&["u0", "u64", "i0", "i65", "x8", "u", "", "8", "u-1", "i 8", "u8x"]),
            1..=4 => self.pick(&["u8", "i8", "u16", "i16", "u1", "i1", "u32", "i32", "u63", "i64"]),
            n => format!("{}{}", if n % 2 == 0 { 'u' } else { 'i' }, self.random.between(1, 63)).into_bytes(),
        }
    }

    /// Relative times lie so far apart that two of them never tie, whenever each server ran.
    fn far(&mut self, unit: i64) -> Vec<u8> {
        match self.random.below(16) {
            0 => self.pick(&[
                "0",
                "-1",
                "-100",
                "x",
                "1.5",
                "",
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854775",
                "10000000000000000",
            ]),
            _ => (self.random.between(100_000, 2_000_000_000) * unit).to_string().into_bytes(),
        }
    }

    fn far_unix(&mut self, unit: i64) -> Vec<u8> {
        match self.random.below(16) {
            0 => self.pick(&[
                "0",
                "-1",
                "1",
                "x",
                "1.5",
                "",
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854775",
                "10000000000000000",
            ]),
            1 => (self.random.between(1, 1_000_000_000) * unit).to_string().into_bytes(),
            _ => (self.random.between(4_000_000_000, 4_000_000_020) * unit).to_string().into_bytes(),
        }
    }

    fn pattern(&mut self) -> Vec<u8> {
        let family = *self.random.pick(self.known);
        match self.random.below(12) {
            0..=2 => b"*".to_vec(),
            3 => format!("{}*", family.name).into_bytes(),
            4 => format!("{}:[4-6]", family.name).into_bytes(),
            5 => b"*:[^45]".to_vec(),
            6 => b"\\{tag\\}*".to_vec(),
            7 => b"{tag}*:?".to_vec(),
            8 => self
                .pick(&["", "[", "*[", "a\\", "[]", "[^]", "[z-a]*", "**:**", "?", "[a-", "*\\*", "[\\]]*"]),
            9 => self.any_key(),
            10 => self.member(),
            _ => format!("*{}", self.random.below(KEYS_PER_FAMILY)).into_bytes(),
        }
    }

    fn position(&mut self) -> (Vec<u8>, Vec<u8>) {
        if self.random.chance(4) {
            return (self.float(), self.float());
        }
        let longitude = self.random.between(-180_000, 180_000) as f64 / 1000.0;
        let latitude = self.random.between(-85_000, 85_000) as f64 / 1000.0;
        // Half of the places lie close together, so that searches find some.
        let near = if self.random.chance(50) { 0.01 } else { 1.0 };
        ((longitude * near).to_string().into_bytes(), (latitude * near).to_string().into_bytes())
    }
}

/// Whether this is SET or GETEX with an absolute time that is not far in the future.
fn is_born_expired(arguments: &[Vec<u8>]) -> bool {
    let named = |name: &[u8]| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
    (named(b"SET") || named(b"GETEX"))
        && arguments.windows(2).skip(1).any(|pair| {
            let limit = match &pair[0].to_ascii_uppercase()[..] {
                b"EXAT" => 4_000_000_000,
                b"PXAT" => 4_000_000_000_000,
                _ => return false,
            };
            std::str::from_utf8(&pair[1]).is_ok_and(|text| text.parse::<u64>().is_ok_and(|time| time < limit))
        })
}

/// Times that Dunlin keeps exactly. Dunlin has 48 bits for a Unix time in milliseconds (the year 10889) and holds on to
/// the last of them, whereas Redis counts on, so that GT and LT cannot be compared there.
const UNIX_MS_MAX: u128 = 1 << 47;

/// The treatment of a number by `tame`.
enum Tame {
    /// An offset that is written to: both servers would fill hundreds of megabytes.
    Offset,
    /// A time: the unit in milliseconds, and whether it counts from now.
    Time { unit_ms: u128, relative: bool },
    /// A value to saturate: near the limits of 64 bits Redis's own arithmetic overflows, so that it picks
    /// the wrong bound.
    Saturated,
}

/// Replaces numbers that no comparison could bear, in good calls and in those that got them by accident.
/// Calls that are refused anyway stay.
fn tame(arguments: &mut [Vec<u8>], action: Action) {
    use Tame::*;
    let Some(name) = arguments.first().map(|name| name.to_ascii_uppercase()) else {
        return;
    };
    let is_bit_type = |text: &[u8]| matches!(text, [b'u' | b'i', rest @ ..] if rest.first().is_some_and(u8::is_ascii_digit));
    let saturates = arguments.iter().any(|argument| argument.eq_ignore_ascii_case(b"SAT"));
    for at in 2..arguments.len() {
        let digits = arguments[at].strip_prefix(b"#").unwrap_or(&arguments[at]);
        let Some(number) = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i128>().ok())
        else {
            continue;
        };
        let word = arguments[at - 1].to_ascii_uppercase();
        let kind = match (&name[..], &word[..]) {
            (b"SETBIT" | b"SETRANGE", _) if at == 2 => Offset,
            (b"BITFIELD", _) if is_bit_type(&arguments[at - 1]) => Offset,
            (b"BITFIELD", _) if saturates => Saturated,
            (b"EXPIRE" | b"SETEX", _) if at == 2 => Time { unit_ms: 1000, relative: true },
            (b"PEXPIRE" | b"PSETEX", _) if at == 2 => Time { unit_ms: 1, relative: true },
            (b"EXPIREAT", _) if at == 2 => Time { unit_ms: 1000, relative: false },
            (b"PEXPIREAT", _) if at == 2 => Time { unit_ms: 1, relative: false },
            (b"SET" | b"GETEX", b"EX") => Time { unit_ms: 1000, relative: true },
            (b"SET" | b"GETEX", b"PX") => Time { unit_ms: 1, relative: true },
            (b"SET" | b"GETEX", b"EXAT") => Time { unit_ms: 1000, relative: false },
            (b"SET" | b"GETEX", b"PXAT") => Time { unit_ms: 1, relative: false },
            _ => continue,
        };
        match kind {
            Offset if (200_000..1 << 32).contains(&number) => arguments[at] = b"77".to_vec(),
            Saturated if number.unsigned_abs() > 1 << 62 => arguments[at] = (number >> 2).to_string().into(),
            Time { unit_ms, relative } if number > 0 && action != Action::LetExpire => {
                let time_ms = number.unsigned_abs() * unit_ms;
                // Any clock that runs this test is past 2001, so this sum is no more than the servers'.
                let is_refused = time_ms + if relative { 1_000_000_000_000 } else { 0 } > i64::MAX as u128;
                if relative && number < 100_000 {
                    // So short a life that the servers' clocks would decide.
                    arguments[at] = (number * 1_000_000_000 / unit_ms as i128).to_string().into();
                } else if time_ms > UNIX_MS_MAX && !is_refused && arguments.len() > 3 {
                    arguments[at] = (100_000_000_000_000 / unit_ms).to_string().into();
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;

    #[test]
    fn seed_gives_one_stream() {
        let stream = |seed| {
            let steps = Generator::new(seed, families::ALL, families::ALL).stream(500);
            steps.into_iter().map(|step| step.arguments).collect::<Vec<_>>()
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }

    #[test]
    fn rows_of_all_families_are_reached() {
        for family in families::ALL {
            let steps = Generator::new(1, &[family], families::ALL).stream(20_000);
            for row in family.rows.iter().filter(|row| !row.name.is_empty()) {
                let words: Vec<&str> = row.name.split(' ').collect();
                let reached = steps.iter().any(|step| {
                    step.arguments.len() >= words.len()
                        && words.iter().zip(&step.arguments).all(|(word, sent)| word.as_bytes() == &sent[..])
                });
                assert!(reached, "{} is never drawn", row.name);
            }
        }
    }
}
