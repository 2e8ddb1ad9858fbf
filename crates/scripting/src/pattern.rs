//! Lua's patterns, as in `string.find`, `match`, `gmatch` and `gsub`.
//!
//! ```text
//! x  .  %a  [set]        one byte                 ^ …        at the start only
//! x* x+ x- x?            many of them             … $        at the end only
//! (…)  ()                a capture, a position    %1 … %9    the same as a capture
//! %bxy                   from x to its y          %f[set]    where the set begins
//! ```
//!
//! A pattern is searched for by trying and going back. Two things are bounded that are not in Lua 5.1. The first is how
//! deep the search calls itself ([`DEPTH_MAX`], the limit and the text are those of Lua 5.2). The second is how long it
//! takes: every step is reported to the caller, which may refuse it. As in Lua 5.1 a pattern ends at its first NUL.

/// Most captures of a pattern.
pub(crate) const CAPTURES_MAX: usize = 32;
/// Deepest nesting of the search: every repeated item and every parenthesis of a pattern is a level.
const DEPTH_MAX: u32 = 200;
/// Steps that are reported at once.
const STEPS_TOLD: usize = 256;

/// Why a search has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault<E> {
    /// The fault of the pattern.
    Pattern(&'static str),
    /// The caller has refused to go on.
    Refused(E),
}

/// The contents of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Captured {
    /// The bytes of the subject from one place to another.
    Bytes(usize, usize),
    /// A place in the subject, from 0.
    Position(usize),
    /// Its closing parenthesis was never reached.
    Unfinished(usize),
}

/// The captures of a match, in the order of their opening parentheses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Captures {
    places: [Captured; CAPTURES_MAX],
    count: usize,
}

impl Captures {
    pub(crate) const NONE: Self = Self { places: [Captured::Position(0); CAPTURES_MAX], count: 0 };

    pub(crate) fn get(&self) -> &[Captured] {
        &self.places[..self.count]
    }
}

/// The pattern, without its anchor and the part that Lua 5.1 does not see; and whether it has an anchor.
pub(crate) fn anchored(pattern: &[u8]) -> (&[u8], bool) {
    let pattern = visible(pattern);
    match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    }
}

/// The part of a pattern in front of its first NUL.
pub(crate) fn visible(pattern: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, pattern).unwrap_or(pattern.len());
    &pattern[..end]
}

