//! Replication and cluster. Names and their order are what Sentinel parses, line by line.

use std::sync::atomic::Ordering::Relaxed;

use dunlin_cluster::SLOTS;
use dunlin_replication::{LinkState, Phase};

use super::metric::{Metric, Number, Row, Shown, Texts, Unit};
use crate::{cluster::moves::Job, system::host::monotonic_ms};

const NO_ID: &str = "0000000000000000000000000000000000000000";

pub(super) const ROWS: &[Row] = &[
    Row::One(Metric::text(
        "role",
        "Whether the server is a primary (`master`) or a replica (`slave`).",
        |reading| if reading.shared.replication.is_replica() { "slave" } else { "master" }.into(),
    )),
    Row::One(
        Metric::text("master_host", "The primary's host, as it was given.", |reading| {
            reading.primary().map_or(String::new(), |primary| primary.host).into()
        })
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge("master_port", Unit::Count, "The primary's port.", |reading| {
            reading.primary().map_or(0, |primary| primary.port).into()
        })
        .of_replicas(),
    ),
    Row::One(
        Metric::text("master_link_status", "Whether the primary's stream comes: up or down.", |reading| {
            let is_up = reading.shared.replication.link().state == LinkState::Connected;
            if is_up { "up" } else { "down" }.into()
        })
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge(
            "master_last_io_seconds_ago",
            Unit::Seconds,
            "Time since the primary was heard of; -1 while there is no link.",
            |reading| {
                let link = reading.shared.replication.link();
                match link.state {
                    LinkState::Connected => Number::from(monotonic_ms().saturating_sub(link.heard_ms) / 1000),
                    _ => Number::Integer(-1),
                }
            },
        )
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge(
            "master_sync_in_progress",
            Unit::Flag,
            "Whether a snapshot comes or is loaded.",
            |reading| (reading.shared.replication.link().state == LinkState::Sync).into(),
        )
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge(
            "slave_read_repl_offset",
            Unit::Bytes,
            "Bytes of the stream that have been read.",
            offset,
        )
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge(
            "slave_repl_offset",
            Unit::Bytes,
            "Bytes of the stream that have been applied.",
            offset,
        )
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge(
            "master_sync_total_bytes",
            Unit::Bytes,
            "Bytes of the snapshot that comes; -1 where that is not known.",
            |reading| match reading.shared.replication.link().snapshot {
                Some((_, Some(total))) => total.into(),
                _ => Number::Integer(-1),
            },
        )
        .while_syncing(),
    ),
    Row::One(
        Metric::gauge("master_sync_read_bytes", Unit::Bytes, "Bytes of it that have come.", |reading| {
            reading.shared.replication.link().snapshot.map_or(0, |(read, _)| read).into()
        })
        .while_syncing(),
    ),
    Row::One(
        Metric::gauge(
            "master_link_down_since_seconds",
            Unit::Seconds,
            "Time for which the stream has not come.",
            |reading| {
                let since_ms = reading.shared.replication.link().down_since_ms;
                (monotonic_ms().saturating_sub(since_ms) / 1000).into()
            },
        )
        .while_link_is_down(),
    ),
    Row::One(
        Metric::text(
            "master_link_error",
            "Why the stream does not come: the last attempt's failure, as a refused password; or, of a link that was stopped for good, the command, the key and the error. REPLICAOF begins such a link anew.",
            |reading| reading.shared.replication.link().error().unwrap_or_default().to_owned().into(),
        )
        .shown(Shown::WhileLinkFails),
    ),
    Row::One(
        Metric::gauge("slave_priority", Unit::Count, "`replica-priority`, for Sentinel.", |reading| {
            reading.config.replica_priority.into()
        })
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge("slave_read_only", Unit::Flag, "Whether clients' writes are refused.", |reading| {
            reading.config.replica_read_only.into()
        })
        .of_replicas(),
    ),
    Row::One(
        Metric::gauge("replica_announced", Unit::Flag, "Whether Sentinel reports this replica.", |reading| {
            reading.config.replica_announced.into()
        })
        .of_replicas(),
    ),
    Row::One(Metric::gauge("connected_slaves", Unit::Count, "Replicas that have a link.", |reading| {
        reading.shared.replication.replicas().len().into()
    })),
    Row::One(
        Metric::gauge(
            "min_slaves_good_slaves",
            Unit::Count,
            "Replicas that have acknowledged something within `min-replicas-max-lag`.",
            |reading| reading.shared.replication.good_replicas().into(),
        )
        .with_min_replicas(),
    ),
    Row::Texts(Texts {
        name: "slave<n>",
        summary: "Each replica: its address and port; its state, wait_bgsave, send_bulk or online; the bytes that it has acknowledged; the seconds since it last did.",
        read: |reading, add| {
            for (index, replica) in reading.shared.replication.replicas().iter().enumerate() {
                let (address, port) = replica.address();
                let peer = replica.peer();
                let (offset, lag) = match peer.phase() {
                    Phase::Online => (peer.acked, peer.lag_s(monotonic_ms())),
                    _ => (0, 0),
                };
                let state = peer.phase().name();
                add(&format!(
                    "slave{index}:ip={address},port={port},state={state},offset={offset},lag={lag}"
                ));
            }
        },
    }),
    Row::One(Metric::text(
        "master_failover_state",
        "How far a failover is: no-failover, waiting-for-sync or failover-in-progress.",
        |reading| reading.shared.replication.failover_state().into(),
    )),
    Row::One(Metric::text("master_replid", "The name of the data set's history.", |reading| {
        reading.shared.replication.history().id.to_string().into()
    })),
    Row::One(Metric::text("master_replid2", "The name of the history before a failover.", |reading| {
        let second = reading.shared.replication.history().second;
        second.map_or_else(|| NO_ID.to_owned(), |(id, _)| id.to_string()).into()
    })),
    Row::One(Metric::gauge("master_repl_offset", Unit::Bytes, "Bytes of changes in the history.", offset)),
    Row::One(Metric::gauge(
        "second_repl_offset",
        Unit::Bytes,
        "The offset up to which `master_replid2` is good; -1 without one.",
        |reading| {
            let second = reading.shared.replication.history().second;
            second.map_or(Number::Integer(-1), |(_, end)| end.into())
        },
    )),
    Row::One(Metric::gauge(
        "repl_backlog_active",
        Unit::Flag,
        "Whether changes are kept for replicas.",
        |reading| reading.shared.replication.backlog(0).is_some().into(),
    )),
    Row::One(Metric::gauge("repl_backlog_size", Unit::Bytes, "`repl-backlog-size`.", |reading| {
        reading.config.repl_backlog_size.into()
    })),
    Row::One(Metric::gauge(
        "repl_backlog_first_byte_offset",
        Unit::Bytes,
        "The first offset in the backlog.",
        |reading| {
            let replication = &reading.shared.replication;
            let backlog = replication.backlog(reading.shared.durability.tail());
            backlog.map_or(0, |(first, _)| replication.offset(first) + 1).into()
        },
    )),
    Row::One(Metric::gauge("repl_backlog_histlen", Unit::Bytes, "Bytes in the backlog.", |reading| {
        let backlog = reading.shared.replication.backlog(reading.shared.durability.tail());
        backlog.map_or(0, |(first, end)| end - first).into()
    })),
];

