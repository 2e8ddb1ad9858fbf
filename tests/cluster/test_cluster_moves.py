"""Slots move between shards: with all that their keys are and have, under load, and through failures of either side."""

import base64
import json
import random
import socket
import subprocess
import threading
import time
import urllib.request

import pytest
import redis
from redis.crc import key_slot

from etcd_cluster import DUNLIN, NEEDS_ETCD, dunlin_nodes, shard_order, told_again, until
from harness import Server, command

pytestmark = NEEDS_ETCD


DEBUG = ["--enable-debug-command", "local"]


def nodes_of(etcd, count, *directives):
    """A cluster whose nodes tell digests."""
    return dunlin_nodes(etcd, count, *DEBUG, *directives)


def record(etcd, key, value=None):
    """A record of the cluster in etcd, or what becomes of it."""

    def call(path, body):
        url = f"http://127.0.0.1:{etcd.port}/v3/kv/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode())
        return json.load(urllib.request.urlopen(request, timeout=60))

    encoded = base64.b64encode(f"/dunlin/test/{key}".encode()).decode()
    if value is not None:
        call("put", {"key": encoded, "value": base64.b64encode(json.dumps(value).encode()).decode()})
    items = call("range", {"key": encoded}).get("kvs", [])
    return json.loads(base64.b64decode(items[0]["value"])) if items else None


def jobs(cluster, number=0):
    """CLUSTER GETSLOTMIGRATIONS as dictionaries."""
    client = cluster.client(number, protocol=3)
    client.response_callbacks.clear()
    rows = client.execute_command("CLUSTER", "GETSLOTMIGRATIONS")
    return [{name.decode(): value for name, value in row.items()} for row in rows]


def node_id(cluster, number):
    return cluster.client(number).execute_command("CLUSTER", "MYID")


def ranges_of(job):
    """First and last slot of each of its runs, in one list."""
    return [int(slot) for run in job["slot_ranges"].decode().split() for slot in (run.partition("-")[0], run.rpartition("-")[2])]


def migrate_once(cluster, ranges, source=0, target=1):
    """Asks for a move; its name, or None where it is refused."""
    # The planner may begin moves at any time: this one is known by its slots, and by its state from those that were refused before.
    before = {job["name"] for job in jobs(cluster, source)}
    words = ["SLOTSRANGE", *map(str, ranges), "NODE", node_id(cluster, target)]
    try:
        assert cluster.client(source).execute_command("CLUSTER", "MIGRATESLOTS", *words) in (b"OK", True, "OK")
    except redis.ResponseError as error:
        print(error)
        return None
    return next(job["name"] for job in jobs(cluster, source) if job["name"] not in before and ranges_of(job) == list(ranges))


def migrate(cluster, ranges, source=0, target=1, slow=False):
    """Asks for a move; its name. A `slow` one sends a key in a quarter of a second."""
    if slow:
        cluster.client(source).config_set("rdb-key-save-delay", 250_000)
    # It is refused while the planner moves some of the slots, and by a node that has not found etcd again.
    return until(lambda: migrate_once(cluster, ranges, source, target), lambda: f"a move of {ranges} {logs(cluster)}")


def hidden_keys(cluster, number=1):
    """Keys that a node has and does not show; the two figures are not of one moment where others write."""
    client = cluster.client(number)
    return max(client.info("keyspace").get("db0", {"keys": 0})["keys"] - client.dbsize(), 0)


def state(cluster, name, number=0):
    return next((job["state"].decode() for job in jobs(cluster, number) if job["name"] == name), None)


def logs(cluster):
    return "\n".join(node.log()[-3000:] for node in cluster.nodes)


def ends(cluster, name, wanted, number=0):
    """Waits for the end of a move."""
    over = ("success", "failed", "cancelled")
    found = until(lambda: (now := state(cluster, name, number)) in over and now, lambda: logs(cluster))
    assert found == wanted, (jobs(cluster, number), logs(cluster))


def content(cluster, number):
    """Each key that a node shows, with its value's digest and its expiry."""
    client = cluster.client(number)
    # Where a table shrinks meanwhile, as it does while keys that have moved away are removed, SCAN may show a key twice.
    keys = sorted(set(client.scan_iter(count=1000)))
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.execute_command("DEBUG", "DIGEST-VALUE", key)
        pipeline.pexpiretime(key)
    rows = pipeline.execute()
    return {key: (rows[2 * at], rows[2 * at + 1]) for at, key in enumerate(keys)}


