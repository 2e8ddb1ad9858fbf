//! The consequences of a change of users for clients: connections of users that are gone, channels that may be listened to no
//! more, waits for keys that may be used no more.

use std::sync::Arc;

use dunlin_acl::User;
use dunlin_engine::command::Entry;
use dunlin_net::{Client, WorkerQueues};

use super::pubsub::Kind;
use crate::{
    access::{AclRequest, Change, denial_error},
    observe::client_line,
    shared::Shared,
    workers::{
        WorkerMessage,
        blocked::{self, Unblocked},
    },
};

/// Closes the connections of the users that are gone, closes those that listen to channels which their user may listen to no
/// more, and ends waits for keys that their user may use no more. Whether the client `own` is among the connections: it is
/// left to its caller.
pub(crate) fn follow(
    shared: &Shared,
    queues: &WorkerQueues<WorkerMessage>,
    gone: &[&[u8]],
    changes: &[Change],
    own: Option<u64>,
) -> bool {
    let mut closed = clients_of(shared, gone);
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
                closed.extend(shared.exchange.subscribers_where(kind, is_lost));
            }
        }
        if !after.is_unrestricted() {
            end_waits(shared, queues, after);
        }
    }
    let is_own = |client: &Client| Some(client.id()) == own;
    for client in closed.iter().filter(|client| !is_own(client)) {
        client.mark_killed();
        // It takes nothing any more, though its connection is still to be closed.
        shared.blocked.forsake(client.address);
        queues.kill(client.address);
    }
    closed.iter().any(|client| is_own(client))
}

/// The clients that are one of these users.
fn clients_of(shared: &Shared, names: &[&[u8]]) -> Vec<Arc<Client>> {
    let is_one = |client: &Arc<Client>| names.contains(&client_line::user(&client.names()));
    match (names, shared.stats.clients()) {
        ([], _) | (_, None) => Vec::new(),
        (_, Some(clients)) => clients.list().into_iter().filter(is_one).collect(),
    }
}

fn end_waits(shared: &Shared, queues: &WorkerQueues<WorkerMessage>, user: &User) {
    for client in clients_of(shared, &[user.name()]) {
        let Some(waiter) = shared.blocked.waiter(client.address) else { continue };
        let (command, words, database) = waiter.request();
        let entry: Option<&Entry> = shared.commands.find_row(command.name.as_bytes());
        let Some(entry) = entry else { continue };
        let Err(denial) = user.decide(&AclRequest { entry, words: &words, database }) else { continue };
        // Where it has just been served, there is nothing to end; where a script holds its keys, it is served behind it.
        if let Ok(Some(waiter)) = shared.blocked.end(&shared.engine, client.address) {
            let error = denial_error(denial, entry);
            let encoded = blocked::encode(waiter.protocol, |reply| reply.error(error.line()));
            let unblocked = WorkerMessage::Unblocked(Arc::new(Unblocked::with(encoded)));
            queues.send(client.address, unblocked);
        }
    }
}
