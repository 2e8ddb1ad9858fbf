//! The consequences of a change of users for clients: connections of users that are gone, channels and keys to which a
//! user has lost access.

use std::sync::Arc;

use dunlin_acl::User;
use dunlin_engine::{
    Engine,
    command::{CommandTable, Entry},
};
use dunlin_net::{Client, Clients, OutputClass, WorkerQueues};

use super::pubsub::{Exchange, Kind};
use crate::{
    access::{AclRequest, Change, denial_error},
    observe::client_line,
    workers::{
        WorkerMessage,
        blocked::{self, BlockedClients, Unblocked},
    },
};

/// The clients of the server, their waits and their subscriptions.
#[derive(Clone, Copy)]
pub(crate) struct Connected<'a> {
    pub(crate) clients: Option<&'a Clients>,
    pub(crate) exchange: &'a Exchange,
    pub(crate) blocked: &'a BlockedClients,
    pub(crate) engine: &'a Engine,
    pub(crate) commands: &'a CommandTable,
    pub(crate) queues: &'a WorkerQueues<WorkerMessage>,
}

impl Connected<'_> {
    /// Closes the connections of the users that are gone, closes clients whose user lost access to a subscribed
    /// channel, and ends waits for keys to which their user lost access. Returns whether the client `own` is among the
    /// connections: it is left to its caller.
    pub(crate) fn follow(self, gone: &[&[u8]], changes: &[Change], own: Option<u64>) -> bool {
        let mut closed = self.clients_of(gone);
        for Change { before, after } in changes {
            let Some(before) = before else { continue };
            if !after.keeps_channels_of(before) {
                for (kind, is_pattern) in
                    [(Kind::Channel, false), (Kind::ShardChannel, false), (Kind::Pattern, true)]
                {
                    let is_lost = |client: &Client, channel: &[u8]| {
                        client_line::user(&client.names()) == after.name()
                            && !after.may_listen(channel, is_pattern)
                    };
                    closed.extend(self.exchange.subscribers_where(kind, is_lost));
                }
            }
            if !after.is_unrestricted() {
                self.end_waits(after);
            }
        }
        let is_own = |client: &Client| Some(client.id()) == own;
        closed.iter().filter(|client| !is_own(client)).for_each(|client| self.close(client));
        closed.iter().any(|client| is_own(client))
    }

    /// Closes the connections of all clients that send requests: not of replicas, nor of those that listen.
    pub(crate) fn disconnect_all(self) {
        let clients = self.clients.map(Clients::list).unwrap_or_default();
        let is_normal =
            |client: &&Arc<Client>| client.output_class() == OutputClass::Normal && !client.is_outgoing();
        clients.iter().filter(is_normal).for_each(|client| self.close(client));
    }

    fn close(self, client: &Client) {
        client.mark_killed();
        // The client takes nothing from now on, though its connection is still to be closed.
        self.blocked.cancel_wait(client.address);
        self.queues.kill(client.address);
    }

    /// The clients that are one of these users.
    fn clients_of(self, names: &[&[u8]]) -> Vec<Arc<Client>> {
        let is_one = |client: &Arc<Client>| {
            !client.is_outgoing() && names.contains(&client_line::user(&client.names()))
        };
        match (names, self.clients) {
            ([], _) | (_, None) => Vec::new(),
            (_, Some(clients)) => clients.list().into_iter().filter(is_one).collect(),
        }
    }

    fn end_waits(self, user: &User) {
        for client in self.clients_of(&[user.name()]) {
            let Some(waiter) = self.blocked.waiter(client.address) else { continue };
            let (command, words, database) = waiter.request();
            let entry: Option<&Entry> = self.commands.find_row(command.name.as_bytes());
            let Some(entry) = entry else { continue };
            let Err(denial) = user.decide(&AclRequest { entry, words: &words, database }) else { continue };
            // If it has just been served, there is nothing to end; if a script holds its keys, it is served behind it.
            if let Ok(Some(waiter)) = self.blocked.end(self.engine, client.address) {
                let error = denial_error(denial, entry);
                let encoded = blocked::encode(waiter.protocol, |reply| reply.error(error.line()));
                let unblocked = WorkerMessage::Unblocked(Arc::new(Unblocked::with(encoded)));
                self.queues.send(client.address, unblocked);
            }
        }
    }
}
