//! The library `cjson`: JSON (RFC 8259), with the choices of Mark Pulford's Lua CJSON 2.1.

use std::{ffi::c_int, ptr};

use crate::{
    budget::STEP_BYTES,
    number::{format_general, parse_prefix},
    stack::{Kind, NativeFn, NativeResult, Raised, Stack, native},
};

/// Deepest nesting that is read or written, with any configuration.
const DEPTH_MAX: i32 = 1_000;

/// Bytes of a string that are written between two looks at the memory.
const STRING_PART_BYTES: usize = 64 << 10;

/// Settings that the functions of configuration change, until the script ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_depth_max: i32,
    decode_depth_max: i32,
    precision: i32,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

/// The treatment of numbers that JSON lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refuse,
    Write,
    Null,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refuse,
            decode_invalid: true,
        }
    }
}

/// Makes the table and leaves it on the stack.
pub(crate) fn push_table(stack: Stack<'_>) {
    let functions: [(&str, NativeFn); 10] = [
        ("encode", native!(encode)),
        ("decode", native!(decode)),
        ("encode_sparse_array", native!(encode_sparse_array)),
        ("encode_max_depth", native!(encode_max_depth)),
        ("decode_max_depth", native!(decode_max_depth)),
        ("encode_number_precision", native!(encode_number_precision)),
        ("encode_keep_buffer", native!(encode_keep_buffer)),
        ("encode_invalid_numbers", native!(encode_invalid_numbers)),
        ("decode_invalid_numbers", native!(decode_invalid_numbers)),
        ("new", native!(new)),
    ];
    stack.push_table(0, functions.len() + 3);
    for (name, function) in functions {
        stack.push_native(function);
        stack.raw_set_field(-2, name);
    }
    stack.push_pointer(ptr::null_mut());
    stack.raw_set_field(-2, "null");
    stack.push_bytes("cjson");
    stack.raw_set_field(-2, "_NAME");
    stack.push_bytes("2.1.0");
    stack.raw_set_field(-2, "_VERSION");
}

/// Another table of the same functions.
fn new(stack: Stack<'_>) -> NativeResult {
    push_table(stack);
    Ok(1)
}

fn change(stack: Stack<'_>, set: impl FnOnce(&mut Settings)) {
    let cell = &stack.machine().json;
    let mut settings = cell.get();
    set(&mut settings);
    cell.set(settings);
}

/// Fills up with nil to this many arguments.
fn arguments(stack: Stack<'_>, count: c_int) -> Result<(), Raised> {
    if stack.top() > count {
        return Err(stack.raise_argument(count + 1, "found too many arguments"));
    }
    stack.set_top(count);
    Ok(())
}

/// An integer within bounds, if one is given.
fn integer(stack: Stack<'_>, at: c_int, min: i32, max: i32) -> Result<Option<i32>, Raised> {
    if stack.kind(at) == Kind::Nil {
        return Ok(None);
    }
    let value = stack.number_argument(at)? as i32;
    if !(min..=max).contains(&value) {
        return Err(stack.raise_argument(1, &format!("expected integer between {min} and {max}")));
    }
    Ok(Some(value))
}

/// The argument's place among some words, or a boolean for the first two, if one is given.
fn choice(stack: Stack<'_>, at: c_int, words: &[&str]) -> Result<Option<usize>, Raised> {
    match stack.kind(at) {
        Kind::Nil => Ok(None),
        Kind::Boolean => Ok(Some(usize::from(stack.boolean(at)))),
        Kind::String => {
            let text = stack.text(at);
            words.iter().position(|word| word.as_bytes() == text).map(Some).ok_or_else(|| {
                let message = format!("invalid option '{}'", String::from_utf8_lossy(text));
                stack.raise_argument(at, &message)
            })
        }
        _ => Err(stack.raise_type(at, "string")),
    }
}

