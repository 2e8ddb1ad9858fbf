//! Values across the border: replies of commands become Lua values, a script's results become replies.
//!
//! ```text
//! RESP                      Lua                          back in RESP
//! +OK                       {ok = "OK"}                  +OK
//! -ERR no                   {err = "ERR no"}             -ERR no
//! :7                        7                            :7, cut to an integer
//! $3 abc                    "abc"                        $3 abc
//! $-1 *-1                   false                        null
//! *2 …                      {…, …}                       array, up to the first nil
//! only after redis.setresp(3):
//! _                         nil                          null
//! #t                        true                         true, or :1
//! ,1.5                      {double = 1.5}               double
//! (123                      {big_number = "123"}         big number
//! =txt:abc                  {verbatim_string = {string = "abc", format = "txt"}}
//! %1 k v                    {map = {k = v}}              map
//! ~1 m                      {set = {m = true}}           set
//! ```

use dunlin_resp::{Mark, Protocol, ReplyBuffer, number::parse_integer};

use crate::{
    budget::NO_MEMORY,
    stack::{Kind, Stack, to_integer},
};

/// Deepest nesting of a reply that is converted; commands stay far below.
const DEPTH_MAX: usize = 64;

/// Deepest nesting of a script's result.
const RETURNED_DEPTH_MAX: usize = 1_000;

/// The error for tables of a script that are too deep.
const STACK_LIMIT: &str = "ERR reached lua stack limit";

/// The kind of value that has been pushed for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// A value.
    Value,
    /// The table of an error.
    Error,
}

/// Why a reply is none for a script.
#[derive(Debug, Clone, Copy)]
enum Unfit {
    /// No bytes of a reply: a fault of ours.
    Unreadable,
    /// There is no room for it.
    Room,
    /// There is no memory for it.
    Memory,
}

/// Pushes a reply of the server's own commands; the table of an error if it cannot be converted.
#[inline]
pub(crate) fn push_reply(stack: Stack<'_>, encoded: &[u8]) -> Pushed {
    let top = stack.top();
    let unfit = match (Reader { rest: encoded }).push(stack, DEPTH_MAX) {
        Ok(()) if encoded.first() == Some(&b'-') => return Pushed::Error,
        Ok(()) => return Pushed::Value,
        Err(unfit) => unfit,
    };
    stack.set_top(top);
    push_error_table(
        stack,
        match unfit {
            Unfit::Unreadable => "ERR the reply cannot be read".to_owned(),
            Unfit::Room => STACK_LIMIT.to_owned(),
            Unfit::Memory => format!("ERR {NO_MEMORY}"),
        },
    );
    Pushed::Error
}

