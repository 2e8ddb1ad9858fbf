"""Directives of Redis about how a link begins: one snapshot for several replicas, the address that a link comes from."""

import pytest
import redis

from harness import DUNLIN
from links import Node, has_link, settle, until


def snapshots(primary):
    return primary.info("stats")["sync_full"], primary.info("persistence")["rdb_saves"]


def waiting(primary):
    replication = primary.info()
    return [replication[f"slave{n}"]["state"] for n in range(replication["connected_slaves"])]


def test_snapshot_waits_for_as_many_replicas_as_may_come():
    # An hour: only the second replica can end the wait.
    with Node(DUNLIN, "--repl-diskless-sync-delay", 3600, "--repl-diskless-sync-max-replicas", 2) as primary:
        primary.client.set("k", "v")
        with Node(DUNLIN) as first, Node(DUNLIN) as second:
            first.follow(primary.port)
            until(lambda: waiting(primary) == ["wait_bgsave"], "the first waits")
            second.follow(primary.port)
            until(lambda: has_link(first) and has_link(second), "both have the snapshot")
            settle(primary, first, second)
            assert first.client.get("k") == second.client.get("k") == b"v"


@pytest.mark.parametrize("settings", [("repl-diskless-sync", "no"), ("repl-diskless-sync-delay", "0"), ("repl-diskless-sync-max-replicas", "1")])
def test_config_set_ends_the_wait_for_more_replicas(settings):
    with Node(DUNLIN, "--repl-diskless-sync-delay", 3600) as primary, Node(DUNLIN) as replica:
        replica.follow(primary.port)
        until(lambda: waiting(primary) == ["wait_bgsave"], "the replica waits")
        assert primary.client.config_set(*settings)
        until(lambda: has_link(replica), "the snapshot begins")


def test_bind_source_addr_is_where_a_link_comes_from():
    with Node(DUNLIN) as primary, Node(DUNLIN, "--bind-source-addr", "127.0.0.9") as replica:
        replica.follow(primary.port)
        until(lambda: has_link(replica), "the link")
        assert primary.info()["slave0"]["ip"] == "127.0.0.9"
        with pytest.raises(redis.ResponseError, match="must be an address"):
            replica.client.config_set("bind-source-addr", "no address")
        assert replica.client.config_set("bind-source-addr", "")
        assert replica.client.config_get("bind-source-addr") == {"bind-source-addr": ""}
