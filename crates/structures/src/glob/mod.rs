//! Glob patterns as the protocol has them: `*`, `?`, `[abc]`, `[^a-z]`, `\x`.
//!
//! ```text
//! user:*:[0-9]?:*x     head "user:" │ needles ":", "[0-9]?:" │ tail "x"
//! ```
//!
//! A pattern is compiled once, then matches any number of texts. Its runs between stars have fixed lengths. The head
//! and the tail are compared where they must stand, and each needle is searched for behind the one before. The first
//! place found is kept, since a later one would leave less room for the rest. So matching is O(text) with any pattern;
//! a run with `?` or classes that has to be searched for takes a step for each 64 elements and byte.
//!
//! Patterns match as `stringmatchlen` of redis-server 7.0 has them, its peculiarities included:
//! - a class that is not closed ends with the pattern, and bytes in ranges have a sign;
//! - in any letter case an escaped byte of a class stands for itself alone, and the ends of a range are put in order before
//!   they are folded;
//! - a star does not match an empty text, but commands let the pattern `*` alone stand for everything ([`filter`]);
//! - a pattern with more than [`STARS_MAX`] stars, one at the end not counted, matches nothing.

mod byte_set;
#[cfg(test)]
mod model;
mod run;

use byte_set::ByteSet;
use run::{Element, Needle, Run, SETS_MAX};

/// Stars with something behind them that a pattern can have and match.
const STARS_MAX: usize = 1000;

/// A pattern has more classes, or longer parts with `?` or classes to search for, than can be matched in acceptable time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooComplex;

impl TooComplex {
    /// Most characters in such parts of a pattern.
    pub const CHARACTERS_MAX: usize = SETS_MAX;
}

/// A pattern, compiled.
#[derive(Debug, Clone)]
pub struct Glob(Shape);

#[derive(Debug, Clone)]
enum Shape {
    Nothing,
    /// A pattern without a star.
    Whole(Run),
    Starred(Box<Starred>),
}

#[derive(Debug, Clone)]
struct Starred {
    head: Run,
    needles: Vec<Needle>,
    tail: Run,
    /// Length of the shortest text that can match.
    length_min: usize,
}

impl Glob {
    /// A pattern that matches nothing.
    pub const NOTHING: Self = Self(Shape::Nothing);

    /// Compiles a pattern. O(pattern).
    pub fn new(pattern: &[u8]) -> Result<Self, TooComplex> {
        compile(pattern, false)
    }

    /// Compiles a pattern that matches in any letter case (ASCII). O(pattern).
    pub fn ignoring_case(pattern: &[u8]) -> Result<Self, TooComplex> {
        compile(pattern, true)
    }

    /// Whether the whole of a text matches. O(text).
    pub fn matches(&self, text: &[u8]) -> bool {
        match &self.0 {
            Shape::Nothing => false,
            Shape::Whole(run) => run.len() == text.len() && run.matches(text),
            Shape::Starred(starred) => starred.matches(text),
        }
    }
}

impl Starred {
    fn matches(&self, text: &[u8]) -> bool {
        if text.is_empty() || text.len() < self.length_min {
            return false;
        }
        let (head, rest) = text.split_at(self.head.len());
        let (rest, tail) = rest.split_at(rest.len() - self.tail.len());
        if !self.head.matches(head) || !self.tail.matches(tail) {
            return false;
        }
        let mut rest = rest;
        self.needles.iter().all(|needle| {
            let end = needle.find_end(rest);
            rest = &rest[end.unwrap_or(0)..];
            end.is_some()
        })
    }
}

/// The filter for the pattern of `KEYS` or of a command of the `SCAN` family; `None` if every name matches.
pub fn filter(pattern: &[u8]) -> Result<Option<Glob>, TooComplex> {
    (pattern != b"*").then(|| Glob::new(pattern)).transpose()
}

/// The text when a pattern has nothing but itself to match.
pub fn literal(pattern: &[u8]) -> Option<&[u8]> {
    (!pattern.iter().any(is_special)).then_some(pattern)
}

/// The hash tag, braces included, of every key that matches: the pattern is literal up to the tag's end.
pub fn hash_tag(pattern: &[u8]) -> Option<&[u8]> {
    let open = pattern.iter().position(|byte| *byte == b'{')?;
    let length = pattern[open..].iter().position(|byte| *byte == b'}')?;
    let end = open + length + 1;
    (length > 1 && !pattern[..end].iter().any(is_special)).then_some(&pattern[open..end])
}

