//! A message on its way to its subscribers.

use std::sync::{Arc, OnceLock};

use dunlin_resp::{Protocol, ReplyBuffer};

use super::Kind;

/// What a message costs beside its texts while it is under way, roughly.
const FIXED_BYTES: usize = 256;

/// A message, shared by all workers that it goes to.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its number: subscriptions that begin behind it do not get it.
    pub(super) sequence: u64,
    /// [`Kind::Channel`] or [`Kind::ShardChannel`].
    pub(super) kind: Kind,
    pub(super) channel: Arc<[u8]>,
    payload: Box<[u8]>,
    encoded: Encoded,
    /// The patterns with subscribers that its channel matches.
    pub(super) matches: Vec<Match>,
}

/// One of the patterns that a message's channel matches.
#[derive(Debug)]
pub(super) struct Match {
    pub(super) pattern: Arc<[u8]>,
    encoded: Encoded,
}

/// Encoded by the first worker that has a subscriber who speaks the protocol.
#[derive(Debug, Default)]
struct Encoded {
    resp2: OnceLock<Arc<Vec<u8>>>,
    resp3: OnceLock<Arc<Vec<u8>>>,
}

impl Encoded {
    fn get(&self, protocol: Protocol, parts: &[&[u8]]) -> &Arc<Vec<u8>> {
        let place = match protocol {
            Protocol::Resp2 => &self.resp2,
            Protocol::Resp3 => &self.resp3,
        };
        place.get_or_init(|| {
            let mut reply = ReplyBuffer::default();
            reply.set_protocol(protocol);
            reply.push(parts.len());
            parts.iter().for_each(|part| reply.bulk(part));
            Arc::new(reply.into_bytes())
        })
    }
}

impl Match {
    pub(super) fn new(pattern: &Arc<[u8]>) -> Self {
        Self { pattern: Arc::clone(pattern), encoded: Encoded::default() }
    }
}

impl Message {
    pub(super) fn new(
        sequence: u64,
        kind: Kind,
        channel: Arc<[u8]>,
        payload: &[u8],
        matches: Vec<Match>,
    ) -> Self {
        Self { sequence, kind, channel, payload: payload.into(), encoded: Encoded::default(), matches }
    }

    /// Bytes that it occupies, roughly.
    pub(super) fn bytes(&self) -> usize {
        FIXED_BYTES + self.channel.len() + 2 * self.payload.len()
    }

    /// What a subscriber of the channel is sent.
    pub(super) fn to_channel(&self, protocol: Protocol) -> &Arc<Vec<u8>> {
        let title: &[u8] = if self.kind == Kind::ShardChannel { b"smessage" } else { b"message" };
        self.encoded.get(protocol, &[title, &self.channel, &self.payload])
    }

    /// What a subscriber of one of the patterns is sent.
    pub(super) fn to_pattern<'a>(&self, matched: &'a Match, protocol: Protocol) -> &'a Arc<Vec<u8>> {
        let parts: [&[u8]; 4] = [b"pmessage", &matched.pattern, &self.channel, &self.payload];
        matched.encoded.get(protocol, &parts)
    }
}
