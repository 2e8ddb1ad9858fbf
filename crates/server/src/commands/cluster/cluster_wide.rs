//! Commands that change what is the cluster's: they are presented again until another thread has carried them out.

use std::sync::Arc;

use dunlin_engine::command::{CommandError, CommandResult};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;

use crate::{
    cluster::cluster_wide::ClusterChange,
    executor::{Flow, ServerContext},
    session::{
        ClientFlags,
        order::{AwaitedChange, Carried},
    },
};

/// Orders a change on all nodes, which `change` describes when the command is presented first. `None`: it is presented
/// again.
pub(in super::super) fn carry_out<'a, 'b>(
    context: &mut ServerContext<'a, 'b>,
    change: impl FnOnce(&mut ServerContext<'a, 'b>) -> Result<ClusterChange, CommandError>,
) -> Result<Option<Carried>, CommandError> {
    wait_for(context, |context| {
        let change = change(context)?;
        Ok(context.shared.cluster.cluster_wide.order(change, context.session.client.id()))
    })
}

/// Answers OK once an order is carried out that `make` gives when the command is presented first.
pub(super) fn answer<'a, 'b>(
    context: &mut ServerContext<'a, 'b>,
    reply: &mut ReplyBuffer,
    make: impl FnOnce(&mut ServerContext<'a, 'b>) -> Result<Arc<AwaitedChange>, CommandError>,
) -> CommandResult {
    if wait_for(context, make)?.is_some() {
        reply.ok();
    }
    Ok(())
}

/// Lets another thread carry out an order, which `make` gives when the command is presented first. `None`: it is
/// presented again. A client whose user is gone by it is disconnected once it has been answered.
pub(in super::super) fn wait_for<'a, 'b>(
    context: &mut ServerContext<'a, 'b>,
    make: impl FnOnce(&mut ServerContext<'a, 'b>) -> Result<Arc<AwaitedChange>, CommandError>,
) -> Result<Option<Carried>, CommandError> {
    let (order, user) = match context.session.held_since.and(context.session.order.clone()) {
        Some(ordered) => ordered,
        None if context.in_transaction => {
            return Err(CommandError::text(
                "ERR what is the cluster's cannot be changed in a transaction: all nodes have to agree first",
            ));
        }
        None => {
            let ordered = (make(context)?, Arc::clone(&context.session.user));
            context.session.order = Some(ordered.clone());
            ordered
        }
    };
    match order.take() {
        None => {
            context.flow = context.executor.hold(context.session);
            Ok(None)
        }
        Some(result) => {
            context.session.order = None;
            if context.shared.access.newest(&user).is_none() {
                context.session.flags.set(ClientFlags::CLOSING, true);
                context.flow = Flow::Stop(Next::CloseAfterReply);
            }
            result.map(Some)
        }
    }
}
