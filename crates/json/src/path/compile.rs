//! The text of a path to its segments: one pass, left to right.

use super::{
    FILTER_DEPTH_MAX, PATH_BYTES_MAX, Path, PathError, Segment, Selector,
    filter::{Comparison, Filter, Operator, Term},
};
use crate::packed::{self, push_string};

pub(super) fn compile(given: &[u8]) -> Result<Path, PathError> {
    let legacy = !(given == b"$" || given.starts_with(b"$.") || given.starts_with(b"$["));
    let mut text = Vec::with_capacity(given.len() + 2);
    if legacy {
        text.extend_from_slice(if given.starts_with(b".") { b"$" } else { b"$." });
    }
    // The legacy root.
    if given != b"." {
        text.extend_from_slice(given);
    }
    let mut reader = Reader { text: &text, at: 1 };
    if text.len() > PATH_BYTES_MAX || std::str::from_utf8(&text).is_err() {
        return Err(reader.error("a path of up to 64 KB in UTF-8"));
    }
    let segments = reader.segments(0)?;
    reader.blanks();
    if reader.at < text.len() {
        return Err(reader.error("EOI, '..'"));
    }
    Ok(Path { given: given.into(), text: text.into(), legacy, segments })
}

/// A place in a text.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

const SELECTORS: &str = "'<string>[,<string>,...]', '<number>', ['start:end:steps'], '*'";

/// Whether a name may stand behind a dot without quotes if it has this byte.
fn is_of_name(byte: u8) -> bool {
    byte >= 0x80
        || byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'$' | b'#' | b'%' | b'^' | b'+' | b':' | b'/' | b'`' | b'~')
}