struct Reader<'r> {
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    /// Pushes one value; after an error, the stack's contents are unknown.
    fn push(&mut self, stack: Stack<'_>, depth: usize) -> Result<(), Unfit> {
        let stack = stack.room(6).ok_or(Unfit::Room)?;
        if stack.machine().is_over() {
            return Err(Unfit::Memory);
        }
        self.push_value(stack, depth)
    }

    fn push_value(&mut self, stack: Stack<'_>, depth: usize) -> Result<(), Unfit> {
        let (kind, text) = self.line()?;
        match kind {
            b'$' => match self.payload(text)? {
                Some(payload) => stack.push_bytes(payload),
                None => stack.push_boolean(false),
            },
            b':' => stack.push_number(integer(text)? as f64),
            b'+' => push_wrapped(stack, "ok", |stack| stack.push_bytes(text)),
            b'-' => push_error_table(stack, text),
            b'*' => match integer(text)? {
                -1 => stack.push_boolean(false),
                length => self.push_array(stack, length, depth)?,
            },
            b'_' => stack.push_nil(),
            b'#' => stack.push_boolean(text == b"t"),
            b',' => {
                let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                let value = value.ok_or(Unfit::Unreadable)?;
                push_wrapped(stack, "double", |stack| stack.push_number(value));
            }
            b'(' => push_wrapped(stack, "big_number", |stack| stack.push_bytes(text)),
            b'=' => {
                let payload = self.payload(text)?.ok_or(Unfit::Unreadable)?;
                let parts = payload.get(..3).zip(payload.get(4..));
                let (format, text) = parts.ok_or(Unfit::Unreadable)?;
                push_wrapped(stack, "verbatim_string", |stack| {
                    stack.push_table(0, 2);
                    stack.push_bytes(text);
                    stack.raw_set_field(-2, "string");
                    stack.push_bytes(format);
                    stack.raw_set_field(-2, "format");
                });
            }
            b'%' => self.push_collection(stack, "map", integer(text)?, depth, true)?,
            b'~' => self.push_collection(stack, "set", integer(text)?, depth, false)?,
            b'>' => self.push_array(stack, integer(text)?, depth)?,
            _ => return Err(Unfit::Unreadable),
        }
        Ok(())
    }

    fn push_array(&mut self, stack: Stack<'_>, length: i64, depth: usize) -> Result<(), Unfit> {
        let depth = depth.checked_sub(1).ok_or(Unfit::Room)?;
        let length = i32::try_from(length).map_err(|_| Unfit::Unreadable)?;
        let room = usize::try_from(length).map_err(|_| Unfit::Unreadable)?;
        stack.push_table(room.min(self.rest.len()), 0);
        for index in 1..=length {
            self.push(stack, depth)?;
            stack.raw_set_index(-2, index);
        }
        Ok(())
    }

    /// A map, or a set, whose members become keys of true.
    fn push_collection(
        &mut self,
        stack: Stack<'_>,
        name: &str,
        length: i64,
        depth: usize,
        pairs: bool,
    ) -> Result<(), Unfit> {
        let depth = depth.checked_sub(1).ok_or(Unfit::Room)?;
        let room = usize::try_from(length).map_err(|_| Unfit::Unreadable)?;
        stack.push_table(0, 1);
        stack.push_table(0, room.min(self.rest.len()));
        for _ in 0..length {
            self.push(stack, depth)?;
            match pairs {
                true => self.push(stack, depth)?,
                false => stack.push_boolean(true),
            }
            // Neither nil nor NaN can be a key.
            match stack.kind(-2) {
                Kind::Nil => stack.pop(2),
                Kind::Number if stack.number(-2).is_nan() => stack.pop(2),
                _ => stack.raw_set(-3),
            }
        }
        stack.raw_set_field(-2, name);
        Ok(())
    }

    #[inline]
    fn line(&mut self) -> Result<(u8, &'r [u8]), Unfit> {
        let end = self.rest.iter().position(|byte| *byte == b'\r').ok_or(Unfit::Unreadable)?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(2..).ok_or(Unfit::Unreadable)?;
        let (kind, text) = line.split_first().ok_or(Unfit::Unreadable)?;
        Ok((*kind, text))
    }

    /// The payload that a header announces; `None` for the null one.
    #[inline]
    fn payload(&mut self, length: &[u8]) -> Result<Option<&'r [u8]>, Unfit> {
        let length = integer(length)?;
        if length == -1 {
            return Ok(None);
        }
        let parts = usize::try_from(length).ok().and_then(|length| {
            let behind = length.checked_add(2)?;
            Some((self.rest.get(..length)?, self.rest.get(behind..)?))
        });
        let (payload, rest) = parts.ok_or(Unfit::Unreadable)?;
        self.rest = rest;
        Ok(Some(payload))
    }
}

/// The field that says of the table of an error that a command has answered it, as scripts see it in Redis, too.
pub(crate) const OF_COMMAND: &str = "ignore_error_stats_update";

/// Whether the value on top is the table of an error that a command has answered.
pub(crate) fn is_of_command(stack: Stack<'_>) -> bool {
    let Some(stack) = stack.room(2).filter(|stack| stack.kind(-1) == Kind::Table) else { return false };
    stack.raw_get_field(-1, OF_COMMAND);
    let is_set = stack.boolean(-1);
    stack.pop(1);
    is_set
}

fn push_wrapped(stack: Stack<'_>, name: &str, push: impl FnOnce(Stack<'_>)) {
    stack.push_table(0, 1);
    push(stack);
    stack.raw_set_field(-2, name);
}

#[inline]
fn integer(text: &[u8]) -> Result<i64, Unfit> {
    parse_integer(text).ok_or(Unfit::Unreadable)
}

/// Pushes the table of an error whose line has its code first.
pub(crate) fn push_error_table(stack: Stack<'_>, line: impl AsRef<[u8]>) {
    stack.push_table(0, 4);
    stack.push_bytes(line);
    stack.raw_set_field(-2, "err");
}

/// Writes the value on top, which a script has returned, as a reply and pops it; or nothing, and the line of the error
/// that ends it. `note_error` learns of errors in it that no command has answered. The reply is bounded like the
/// script's memory: a few tables that share others come to any number of elements.
pub(crate) fn write_reply(
    stack: Stack<'_>,
    script_protocol: Protocol,
    reply: &mut ReplyBuffer,
    note_error: &mut dyn FnMut(&[u8]),
) -> Result<(), String> {
    let start = reply.mark();
    let bytes_max = stack.machine().used_bytes_max();
    let mut writer = Writer { script_protocol, reply, start, bytes_max, note_error };
    let result = writer.write(stack, RETURNED_DEPTH_MAX);
    if result.is_err() {
        writer.reply.rewind(start);
    }
    result
}

