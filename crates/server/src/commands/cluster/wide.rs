//! Commands that change what is the cluster's: they are presented again until the thread `cluster-wide` has carried them out.

use dunlin_engine::command::CommandError;

use crate::{cluster::wide::WideChange, executor::ServerContext, session::order::Carried};

/// Has a change made on all nodes, which `change` describes when the command is presented first. `None`: it is presented again.
pub(in super::super) fn carry_out<'a, 'b>(
    context: &mut ServerContext<'a, 'b>,
    change: impl FnOnce(&mut ServerContext<'a, 'b>) -> Result<WideChange, CommandError>,
) -> Result<Option<Carried>, CommandError> {
    let order = match context.session.held_since.and(context.session.order.clone()) {
        Some(order) => order,
        None if context.in_transaction => {
            return Err(CommandError::text(
                "ERR what is the cluster's cannot be changed in a transaction: all nodes have to agree first",
            ));
        }
        None => {
            let change = change(context)?;
            let order = context.shared.cluster.wide.order(change, context.session.client.id());
            context.session.order = Some(order.clone());
            order
        }
    };
    match order.take() {
        None => {
            context.flow = context.executor.hold(context.session);
            Ok(None)
        }
        Some(result) => {
            context.session.order = None;
            result.map(Some)
        }
    }
}
