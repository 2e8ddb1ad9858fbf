//! Answers of operations in both protocols.

use dunlin_json::{Layout, Number, ValueRef, Writer, operations::Answer, write_double};
use dunlin_resp::{Protocol, ReplyBuffer};

/// Texts of documents of up to this many bytes are written at once.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the pieces of longer texts.
const PIECE_BYTES: usize = 64 << 10;

/// Writes one answer, or an array of those of all matches with null for values of another type.
pub(super) fn answer<T>(
    reply: &mut ReplyBuffer,
    answer: Answer<T>,
    mut write: impl FnMut(&mut ReplyBuffer, T),
) {
    match answer {
        Answer::One(one) => write(reply, one),
        Answer::Each(each) => {
            reply.array(each.len());
            for one in each {
                match one {
                    Some(one) => write(reply, one),
                    None => reply.null(),
                }
            }
        }
    }
}

/// A length.
pub(super) fn count(reply: &mut ReplyBuffer, count: usize) {
    reply.count(count);
}

/// A value as minified JSON.
pub(super) fn text(reply: &mut ReplyBuffer, value: ValueRef<'_>) {
    enclosed(reply, value, b"", b"");
}

/// A value as minified JSON between other bytes, as one bulk string. A long text is not gathered: its length is counted
/// first.
pub(super) fn enclosed(reply: &mut ReplyBuffer, value: ValueRef<'_>, before: &[u8], after: &[u8]) {
    let mut piece = before.to_vec();
    let mut writer = Writer::new(value, Layout::default(), 0);
    if !writer.write(&mut piece, WHOLE_BYTES_MAX) {
        piece.extend_from_slice(after);
        return reply.bulk(&piece);
    }
    let mut length = piece.len() + after.len();
    let mut more = true;
    while more {
        piece.clear();
        more = writer.write(&mut piece, PIECE_BYTES);
        length += piece.len();
    }
    reply.raw(format!("${length}\r\n").as_bytes());
    reply.raw(before);
    let mut writer = Writer::new(value, Layout::default(), 0);
    more = true;
    while more {
        piece.clear();
        more = writer.write(&mut piece, PIECE_BYTES);
        reply.raw(&piece);
    }
    reply.raw(after);
    reply.raw(b"\r\n");
}

/// The text of a number.
fn number_text(number: Number, out: &mut Vec<u8>) {
    match number {
        Number::Int(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Number::Uint(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Number::Double(number) => write_double(number, out),
    }
}

/// A number as the protocol has it: an integer or a double.
pub(super) fn number(reply: &mut ReplyBuffer, number: Number) {
    match number {
        Number::Int(number) => reply.integer(number),
        Number::Uint(number) => reply.raw(format!(":{number}\r\n").as_bytes()),
        Number::Double(number) => reply.double(number),
    }
}

/// The answer of arithmetic: a JSON text in RESP2, always an array in RESP3.
pub(super) fn numbers(reply: &mut ReplyBuffer, numbers: Answer<Number>) {
    if reply.protocol() == Protocol::Resp3 {
        let each = match numbers {
            Answer::One(one) => vec![Some(one)],
            Answer::Each(each) => each,
        };
        return answer(reply, Answer::Each(each), number);
    }
    let mut out = Vec::new();
    match numbers {
        Answer::One(one) => number_text(one, &mut out),
        Answer::Each(each) => {
            out.push(b'[');
            for (place, one) in each.into_iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                match one {
                    Some(one) => number_text(one, &mut out),
                    None => out.extend_from_slice(b"null"),
                }
            }
            out.push(b']');
        }
    }
    reply.bulk(&out);
}