def all_content(cluster, etcd):
    """The same of all nodes, while no slot changes hands (the planner moves some where loads differ): no key is at two of them."""

    def read():
        slots = record(etcd, "slots")
        # A node that has not read the record yet hides what has come to it, and another one has removed that.
        numbers = range(len(cluster.nodes))
        owners = {tuple(run[:3] for run in shard_order(cluster, number)) for number in numbers}
        if slots["moving"] or len(owners) > 1:
            return None
        try:
            parts = [content(cluster, number) for number in numbers]
        except redis.exceptions.MovedError:
            return None
        return [parts] if record(etcd, "slots") == slots else None

    [parts] = until(read, lambda: logs(cluster))
    whole = {}
    for part in parts:
        assert not whole.keys() & part.keys()
        whole.update(part)
    return whole


def fill(cluster, count=400):
    """Keys of all types, some with a time; all keys of one number are in one slot."""
    # Nothing of this may be sent again because a reply is late.
    client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=120)
    far_ms = int(time.time() * 1000) + 3_600_000
    for number in range(count):
        tag = f"{{{number}}}"
        client.set(f"{tag}string", "v" * (number % 300), px=3_600_000 if number % 3 == 0 else None)
        client.set(f"{tag}integer", number)
        client.rpush(f"{tag}list", *range(number % 50 + 1))
        client.sadd(f"{tag}set", *(f"m{member}" for member in range(number % 200 + 1)))
        client.zadd(f"{tag}zset", {f"m{member}": member / 7 for member in range(number % 200 + 1)})
        client.hset(f"{tag}hash", mapping={f"f{field}": field for field in range(number % 100 + 1)})
        if number % 5 == 0:
            client.execute_command("HPEXPIREAT", f"{tag}hash", far_ms, "FIELDS", 1, "f0")
            client.pexpireat(f"{tag}zset", far_ms)
        for entry in range(number % 7 + 1):
            client.xadd(f"{tag}stream", {"field": entry})
        client.xgroup_create(f"{tag}stream", "group", "0")
        client.xreadgroup("group", "consumer", {f"{tag}stream": ">"}, count=2)
    # More than is gathered before it is sent, in the slots that tests move.
    for at in range(10):
        client.set(key_in(at * 29, 299, f"pad{at}-"), random.Random(at).randbytes(100_000))
    client.set("{0}long", b"x" * 300_000)
    client.zadd("{1}large", {f"member-{member:06}": member for member in range(10_000)})
    client.close()


@told_again
def test_migrateslots_moves_keys_as_they_are(etcd):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 99, 4000, 4099])
        ends(cluster, name, "success")
        # The target names the same move.
        until(lambda: state(cluster, name, 1) == "success", lambda: logs(cluster))
        first, second = (node.port for node in cluster.nodes)
        runs = [run[:3] for run in shard_order(cluster)]
        assert {(0, 99, second), (100, 3999, first), (4000, 4099, second)} <= set(runs), runs
        assert all_content(cluster, etcd) == before
        # What was given away is removed, and shows nowhere meanwhile.
        until(lambda: cluster.client(0).dbsize() + cluster.client(1).dbsize() == len(before), "DBSIZE")
        assert cluster.client(1).execute_command("CLUSTER COUNTKEYSINSLOT", 50) == sum(
            key_slot(key) == 50 for key in before
        )
        [job] = [job for job in jobs(cluster) if job["name"] == name]
        assert (job["operation"], job["slot_ranges"]) == (b"EXPORT", b"0-99 4000-4099")
        assert job["remaining_repl_size"] == 0 and job["message"] == b""
        # And back again.
        back = migrate(cluster, [0, 99, 4000, 4099], 1, 0)
        ends(cluster, back, "success", 1)
        assert all_content(cluster, etcd) == before


