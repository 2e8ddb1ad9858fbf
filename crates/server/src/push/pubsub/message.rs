//! A message, as its subscribers are sent it.

use std::sync::Arc;

use dunlin_resp::{Protocol, ReplyBuffer};

/// A message to the subscribers of one name, encoded when the first of them speaks a protocol.
#[derive(Debug)]
pub(super) struct Message<'a> {
    /// Its parts.
    parts: &'a [&'a [u8]],
    /// By [`Protocol`].
    encoded: [Option<Arc<Vec<u8>>>; 2],
}

impl<'a> Message<'a> {
    pub(super) fn new(parts: &'a [&'a [u8]]) -> Self {
        Self { parts, encoded: [None, None] }
    }

    /// The bytes for clients that speak this protocol.
    pub(super) fn encoded(&mut self, protocol: Protocol) -> &Arc<Vec<u8>> {
        self.encoded[usize::from(protocol == Protocol::Resp3)].get_or_insert_with(|| {
            let mut reply = ReplyBuffer::default();
            reply.set_protocol(protocol);
            reply.push(self.parts.len());
            self.parts.iter().for_each(|part| reply.bulk(part));
            Arc::new(reply.into_bytes())
        })
    }
}
