//! Values across the border: replies of commands become Lua values, what a script returns becomes a reply.
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

use dunlin_resp::{Protocol, ReplyBuffer, number::parse_integer};

use crate::state::{Kind, Stack};

/// Deepest nesting of a reply that is converted; commands stay far below.
const DEPTH_MAX: usize = 64;

/// Pushes a reply of the server's own commands. Whether it was an error at its top.
///
/// What cannot be read, which no command writes, becomes nil.
#[inline]
pub(crate) fn push_reply(stack: Stack<'_>, encoded: &[u8]) -> bool {
    let mut reader = Reader { stack, rest: encoded };
    if reader.push(DEPTH_MAX).is_none() {
        stack.push_nil();
    }
    encoded.first() == Some(&b'-')
}

struct Reader<'s, 'r> {
    stack: Stack<'s>,
    rest: &'r [u8],
}

impl<'r> Reader<'_, 'r> {
    /// Pushes one value; `None`, with nothing pushed, where the bytes are no reply.
    fn push(&mut self, depth: usize) -> Option<()> {
        let stack = self.stack;
        if !stack.ensure(4) {
            return None;
        }
        let (kind, text) = self.line()?;
        match kind {
            b'$' => match self.payload(text)? {
                Some(payload) => stack.push_bytes(payload),
                None => stack.push_boolean(false),
            },
            b':' => stack.push_number(parse_integer(text)? as f64),
            b'+' => self.push_wrapped("ok", |stack| stack.push_bytes(text)),
            b'-' => push_error_table(stack, text),
            b'*' => match parse_integer(text)? {
                -1 => stack.push_boolean(false),
                length => self.push_array(length, depth)?,
            },
            b'_' => stack.push_nil(),
            b'#' => stack.push_boolean(text == b"t"),
            b',' => {
                let value = std::str::from_utf8(text).ok()?.parse().ok()?;
                self.push_wrapped("double", |stack| stack.push_number(value));
            }
            b'(' => self.push_wrapped("big_number", |stack| stack.push_bytes(text)),
            b'=' => {
                let payload = self.payload(text)??;
                let (format, text) = (payload.get(..3)?, payload.get(4..)?);
                self.push_wrapped("verbatim_string", |stack| {
                    stack.push_table(0, 2);
                    stack.push_bytes(text);
                    stack.raw_set_field(-2, "string");
                    stack.push_bytes(format);
                    stack.raw_set_field(-2, "format");
                });
            }
            b'%' => self.push_collection("map", parse_integer(text)?, depth, true)?,
            b'~' => self.push_collection("set", parse_integer(text)?, depth, false)?,
            b'>' => self.push_array(parse_integer(text)?, depth)?,
            _ => return None,
        }
        Some(())
    }

    fn push_wrapped(&mut self, name: &str, push: impl FnOnce(Stack<'_>)) {
        self.stack.push_table(0, 1);
        push(self.stack);
        self.stack.raw_set_field(-2, name);
    }

    fn push_array(&mut self, length: i64, depth: usize) -> Option<()> {
        let (length, depth) = (i32::try_from(length).ok()?, depth.checked_sub(1)?);
        self.stack.push_table(usize::try_from(length).ok()?.min(self.rest.len()), 0);
        for index in 1..=length {
            if self.push(depth).is_none() {
                self.stack.pop(1);
                return None;
            }
            self.stack.raw_set_index(-2, index);
        }
        Some(())
    }

    /// A map, or a set, whose members become keys of true.
    fn push_collection(&mut self, name: &str, length: i64, depth: usize, pairs: bool) -> Option<()> {
        let (stack, depth) = (self.stack, depth.checked_sub(1)?);
        let top = stack.top();
        stack.push_table(0, 1);
        stack.push_table(0, usize::try_from(length).ok()?.min(self.rest.len()));
        for _ in 0..length {
            let pushed = self.push(depth).and_then(|()| match pairs {
                true => self.push(depth),
                false => {
                    stack.push_boolean(true);
                    Some(())
                }
            });
            // Neither nil nor NaN can be a key.
            let key = pushed.map(|()| stack.kind(-2));
            match key {
                Some(Kind::Nil) => stack.pop(2),
                Some(Kind::Number) if stack.number(-2).is_nan() => stack.pop(2),
                Some(_) => stack.raw_set(-3),
                None => {
                    stack.set_top(top);
                    return None;
                }
            }
        }
        stack.raw_set_field(-2, name);
        Some(())
    }

    #[inline]
    fn line(&mut self) -> Option<(u8, &'r [u8])> {
        let end = self.rest.iter().position(|byte| *byte == b'\r')?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(2..)?;
        let (kind, text) = line.split_first()?;
        Some((*kind, text))
    }

    /// The payload that a header announces; `Some(None)` for the null one.
    #[inline]
    fn payload(&mut self, length: &[u8]) -> Option<Option<&'r [u8]>> {
        let length = parse_integer(length)?;
        if length == -1 {
            return Some(None);
        }
        let length = usize::try_from(length).ok()?;
        let payload = self.rest.get(..length)?;
        self.rest = self.rest.get(length.checked_add(2)?..)?;
        Some(Some(payload))
    }
}