class Load:
    """Clients that change keys of all types and know what they should be. `name` makes them other keys than another load's."""

    def __init__(self, cluster, threads=3, tags=200, name=""):
        self.cluster, self.tags, self.name = cluster, tags, name
        self.stopping = threading.Event()
        self.errors = []
        self.counts = [{} for _ in range(threads)]
        self.windows = {}
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def run(self, number):
        client = redis.RedisCluster(host="127.0.0.1", port=self.cluster.nodes[0].port, socket_timeout=120)
        rng, counts = random.Random(number), self.counts[number]
        while not self.stopping.is_set():
            tag = rng.randrange(self.tags)
            counter, things, both = self.keys(tag, number)
            try:
                client.incr(counter)
                client.rpush(things, counts.get(tag, 0))
                with client.pipeline(transaction=True) as pipeline:
                    pipeline.multi()
                    pipeline.hincrby(both, "a", 1)
                    pipeline.hincrby(both, "b", 1)
                    pipeline.pexpire(both, 3_600_000)
                    pipeline.execute()
            except Exception as error:  # noqa: BLE001
                self.errors.append(repr(error))
                return
            counts[tag] = counts.get(tag, 0) + 1
            window = int(time.monotonic() * 10)
            self.windows[window] = self.windows.get(window, 0) + 1

    def keys(self, tag, number):
        """A counter, a list and a hash."""
        return [f"{{{tag}}}{self.name}{kind}{number}" for kind in "clt"]

    def done_count(self):
        """Changes of a counter, a list and a hash that were made so far."""
        return sum(map(sum, (list(counts.values()) for counts in self.counts)))

    def check(self):
        """No command has failed, and every change is there once."""
        assert not self.errors, self.errors
        client = redis.RedisCluster(host="127.0.0.1", port=self.cluster.nodes[0].port)
        for number, counts in enumerate(self.counts):
            for tag, count in counts.items():
                counter, things, both = self.keys(tag, number)
                assert int(client.get(counter)) == count, (tag, number)
                assert [int(item) for item in client.lrange(things, 0, -1)] == list(range(count))
                both = client.hgetall(both)
                assert both == {b"a": str(count).encode(), b"b": str(count).encode()}, (tag, number)
        client.close()


@told_again
def test_slots_move_to_and_fro_under_load(etcd):
    with nodes_of(etcd, 2) as cluster:
        with Load(cluster) as load:
            for _ in range(3):
                for source, target in ((0, 1), (1, 0)):
                    name = migrate(cluster, [0, 299], source, target)
                    ends(cluster, name, "success", source)
        load.check()
        all_content(cluster, etcd)


def key_in(first, last, prefix="key"):
    """A key whose slot is in this run."""
    return next(key for key in (f"{prefix}{at}" for at in range(10**6)) if first <= key_slot(key.encode()) <= last)


@told_again
def test_clients_that_wait_or_watch_learn_that_slots_have_moved(etcd):
    with nodes_of(etcd, 2) as cluster:
        key, stays = key_in(0, 99), key_in(200, 8000)
        waiting, watching = cluster.client(0), cluster.client(0)
        outcome = []
        def wait():
            try:
                outcome.append(waiting.execute_command("BLPOP", key, 60))
            except redis.exceptions.MovedError as error:
                outcome.append(str(error))
        thread = threading.Thread(target=wait)
        thread.start()
        pipeline = watching.pipeline()
        pipeline.watch(key)
        until(lambda: cluster.client(0).info("clients")["blocked_clients"] == 1, "a client that waits")
        ends(cluster, migrate(cluster, [0, 99]), "success")
        thread.join(60)
        assert outcome == [f"{key_slot(key.encode())} 127.0.0.1:{cluster.nodes[1].port}"]
        pipeline.multi()
        pipeline.set(stays, 1)
        with pytest.raises(redis.WatchError):
            pipeline.execute()


@told_again
def test_cancelslotmigrations_leaves_the_slots_where_they_are(etcd):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster, 100)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 299], slow=True)
        until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        info = lambda number, name: cluster.client(number).info("cluster")[f"cluster_{name}"]  # noqa: E731
        # The key that was sent last may not be held yet.
        until(lambda: info(0, "moves_behind_bytes") > 0, "the target is behind")
        sides = [info(number, name) for number in (0, 1) for name in ("moves_from_here", "moves_to_here", "moving_slots")]
        assert sides == [1, 0, 300, 0, 1, 0]
        assert info(0, "moves_sent_bytes") > 0 == info(1, "moves_sent_bytes")
        assert cluster.client(0).execute_command("CLUSTER CANCELSLOTMIGRATIONS") in (b"OK", True, "OK")
        until(lambda: state(cluster, name) in ("cancelled", "failed"), lambda: logs(cluster))
        until(lambda: not record(etcd, "slots")["moving"], "the record")
        until(lambda: info(1, "moves_to_here") == info(0, "moves_sent_bytes") == info(0, "moves_behind_bytes") == 0, "the end in INFO")
        with pytest.raises(redis.ResponseError, match="No migrations ongoing"):
            cluster.client(0).execute_command("CLUSTER CANCELSLOTMIGRATIONS")
        assert all_content(cluster, etcd) == before
        until(lambda: sum(cluster.client(n).dbsize() for n in (0, 1)) == len(before), "what was imported is removed")
        # It can be done again.
        cluster.client(0).config_set("rdb-key-save-delay", 0)
        ends(cluster, migrate(cluster, [0, 299]), "success")
        assert all_content(cluster, etcd) == before