impl Reader<'_> {
    fn error(&self, expected: &'static str) -> PathError {
        PathError { text: self.text.to_vec(), at: self.at.min(self.text.len()), expected }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Goes behind a word, if it stands here.
    fn takes(&mut self, word: &[u8]) -> bool {
        let here = self.text[self.at..].starts_with(word);
        if here {
            self.at += word.len();
        }
        here
    }

    /// The segments from here to whatever is none.
    fn segments(&mut self, depth: usize) -> Result<Vec<Segment>, PathError> {
        let mut segments = Vec::new();
        loop {
            let before = self.at;
            self.blanks();
            let (descends, dotted) = match self.peek() {
                Some(b'.') => {
                    self.at += 1;
                    (self.takes(b"."), true)
                }
                Some(b'[') => (false, false),
                _ => {
                    self.at = before;
                    return Ok(segments);
                }
            };
            self.blanks();
            let selector = if self.takes(b"[") {
                self.bracket(depth)?
            } else {
                debug_assert!(dotted);
                if self.takes(b"*") { Selector::Every } else { Selector::Names(vec![self.name()?]) }
            };
            segments.push(Segment { descends, selector });
        }
    }

    /// A name without quotes.
    fn name(&mut self) -> Result<Box<[u8]>, PathError> {
        let from = self.at;
        while self.peek().is_some_and(is_of_name) {
            self.at += 1;
        }
        if self.at == from {
            return Err(self.error("<string>, '*'"));
        }
        Ok(self.text[from..self.at].into())
    }

    /// A selector behind its bracket, to the end of the bracket.
    fn bracket(&mut self, depth: usize) -> Result<Selector, PathError> {
        self.blanks();
        let from = self.at;
        let selector = match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Selector::Every
            }
            Some(b'"' | b'\'') => {
                let mut names = vec![self.quoted()?.into_boxed_slice()];
                while self.next_of_list() {
                    names.push(self.quoted()?.into_boxed_slice());
                }
                Selector::Names(names)
            }
            Some(b'?') => {
                self.at += 1;
                Selector::Filter(self.filter(depth)?)
            }
            Some(b'-' | b'0'..=b'9' | b':') => self.indexes()?,
            _ => return Err(self.error(SELECTORS)),
        };
        self.blanks();
        if !self.takes(b"]") {
            if !matches!(selector, Selector::Filter(_)) {
                self.at = from;
            }
            return Err(self.error(if matches!(selector, Selector::Filter(_)) {
                "and, or"
            } else {
                SELECTORS
            }));
        }
        Ok(selector)
    }

    /// Goes behind a comma.
    fn next_of_list(&mut self) -> bool {
        self.blanks();
        let more = self.takes(b",");
        if more {
            self.blanks();
        }
        more
    }

    /// A quoted string.
    fn quoted(&mut self) -> Result<Vec<u8>, PathError> {
        let from = self.at;
        let quote = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => quote,
            _ => return Err(self.error("'<string>'")),
        };
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.peek() {
                Some(b'\\') if matches!(self.text.get(self.at + 1), Some(b'"' | b'\'' | b'\\')) => {
                    text.push(self.text[self.at + 1]);
                    self.at += 2;
                }
                None | Some(b'\\') => {
                    self.at = from;
                    return Err(self.error(SELECTORS));
                }
                Some(byte) => {
                    self.at += 1;
                    if byte == quote {
                        return Ok(text);
                    }
                    text.push(byte);
                }
            }
        }
    }

    /// An integer; `None` if none stands here.
    fn integer(&mut self) -> Result<Option<i64>, PathError> {
        let from = self.at;
        let negative = self.takes(b"-");
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 && !negative {
            return Ok(None);
        }
        let zeros = digits > 1 && self.text[self.at] == b'0';
        self.at += digits;
        let number = std::str::from_utf8(&self.text[from..self.at]).ok().and_then(|text| text.parse().ok());
        match number {
            Some(number) if !zeros => Ok(Some(number)),
            _ => {
                self.at = from;
                Err(self.error("['start:end:steps']"))
            }
        }
    }

    /// Indexes, or a slice.
    fn indexes(&mut self) -> Result<Selector, PathError> {
        let start = self.integer()?;
        self.blanks();
        if self.takes(b":") {
            self.blanks();
            let end = self.integer()?;
            self.blanks();
            let mut step = 1;
            if self.takes(b":") {
                self.blanks();
                let from = self.at;
                step = match self.integer()? {
                    Some(step) if step > 0 => usize::try_from(step).unwrap_or(usize::MAX),
                    _ => {
                        self.at = from;
                        return Err(self.error("pos_number"));
                    }
                };
            }
            return Ok(Selector::Slice { start: start.unwrap_or(0), end, step });
        }
        let mut indexes = vec![start.ok_or_else(|| self.error(SELECTORS))?];
        while self.next_of_list() {
            indexes.push(self.integer()?.ok_or_else(|| self.error("'<number>'"))?);
        }
        Ok(Selector::Indexes(indexes))
    }

    /// A filter: operators wait until one that binds less, as in Dijkstra's shunting yard.
    fn filter(&mut self, depth: usize) -> Result<Filter, PathError> {
        if depth >= FILTER_DEPTH_MAX {
            return Err(self.error("fewer filters in one another"));
        }
        #[derive(PartialEq, Clone, Copy)]
        enum Waiting {
            Parenthesis,
            Or,
            And,
        }
        let mut operators = Vec::new();
        let mut waiting: Vec<Waiting> = Vec::new();
        let flush = |operators: &mut Vec<Operator>, waiting: &mut Vec<Waiting>, while_at_least_and: bool| {
            while let Some(&last) = waiting.last() {
                match last {
                    Waiting::Parenthesis => return,
                    Waiting::Or if while_at_least_and => return,
                    Waiting::Or => operators.push(Operator::Or),
                    Waiting::And => operators.push(Operator::And),
                }
                waiting.pop();
            }
        };
        loop {
            self.blanks();
            while self.takes(b"(") {
                waiting.push(Waiting::Parenthesis);
                self.blanks();
            }
            operators.push(self.comparison(depth)?);
            loop {
                self.blanks();
                if !waiting.contains(&Waiting::Parenthesis) || !self.takes(b")") {
                    break;
                }
                flush(&mut operators, &mut waiting, false);
                waiting.pop();
            }
            if self.takes(b"&&") {
                flush(&mut operators, &mut waiting, true);
                waiting.push(Waiting::And);
            } else if self.takes(b"||") {
                flush(&mut operators, &mut waiting, false);
                waiting.push(Waiting::Or);
            } else if waiting.contains(&Waiting::Parenthesis) {
                return Err(self.error("and, or"));
            } else {
                flush(&mut operators, &mut waiting, false);
                return Ok(Filter { operators });
            }
        }
    }

    fn comparison(&mut self, depth: usize) -> Result<Operator, PathError> {
        let left = self.term(depth, "single_filter")?;
        self.blanks();
        const WORDS: [(&[u8], Comparison); 7] = [
            (b"==", Comparison::Equal),
            (b"!=", Comparison::NotEqual),
            (b"<=", Comparison::AtMost),
            (b">=", Comparison::AtLeast),
            (b"<", Comparison::Less),
            (b">", Comparison::More),
            (b"=~", Comparison::Matches),
        ];
        for (word, comparison) in WORDS {
            if self.takes(word) {
                self.blanks();
                let right =
                    self.term(depth, "decimal, from_current, from_root, boolean_true, boolean_false, null")?;
                return Ok(Operator::compare(left, comparison, right));
            }
        }
        Ok(Operator::Exists(left))
    }

    fn term(&mut self, depth: usize, expected: &'static str) -> Result<Term, PathError> {
        let mut literal = Vec::new();
        match self.peek() {
            Some(sign @ (b'@' | b'$')) => {
                self.at += 1;
                let mut segments = Vec::new();
                // RedisJSON takes a name without a dot here, too.
                if self.peek().is_some_and(is_of_name) {
                    segments.push(Segment { descends: false, selector: Selector::Names(vec![self.name()?]) });
                }
                segments.extend(self.segments(depth + 1)?);
                return Ok(Term::Path { from_root: sign == b'$', segments });
            }
            Some(b'"' | b'\'') => push_string(&mut literal, &self.quoted()?),
            Some(b'-' | b'0'..=b'9') => {
                let from = self.at;
                let digits = |reader: &mut Self| {
                    let from = reader.at;
                    while reader.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                        reader.at += 1;
                    }
                    reader.at - from
                };
                self.takes(b"-");
                if self.takes(b"0") || digits(self) > 0 {
                    if self.peek() == Some(b'.') && self.text.get(self.at + 1).is_some_and(u8::is_ascii_digit)
                    {
                        self.at += 1;
                        digits(self);
                    }
                    let parsed = crate::parse(&self.text[from..self.at]);
                    match parsed.as_ref().ok().and_then(|number| number.as_block()) {
                        Some(bytes) => literal.extend_from_slice(bytes),
                        None => {
                            self.at = from;
                            return Err(self.error(expected));
                        }
                    }
                } else {
                    self.at = from;
                    return Err(self.error(expected));
                }
            }
            _ if self.takes(b"true") => literal.push(packed::TRUE),
            _ if self.takes(b"false") => literal.push(packed::FALSE),
            _ if self.takes(b"null") => literal.push(packed::NULL),
            _ => return Err(self.error(expected)),
        }
        Ok(Term::Literal(literal))
    }
}
