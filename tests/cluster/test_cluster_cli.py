"""`redis-cli --cluster` and `valkey-cli --cluster` against a cluster that arranges itself: what they do by hand is done, or refused
with a line that says what to do instead (docs/cluster.md has the table)."""

import pathlib
import shutil
import subprocess
import threading
import time

import pytest
import redis

from etcd_cluster import NEEDS_ETCD, REDIS_CLI, Etcd, Stalls, dunlin_nodes, records, shard_order, told_again, until
from failovers import answer, id_of
from harness import DUNLIN, VALKEY, Server
from moves import DEBUG, Load, all_content, fill, logs, slots_by_port

VALKEY_CLI = VALKEY and next(iter(pathlib.Path(VALKEY).parent.glob("valkey-cli")), None)
CLIS = {"redis-cli": REDIS_CLI, "valkey-cli": VALKEY_CLI}
pytestmark = NEEDS_ETCD


@pytest.fixture(params=CLIS)
def cli(request):
    """Runs a command of the program; what it writes. It has to end with the code."""
    program = CLIS[request.param]
    if not program:
        pytest.skip(f"there is no {request.param}")

    def run(*words, code=0):
        command = [program, "--cluster", *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert code is None or done.returncode == code, (command, done.stdout)
        return done.stdout

    run.name = request.param
    return run


@pytest.fixture(scope="module")
def etcd():
    with Etcd() as etcd:
        yield etcd


@pytest.fixture(scope="module")
def cluster(etcd):
    with dunlin_nodes(etcd, 3, *DEBUG, replicas=0) as cluster:
        fill(cluster, 200)
        yield cluster


def at(node):
    return f"127.0.0.1:{node.port}"


def await_agreement(cluster):
    """Waits until all nodes know of the last change, which those that it is about hear of first: the programs refuse others."""
    views = lambda: {tuple(run[:3] for run in shard_order(cluster, number)) for number in range(len(cluster.nodes))}  # noqa: E731
    until(lambda: len(views()) == 1, lambda: logs(cluster))


def test_cli_looks_at_the_cluster(cluster, cli, tmp_path):
    address = at(cluster.nodes[1])
    await_agreement(cluster)
    for words in ("check", "fix"):
        assert "All 16384 slots covered" in cli(words, address)
    # What the program calls a primary differs.
    assert " in 3 " in cli("info", address)
    assert cli("call", address, "PING").count("PONG") == 3
    folder = tmp_path / "backup"
    folder.mkdir()
    cli("backup", address, folder)
    files = sorted(folder.glob("*.rdb"))
    assert len(files) == 3 and (folder / "nodes.json").exists()
    for file in files:
        done = subprocess.run([DUNLIN, "check", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout


def test_cli_reshards_and_rebalances_under_load(etcd, cluster, cli):
    before = all_content(cluster, etcd)
    counts = slots_by_port(cluster)
    source, target = cluster.nodes[0], cluster.nodes[2]
    names = ["--cluster-from", id_of(source), "--cluster-to", id_of(target)]
    how = [] if cli.name == "redis-cli" else ["--cluster-use-atomic-slot-migration"]
    with Load(cluster, 1, name=cli.name) as load:
        cli("reshard", at(cluster.nodes[1]), *names, "--cluster-slots", "7", "--cluster-yes", *how)
        await_agreement(cluster)
        after = slots_by_port(cluster)
        assert (after[source.port], after[target.port]) == (counts[source.port] - 7, counts[target.port] + 7)
        cli("reshard", at(cluster.nodes[1]), *reversed_ends(names), "--cluster-slots", "57", "--cluster-yes", *how)
        await_agreement(cluster)
        assert "All 16384 slots covered" in cli("check", at(target))
        cli("rebalance", at(source), "--cluster-threshold", "0.5")
        await_agreement(cluster)
        balanced = slots_by_port(cluster)
        assert max(balanced.values()) - min(balanced.values()) < 40, balanced
    load.check()
    shown = all_content(cluster, etcd)
    assert {key: shown[key] for key in before} == before


def reversed_ends(names):
    return ["--cluster-from", names[3], "--cluster-to", names[1]]


def test_cli_imports_from_a_server(cluster, cli):
    with Server(program="redis-server") as server:
        origin = redis.Redis(port=server.port)
        for number in range(300):
            origin.set(f"{cli.name}:{number}", number)
        cli("import", at(cluster.nodes[0]), "--cluster-from", f"127.0.0.1:{server.port}")
        assert origin.dbsize() == 0
    client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)
    assert [int(client.get(f"{cli.name}:{number}")) for number in range(300)] == list(range(300))
    client.close()


def test_cli_is_told_what_to_do_instead(cluster, cli):
    one, two = cluster.nodes[:2]
    # The program itself refuses nodes that know each other.
    assert "is not empty" in cli("add-node", at(one), at(two), code=1)
    assert "is not empty" in cli("create", *map(at, cluster.nodes), code=1)
    with Server() as alone:
        assert "is not configured as a cluster node" in cli("add-node", at(alone), at(one), code=1)
    assert "is not empty" in cli("del-node", at(one), id_of(two), code=1), "it has slots"
    assert "leases" in cli("set-timeout", at(one), "5000", code=None)


@pytest.mark.parametrize("name", CLIS)
def test_cli_removes_a_node_that_is_drained(name):
    if not CLIS[name]:
        pytest.skip(f"there is no {name}")
    with Etcd() as etcd, dunlin_nodes(etcd, 3, *DEBUG, replicas=0) as cluster:
        fill(cluster, 50)
        before = all_content(cluster, etcd)
        stays, goes = cluster.nodes[:2]
        gone = id_of(goes)
        client = redis.Redis(port=stays.port, socket_timeout=60)
        with pytest.raises(redis.ResponseError, match="drain it before it is forgotten"):
            client.execute_command("CLUSTER", "FORGET", gone)
        with pytest.raises(redis.ResponseError, match="drain it first"):
            redis.Redis(port=goes.port, socket_timeout=60).execute_command("CLUSTER", "RESET")
        client.execute_command("CLUSTER", "DRAIN", gone)
        until(lambda: goes.port not in slots_by_port(cluster), lambda: logs(cluster), 180)
        # The program asks the node itself.
        own = lambda: redis.Redis(port=goes.port, protocol=2).execute_command("CLUSTER NODES").values()  # noqa: E731
        until(lambda: not any(node["slots"] for node in own() if "myself" in node["flags"]), lambda: logs(cluster))
        await_agreement(cluster)
        command = [CLIS[name], "--cluster", "del-node", at(goes), gone]
        with Stalls() as stalls:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
            assert done.returncode == 0, (done.stdout, logs(cluster))
            assert goes.process.wait(60) == 0, goes.log()
        cluster.nodes.remove(goes)
        if stalls.is_excuse():
            # Its end waits a second for etcd; a record that is left behind then is forgotten by hand.
            until(lambda: is_forgotten(etcd, stays, gone), lambda: logs(cluster))
        assert f"nodes/{gone}" not in records(etcd)
        until(lambda: cluster.info()["cluster_known_nodes"] == "2", lambda: logs(cluster))
        assert all_content(cluster, etcd) == before
        shutil.rmtree(goes.folder)


def is_forgotten(etcd, node, gone):
    """Whether there is no record of a node that has ended; asks for it where there is one."""
    if f"nodes/{gone}" not in records(etcd):
        return True
    answer(node, "CLUSTER", "FORGET", gone)
    return False


def test_setslot_moves_a_slot_with_its_keys(cluster):
    # It answers when the slot has moved, and waits for five seconds before it says that another node has it.
    source, target, third = (redis.Redis(port=node.port, socket_timeout=60) for node in cluster.nodes)
    ids = [id_of(node) for node in cluster.nodes]
    slot = source.execute_command("CLUSTER", "SLOTS")
    slot = next(int(first) for first, _, primary, *_ in ports(cluster) if primary == cluster.nodes[0].port)
    for client, words, error in [
        (source, (slot, "MIGRATING", "0" * 40), "I don't know about node"),
        (source, (slot, "MIGRATING", ids[0]), "Target node can not be this node"),
        (source, (slot, "IMPORTING", ids[1]), "I'm already the owner of hash slot"),
        (target, (slot, "MIGRATING", ids[0]), "I'm not the owner of hash slot"),
        (target, (slot, "NODE", "0" * 40), "Unknown node"),
        (target, (slot, "NODE"), "Invalid CLUSTER SETSLOT action"),
        (target, (16384, "STABLE"), "Invalid or out of range slot"),
        (target, (slot, "NODE", ids[1]), "MIGRATING .* there moves it with its keys"),
    ]:
        with pytest.raises(redis.ResponseError, match=error):
            client.execute_command("CLUSTER", "SETSLOT", *words)
    assert target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0]) in (b"OK", True)
    assert source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1]) in (b"OK", True)
    assert source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10) == []
    for client in (target, source, third):
        assert client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1]) in (b"OK", True)
        assert client.execute_command("CLUSTER", "SETSLOT", slot, "STABLE") in (b"OK", True)