@pytest.mark.parametrize("emptied", [0, 1])
@told_again
def test_flushall_ends_a_move(etcd, emptied):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster, 100)
        with Load(cluster, 1):
            name = migrate(cluster, [0, 299], slow=True)
            until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
            cluster.client(emptied).flushall()
            # The target takes it off the record before it empties its databases.
            ends(cluster, name, ["failed", "cancelled"][emptied])
        until(lambda: not record(etcd, "slots")["moving"], "the record")
        shown = all_content(cluster, etcd)
        until(lambda: sum(cluster.client(n).dbsize() for n in (0, 1)) == len(shown), "what was imported is removed")


@pytest.mark.parametrize("emptied", [0, 1])
@told_again
def test_flushall_waits_while_it_is_open_whose_the_slots_are(etcd, emptied):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster, 100)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 299], slow=True)
        until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        # The source proposes what nobody answers.
        etcd.pause(True)
        cluster.client(0).config_set("rdb-key-save-delay", 0)

        def is_giving():
            [job] = [job for job in jobs(cluster) if job["name"] == name]
            return job["state"] == b"failover-paused" and job["remaining_repl_size"] == 0

        until(is_giving, lambda: logs(cluster))
        for request, answered in (b"FLUSHALL\r\n", b""), (b"MULTI\r\nFLUSHDB\r\nEXEC\r\n", b"+OK\r\n"):
            with socket.create_connection(("127.0.0.1", cluster.nodes[emptied].port), timeout=60) as raw:
                raw.sendall(request)
                answer = b""
                while len(answer) < len(answered):
                    answer += raw.recv(1000)
                raw.settimeout(2)
                with pytest.raises(TimeoutError):
                    answer += raw.recv(1000)
                assert answer == answered
        with pytest.raises(redis.ResponseError, match="slots are changing hands"):
            cluster.client(emptied).eval("return redis.call('FLUSHALL')", 0)
        etcd.pause(False)
        until(lambda: state(cluster, name) in ("success", "failed", "cancelled"), lambda: logs(cluster))
        # Clients that have gone away empty nothing.
        assert all_content(cluster, etcd) == before
        cluster.client(emptied).flushall()
        assert cluster.client(emptied).dbsize() == 0


def restart(node, etcd):
    """Kills a node and starts it again, where it was."""
    node.process.kill()
    node.process.wait()
    own = ["--save", "", "--bind", "127.0.0.1", "--port", node.port, "--dir", node.folder, "--unixsocket", node.socket]
    own += ["--cluster-join", etcd.join(), "--cluster-replicas", "0", "--threads", "2", "--appendonly", "yes"]
    with open(node.log_path, "ab") as log:
        node.process = subprocess.Popen(command(DUNLIN, *own, *DEBUG), stdout=log, stderr=log)
    node._await_ping()


@pytest.mark.parametrize("victim", [0, 1])
@told_again
def test_a_move_whose_source_or_target_dies_is_void(etcd, victim):
    with nodes_of(etcd, 2, "--appendonly", "yes", "--appendfsync", "always") as cluster:
        fill(cluster, 100)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 299], slow=True)
        until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        owners = shard_order(cluster)
        restart(cluster.nodes[victim], etcd)
        until(lambda: not record(etcd, "slots")["moving"], lambda: logs(cluster), 90)
        until(lambda: all(cluster.info(n)["cluster_state"] == "ok" for n in (0, 1)), lambda: logs(cluster))
        until(lambda: sum(cluster.client(n).dbsize() for n in (0, 1)) == len(before), lambda: logs(cluster))
        assert all_content(cluster, etcd) == before
        assert shard_order(cluster) == owners


@told_again
def test_moves_that_fail_begin_again_after_pauses(etcd):
    with nodes_of(etcd, 2) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=120)
        for number in range(80):
            client.set(f"key:{number}", random.Random(number).randbytes(100_000))
        client.close()
        # The other node has more than it may have.
        target = cluster.client(1)
        target.config_set("maxmemory", 1_000_000)
        target.execute_command("CLUSTER", "DRAIN", node_id(cluster, 0))
        failed = lambda: [job for job in jobs(cluster) if job["operation"] == b"EXPORT" and job["state"] == b"failed"]  # noqa: E731
        until(lambda: len(failed()) >= 4, lambda: logs(cluster), 120)
        # Seconds, the last one first: pauses of 1, 2 and 4 s, of which the first and the last second may not be whole.
        begun = sorted(job["create_time"] for job in failed())
        assert begun[3] - begun[0] >= 6, (failed(), logs(cluster))

        def reasons():
            reader = cluster.client(1, protocol=3)
            reader.response_callbacks.clear()
            return [move[b"why"] for move in reader.execute_command("CLUSTER", "STATUS")[b"failed-moves"]]

        until(lambda: any(b"OOM" in why for why in reasons()), lambda: f"{reasons()} {logs(cluster)}")
        # With the reason, the failures are at an end.
        target.config_set("maxmemory", 0)
        until(lambda: slots_by_port(cluster) == {cluster.nodes[1].port: 16_384}, lambda: logs(cluster), 120)
        until(lambda: not reasons(), lambda: f"{reasons()}")


