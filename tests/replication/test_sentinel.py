"""Sentinels of both houses supervise Dunlin, alone and among others."""


import pytest
import redis

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY
from links import Node, has_link, is_online, settle, until
from sentinels import LONG_MS, NAME, Sentinel

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, "valkey": VALKEY}
@pytest.fixture(params=["redis", "valkey"])
def supervisor(request):
    if not HOUSES[request.param]:
        pytest.skip(WITHOUT_VALKEY)
    return HOUSES[request.param]


def node(house, priority):
    directives = ["--replica-priority", priority]
    return Node(HOUSES[house], *directives, config="# of the node\n")


@pytest.mark.parametrize("houses", ["dunlin dunlin dunlin", "redis dunlin dunlin", "dunlin redis dunlin"])
def test_sentinel_promotes_a_replica_when_the_primary_dies(supervisor, houses):
    first, second, third = houses.split()
    with node(first, 100) as primary, node(second, 1) as chosen, node(third, 50) as other:
        for replica in (chosen, other):
            replica.follow(primary.port)
        for n in range(100):
            primary.call("SET", f"k{n}", n)
        settle(primary, chosen, other)
        # Where an attempt fails, the next one comes after twice the failover's timeout.
        with Sentinel(supervisor, primary, failover_timeout_ms=10_000) as sentinel:
            until(lambda: sentinel.knows(chosen, other), "the discovery of replicas")
            primary.process.kill()
            primary.process.wait()
            sentinel.set_down_after(1000)
            until(lambda: sentinel.primary() == chosen.port, "the failover", deadline_s=180)
            sentinel.set_down_after(LONG_MS)
            until(lambda: chosen.info()["role"] == "master", "the new primary")
            until(lambda: other.info()["master_port"] == chosen.port and has_link(other), "the other replica")
            chosen.call("SET", "after", 1)
            settle(chosen, other)
            assert other.call("GET", "k99") == b"99"
            assert chosen.info("stats")["sync_full"] == 0, "the sibling goes on by the second id"
            # What CONFIG REWRITE has written, inside of the transaction.
            file = (other.folder / "server.conf").read_text()
            assert f"replicaof 127.0.0.1 {chosen.port}" in file
            assert "replicaof" not in (chosen.folder / "server.conf").read_text()
            primary.stop = lambda: primary.kill()


@pytest.mark.parametrize("houses", ["dunlin dunlin", "redis dunlin", "dunlin redis"])
def test_sentinel_fails_over_by_order_and_demotes_the_primary(supervisor, houses):
    first, second = houses.split()
    with node(first, 100) as primary, node(second, 1) as chosen:
        chosen.follow(primary.port)
        settle(primary, chosen)
        is_online(primary)
        with Sentinel(supervisor, primary) as sentinel, primary.connect() as client:
            until(lambda: sentinel.knows(chosen), "the discovery of the replica")
            client.sendall(b"SET k 1\r\n")
            assert client.recv(100) == b"+OK\r\n"
            sentinel.call("FAILOVER", NAME)
            until(lambda: sentinel.primary() == chosen.port, "the failover")
            until(lambda: primary.info()["role"] == "slave" and has_link(primary), "the demotion", deadline_s=180)
            # CLIENT KILL TYPE normal: clients look for the primary again.
            assert client.recv(100) == b""
            chosen.call("SET", "after", 1)
            settle(chosen, primary)
            with pytest.raises(redis.exceptions.ReadOnlyError):
                primary.call("SET", "k", 2)


def test_sentinel_of_valkey_fails_over_in_coordination():
    if not VALKEY:
        pytest.skip(WITHOUT_VALKEY)
    with node("dunlin", 100) as primary, node("dunlin", 1) as chosen:
        chosen.follow(primary.port)
        settle(primary, chosen)
        is_online(primary)
        with Sentinel(VALKEY, primary) as sentinel:
            until(lambda: sentinel.knows(chosen), "the discovery of the replica")
            sentinel.call("FAILOVER", NAME, "COORDINATED")
            until(lambda: sentinel.primary() == chosen.port, "the failover")
            until(lambda: primary.info()["role"] == "slave" and has_link(primary), "the demotion", deadline_s=180)
            chosen.call("SET", "after", 1)
            settle(chosen, primary)
            assert chosen.info("stats")["sync_full"] == 0, "what was the primary has all that it needs"
            assert "-failover-abort" not in sentinel.text()