def ports(cluster):
    client = cluster.client(0, protocol=2)
    client.response_callbacks.clear()
    return [(run[0], run[1], run[2][1]) for run in client.execute_command("CLUSTER", "SLOTS")]


@told_again
def test_cluster_changes_are_answered_when_etcd_has_them():
    with Etcd() as etcd, dunlin_nodes(etcd, 2, *DEBUG, replicas=1) as cluster:
        primary, replica = cluster.nodes
        shard = next(key for key in records(etcd) if key.startswith("shards/"))
        until(lambda: len(records(etcd)[shard]["in_sync"]) == 2, lambda: logs(cluster))
        etcd.pause(True)
        answers = []

        def promote():
            try:
                answers.append(redis.Redis(port=replica.port, socket_timeout=60).execute_command("CLUSTER", "FAILOVER"))
            except redis.ResponseError as error:
                answers.append(str(error))

        asking = threading.Thread(target=promote)
        begun = time.monotonic()
        asking.start()
        # Nobody else waits for it: more connections than workers, so each worker has some.
        for _ in range(8):
            assert redis.Redis(port=replica.port).ping()
        # The node itself gives a request to etcd up after three seconds.
        assert not answers or time.monotonic() - begun >= 3, answers
        etcd.pause(False)
        asking.join()
        if answers[0] in (b"OK", True):
            until(lambda: records(etcd)[shard]["primary"] == id_of(replica), lambda: logs(cluster))
        else:
            assert "nothing was changed" in answers[0] or "etcd has not said" in answers[0]
        etcd.kill()
        for words in (("CLUSTER", "FAILOVER"), ("CLUSTER", "DRAIN", id_of(primary))):
            for node in cluster.nodes:
                try:
                    redis.Redis(port=node.port, socket_timeout=60).execute_command(*words)
                except redis.ResponseError as error:
                    assert "should send" in str(error) or "nothing was changed" in str(error) or "etcd" in str(error)
                else:
                    raise AssertionError(words)
        for node in cluster.nodes:
            node.kill()
        cluster.nodes.clear()
