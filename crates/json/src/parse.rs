//! JSON text (RFC 8259) to documents: in pieces as they arrive, without recursion.
//!
//! The parser refuses the same texts as serde_json, with which RedisJSON reads, in the same words: broken UTF-8,
//! control characters in strings, numbers beyond all doubles, [`DEPTH_MAX`] containers in one another, anything behind
//! the value. Of members with the same name the last value wins, in the place of the first.
//!
//! Integers are `i64`, above that `u64`, and doubles beyond both; `-0` and whatever has a fraction or an exponent is a
//! double.

use std::fmt;

use crate::{Builder, Document};

/// So many containers in one another are refused.
pub const DEPTH_MAX: usize = 128;

/// Why a text is no JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of mistake.
    pub problem: Problem,
    /// From 1.
    pub line: usize,
    /// Bytes of the line up to the place, inclusive.
    pub column: usize,
}

/// A kind of mistake in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of `message` say it")]
pub enum Problem {
    ExpectedValue,
    ExpectedIdent,
    ExpectedColon,
    ExpectedListEnd,
    ExpectedObjectEnd,
    TrailingComma,
    KeyMustBeString,
    InvalidNumber,
    NumberOutOfRange,
    InvalidEscape,
    LoneSurrogate,
    HexEscapeEnds,
    ControlCharacter,
    NotUtf8,
    TooDeep,
    TrailingCharacters,
    EndOfValue,
    EndOfList,
    EndOfObject,
    EndOfString,
    StringTooLong,
}

impl Problem {
    /// The words of it.
    pub fn message(self) -> &'static str {
        match self {
            Self::ExpectedValue => "expected value",
            Self::ExpectedIdent => "expected ident",
            Self::ExpectedColon => "expected `:`",
            Self::ExpectedListEnd => "expected `,` or `]`",
            Self::ExpectedObjectEnd => "expected `,` or `}`",
            Self::TrailingComma => "trailing comma",
            Self::KeyMustBeString => "key must be a string",
            Self::InvalidNumber => "invalid number",
            Self::NumberOutOfRange => "number out of range",
            Self::InvalidEscape => "invalid escape",
            Self::LoneSurrogate => "lone leading surrogate in hex escape",
            Self::HexEscapeEnds => "unexpected end of hex escape",
            Self::ControlCharacter => "control character (\\u0000-\\u001F) found while parsing a string",
            Self::NotUtf8 => "Couldn't parse as UTF-8 string",
            Self::TooDeep => "recursion limit exceeded",
            Self::TrailingCharacters => "trailing characters",
            Self::EndOfValue => "EOF while parsing a value",
            Self::EndOfList => "EOF while parsing a list",
            Self::EndOfObject => "EOF while parsing an object",
            Self::EndOfString => "EOF while parsing a string",
            Self::StringTooLong => "a string takes 4 GB or more",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.problem == Problem::NotUtf8 {
            return out.write_str(self.problem.message());
        }
        write!(out, "{} at line {} column {}", self.problem.message(), self.line, self.column)
    }
}

impl std::error::Error for ParseError {}

/// The part of the text that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    /// Behind `[`.
    FirstItem,
    /// Behind `{`.
    FirstName,
    /// Behind a comma in an object.
    Name,
    Colon,
    /// Behind a value in a container.
    Comma,
    /// Inside a string: text so far stands in `text`.
    Text,
    /// Behind a backslash.
    Escape,
    /// Behind `\u`: digits so far, and their number.
    Hex(u8, u16),
    /// Behind the escape of a leading surrogate: its backslash, its u.
    LowBackslash(u16),
    LowU(u16),
    LowHex(u16, u8, u16),
    /// Inside a number: characters so far stand in `text`.
    Number,
    /// Inside null, true or false: which, and how many characters came.
    Word(&'static str, u8),
    /// Behind the document.
    End,
}

/// Reads a text in pieces.
#[derive(Debug)]
pub struct Parser {
    builder: Builder,
    state: State,
    /// Whether the string that is read is a name.
    is_name: bool,
    text: Vec<u8>,
    /// Bytes before this piece, and where the line begins of which the next byte is.
    before: usize,
    line: usize,
    line_from: usize,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

/// The document of a text that is there as a whole.
pub fn parse(text: &[u8]) -> Result<Document, ParseError> {
    let mut parser = Parser::new();
    parser.feed(text)?;
    parser.finish()
}

impl Parser {
    /// A parser that expects a value.
    pub fn new() -> Self {
        Self {
            builder: Builder::new(),
            state: State::Value,
            is_name: false,
            text: Vec::new(),
            before: 0,
            line: 1,
            line_from: 0,
        }
    }

