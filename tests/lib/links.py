"""Servers as primaries and replicas, and a link between them that can be cut."""

import socket
import threading

import redis

from harness import REDIS_VERSIONS, Server, is_redis
from waiting import until


def raw(port, **options):
    """A client that leaves replies as they are."""
    client = redis.Redis(port=port, socket_timeout=30, **{"protocol": 2, **options})
    client.response_callbacks.clear()
    return client


class Node(Server):
    """A server with a client of its own."""

    def __init__(self, program, *directives, **options):
        # Before 7.0 DEBUG was always there, and so was no directive for it.
        own = [] if program == REDIS_VERSIONS.get("6.2") else ["--enable-debug-command", "yes"]
        if is_redis(program):
            own += ["--repl-diskless-sync-delay", "0"]
        super().__init__(*own, *directives, program=program, **options)
        self.client = redis.Redis(port=self.port, socket_timeout=30, protocol=2)
        self.raw = raw(self.port)

    def call(self, *words):
        return self.raw.execute_command(*words)

    def info(self, section="replication"):
        return self.client.info(section)

    def digest(self):
        return self.call("DEBUG", "DIGEST")

    def follow(self, port):
        self.call("REPLICAOF", "127.0.0.1", port)

    def stop(self):
        self.client.close()
        self.raw.close()
        super().stop()


def has_link(replica):
    return replica.info()["master_link_status"] == "up"


def is_online(primary):
    """Waits until a primary has heard from its replica, which it may be told to hand over to."""
    until(lambda: primary.info().get("slave0", {}).get("state") == "online", "the replica's first acknowledgement")


def settle(primary, *replicas):
    """Waits until replicas have all that the primary has written, and compares the data sets."""
    for replica in replicas:
        until(lambda: has_link(replica), f"a link\n{primary.log()[-2000:]}\n{replica.log()[-2000:]}")

    def is_level():
        at = primary.info()["master_repl_offset"]
        return all(replica.info()["slave_repl_offset"] == at for replica in replicas) and (
            primary.info()["master_repl_offset"] == at
        )

    # What moves on meanwhile, as by expiry, is compared again; what does not, must be the same. A key may expire between the looks at
    # its two copies, which nothing but another look shows.
    before = None
    while True:
        until(is_level, "equal offsets")
        at = primary.info()["master_repl_offset"]
        expected = primary.digest()
        different = [replica for replica in replicas if replica.digest() != expected]
        found = [difference for replica in different for difference in differences(primary, replica)]
        if not found:
            return
        if found == before and is_level() and primary.info()["master_repl_offset"] == at:
            raise AssertionError(f"{found[:20]}\n{different[0].log()[-3000:]}")
        before = found


def differences(primary, replica):
    """Keys whose values differ."""
    found = []
    for database in range(16):
        clients = [redis.Redis(port=node.port, db=database, protocol=2) for node in (primary, replica)]
        keys = sorted(set(clients[0].keys()) | set(clients[1].keys()))
        for key in keys:
            one, other = (client.execute_command("DEBUG", "DIGEST-VALUE", key) for client in clients)
            if one != other and not same_scores(clients, key) and not same_fields(clients, key):
                found.append((database, key, clients[0].type(key), clients[1].type(key)))
    return found


def same_fields(clients, key):
    """Whether a key is a hash with the same fields, which expire at the same times: a digest of Redis marks fields that expire, one of
    Valkey does not."""
    if any(client.type(key) != b"hash" for client in clients):
        return False
    one, other = (client.hgetall(key) for client in clients)
    if not one or one != other:
        return False
    try:
        times = [client.execute_command("HPEXPIRETIME", key, "FIELDS", len(one), *one) for client in clients]
    except redis.ResponseError:
        return False
    return times[0] == times[1]


def same_scores(clients, key):
    """Whether a key is a sorted set with the same scores, whose digits Valkey prints otherwise."""
    if any(client.type(key) != b"zset" for client in clients):
        return False
    return clients[0].zrange(key, 0, -1, withscores=True) == clients[1].zrange(key, 0, -1, withscores=True)


class Link:
    """A proxy in front of a server. It can be cut, refused and held."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs = []
        self.lock = threading.Lock()
        self.is_open = True
        self.made = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                if not self.is_open:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                self.pairs.append((client, server))
                self.made += 1
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, refuse=False):
        """Cuts all connections; `refuse` keeps new ones out until `heal`."""
        with self.lock:
            self.is_open = not refuse
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()

    def heal(self):
        with self.lock:
            self.is_open = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.cut(refuse=True)


class FakePrimary:
    """Sends a snapshot and then whatever it is told to."""

    def __init__(self, snapshot):
        self.snapshot = snapshot
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.link = None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        link, _ = self.listener.accept()
        file = link.makefile("rb")
        while True:
            head = file.readline()
            if not head:
                return
            words = [file.read(int(file.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
            if words[0] == b"PSYNC":
                break
            link.sendall(b"+PONG\r\n" if words[0] == b"PING" else b"+OK\r\n")
        link.sendall(b"+FULLRESYNC %s 0\r\n$%d\r\n%s" % (b"a" * 40, len(self.snapshot), self.snapshot))
        self.link = link
        while file.read(1):
            pass