fn encode_sparse_array(stack: Stack<'_>) -> NativeResult {
    arguments(stack, 3)?;
    if let Some(convert) = choice(stack, 1, &["off", "on"])? {
        change(stack, |settings| settings.sparse_convert = convert == 1);
    }
    if let Some(ratio) = integer(stack, 2, 0, i32::MAX)? {
        change(stack, |settings| settings.sparse_ratio = ratio);
    }
    if let Some(safe) = integer(stack, 3, 0, i32::MAX)? {
        change(stack, |settings| settings.sparse_safe = safe);
    }
    let settings = stack.machine().json.get();
    stack.push_boolean(settings.sparse_convert);
    stack.push_number(f64::from(settings.sparse_ratio));
    stack.push_number(f64::from(settings.sparse_safe));
    Ok(3)
}

/// Sets an integer and answers it.
fn set_integer(stack: Stack<'_>, max: i32, place: fn(&mut Settings) -> &mut i32) -> NativeResult {
    arguments(stack, 1)?;
    if let Some(value) = integer(stack, 1, 1, max)? {
        change(stack, |settings| *place(settings) = value);
    }
    stack.push_number(f64::from(*place(&mut stack.machine().json.get())));
    Ok(1)
}

fn encode_max_depth(stack: Stack<'_>) -> NativeResult {
    set_integer(stack, i32::MAX, |settings| &mut settings.encode_depth_max)
}

fn decode_max_depth(stack: Stack<'_>) -> NativeResult {
    set_integer(stack, i32::MAX, |settings| &mut settings.decode_depth_max)
}

fn encode_number_precision(stack: Stack<'_>) -> NativeResult {
    set_integer(stack, 14, |settings| &mut settings.precision)
}

fn encode_keep_buffer(stack: Stack<'_>) -> NativeResult {
    arguments(stack, 1)?;
    if let Some(keep) = choice(stack, 1, &["off", "on"])? {
        change(stack, |settings| settings.keep_buffer = keep == 1);
    }
    stack.push_boolean(stack.machine().json.get().keep_buffer);
    Ok(1)
}

fn encode_invalid_numbers(stack: Stack<'_>) -> NativeResult {
    arguments(stack, 1)?;
    if let Some(chosen) = choice(stack, 1, &["off", "on", "null"])? {
        let invalid = [Invalid::Refuse, Invalid::Write, Invalid::Null][chosen];
        change(stack, |settings| settings.encode_invalid = invalid);
    }
    match stack.machine().json.get().encode_invalid {
        Invalid::Null => stack.push_bytes("null"),
        other => stack.push_boolean(other == Invalid::Write),
    }
    Ok(1)
}

fn decode_invalid_numbers(stack: Stack<'_>) -> NativeResult {
    arguments(stack, 1)?;
    if let Some(on) = choice(stack, 1, &["off", "on"])? {
        change(stack, |settings| settings.decode_invalid = on == 1);
    }
    stack.push_boolean(stack.machine().json.get().decode_invalid);
    Ok(1)
}

fn encode(stack: Stack<'_>) -> NativeResult {
    if stack.top() != 1 {
        return Err(stack.raise_argument(1, "expected 1 argument"));
    }
    let mut writer = Writer { settings: stack.machine().json.get(), text: Vec::new() };
    writer.value(stack, 0)?;
    stack.push_result(writer.text)?;
    Ok(1)
}

struct Writer {
    settings: Settings,
    text: Vec<u8>,
}

/// Why the value on top cannot be written.
fn refuse(stack: Stack<'_>, reason: &str) -> Raised {
    let kind = stack.type_name(-1);
    stack.raise(format!("Cannot serialise {kind}: {reason}"))
}

