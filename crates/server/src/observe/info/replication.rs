//! Replication and cluster: the rows of a primary without replicas, which belongs to no cluster.

use super::metric::{Metric, Row};

pub(super) const ROWS: &[Row] = &[
    Row::One(Metric::always("role", "master", "Whether the server is a primary (`master`) or a replica.")),
    Row::One(Metric::none("connected_slaves", "Replicas: there are none.")),
    Row::One(Metric::always("master_failover_state", "no-failover", "How far a failover is.")),
    Row::One(Metric::text("master_replid", "The name of the data set's history.", |reading| {
        reading.shared.stats.process.replication_id().into()
    })),
    Row::One(Metric::always(
        "master_replid2",
        "0000000000000000000000000000000000000000",
        "The name of the history before a failover: none.",
    )),
    Row::One(Metric::none("master_repl_offset", "Bytes of changes that replicas could have: none.")),
    Row::One(Metric::always("second_repl_offset", "-1", "The offset up to which `master_replid2` is good.")),
    Row::One(Metric::none("repl_backlog_active", "Whether there is a backlog: no.")),
    Row::One(Metric::none("repl_backlog_size", "Bytes of the backlog.")),
    Row::One(Metric::none("repl_backlog_first_byte_offset", "The first offset in the backlog.")),
    Row::One(Metric::none("repl_backlog_histlen", "Bytes in the backlog.")),
];

pub(super) const CLUSTER_ROWS: &[Row] =
    &[Row::One(Metric::none("cluster_enabled", "Whether the server is part of a cluster."))];