def slots_by_port(cluster):
    counts = {}
    for first, last, primary, *_ in shard_order(cluster):
        counts[primary] = counts.get(primary, 0) + last - first + 1
    return counts


@told_again
def test_a_node_that_is_gone_holds_up_no_drain(etcd):
    with nodes_of(etcd, 3) as cluster:
        fill(cluster, 60)
        # A move from it to the node that is drained is under way when it dies.
        slot = next(first for first, _, primary, *_ in shard_order(cluster) if primary == cluster.nodes[2].port)
        client = cluster.client(2)
        for number in range(20):
            client.set(key_in(slot, slot, f"slow{number}-"), random.Random(number).randbytes(100_000))
        name = migrate(cluster, [slot, slot], source=2, target=1, slow=True)
        until(lambda: state(cluster, name, 2) == "snapshotting" and hidden_keys(cluster, 1), lambda: logs(cluster))
        gone = cluster.nodes.pop(2)
        gone.kill()
        cluster.client(0).execute_command("CLUSTER", "DRAIN", node_id(cluster, 1))
        until(lambda: set(slots_by_port(cluster)) == {cluster.nodes[0].port, gone.port}, lambda: f"{slots_by_port(cluster)} {logs(cluster)}", 120)
        assert not record(etcd, "slots")["moving"]


@told_again
def test_a_node_that_comes_gets_its_share_and_one_that_drains_gives_it_away(etcd):
    with nodes_of(etcd, 3) as cluster:
        fill(cluster, 200)
        before = all_content(cluster, etcd)
        with Load(cluster, 2) as load:
            own = ["--cluster-join", etcd.join(), "--cluster-replicas", "0", "--threads", "2", *DEBUG]
            newcomer = Server(*own)
            cluster.nodes.append(newcomer)

            def is_balanced():
                counts = slots_by_port(cluster)
                return len(counts) == 4 and all(3_800 < count < 4_400 for count in counts.values())

            until(is_balanced, lambda: f"{slots_by_port(cluster)} {logs(cluster)}", 120)
            drained = cluster.client(3).execute_command("CLUSTER MYID")
            drained = drained if isinstance(drained, str) else drained.decode()
            node = record(etcd, f"nodes/{drained}")
            record(etcd, f"nodes/{drained}", {**node, "state": "draining"})
            until(lambda: newcomer.port not in slots_by_port(cluster), lambda: logs(cluster), 120)
        load.check()
        until(lambda: cluster.client(3).dbsize() == 0, "an empty node")
        shown = all_content(cluster, etcd)
        assert {key: shown[key] for key in before} == before


@told_again
def test_the_light_slots_leave_a_shard_that_has_a_heavy_one(etcd):
    with nodes_of(etcd, 2) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=120)
        # An empty slot counts as 4 KB, 64 MB in all; 120 MB in one slot are more than all others together.
        for number in range(1_000):
            client.set(f"light:{number}", b"x" * 2_000)
        for number in range(120):
            client.rpush("heavy", *(f"{number}:{part}:" + "x" * 100_000 for part in range(10)))
        slot = key_slot(b"heavy")

        def runs_beside_it():
            runs = shard_order(cluster)
            (owner,) = [run[2] for run in runs if run[0] <= slot <= run[1]]
            return [run for run in runs if run[2] == owner] != [(slot, slot, owner)]

        until(lambda: not runs_beside_it(), lambda: f"{shard_order(cluster)} {logs(cluster)}", 120)
        begun = [job["name"] for number in range(2) for job in jobs(cluster, number)]
        # It stays so: looks at a balanced cluster, one each half second, move nothing.
        time.sleep(6)
        assert [job["name"] for number in range(2) for job in jobs(cluster, number)] == begun
        assert not runs_beside_it()
        assert client.llen("heavy") == 1_200 and client.get("light:999") == b"x" * 2_000
        client.close()