/// Whether a pattern is no plain text.
pub(crate) fn is_special(pattern: &[u8]) -> bool {
    visible(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// A search for one pattern in one subject.
pub(crate) struct Search<'a, P> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Captures,
    depth: u32,
    steps: usize,
    /// Gets the number of steps, and may refuse more.
    pace: P,
}

impl<'a, E, P: FnMut(usize) -> Result<(), E>> Search<'a, P> {
    /// The pattern is one of [`anchored`] or [`visible`].
    pub(crate) fn new(subject: &'a [u8], pattern: &'a [u8], pace: P) -> Self {
        Self { subject, pattern, captures: Captures::NONE, depth: 0, steps: 0, pace }
    }

    /// Returns the end of the match that begins at a place of the subject.
    pub(crate) fn match_at(&mut self, at: usize) -> Result<Option<(usize, Captures)>, Fault<E>> {
        self.captures.count = 0;
        let end = self.go(at, 0)?;
        Ok(end.map(|end| (end, self.captures)))
    }

    /// The begin and the end of the first match that begins at a place or behind it.
    pub(crate) fn find(
        &mut self,
        from: usize,
        is_anchored: bool,
    ) -> Result<Option<(usize, usize, Captures)>, Fault<E>> {
        for start in from..=self.subject.len() {
            if let Some((end, captures)) = self.match_at(start)? {
                return Ok(Some((start, end, captures)));
            }
            if is_anchored {
                break;
            }
        }
        Ok(None)
    }

    #[inline]
    fn spend(&mut self, steps: usize) -> Result<(), Fault<E>> {
        self.steps += steps;
        if self.steps >= STEPS_TOLD {
            let steps = std::mem::take(&mut self.steps);
            (self.pace)(steps).map_err(Fault::Refused)?;
        }
        Ok(())
    }

    /// The byte of the pattern at a place; NUL behind its end.
    #[inline]
    fn item(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    /// Matches the rest of the pattern one level deeper.
    fn go(&mut self, s: usize, p: usize) -> Result<Option<usize>, Fault<E>> {
        if self.depth == DEPTH_MAX {
            return Err(Fault::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let result = self.follow(s, p);
        self.depth -= 1;
        result
    }

    /// Matches the rest of the pattern, from `p`, with the subject from `s`. Returns the end.
    fn follow(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, Fault<E>> {
        loop {
            self.spend(1)?;
            match (self.item(p), self.item(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.open(s, p + 2, Captured::Position(s)),
                (b'(', _) => return self.open(s, p + 1, Captured::Unfinished(s)),
                (b')', _) => return self.close(s, p + 1),
                (b'$', 0) => return Ok((s == self.subject.len()).then_some(s)),
                (b'%', b'b') => {
                    let Some(end) = self.balance(s, p + 2)? else { return Ok(None) };
                    (s, p) = (end, p + 4);
                }
                (b'%', b'f') => {
                    p += 2;
                    if self.item(p) != b'[' {
                        return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
                    }
                    let end = self.item_end(p)?;
                    let before = s.checked_sub(1).map_or(0, |before| self.subject[before]);
                    let here = self.subject.get(s).copied().unwrap_or(0);
                    if self.is_in_set(before, p, end - 1) || !self.is_in_set(here, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', digit @ b'0'..=b'9') => {
                    let Some(end) = self.repeat_capture(s, digit)? else { return Ok(None) };
                    (s, p) = (end, p + 2);
                }
                _ => {
                    let end = self.item_end(p)?;
                    match self.item(end) {
                        b'?' => {
                            if self.is_match(s, p, end)?
                                && let Some(found) = self.go(s + 1, end + 1)?
                            {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.most(s, p, end),
                        b'+' if self.is_match(s, p, end)? => return self.most(s + 1, p, end),
                        b'+' => return Ok(None),
                        b'-' => return self.fewest(s, p, end),
                        _ if self.is_match(s, p, end)? => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// As many repetitions as there are, then fewer.
    fn most(&mut self, s: usize, p: usize, end: usize) -> Result<Option<usize>, Fault<E>> {
        let mut count = 0;
        while self.is_match(s + count, p, end)? {
            count += 1;
        }
        for count in (0..=count).rev() {
            if let Some(found) = self.go(s + count, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// As few repetitions as will do.
    fn fewest(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>, Fault<E>> {
        loop {
            if let Some(found) = self.go(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_match(s, p, end)? {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, what: Captured) -> Result<Option<usize>, Fault<E>> {
        let place = self.captures.places.get_mut(self.captures.count);
        *place.ok_or(Fault::Pattern("too many captures"))? = what;
        self.captures.count += 1;
        let found = self.go(s, p)?;
        if found.is_none() {
            self.captures.count -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>, Fault<E>> {
        let is_open = |captured: &Captured| matches!(captured, Captured::Unfinished(_));
        let last = self.captures.get().iter().rposition(is_open);
        let last = last.ok_or(Fault::Pattern("invalid pattern capture"))?;
        let Captured::Unfinished(start) = self.captures.places[last] else { return Ok(None) };
        self.captures.places[last] = Captured::Bytes(start, s);
        let found = self.go(s, p)?;
        if found.is_none() {
            self.captures.places[last] = Captured::Unfinished(start);
        }
        Ok(found)
    }

    /// Matches `%1` to `%9`: the bytes of a capture, once more.
    fn repeat_capture(&mut self, s: usize, digit: u8) -> Result<Option<usize>, Fault<E>> {
        const INVALID: &str = "invalid capture index";
        let index = usize::from(digit - b'0').checked_sub(1).ok_or(Fault::Pattern(INVALID))?;
        match self.captures.get().get(index) {
            None | Some(Captured::Unfinished(_)) => Err(Fault::Pattern(INVALID)),
            // As Lua has it: a position matches nothing.
            Some(Captured::Position(_)) => Ok(None),
            Some(Captured::Bytes(start, end)) => {
                let bytes = &self.subject[*start..*end];
                let is_there = self.subject[s..].starts_with(bytes);
                let steps = bytes.len() / 16;
                let end = s + bytes.len();
                self.spend(steps)?;
                Ok(is_there.then_some(end))
            }
        }
    }

    fn balance(&mut self, s: usize, p: usize) -> Result<Option<usize>, Fault<E>> {
        let (begin, end) = (self.item(p), self.item(p + 1));
        if begin == 0 || end == 0 {
            return Err(Fault::Pattern("unbalanced pattern"));
        }
        if self.subject.get(s) != Some(&begin) {
            return Ok(None);
        }
        let mut open = 1_usize;
        for (at, byte) in self.subject.iter().enumerate().skip(s + 1) {
            self.spend(1)?;
            if *byte == end {
                open -= 1;
                if open == 0 {
                    return Ok(Some(at + 1));
                }
            } else if *byte == begin {
                open += 1;
            }
        }
        Ok(None)
    }

    /// Returns the end of the item at `p`: one byte of the subject matches it.
    fn item_end(&mut self, p: usize) -> Result<usize, Fault<E>> {
        match self.item(p) {
            b'%' if self.item(p + 1) == 0 => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                if self.item(at) == b'^' {
                    at += 1;
                }
                // The first byte is one of the set, also if it is a bracket.
                loop {
                    match self.item(at) {
                        0 => return Err(Fault::Pattern("malformed pattern (missing ']')")),
                        b'%' if self.item(at + 1) != 0 => at += 2,
                        _ => at += 1,
                    }
                    if self.item(at) == b']' {
                        break;
                    }
                }
                self.spend((at - p) / 8)?;
                Ok(at + 1)
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte of the subject at `s` matches the item from `p` to `end`.
    #[inline]
    fn is_match(&mut self, s: usize, p: usize, end: usize) -> Result<bool, Fault<E>> {
        let Some(byte) = self.subject.get(s).copied() else { return Ok(false) };
        let item = self.item(p);
        self.spend(if item == b'[' { end - p } else { 1 })?;
        Ok(match item {
            b'.' => true,
            b'%' => is_of_class(byte, self.item(p + 1)),
            b'[' => self.is_in_set(byte, p, end - 1),
            plain => plain == byte,
        })
    }

    /// Whether a byte is in the set from the bracket at `p` to the one at `close`.
    fn is_in_set(&self, byte: u8, p: usize, close: usize) -> bool {
        let is_complement = self.item(p + 1) == b'^';
        let mut at = p + 1 + usize::from(is_complement);
        while at < close {
            if self.item(at) == b'%' {
                if is_of_class(byte, self.item(at + 1)) {
                    return !is_complement;
                }
                at += 2;
            } else if self.item(at + 1) == b'-' && at + 2 < close {
                if (self.item(at)..=self.item(at + 2)).contains(&byte) {
                    return !is_complement;
                }
                at += 3;
            } else {
                if self.item(at) == byte {
                    return !is_complement;
                }
                at += 1;
            }
        }
        is_complement
    }
}

/// Whether a byte is of the class that a letter stands for, in lower case, or is not, in upper case. Any other letter
/// stands for itself.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_of == class.is_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The begin and end of a match, and its captures.
    type Found = Option<(usize, usize, Vec<Captured>)>;

    /// The first match, found with as many steps as a test may take.
    fn find(subject: &str, pattern: &str) -> Result<Found, Fault<()>> {
        let (pattern, is_anchored) = anchored(pattern.as_bytes());
        let mut left = 100_000_usize;
        let pace = |steps| left.checked_sub(steps).map(|rest| left = rest).ok_or(());
        let found = Search::new(subject.as_bytes(), pattern, pace).find(0, is_anchored)?;
        Ok(found.map(|(start, end, captures)| (start, end, captures.get().to_vec())))
    }

    #[test]
    fn patterns_match_as_the_manual_says() {
        for (subject, pattern, expected) in [
            ("hello world", "o w", Some((4, 7))),
            ("hello", "l+", Some((2, 4))),
            ("hello", "l-o", Some((2, 5))),
            ("hello", "^h.-l", Some((0, 3))),
            ("hello", "^e", None),
            ("hello", "o$", Some((4, 5))),
            ("a$b", "$b", Some((1, 3))),
            ("  x", "%S", Some((2, 3))),
            ("x\u{b}y", "%s", Some((1, 2))),
            ("key=value", "=", Some((3, 4))),
            ("a]b", "[]]", Some((1, 2))),
            ("a-b", "[a-]+", Some((0, 2))),
            ("a^b", "[b^]", Some((1, 2))),
            ("q%q", "[%%]", Some((1, 2))),
            ("THE (quick) fox", "%b()", Some((4, 11))),
            ("(()", "%b()", Some((1, 3))),
            ("THE quick", "%f[%l]%l+", Some((4, 9))),
            ("end", "%f[%z]", Some((3, 3))),
            ("", "", Some((0, 0))),
            ("abab", "(ab)%1", Some((0, 4))),
            ("aab", "a?a?a?b", Some((0, 3))),
            ("ab\0cd", "b\0x", Some((1, 2))),
        ] {
            let found = find(subject, pattern).unwrap().map(|(start, end, _)| (start, end));
            assert_eq!(found, expected, "{pattern} in {subject}");
        }
    }

    #[test]
    fn captures_are_in_the_order_of_their_parentheses() {
        let (_, _, captures) = find("key = value", "((%w+)%s*=()%s*(%w+))").unwrap().unwrap();
        let expected =
            [Captured::Bytes(0, 11), Captured::Bytes(0, 3), Captured::Position(5), Captured::Bytes(6, 11)];
        assert_eq!(captures, expected);
        assert_eq!(find("x", "(").unwrap().unwrap().2, [Captured::Unfinished(0)]);
    }

    #[test]
    fn malformed_pattern_is_refused() {
        for (pattern, expected) in [
            ("%", "malformed pattern (ends with '%')"),
            ("[a", "malformed pattern (missing ']')"),
            ("[", "malformed pattern (missing ']')"),
            ("[%", "malformed pattern (missing ']')"),
            ("[^", "malformed pattern (missing ']')"),
            (")", "invalid pattern capture"),
            ("%1", "invalid capture index"),
            ("%0", "invalid capture index"),
            ("(%1)", "invalid capture index"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%b", "unbalanced pattern"),
            ("%bx", "unbalanced pattern"),
        ] {
            assert_eq!(find("abc", pattern), Err(Fault::Pattern(expected)), "{pattern}");
        }
    }

    #[test]
    fn depth_captures_and_steps_are_bounded() {
        let subject = "x".repeat(40_000);
        let complex = Err(Fault::Pattern("pattern too complex"));
        assert_eq!(find(&subject, &"x?".repeat(40_000)), complex);
        assert_eq!(find(&subject, &"x*".repeat(1_000)), complex);
        assert_eq!(find("x", &"()".repeat(33)), Err(Fault::Pattern("too many captures")));
        assert_eq!(find(&subject, &format!("{}y", "x*".repeat(20))), Err(Fault::Refused(())));
        // A class costs as much as it is long.
        assert_eq!(find(&subject, &format!("[{}]", "y".repeat(1_000))), Err(Fault::Refused(())));
        // As many repeated items as any real pattern has.
        assert_eq!(find(&subject, &"x?".repeat(150)).unwrap().map(|found| found.1), Some(150));
    }
}
