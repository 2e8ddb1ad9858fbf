//! Words to clients that have not asked at this moment: a message to each of its subscribers.
//!
//! A service that receives a letter gets an [`Outbox`] and puts encoded bytes into the output of any
//! connection of its worker. They leave once all mail of the tick has been read: one write per
//! connection, however many messages there are.

use std::sync::Arc;

use super::{Address, Limits, connection::Connection};

/// The outputs of one worker's connections.
#[derive(Debug)]
pub struct Outbox<'a, T> {
    pub(super) connections: &'a mut [Option<Box<Connection<T>>>],
    /// Slots of connections that have something to send.
    pub(super) addressed: &'a mut Vec<u32>,
    pub(super) limits: &'a Limits,
}

impl<T> Outbox<'_, T> {
    /// One client of this worker; `None` when it has gone or nothing more is sent to it.
    #[inline]
    pub fn client(&mut self, address: Address) -> Option<Recipient<'_, T>> {
        let connection = self.connections.get_mut(address.slot as usize)?.as_deref_mut()?;
        let reachable = connection.client.id() == address.id && !connection.is_closing();
        reachable.then_some(Recipient { connection, addressed: self.addressed, limits: self.limits })
    }
}

/// A client that can be spoken to.
#[derive(Debug)]
pub struct Recipient<'a, T> {
    connection: &'a mut Connection<T>,
    addressed: &'a mut Vec<u32>,
    limits: &'a Limits,
}

impl<T> Recipient<'_, T> {
    /// What the service keeps for it.
    #[inline]
    pub fn session(&mut self) -> &mut T {
        &mut self.connection.session
    }

    /// Puts encoded bytes behind everything that it has been told so far. Long ones are shared
    /// with other clients, not copied. Beyond the hard limit of output nothing more is queued, and
    /// the client's next turn ends it.
    #[inline]
    pub fn push(&mut self, encoded: &Arc<Vec<u8>>) {
        self.connection.push(encoded, self.limits);
        self.connection.address(self.addressed);
    }
}