fn is_special(byte: &u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

fn compile(pattern: &[u8], ignore_case: bool) -> Result<Glob, TooComplex> {
    let mut head: Option<Run> = None;
    let (mut run, mut needles) = (Run::default(), Vec::new());
    let (mut length_min, mut sets_left) = (0, SETS_MAX);
    let (mut at, mut stars) = (0, 0);
    while at < pattern.len() {
        if pattern[at] == b'*' {
            at += pattern[at..].iter().take_while(|byte| **byte == b'*').count();
            stars += usize::from(at < pattern.len());
            if stars > STARS_MAX {
                return Ok(Glob::NOTHING);
            }
            let ended = std::mem::take(&mut run);
            if head.is_none() {
                head = Some(ended);
            } else {
                needles.push(ended.into_needle(&mut sets_left)?);
            }
        } else {
            let (element, behind) = read_element(pattern, at, ignore_case);
            run.push(element, &mut sets_left)?;
            length_min += 1;
            at = behind;
        }
    }
    Ok(Glob(match head {
        None => Shape::Whole(run),
        Some(head) => Shape::Starred(Box::new(Starred { head, needles, tail: run, length_min })),
    }))
}

/// Reads the element at `at`, which is not a star, and its end.
fn read_element(pattern: &[u8], at: usize, ignore_case: bool) -> (Element, usize) {
    let byte = |byte: u8| {
        if ignore_case && byte.is_ascii_alphabetic() {
            let mut set = ByteSet::EMPTY;
            set.insert_ignoring_case(byte);
            Element::Set(set)
        } else {
            Element::Byte(byte)
        }
    };
    match pattern[at] {
        b'?' => (Element::Any, at + 1),
        b'[' => {
            let (set, behind) = read_class(pattern, at + 1, ignore_case);
            let element = match set.only() {
                Some(byte) => Element::Byte(byte),
                None if set == ByteSet::ALL => Element::Any,
                None => Element::Set(set),
            };
            (element, behind)
        }
        b'\\' if pattern.len() > at + 1 => (byte(pattern[at + 1]), at + 2),
        other => (byte(other), at + 1),
    }
}

/// Reads the class whose bracket stands in front of `at`, and its end.
fn read_class(pattern: &[u8], at: usize, ignore_case: bool) -> (ByteSet, usize) {
    let is_negated = pattern.get(at) == Some(&b'^');
    let mut at = at + usize::from(is_negated);
    let mut set = ByteSet::EMPTY;
    loop {
        match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', byte, ..] => {
                set.insert(*byte);
                at += 2;
            }
            [one, b'-', other, ..] => {
                let (one, other) = (*one as i8, *other as i8);
                let fold = |end: i8| if ignore_case { (end as u8).to_ascii_lowercase() as i8 } else { end };
                let mut range = ByteSet::EMPTY;
                range.insert_range(fold(one.min(other)), fold(one.max(other)));
                set = set.union(if ignore_case { range.folded() } else { range });
                at += 3;
            }
            [byte, ..] => {
                if ignore_case {
                    set.insert_ignoring_case(*byte);
                } else {
                    set.insert(*byte);
                }
                at += 1;
            }
        }
    }
    (if is_negated { set.complement() } else { set }, at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Glob::new(pattern).expect("it is simple").matches(text)
    }

    fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
        Glob::ignoring_case(pattern).expect("it is simple").matches(text)
    }

    #[test]
    fn patterns_match_as_documented() {
        for (pattern, text, expected) in [
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "hllo", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("*", "x", true),
            ("*", "", false),
            ("**", "", false),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("a*a", "a", false),
            ("*ab*ab", "abxab", true),
            ("*ab*ab", "xab", false),
            ("*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("[abc", "a", true),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("[a-]", "a", true),
            ("[a-]", "^", true),
            ("[a-]", "-", false),
            ("[a-]b]", "_", true),
            ("[]a", "a", false),
            ("[^]a", "xa", true),
            ("[", "[", false),
            ("[^", "x", true),
            ("[a\\", "\\", true),
            ("x\\", "x\\", true),
            ("a**b", "ab", true),
            ("*?b[c-d]?*", "aabce", true),
            ("*?b[c-d]?*", "aabc", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        // From −76 to 9.
        assert!(!matches(b"[\xb4-\x09]", b"9") && matches(b"[\xb4-\x09]", b"\xff"));
    }

    #[test]
    fn letter_case_is_ignored_as_redis_does() {
        for (pattern, text, expected) in [
            ("MAX*[A-C]", "maxmemory-b", true),
            ("m[M]", "Mm", true),
            ("[^m]", "M", false),
            ("\\M", "m", true),
            ("[\\M]", "m", false),
            ("[\\M]", "M", true),
            ("[M-z]", "n", true),
            ("[z-M]", "N", true),
            // From 'z' down to 'a', once it is folded.
            ("[Z-a]", "b", false),
            ("[Y-_]", "y", false),
        ] {
            assert_eq!(
                matches_ignoring_case(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
        assert!(!matches(b"MAX*", b"maxmemory"));
    }

    #[test]
    fn search_goes_through_a_text_once() {
        // Each takes minutes and longer if every place is tried with every element.
        let text = vec![b'a'; 4 << 20];
        let long_class = [b"*[", &[b'b'; 300_000][..], b"]"].concat();
        let sets = [b"*", &b"[ab]".repeat(SETS_MAX - 1)[..], b"b*"].concat();
        let bytes = [b"*", &[b'a'; 1 << 20][..], b"b*"].concat();
        let stars = b"*a".repeat(STARS_MAX - 1);
        for pattern in [&long_class[..], &sets, &bytes, &[&stars[..], b"*b*"].concat()] {
            assert!(!matches(pattern, &text));
        }
        assert!(matches(&[&stars[..], b"*?"].concat(), &text));
    }

    #[test]
    fn pattern_has_limits() {
        let text = vec![b'a'; 2 * STARS_MAX];
        for (stars, expected) in [(STARS_MAX, true), (STARS_MAX + 1, false)] {
            assert_eq!(matches(&b"*?".repeat(stars), &text), expected);
            assert_eq!(matches(&[&b"*a".repeat(stars)[..], b"**"].concat(), &text), expected);
        }
        let questions = |count| [b"*a", &vec![b'?'; count][..], b"*"].concat();
        assert!(matches(&questions(SETS_MAX - 1), &text));
        assert_eq!(Glob::new(&questions(SETS_MAX)).err(), Some(TooComplex));
        let classes = b"[ab]".repeat(SETS_MAX);
        assert!(matches(&classes, &text[..SETS_MAX]));
        assert_eq!(Glob::new(&[&classes[..], b"[ab]"].concat()).err(), Some(TooComplex));
        // If nothing has to be searched for, or bytes alone, there is no limit.
        let long =
            [&vec![b'a'; 1 << 20][..], &vec![b'?'; 1 << 20], b"*", &vec![b'b'; 1 << 20], b"*[c]"].concat();
        assert!(Glob::new(&long).is_ok());
    }

    /// Patterns in which the special characters are frequent, over few letters.
    fn pattern() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => prop::sample::select(&b"abAB"[..]),
            4 => prop::sample::select(&b"*?[]^-\\"[..]),
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..20)
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![8 => prop::sample::select(&b"abAB"[..]), 1 => any::<u8>()];
        prop::collection::vec(byte, 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn pattern_when_compiled_matches_as_the_model(pattern in pattern(), text in text()) {
            prop_assert_eq!(matches(&pattern, &text), model::matches(&pattern, &text, false));
            prop_assert_eq!(
                matches_ignoring_case(&pattern, &text),
                model::matches(&pattern, &text, true)
            );
        }

        #[test]
        fn pattern_of_a_prefix_and_a_star_matches(text: Vec<u8>, cut in 0usize..32) {
            let mut pattern = Vec::new();
            for byte in text.iter().take(cut) {
                pattern.extend([b'\\', *byte]);
            }
            pattern.push(b'*');
            prop_assert_eq!(matches(&pattern, &text), !text.is_empty());
        }
    }

    const ELEMENTS: &[&str] = &["a", "?", "[ab]", "[^a]"];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Runs of more than one word.
        #[test]
        fn long_runs_match_as_the_model_does(
            run in prop::collection::vec(prop::sample::select(ELEMENTS), 60..200),
            start in 0usize..200,
            text in prop::collection::vec(prop::sample::select(&b"ab"[..]), 400),
            broken in 0usize..200,
        ) {
            // A part of the text that matches, or nearly.
            let mut text = text;
            for (at, element) in run.iter().enumerate() {
                text[start + at] = if *element == "[^a]" { b'b' } else { b'a' };
            }
            if broken < run.len() {
                text[start + broken] = b'c';
            }
            let pattern = [b"*", run.concat().as_bytes(), b"*"].concat();
            prop_assert_eq!(matches(&pattern, &text), model::matches(&pattern, &text, false));
        }
    }

    #[test]
    fn literal_beginnings_are_recognized() {
        for (pattern, expected) in [
            ("{user}:*", Some("{user}")),
            ("a{user}", Some("{user}")),
            ("a{{b}*", Some("{{b}")),
            ("*{user}", None),
            ("{us?r}", None),
            ("{}{user}*", None),
            ("{user*", None),
            ("{a\\}b}", None),
            ("user", None),
        ] {
            assert_eq!(hash_tag(pattern.as_bytes()), expected.map(str::as_bytes), "{pattern}");
        }
        assert_eq!(literal(b"a]{b}"), Some(&b"a]{b}"[..]));
        assert_eq!(literal(b"a[b]"), None);
    }
}