    fn error(&self, problem: Problem, offset: usize) -> ParseError {
        ParseError { problem, line: self.line, column: offset.saturating_sub(self.line_from) }
    }

    /// Reads the next piece of the text. After an error the parser is of no use. O(piece)
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), ParseError> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            let fail = |parser: &Self, problem| Err(parser.error(problem, parser.before + at + 1));
            match self.state {
                State::Text => {
                    at += self.text_part(&piece[at..], at)?;
                    continue;
                }
                State::Number => {
                    let end = piece[at..].iter().position(|byte| !is_of_number(*byte)).map(|len| at + len);
                    self.text.extend_from_slice(&piece[at..end.unwrap_or(piece.len())]);
                    match end {
                        Some(end) => {
                            at = end;
                            let text = std::mem::take(&mut self.text);
                            self.number(&text, self.before + at)?;
                            self.text = text;
                        }
                        None => at = piece.len(),
                    }
                    continue;
                }
                _ if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') && self.state.skips_blanks() => {
                    if byte == b'\n' {
                        self.line += 1;
                        self.line_from = self.before + at + 1;
                    }
                }
                State::FirstItem if byte == b']' => self.end(),
                State::Value | State::FirstItem => match byte {
                    b'"' => {
                        at += 1;
                        at += self.begin_text(false, &piece[at..], at)?;
                        continue;
                    }
                    b'-' | b'0'..=b'9' => {
                        let end = piece[at..].iter().position(|byte| !is_of_number(*byte));
                        if let Some(len) = end {
                            self.number(&piece[at..at + len], self.before + at + len)?;
                            at += len;
                            continue;
                        }
                        self.text.clear();
                        self.state = State::Number;
                        continue;
                    }
                    b'[' | b'{' => {
                        if self.builder.depth() + 1 >= DEPTH_MAX {
                            return fail(self, Problem::TooDeep);
                        }
                        if byte == b'[' {
                            self.builder.begin_array();
                            self.state = State::FirstItem;
                        } else {
                            self.builder.begin_object();
                            self.state = State::FirstName;
                        }
                    }
                    b'n' => self.state = State::Word("null", 1),
                    b't' => self.state = State::Word("true", 1),
                    b'f' => self.state = State::Word("false", 1),
                    b']' if self.builder.depth() > 0 && !self.builder.in_object() => {
                        return fail(self, Problem::TrailingComma);
                    }
                    _ => return fail(self, Problem::ExpectedValue),
                },
                State::FirstName if byte == b'}' => self.end(),
                State::FirstName | State::Name => match byte {
                    b'"' => {
                        at += 1;
                        at += self.begin_text(true, &piece[at..], at)?;
                        continue;
                    }
                    b'}' => return fail(self, Problem::TrailingComma),
                    _ => return fail(self, Problem::KeyMustBeString),
                },
                State::Colon => match byte {
                    b':' => self.state = State::Value,
                    _ => return fail(self, Problem::ExpectedColon),
                },
                State::Comma => match (byte, self.builder.in_object()) {
                    (b',', true) => self.state = State::Name,
                    (b',', false) => self.state = State::Value,
                    (b'}', true) | (b']', false) => self.end(),
                    (_, true) => return fail(self, Problem::ExpectedObjectEnd),
                    (_, false) => return fail(self, Problem::ExpectedListEnd),
                },
                State::Word(word, matched) => {
                    if word.as_bytes()[usize::from(matched)] != byte {
                        return fail(self, Problem::ExpectedIdent);
                    }
                    self.state = State::Word(word, matched + 1);
                    if usize::from(matched) + 1 == word.len() {
                        match word {
                            "null" => self.builder.null(),
                            word => self.builder.bool(word == "true"),
                        }
                        self.after_value();
                    }
                }
                State::Escape => {
                    let character = match byte {
                        b'"' | b'\\' | b'/' => byte,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'u' => {
                            self.state = State::Hex(0, 0);
                            at += 1;
                            continue;
                        }
                        _ => return fail(self, Problem::InvalidEscape),
                    };
                    self.text.push(character);
                    self.state = State::Text;
                }
                State::Hex(digits, value) => {
                    let Some(digit) = (byte as char).to_digit(16) else {
                        return fail(self, Problem::InvalidEscape);
                    };
                    let value = value << 4 | digit as u16;
                    self.state = match (digits, value) {
                        (0..=2, _) => State::Hex(digits + 1, value),
                        (_, 0xd800..=0xdbff) => State::LowBackslash(value),
                        (_, 0xdc00..=0xdfff) => return fail(self, Problem::LoneSurrogate),
                        _ => {
                            self.push_character(u32::from(value));
                            State::Text
                        }
                    };
                }
                State::LowBackslash(high) => match byte {
                    b'\\' => self.state = State::LowU(high),
                    _ => return fail(self, Problem::HexEscapeEnds),
                },
                State::LowU(high) => match byte {
                    b'u' => self.state = State::LowHex(high, 0, 0),
                    _ => return fail(self, Problem::HexEscapeEnds),
                },
                State::LowHex(high, digits, value) => {
                    let Some(digit) = (byte as char).to_digit(16) else {
                        return fail(self, Problem::InvalidEscape);
                    };
                    let value = value << 4 | digit as u16;
                    self.state = match (digits, value) {
                        (0..=2, _) => State::LowHex(high, digits + 1, value),
                        (_, 0xdc00..=0xdfff) => {
                            self.push_character(
                                0x1_0000 + (u32::from(high - 0xd800) << 10 | u32::from(value - 0xdc00)),
                            );
                            State::Text
                        }
                        _ => return fail(self, Problem::LoneSurrogate),
                    };
                }
                State::End => return fail(self, Problem::TrailingCharacters),
            }
            at += 1;
        }
        self.before += piece.len();
        Ok(())
    }

    /// The document, if the text has ended where a value ends.
    pub fn finish(mut self) -> Result<Document, ParseError> {
        if self.state == State::Number {
            if self.builder.depth() == 0 {
                let text = std::mem::take(&mut self.text);
                self.number(&text, self.before)?;
            } else {
                let complete = number_of(&self.text).is_ok();
                if !complete {
                    return Err(self.error(Problem::EndOfValue, self.before));
                }
                self.state = State::Comma;
            }
        }
        let problem = match self.state {
            State::End => return Ok(self.builder.finish()),
            State::Value | State::Word(..) | State::Number => Problem::EndOfValue,
            State::FirstItem => Problem::EndOfList,
            State::FirstName | State::Colon => Problem::EndOfObject,
            State::Name => Problem::EndOfValue,
            State::Comma if self.builder.in_object() => Problem::EndOfObject,
            State::Comma => Problem::EndOfList,
            _ => Problem::EndOfString,
        };
        Err(self.error(problem, self.before))
    }

    /// Bytes that wait in the parser's own buffers.
    pub fn depth(&self) -> usize {
        self.builder.depth()
    }

    #[inline]
    fn after_value(&mut self) {
        self.state = if self.builder.depth() == 0 { State::End } else { State::Comma };
    }

    fn end(&mut self) {
        self.builder.end();
        self.after_value();
    }

    fn push_character(&mut self, code: u32) {
        let character = char::from_u32(code).expect("surrogates were taken out");
        self.text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Begins a string behind its first quote. A string without escapes that ends in this piece is not copied.
    #[inline]
    fn begin_text(&mut self, is_name: bool, rest: &[u8], at: usize) -> Result<usize, ParseError> {
        self.is_name = is_name;
        let len = plain_len(rest);
        if rest.get(len) == Some(&b'"') {
            self.whole_text(&rest[..len])?;
            return Ok(len + 1);
        }
        self.text.clear();
        self.state = State::Text;
        self.text_part(rest, at)
    }

    /// Reads a part of a string; returns how many bytes it has read.
    fn text_part(&mut self, rest: &[u8], at: usize) -> Result<usize, ParseError> {
        let len = plain_len(rest);
        self.text.extend_from_slice(&rest[..len]);
        match rest.get(len) {
            None => Ok(len),
            Some(b'"') => {
                let text = std::mem::take(&mut self.text);
                self.whole_text(&text)?;
                self.text = text;
                Ok(len + 1)
            }
            Some(b'\\') => {
                self.state = State::Escape;
                Ok(len + 1)
            }
            Some(_) => Err(self.error(Problem::ControlCharacter, self.before + at + len + 1)),
        }
    }

    #[inline]
    fn whole_text(&mut self, text: &[u8]) -> Result<(), ParseError> {
        if std::str::from_utf8(text).is_err() {
            return Err(self.error(Problem::NotUtf8, 0));
        }
        if u32::try_from(text.len()).is_err() {
            return Err(self.error(Problem::StringTooLong, 0));
        }
        if self.is_name {
            self.builder.name(text);
            self.state = State::Colon;
        } else {
            self.builder.string(text);
            self.after_value();
        }
        Ok(())
    }

    /// Reads a number that ends before `end`.
    #[inline]
    fn number(&mut self, text: &[u8], end: usize) -> Result<(), ParseError> {
        match number_of(text) {
            Ok(Parsed::Int(number)) => self.builder.int(number),
            Ok(Parsed::Uint(number)) => self.builder.uint(number),
            Ok(Parsed::Double(number)) => self.builder.double(number),
            Ok(Parsed::Decimal(digits, scale, negative)) => self.builder.decimal(digits, scale, negative),
            Err((problem, len)) => {
                let at = end - text.len() + len;
                return Err(self.error(problem, at));
            }
        }
        self.after_value();
        Ok(())
    }
}