impl Writer {
    /// Writes the value on top, which stays.
    fn value(&mut self, stack: Stack<'_>, depth: i32) -> Result<(), Raised> {
        stack.step(self.text.len())?;
        match stack.kind(-1) {
            Kind::String => self.string(stack, stack.text(-1))?,
            Kind::Number => self.number(stack, stack.number(-1))?,
            Kind::Boolean => self.text.extend_from_slice(if stack.boolean(-1) { b"true" } else { b"false" }),
            Kind::Nil => self.text.extend_from_slice(b"null"),
            Kind::LightUserdata if stack.pointer(-1).is_null() => self.text.extend_from_slice(b"null"),
            Kind::Table => self.table(stack, depth + 1)?,
            _ => return Err(refuse(stack, "type not supported")),
        }
        Ok(())
    }

    fn table(&mut self, stack: Stack<'_>, depth: i32) -> Result<(), Raised> {
        let depth_max = self.settings.encode_depth_max.min(DEPTH_MAX);
        let Some(stack) = stack.room(4).filter(|_| depth <= depth_max) else {
            return Err(stack.raise(format!("Cannot serialise, excessive nesting ({depth})")));
        };
        match self.array_length(stack)? {
            Some(length) => self.array(stack, length, depth),
            None => self.object(stack, depth),
        }
    }