fn offset(reading: &super::Reading<'_>) -> Number {
    let replication = &reading.shared.replication;
    replication.offset(reading.shared.durability.tail()).into()
}

pub(super) const CLUSTER_ROWS: &[Row] = &[
    Row::One(Metric::gauge(
        "cluster_enabled",
        Unit::Flag,
        "Whether the server is a node of a cluster.",
        |reading| reading.shared.cluster.is_on().into(),
    )),
    Row::One(Metric::gauge(
        "cluster_slots_unserved",
        Unit::Count,
        "Slots of the cluster without a shard, or whose shard's primary is gone.",
        |reading| {
            let topology = reading.shared.cluster.topology();
            topology.map_or(0, |topology| u64::from(SLOTS - topology.assigned() + topology.failed())).into()
        },
    )),
    Row::One(Metric::gauge(
        "cluster_is_down",
        Unit::Flag,
        "Whether requests are answered CLUSTERDOWN, because slots are not served and `cluster-require-full-coverage` demands all.",
        |reading| {
            let demands_all = reading.shared.config.current().cluster_require_full_coverage;
            let topology = reading.shared.cluster.topology();
            topology.is_some_and(|topology| !topology.is_ok(demands_all)).into()
        },
    )),
    Row::One(Metric::gauge(
        "cluster_shards_without_primary",
        Unit::Count,
        "Shards with slots whose primary is gone.",
        |reading| {
            let topology = reading.shared.cluster.topology();
            topology.map_or(0, |topology| topology.failed_shards() as u64).into()
        },
    )),
    Row::One(Metric::gauge(
        "cluster_strays",
        Unit::Flag,
        "Whether the node does not obey the records in etcd: etcd was restored from a backup, or a newer version has written them.",
        |reading| reading.shared.cluster.strays.load(Relaxed).into(),
    )),
    Row::One(Metric::gauge(
        "cluster_etcd_refuses",
        Unit::Flag,
        "Whether etcd answers and refuses changes, as without space.",
        |reading| reading.shared.cluster.refuses.load().is_some().into(),
    )),
    Row::One(Metric::gauge(
        "cluster_follows_etcd",
        Unit::Flag,
        "Whether the node obeys the cluster's records in etcd; 0 while etcd does not answer, or was restored from a backup.",
        |reading| (reading.shared.cluster.is_on() && reading.shared.cluster.trouble().is_empty()).into(),
    )),
    Row::One(Metric::gauge(
        "cluster_moves_from_here",
        Unit::Count,
        "Moves of slots under way whose source the node is.",
        |reading| moves(reading, |job| job.is_export).count().into(),
    )),
    Row::One(Metric::gauge(
        "cluster_moves_to_here",
        Unit::Count,
        "Moves of slots under way whose target the node is.",
        |reading| moves(reading, |job| !job.is_export).count().into(),
    )),
    Row::One(Metric::gauge(
        "cluster_moving_slots",
        Unit::Count,
        "Slots that are about to leave the node.",
        |reading| {
            moves(reading, |job| job.is_export).map(|job| u64::from(job.slots.len())).sum::<u64>().into()
        },
    )),
    Row::One(Metric::gauge(
        "cluster_moves_sent_bytes",
        Unit::Bytes,
        "Bytes that the moves under way have sent from the node.",
        |reading| moves(reading, |job| job.is_export).map(|job| job.sent).sum::<u64>().into(),
    )),
    Row::One(Metric::gauge(
        "cluster_moves_behind_bytes",
        Unit::Bytes,
        "Bytes among them that their targets have not committed yet.",
        |reading| {
            let behind = |job: Job| job.sent.saturating_sub(job.held);
            moves(reading, |job| job.is_export).map(behind).sum::<u64>().into()
        },
    )),
];

/// Moves of slots that go on.
fn moves(reading: &super::Reading<'_>, is_wanted: fn(&Job) -> bool) -> impl Iterator<Item = Job> {
    let jobs = reading.shared.cluster.moves.jobs();
    jobs.into_iter().filter(move |job| !job.state.is_over() && is_wanted(job))
}
