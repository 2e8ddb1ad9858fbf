//! Documents to JSON text: in pieces, without recursion, as short as possible or laid out.

use crate::{
    packed::Scalar,
    parse::plain_len,
    value::{Items, ValueRef},
};

/// The words between the parts of a text. Empty words make it minified.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    /// Before an item, once for each container that it is in.
    pub indent: &'a [u8],
    /// Before items, and before the end of a container that has any.
    pub newline: &'a [u8],
    /// Behind the colon of a member.
    pub space: &'a [u8],
}

/// Writes a value piece by piece.
#[derive(Debug)]
pub struct Writer<'a> {
    layout: Layout<'a>,
    /// The value, until it has begun.
    value: Option<ValueRef<'a>>,
    /// The containers that are open: items left, and whether the next is the first.
    open: Vec<(Items<'a>, bool)>,
    /// Containers around the value.
    outer: usize,
    /// Whether nothing stands between items.
    minified: bool,
}

impl<'a> Writer<'a> {
    /// A writer of a value, as if it stood in `outer` containers.
    pub fn new(value: ValueRef<'a>, layout: Layout<'a>, outer: usize) -> Self {
        let minified = layout.indent.is_empty() && layout.newline.is_empty();
        Self { layout, value: Some(value), open: Vec::new(), outer, minified }
    }

    /// Appends the next part, until `out` has at least `bytes` or the text has ended; whether more is to come. A string is
    /// written as a whole.
    pub fn write(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        if let Some(value) = self.value.take() {
            self.begin(value, out);
        }
        while let Some((items, first)) = self.open.last_mut() {
            if out.len() >= bytes {
                return true;
            }
            let named = items.have_names();
            match items.next() {
                Some((name, value)) => {
                    if !std::mem::take(first) {
                        out.push(b',');
                    }
                    if !self.minified {
                        let depth = self.outer + self.open.len();
                        self.layout.break_line(depth, out);
                    }
                    if named {
                        write_string(name, out);
                        out.push(b':');
                        out.extend_from_slice(self.layout.space);
                    }
                    self.begin(value, out);
                }
                None => {
                    let empty = *first;
                    self.open.pop();
                    if !empty {
                        self.layout.break_line(self.outer + self.open.len(), out);
                    }
                    out.push(if named { b'}' } else { b']' });
                }
            }
        }
        false
    }

    fn begin(&mut self, value: ValueRef<'a>, out: &mut Vec<u8>) {
        match value.scalar() {
            Some(scalar) => write_scalar(scalar, out),
            None => {
                out.push(if value.is_object() { b'{' } else { b'[' });
                self.open.push((value.items(), true));
            }
        }
    }
}

impl Layout<'_> {
    /// Whether nothing stands between the parts.
    pub fn is_minified(&self) -> bool {
        self.indent.is_empty() && self.newline.is_empty() && self.space.is_empty()
    }

    /// Writes what stands before an item that is in `depth` containers.
    pub fn break_line(&self, depth: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.newline);
        for _ in 0..if self.indent.is_empty() { 0 } else { depth } {
            out.extend_from_slice(self.indent);
        }
    }
}

/// Appends the minified text of a value.
pub fn write_text(value: ValueRef<'_>, out: &mut Vec<u8>) {
    Writer::new(value, Layout::default(), 0).write(out, usize::MAX);
}

/// Appends a scalar.
fn write_scalar(scalar: Scalar<'_>, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Null => out.extend_from_slice(b"null"),
        Scalar::Bool(true) => out.extend_from_slice(b"true"),
        Scalar::Bool(false) => out.extend_from_slice(b"false"),
        Scalar::Int(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Scalar::Uint(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Scalar::Double(number) => write_double(number, out),
        Scalar::String(text) => write_string(text, out),
    }
}

/// Appends the shortest text that reads back as the same double, with a fraction or an exponent. A NaN, which JSON
/// cannot hold, is null.
pub fn write_double(number: f64, out: &mut Vec<u8>) {
    let mut buffer = ryu::Buffer::new();
    let text = if number.is_finite() { buffer.format_finite(number) } else { "null" };
    out.extend_from_slice(text.as_bytes());
}

/// Appends a string with its quotes.
pub fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    loop {
        let plain = plain_len(rest);
        out.extend_from_slice(&rest[..plain]);
        let Some(&byte) = rest.get(plain) else { break };
        rest = &rest[plain + 1..];
        let short = match byte {
            b'"' | b'\\' => byte,
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.push(b'"');
}
