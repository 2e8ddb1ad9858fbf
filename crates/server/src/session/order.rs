//! [`AwaitedChange`]: a change that a command has asked another thread for. The command is presented again until it is carried out.

use std::sync::{Mutex, PoisonError};

use dunlin_engine::command::CommandError;

/// The reply to a command whose order has been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    Ok,
    Count(usize),
    Name(Vec<u8>),
}

/// An order, and what became of it once that is known.
#[derive(Debug, Default)]
pub(crate) struct AwaitedChange(Mutex<Option<Result<Carried, CommandError>>>);

impl AwaitedChange {
    /// The order is carried out, or refused.
    pub(crate) fn finish(&self, result: Result<Carried, CommandError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    /// Takes the outcome, once.
    pub(crate) fn take(&self) -> Option<Result<Carried, CommandError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