struct Writer<'r> {
    script_protocol: Protocol,
    reply: &'r mut ReplyBuffer,
    start: Mark,
    bytes_max: usize,
    note_error: &'r mut dyn FnMut(&[u8]),
}

impl Writer<'_> {
    /// Writes the value on top and pops it.
    fn write(&mut self, stack: Stack<'_>, depth: usize) -> Result<(), String> {
        let Some(stack) = stack.room(6).filter(|_| depth > 0) else {
            self.reply.error(STACK_LIMIT);
            stack.pop(1);
            return Ok(());
        };
        let more = if stack.kind(-1) == Kind::String { stack.length(-1) } else { 0 };
        if self.reply.bytes_since(self.start).saturating_add(more) > self.bytes_max {
            return Err(format!("ERR the reply of the script is larger than {} bytes", self.bytes_max));
        }
        if let Some(text) = stack.machine().ask_after_steps(1) {
            return Err(format!("ERR {text}"));
        }
        match stack.kind(-1) {
            Kind::String => self.reply.bulk(stack.text(-1)),
            Kind::Number => self.reply.integer(to_integer(stack.number(-1))),
            Kind::Boolean => match (self.script_protocol, stack.boolean(-1)) {
                (Protocol::Resp3, value) => self.reply.boolean(value),
                (Protocol::Resp2, true) => self.reply.integer(1),
                (Protocol::Resp2, false) => self.reply.null(),
            },
            Kind::Table => self.write_table(stack, depth - 1)?,
            _ => self.reply.null(),
        }
        stack.pop(1);
        Ok(())
    }

    fn write_table(&mut self, stack: Stack<'_>, depth: usize) -> Result<(), String> {
        let field = |name: &str, kind: Kind| {
            stack.raw_get_field(-1, name);
            let found = stack.kind(-1) == kind;
            if !found {
                stack.pop(1);
            }
            found
        };
        if field("err", Kind::String) {
            let line = one_line(stack.text(-1));
            stack.pop(1);
            if !is_of_command(stack) {
                (self.note_error)(&line);
            }
            self.reply.error(line);
            return Ok(());
        }
        if field("ok", Kind::String) {
            self.reply.raw(b"+");
            self.reply.raw(&one_line(stack.text(-1)));
            self.reply.raw(b"\r\n");
        } else if field("double", Kind::Number) {
            self.reply.double(stack.number(-1));
        } else if field("map", Kind::Table) {
            let pairs = count_fields(stack);
            self.reply.map(pairs);
            stack.push_nil();
            while stack.next(-2) {
                // The key is wanted by `next` again, the copy is used up.
                stack.push_copy(-2);
                self.write(stack, depth)?;
                self.write(stack, depth)?;
            }
        } else if field("set", Kind::Table) {
            let members = count_fields(stack);
            self.reply.set(members);
            stack.push_nil();
            while stack.next(-2) {
                stack.pop(1);
                stack.push_copy(-1);
                self.write(stack, depth)?;
            }
        } else if field("big_number", Kind::String) {
            let digits = one_line(stack.text(-1));
            self.reply.big_number(&String::from_utf8_lossy(&digits));
        } else if field("verbatim_string", Kind::Table) {
            let (string, format) = (field_text(stack, "string"), field_text(stack, "format"));
            match (string, format) {
                // As in Redis, the first three bytes count, and blanks stand for those that lack.
                (Some(text), Some(mut format)) => {
                    format.resize(3, b' ');
                    self.reply.verbatim(&[format[0], format[1], format[2]], &text);
                }
                _ => {
                    // Not a verbatim string after all: an array, and one without elements.
                    stack.pop(1);
                    return self.write_array(stack, depth);
                }
            }
        } else {
            return self.write_array(stack, depth);
        }
        stack.pop(1);
        Ok(())
    }

    fn write_array(&mut self, stack: Stack<'_>, depth: usize) -> Result<(), String> {
        let mut length = 0;
        loop {
            stack.raw_get_index(-1, length + 1);
            let at_end = stack.kind(-1) == Kind::Nil;
            stack.pop(1);
            if at_end {
                break;
            }
            length += 1;
        }
        self.reply.array(length as usize);
        for index in 1..=length {
            stack.raw_get_index(-1, index);
            self.write(stack, depth)?;
        }
        Ok(())
    }
}

fn count_fields(stack: Stack<'_>) -> usize {
    let mut count = 0;
    stack.push_nil();
    while stack.next(-2) {
        stack.pop(1);
        count += 1;
    }
    count
}

/// A field that is a string.
pub(crate) fn field_text(stack: Stack<'_>, name: &str) -> Option<Vec<u8>> {
    stack.raw_get_field(-1, name);
    let text = stack.bytes(-1).map(<[u8]>::to_vec);
    stack.pop(1);
    text
}

/// Line breaks become blanks.
fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}
