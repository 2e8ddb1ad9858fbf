//! How a command that may wait for keys ends ([`Run::Block`](super::Run::Block)).

use std::num::NonZeroU64;

use dunlin_resp::ReplyBuffer;

use crate::value::ValueType;

/// How a run of the command has ended.
#[derive(Debug)]
pub enum Blocking<'a> {
    /// The command has answered.
    Done,
    /// The command has answered nothing and changed nothing: the client is to wait, and the command
    /// to be run again when a key may have become what it waits for.
    Wait(Wait<'a>),
}

impl<'a> Blocking<'a> {
    /// A wait until one of the keys holds a value of that type; then the command runs again as it is.
    pub fn wait_for(
        value_type: ValueType,
        keys: &'a [&'a [u8]],
        timeout_ms: Option<NonZeroU64>,
        refused: fn(&mut ReplyBuffer),
    ) -> Self {
        Self::Wait(Wait {
            keys,
            value_type,
            elements_min: 1,
            timeout_ms,
            words: None,
            on_loss: false,
            again_ms: None,
            refused,
        })
    }
}

/// The keys and conditions that a client is to wait for.
#[derive(Debug)]
pub struct Wait<'a> {
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// The type of value that one of them must hold.
    pub value_type: ValueType,
    /// How many elements the value must have.
    pub elements_min: usize,
    /// For how many milliseconds; `None` for ever.
    pub timeout_ms: Option<NonZeroU64>,
    /// The words to run again, if they are not those of the request: values that depend on the moment of
    /// the request are settled in them. The keys stay where they are.
    pub words: Option<Vec<Box<[u8]>>>,
    /// Whether to run again, too, when a key goes or comes to hold another type.
    pub on_loss: bool,
    /// When to run again though no key has changed, in Unix milliseconds: entries there may have come of age
    /// by then.
    pub again_ms: Option<u64>,
    /// Writes the reply if no client can wait: in transactions and scripts.
    pub refused: fn(&mut ReplyBuffer),
}
