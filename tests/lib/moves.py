"""Moves of slots: content by slots, jobs of moves, and load beside them."""

import base64
import json
import random
import threading
import time
import urllib.request

import redis
from redis.crc import key_slot

from etcd_cluster import shard_order, until

DEBUG = ["--enable-debug-command", "local"]


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


def key_in(first, last, prefix="key"):
    """A key whose slot is in this run."""
    return next(key for key in (f"{prefix}{at}" for at in range(10**6)) if first <= key_slot(key.encode()) <= last)


def slots_by_port(cluster):
    counts = {}
    for first, last, primary, *_ in shard_order(cluster):
        counts[primary] = counts.get(primary, 0) + last - first + 1
    return counts
