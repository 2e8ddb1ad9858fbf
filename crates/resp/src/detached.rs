//! Long arguments of a request, whose bytes the caller keeps elsewhere.
//!
//! ```text
//! input     *3 SET k $209715200 ┊ CR LF        the argument's bytes are cut out of the input
//! caller                        └▶ xxxxxx…     read from the socket to where they can stay
//! ```

use std::fmt;

use crate::SharedSlice;

/// An argument that was cut out of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detached {
    /// Bytes of the argument.
    pub length: usize,
    /// How many of them are the last bytes of the input: they must not be presented again.
    pub arrived: usize,
}

/// The detached arguments of the command at the front of a connection's input.
#[derive(Default)]
pub(crate) struct DetachedArguments {
    /// The complete arguments, in order, each with the place in the input that it was cut out of, from the command's
    /// first byte.
    complete: Vec<(usize, SharedSlice)>,
    /// The place of one that is still arriving.
    arriving: Option<usize>,
    /// How many of the complete ones decoding has come across.
    decoded: usize,
}

/// The place of an argument's bytes, once its header has been read.
pub(crate) enum Place {
    Input,
    /// The argument was detached, and is still arriving.
    Arriving,
    /// The argument is the detached one of this number and length.
    Detached(usize, usize),
}

impl fmt::Debug for DetachedArguments {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { complete, arriving, decoded } = self;
        out.debug_struct("DetachedArguments")
            .field("complete", &complete.len())
            .field("arriving", arriving)
            .field("decoded", decoded)
            .finish()
    }
}

impl DetachedArguments {
    /// The command will be decoded from its first byte.
    pub(crate) fn restart(&mut self) {
        self.decoded = 0;
    }

    pub(crate) fn begin(&mut self, at: usize) {
        debug_assert!(self.arriving.is_none(), "an argument arrives behind the one before");
        self.arriving = Some(at);
    }

    pub(crate) fn complete(&mut self, bytes: SharedSlice) {
        let at = self.arriving.take().expect("an argument was detached, and is completed once");
        self.complete.push((at, bytes));
    }

    /// Finds the argument that begins at a place of the input.
    pub(crate) fn find(&self, at: usize) -> Place {
        match self.complete.get(self.decoded) {
            Some((place, bytes)) if *place == at => Place::Detached(self.decoded, bytes.len()),
            _ if self.arriving == Some(at) => Place::Arriving,
            _ => Place::Input,
        }
    }

    /// Decoding goes on behind the argument that it has found last.
    pub(crate) fn pass(&mut self) {
        self.decoded += 1;
    }

    /// Whether the argument at a place of the input was detached.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.arriving == Some(at) || self.complete.iter().any(|(place, _)| *place == at)
    }

    /// Shares of the complete ones.
    pub(crate) fn share(&self) -> impl Iterator<Item = SharedSlice> {
        self.complete.iter().map(|(_, bytes)| bytes.clone())
    }
}