    /// The largest index, if all keys are indexes and there are any.
    fn array_length(&self, stack: Stack<'_>) -> Result<Option<i64>, Raised> {
        let (mut largest, mut count) = (0_i64, 0_i64);
        stack.push_nil();
        while stack.next(-2) {
            stack.pop(1);
            let key = stack.number(-1);
            if stack.kind(-1) != Kind::Number || key < 1.0 || key.floor() != key {
                stack.pop(1);
                return Ok(None);
            }
            largest = largest.max(key as i64);
            count += 1;
        }
        let Settings { sparse_ratio, sparse_safe, .. } = self.settings;
        let dense = count.saturating_mul(i64::from(sparse_ratio));
        // An index beyond those of arrays makes it sparse in any case.
        if largest > i64::from(i32::MAX)
            || (sparse_ratio > 0 && largest > dense && largest > i64::from(sparse_safe))
        {
            if !self.settings.sparse_convert {
                return Err(refuse(stack, "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok((largest > 0).then_some(largest))
    }

    fn array(&mut self, stack: Stack<'_>, length: i64, depth: i32) -> Result<(), Raised> {
        self.text.push(b'[');
        for index in 1..=length {
            if index > 1 {
                self.text.push(b',');
            }
            stack.raw_get_index(-1, index as c_int);
            self.value(stack, depth)?;
            stack.pop(1);
        }
        self.text.push(b']');
        Ok(())
    }

    fn object(&mut self, stack: Stack<'_>, depth: i32) -> Result<(), Raised> {
        self.text.push(b'{');
        let mut first = true;
        stack.push_nil();
        while stack.next(-2) {
            if !std::mem::take(&mut first) {
                self.text.push(b',');
            }
            match stack.kind(-2) {
                Kind::String => self.string(stack, stack.text(-2))?,
                Kind::Number => {
                    self.text.push(b'"');
                    self.number(stack, stack.number(-2))?;
                    self.text.push(b'"');
                }
                _ => {
                    stack.pop(1);
                    return Err(refuse(stack, "table key must be a number or string"));
                }
            }
            self.text.push(b':');
            self.value(stack, depth)?;
            stack.pop(1);
        }
        self.text.push(b'}');
        Ok(())
    }

    fn number(&mut self, stack: Stack<'_>, value: f64) -> Result<(), Raised> {
        if !value.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Refuse => return Err(refuse(stack, "must not be NaN or Inf")),
                Invalid::Null => self.text.extend_from_slice(b"null"),
                Invalid::Write if value.is_nan() => self.text.extend_from_slice(b"nan"),
                Invalid::Write => {
                    self.text.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
                }
            }
            return Ok(());
        }
        if value.fract() == 0.0 && value.abs() < 1e14 && self.settings.precision == 14 && value != 0.0 {
            self.text.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
        } else {
            self.text.extend_from_slice(&format_general(value, self.settings.precision));
        }
        Ok(())
    }

    fn string(&mut self, stack: Stack<'_>, text: &[u8]) -> Result<(), Raised> {
        self.text.push(b'"');
        for part in text.chunks(STRING_PART_BYTES) {
            stack.steps(part.len() / STEP_BYTES)?;
            stack.has_memory(self.text.len() + part.len())?;
            self.string_part(part);
        }
        self.text.push(b'"');
        Ok(())
    }

    fn string_part(&mut self, text: &[u8]) {
        self.text.reserve(text.len());
        for byte in text {
            let escaped: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                8 => b"\\b",
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                12 => b"\\f",
                b'\r' => b"\\r",
                0..=31 | 127 => {
                    self.text.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.text.push(*byte);
                    continue;
                }
            };
            self.text.extend_from_slice(escaped);
        }
    }
}

fn decode(stack: Stack<'_>) -> NativeResult {
    if stack.top() != 1 {
        return Err(stack.raise_argument(1, "expected 1 argument"));
    }
    let text = stack.text_argument(1)?;
    if let [0, _, ..] | [_, 0, ..] = text {
        return Err(stack.raise("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut parser = Parser { stack, settings: stack.machine().json.get(), text, at: 0, string: Vec::new() };
    let first = parser.token();
    parser.value(stack, first, 0)?;
    match parser.token() {
        (_, Token::End) => Ok(1),
        other => Err(parser.unexpected("the end", other)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// Its bytes are in [`Parser::string`].
    String,
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::String => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Error(what) => what,
        }
    }
}

/// A token and its place, or the place of the mistake.
type Found = (usize, Token);

struct Parser<'s> {
    stack: Stack<'s>,
    settings: Settings,
    text: &'s [u8],
    at: usize,
    string: Vec<u8>,
}

impl Parser<'_> {
    fn unexpected(&self, expected: &str, (at, token): Found) -> Raised {
        let found = token.name();
        self.stack.raise(format!("Expected {expected} but found {found} at character {}", at + 1))
    }

    /// The byte at a place; the text ends with a NUL, its own or the one behind it.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Found {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let token = match self.byte(at) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return (at, Token::End),
            b'"' => return self.string_token(),
            b'-' | b'0'..=b'9' => {
                if !self.settings.decode_invalid && self.is_invalid_number() {
                    return (at, Token::Error("invalid number"));
                }
                return self.number_token();
            }
            _ => {
                for (word, token) in [
                    (&b"true"[..], Token::Boolean(true)),
                    (b"false", Token::Boolean(false)),
                    (b"null", Token::Null),
                ] {
                    if self.text[at..].starts_with(word) {
                        self.at += word.len();
                        return (at, token);
                    }
                }
                if self.settings.decode_invalid && self.is_invalid_number() {
                    return self.number_token();
                }
                return (at, Token::Error("invalid token"));
            }
        };
        self.at += 1;
        (at, token)
    }

    /// Whether the text that begins here is a number to `strtod` and not to JSON.
    fn is_invalid_number(&self) -> bool {
        if self.byte(self.at) == b'+' {
            return true;
        }
        let at = self.at + usize::from(self.byte(self.at) == b'-');
        match self.byte(at) {
            b'0' => matches!(self.byte(at + 1), b'x' | b'X' | b'0'..=b'9'),
            0..=b'9' => false,
            _ => [b"inf", b"nan"]
                .iter()
                .any(|word| self.text.get(at..at + 3).is_some_and(|found| found.eq_ignore_ascii_case(*word))),
        }
    }

    fn number_token(&mut self) -> Found {
        let at = self.at;
        match parse_prefix(&self.text[at..]) {
            Some((value, length)) => {
                self.at += length;
                (at, Token::Number(value))
            }
            None => (at, Token::Error("invalid number")),
        }
    }

