//! Values in the types of the protocol: JSON.RESP, and FORMAT EXPAND of RESP3.

use dunlin_json::ValueRef;
use dunlin_resp::{Protocol, ReplyBuffer};

use super::reply::{number, text};
use crate::command::{Args, CommandError};

/// The form of values in a reply of RESP3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// A single JSON text.
    String,
    /// A JSON text for each value.
    Strings,
    /// Types of the protocol, containers as JSON.
    Expand1,
    /// Types of the protocol.
    Expand,
}

impl Format {
    /// Reads the word behind FORMAT.
    pub(super) fn read(args: &mut Args<'_>, protocol: Protocol) -> Result<Self, CommandError> {
        if protocol != Protocol::Resp3 {
            return Err(CommandError::text("ERR FORMAT argument is not supported on RESP2"));
        }
        let word = args.word();
        let names = [
            ("STRING", Self::String),
            ("STRINGS", Self::Strings),
            ("EXPAND1", Self::Expand1),
            ("EXPAND", Self::Expand),
        ];
        let format = names.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        format.map(|(_, format)| *format).ok_or(CommandError::text("ERR wrong reply format"))
    }
}

/// A value of JSON.GET or JSON.ARRPOP in a format. Recurses by its depth, which is 128 at most.
pub(super) fn formatted(reply: &mut ReplyBuffer, value: ValueRef<'_>, format: Format) {
    let is_container = value.is_object() || value.is_array();
    match (value.as_bool(), value.as_string(), value.as_number()) {
        _ if matches!(format, Format::String | Format::Strings)
            || is_container && format == Format::Expand1 =>
        {
            text(reply, value);
        }
        (Some(value), _, _) => reply.boolean(value),
        (_, Some(text), _) => reply.bulk(text),
        (_, _, Some(found)) => number(reply, found),
        _ if value.is_object() => {
            reply.map(value.len());
            for (name, value) in value.items() {
                reply.bulk(name);
                formatted(reply, value, format);
            }
        }
        _ if value.is_array() => {
            reply.array(value.len());
            value.items().for_each(|(_, item)| formatted(reply, item, format));
        }
        _ => reply.null(),
    }
}

/// A value as JSON.RESP answers it. Recurses by its depth, which is 128 at most.
pub(super) fn resp(reply: &mut ReplyBuffer, value: ValueRef<'_>) {
    match (value.as_bool(), value.as_string(), value.as_number()) {
        (Some(value), _, _) => reply.simple(if value { "true" } else { "false" }),
        (_, Some(text), _) => reply.bulk(text),
        // Without an exponent, and without a fraction if it has none.
        (_, _, Some(dunlin_json::Number::Double(found))) if reply.protocol() == Protocol::Resp2 => {
            reply.bulk(found.to_string().as_bytes());
        }
        (_, _, Some(found)) => number(reply, found),
        _ if value.is_object() => {
            reply.array(1 + 2 * value.len());
            reply.simple("{");
            for (name, value) in value.items() {
                reply.bulk(name);
                resp(reply, value);
            }
        }
        _ if value.is_array() => {
            reply.array(1 + value.len());
            reply.simple("[");
            value.items().for_each(|(_, item)| resp(reply, item));
        }
        _ => reply.null(),
    }
}