impl State {
    fn skips_blanks(self) -> bool {
        matches!(
            self,
            Self::Value
                | Self::FirstItem
                | Self::FirstName
                | Self::Name
                | Self::Colon
                | Self::Comma
                | Self::End
        )
    }
}

/// How many bytes from the first on are neither quote, backslash nor control character: eight bytes a step.
#[inline]
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // A zero byte gives a high bit; bytes before the first zero give none.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let found =
            zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\'))) | control;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)).count()
}

#[inline]
fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

enum Parsed {
    Int(i64),
    Uint(u64),
    Double(f64),
    /// Digits without their point, and how many stand behind it; negative or not.
    Decimal(u64, u8, bool),
}

/// The number of a text; otherwise what is wrong, and behind how many of its bytes.
fn number_of(text: &[u8]) -> Result<Parsed, (Problem, usize)> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    // A number that ends too early is incomplete rather than wrong.
    let wrong = |at: usize| {
        if at >= text.len() { (Problem::EndOfValue, text.len()) } else { (Problem::InvalidNumber, at + 1) }
    };
    let negative = text.first() == Some(&b'-');
    let mut at = usize::from(negative);
    let whole = digits(at);
    if whole == 0 {
        return Err(wrong(at));
    }
    if whole > 1 && text[at] == b'0' {
        return Err((Problem::InvalidNumber, at + 2));
    }
    at += whole;
    if at == text.len() {
        let digits = &text[usize::from(negative)..];
        let mut number = Some(0u64);
        for byte in digits {
            number = number
                .and_then(|number| number.checked_mul(10))
                .and_then(|number| number.checked_add(u64::from(byte - b'0')));
        }
        match (number, negative) {
            (Some(0), true) => return Ok(Parsed::Double(-0.0)),
            (Some(number), true) if number <= 1 << 63 => {
                return Ok(Parsed::Int((number as i64).wrapping_neg()));
            }
            (Some(number), false) => {
                return Ok(i64::try_from(number).map_or(Parsed::Uint(number), Parsed::Int));
            }
            _ => {}
        }
    } else {
        if text[at] == b'.' {
            let fraction = digits(at + 1);
            if fraction == 0 {
                return Err(wrong(at + 1));
            }
            at += 1 + fraction;
            // Up to fourteen digits stand for themselves, without a way through the double.
            if at == text.len() && whole + fraction <= 14 {
                let digits = text[usize::from(negative)..]
                    .iter()
                    .filter(|&&byte| byte != b'.')
                    .fold(0, |number, byte| number * 10 + u64::from(byte - b'0'));
                return Ok(Parsed::Decimal(digits, fraction as u8, negative));
            }
        }
        if matches!(text.get(at), Some(b'e' | b'E')) {
            at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
            let exponent = digits(at);
            if exponent == 0 {
                return Err(wrong(at));
            }
            at += exponent;
        }
        if at < text.len() {
            return Err((Problem::InvalidNumber, at + 1));
        }
    }
    let text = std::str::from_utf8(text).map_err(|_| (Problem::InvalidNumber, at))?;
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Parsed::Double(number)),
        _ => Err((Problem::NumberOutOfRange, text.len())),
    }
}
