//! Clients by their states.

use dunlin_net::{Client, OutputClass};

use super::{
    Reading,
    metric::{Metric, Row, Unit},
};
use crate::session::ClientFlags;

pub(super) const ROWS: &[Row] = &[
    Row::One(Metric::gauge(
        "connected_clients",
        Unit::Count,
        "Connections of clients, with the link to the primary and without those of replicas.",
        |reading| {
            let connected = reading.shared.stats.clients().map_or(0, |clients| clients.connected());
            let replicas = count(reading, |client| client.output_class() == OutputClass::Replica);
            (connected.saturating_sub(replicas) + count(reading, Client::is_outgoing)).into()
        },
    )),
    Row::One(Metric::gauge(
        "cluster_connections",
        Unit::Count,
        "Connections of this node to others of its cluster.",
        |reading| reading.shared.cluster.links.open().into(),
    )),
    Row::One(Metric::gauge("maxclients", Unit::Count, "The directive `maxclients`.", |reading| {
        reading.config.maxclients.into()
    })),
    Row::One(Metric::gauge(
        "client_recent_max_input_buffer",
        Unit::Bytes,
        "The largest buffer for requests of a client in the last eight seconds, of ten samples a second.",
        |reading| reading.largest_buffers().input.into(),
    )),
    Row::One(Metric::gauge(
        "client_recent_max_output_buffer",
        Unit::Bytes,
        "The most bytes that waited to be sent to a client or a replica in the last eight seconds, of ten samples a second.",
        |reading| reading.largest_buffers().output.into(),
    )),
    Row::One(Metric::gauge(
        "blocked_clients",
        Unit::Count,
        "Clients that wait in a blocking command, as BLPOP.",
        |reading| count(reading, |client| ClientFlags::of(client).has(ClientFlags::BLOCKED)).into(),
    )),
    Row::One(Metric::gauge("tracking_clients", Unit::Count, "Clients that cache keys.", |reading| {
        reading.shared.trackers.clients().into()
    })),
    Row::One(Metric::gauge("pubsub_clients", Unit::Count, "Clients that have subscribed.", |reading| {
        count(reading, |client| client.output_class() == OutputClass::Pubsub).into()
    })),
    Row::One(Metric::gauge("watching_clients", Unit::Count, "Clients that watch keys.", |reading| {
        count(reading, |client| client.watched_keys.get() > 0).into()
    })),
    Row::One(Metric::none("clients_in_timeout_table", "Clients in a table of timeouts: there is none.")),
    Row::One(Metric::gauge("total_watched_keys", Unit::Count, "Keys that clients watch.", |reading| {
        reading.clients().iter().map(|client| client.watched_keys.get()).sum::<u64>().into()
    })),
    Row::One(Metric::gauge("total_blocking_keys", Unit::Count, "Keys that clients wait for.", |reading| {
        reading.survey().blocking.keys.into()
    })),
    Row::One(Metric::gauge(
        "total_blocking_keys_on_nokey",
        Unit::Count,
        "Keys whose removal ends the wait, as of XREADGROUP.",
        |reading| reading.survey().blocking.on_loss.into(),
    )),
];

fn count(reading: &Reading<'_>, is: fn(&Client) -> bool) -> usize {
    reading.clients().iter().filter(|client| is(client)).count()
}
