//! Subscribing and unsubscribing: a client's own list, and its place in the exchange.

use super::{Exchange, Kind};
use crate::session::Session;

/// Subscribes a client, at the place of its command among all changes.
pub(crate) fn subscribe(exchange: &Exchange, session: &mut Session, kind: Kind, name: &[u8]) {
    let subscriptions = session.subscriptions.get_or_insert_default();
    if subscriptions.has(kind, name) {
        return;
    }
    let pushes = session.client.take_pushes(session.protocol);
    pushes.change(|listener| listener.is_subscribed = true);
    session.is_pushed_to = true;
    let name = exchange.join(kind, name, &session.client);
    subscriptions.add(kind, name, &session.client);
}

/// Ends a subscription, if there is one.
pub(crate) fn unsubscribe(exchange: &Exchange, session: &mut Session, kind: Kind, name: &[u8]) {
    let Some(subscriptions) = &mut session.subscriptions else { return };
    if !subscriptions.has(kind, name) {
        return;
    }
    exchange.leave(kind, name, session.client.id());
    subscriptions.remove(kind, name, &session.client);
    if subscriptions.is_empty() {
        session.subscriptions = None;
        if let Some(pushes) = session.client.pushes.get() {
            pushes.with_listener(|listener| listener.is_subscribed = false);
        }
    }
}

/// Ends all subscriptions of a client.
pub(crate) fn unsubscribe_all(exchange: &Exchange, session: &mut Session) {
    for kind in Kind::ALL {
        for name in session.subscribed(kind) {
            unsubscribe(exchange, session, kind, &name);
        }
    }
}