    fn string_token(&mut self) -> Found {
        let start = self.at;
        self.at += 1;
        self.string.clear();
        loop {
            match self.byte(self.at) {
                b'"' => break,
                0 => return (self.at, Token::Error("unexpected end of string")),
                b'\\' => {
                    let plain = match self.byte(self.at + 1) {
                        b'u' => match self.unicode() {
                            Some(()) => continue,
                            None => return (self.at, Token::Error("invalid unicode escape code")),
                        },
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        _ => return (self.at, Token::Error("invalid escape code")),
                    };
                    self.string.push(plain);
                    self.at += 2;
                }
                byte => {
                    self.string.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        (start, Token::String)
    }

    /// Takes `\uXXXX`, or two of them that are one character.
    fn unicode(&mut self) -> Option<()> {
        let unit = |at: usize| -> Option<u32> {
            if self.byte(at) != b'\\' || self.byte(at + 1) != b'u' {
                return None;
            }
            let digits = self.text.get(at + 2..at + 6)?;
            digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
        };
        let high = unit(self.at)?;
        let (code, length) = match high {
            0xd800..=0xdbff => {
                let low = unit(self.at + 6).filter(|low| (0xdc00..0xe000).contains(low))?;
                (0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), 12)
            }
            code => (code, 6),
        };
        let mut encoded = [0; 4];
        self.string.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut encoded).as_bytes());
        self.at += length;
        Some(())
    }

    /// Room for the values of a table that begins.
    fn descend<'a>(&self, stack: Stack<'a>, depth: i32) -> Result<Stack<'a>, Raised> {
        let depth_max = self.settings.decode_depth_max.min(DEPTH_MAX);
        stack.room(4).filter(|_| depth <= depth_max).ok_or_else(|| {
            let text = format!("Found too many nested data structures ({depth}) at character {}", self.at);
            stack.raise(text)
        })
    }

    fn value(&mut self, stack: Stack<'_>, found: Found, depth: i32) -> Result<(), Raised> {
        stack.step(self.string.len())?;
        match found.1 {
            Token::String => stack.push_result(&self.string)?,
            Token::Number(value) => stack.push_number(value),
            Token::Boolean(value) => stack.push_boolean(value),
            Token::Null => stack.push_pointer(ptr::null_mut()),
            Token::ObjectBegin => self.object(stack, depth + 1)?,
            Token::ArrayBegin => self.array(stack, depth + 1)?,
            _ => return Err(self.unexpected("value", found)),
        }
        Ok(())
    }

    fn object(&mut self, stack: Stack<'_>, depth: i32) -> Result<(), Raised> {
        let stack = self.descend(stack, depth)?;
        stack.push_table(0, 0);
        let mut found = self.token();
        if found.1 == Token::ObjectEnd {
            return Ok(());
        }
        loop {
            if found.1 != Token::String {
                return Err(self.unexpected("object key string", found));
            }
            stack.push_result(&self.string)?;
            found = self.token();
            if found.1 != Token::Colon {
                return Err(self.unexpected("colon", found));
            }
            found = self.token();
            self.value(stack, found, depth)?;
            stack.raw_set(-3);
            match self.token() {
                (_, Token::ObjectEnd) => return Ok(()),
                (_, Token::Comma) => {}
                other => return Err(self.unexpected("comma or object end", other)),
            }
            found = self.token();
        }
    }

    fn array(&mut self, stack: Stack<'_>, depth: i32) -> Result<(), Raised> {
        let stack = self.descend(stack, depth)?;
        stack.push_table(0, 0);
        let mut found = self.token();
        if found.1 == Token::ArrayEnd {
            return Ok(());
        }
        for index in 1.. {
            self.value(stack, found, depth)?;
            stack.raw_set_index(-2, index);
            match self.token() {
                (_, Token::ArrayEnd) => break,
                (_, Token::Comma) => {}
                other => return Err(self.unexpected("comma or array end", other)),
            }
            found = self.token();
        }
        Ok(())
    }
}