/// The field that says of the table of an error that a command has answered it, as scripts see it in Redis, too.
pub(crate) const OF_COMMAND: &str = "ignore_error_stats_update";

/// Whether the value on top is the table of an error that a command has answered.
pub(crate) fn is_of_command(stack: Stack<'_>) -> bool {
    if stack.kind(-1) != Kind::Table {
        return false;
    }
    stack.raw_get_field(-1, OF_COMMAND);
    let is_set = stack.boolean(-1);
    stack.pop(1);
    is_set
}

/// Pushes the table of an error whose line has its code first.
pub(crate) fn push_error_table(stack: Stack<'_>, line: impl AsRef<[u8]>) {
    stack.push_table(0, 4);
    stack.push_bytes(line);
    stack.raw_set_field(-2, "err");
}

/// Writes the value on top as a reply and pops it. `note_error` learns of errors in it that no command has answered.
pub(crate) fn write_reply(
    stack: Stack<'_>,
    script_protocol: Protocol,
    reply: &mut ReplyBuffer,
    note_error: &mut dyn FnMut(&[u8]),
) {
    if !stack.ensure(4) {
        reply.error("ERR reached lua stack limit");
        return stack.pop(1);
    }
    match stack.kind(-1) {
        Kind::String => reply.bulk(stack.text(-1)),
        Kind::Number => reply.integer(to_integer(stack.number(-1))),
        Kind::Boolean => match (script_protocol, stack.boolean(-1)) {
            (Protocol::Resp3, value) => reply.boolean(value),
            (Protocol::Resp2, true) => reply.integer(1),
            (Protocol::Resp2, false) => reply.null(),
        },
        Kind::Table => write_table(stack, script_protocol, reply, note_error),
        _ => reply.null(),
    }
    stack.pop(1);
}

/// Toward zero; what no integer can be becomes the least, as the processors that Redis runs on have it.
fn to_integer(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}

fn write_table(
    stack: Stack<'_>,
    script_protocol: Protocol,
    reply: &mut ReplyBuffer,
    note_error: &mut dyn FnMut(&[u8]),
) {
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
            note_error(&line);
        }
        return reply.error(line);
    }
    if field("ok", Kind::String) {
        reply.raw(b"+");
        reply.raw(&one_line(stack.text(-1)));
        reply.raw(b"\r\n");
    } else if field("double", Kind::Number) {
        reply.double(stack.number(-1));
    } else if field("map", Kind::Table) {
        let pairs = count_fields(stack);
        reply.map(pairs);
        stack.push_nil();
        while stack.next(-2) {
            // The key is wanted by `next` again, the copy is used up.
            stack.push_copy(-2);
            write_reply(stack, script_protocol, reply, note_error);
            write_reply(stack, script_protocol, reply, note_error);
        }
    } else if field("set", Kind::Table) {
        let members = count_fields(stack);
        reply.set(members);
        stack.push_nil();
        while stack.next(-2) {
            stack.pop(1);
            stack.push_copy(-1);
            write_reply(stack, script_protocol, reply, note_error);
        }
    } else if field("big_number", Kind::String) {
        let digits = one_line(stack.text(-1));
        reply.big_number(&String::from_utf8_lossy(&digits));
    } else if field("verbatim_string", Kind::Table) {
        let (string, format) = (field_text(stack, "string"), field_text(stack, "format"));
        match (string, format.as_deref()) {
            (Some(text), Some([a, b, c, ..])) if [a, b, c].iter().all(|byte| byte.is_ascii()) => {
                let format = [*a, *b, *c];
                reply.verbatim(std::str::from_utf8(&format).unwrap_or("txt"), &text);
            }
            _ => {
                // Not a verbatim string after all: an array, and one without elements.
                stack.pop(1);
                return write_array(stack, script_protocol, reply, note_error);
            }
        }
    } else {
        return write_array(stack, script_protocol, reply, note_error);
    }
    stack.pop(1);
}

fn write_array(
    stack: Stack<'_>,
    script_protocol: Protocol,
    reply: &mut ReplyBuffer,
    note_error: &mut dyn FnMut(&[u8]),
) {
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
    reply.array(length as usize);
    for index in 1..=length {
        stack.raw_get_index(-1, index);
        write_reply(stack, script_protocol, reply, note_error);
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
