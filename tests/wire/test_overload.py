"""Overload: the server sheds load with errors that say so, keeps its own limits, and goes on answering."""

import http.client
import os
import pathlib
import random
import re
import socket
import threading


from harness import Server, free_port
from wire import Session, command, eventually, exactly

MIB = 1 << 20
OOM = b"-OOM command not allowed when used memory > 'maxmemory'."


def info(client, field):
    found = re.search(rf"^{field}:(\d+)", client("INFO", "everything").decode(), re.M)
    return int(found.group(1))


def is_healthy(port):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        client.request("GET", "/health")
        return client.getresponse().status == 200
    finally:
        client.close()


def test_at_maxclients_newcomers_are_told_and_others_served():
    port = free_port()
    with Server("--maxclients", 50, "--http-port", port) as server:
        with Session(server) as observer:
            eventually(lambda: info(observer, "connected_clients") == 1, "the client of the readiness check has left")
            clients = [server.connect() for _ in range(49)]
            for client in clients:
                client.sendall(b"PING\r\n")
                assert exactly(client, 7) == b"+PONG\r\n"
            for _ in range(100):
                with server.connect() as refused:
                    assert refused.recv(100) == b"-ERR max number of clients reached\r\n"
                    assert refused.recv(100) == b""
            assert info(observer, "rejected_connections") == 100
            assert info(observer, "connected_clients") == 50
            assert is_healthy(port)
            for client in clients:
                client.sendall(b"PING\r\n")
                assert exactly(client, 7) == b"+PONG\r\n"
                client.close()
            eventually(lambda: info(observer, "connected_clients") == 1, "they have left")
            with Session(server) as newcomer:
                assert newcomer("PING") == "PONG"


def test_storm_of_connections_leaves_the_others_served():
    port = free_port()
    with Server("--http-port", port) as server, Session(server) as steady:
        before = info(steady, "total_connections_received")
        stopping = threading.Event()
        opened = [0] * 4

        def storm(number):
            while not stopping.is_set():
                burst = []
                for _ in range(50):
                    client = socket.socket()
                    client.setblocking(False)
                    client.connect_ex(("127.0.0.1", server.port))
                    burst.append(client)
                opened[number] += len(burst)
                for client in burst:
                    client.close()

        threads = [threading.Thread(target=storm, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(300):
                assert steady("PING") == "PONG"
            assert is_healthy(port)
            assert info(steady, "connected_clients") >= 1
            eventually(lambda: sum(opened) > 5000, "thousands of connections")
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
        eventually(lambda: info(steady, "connected_clients") == 1, "the storm has passed")
        assert info(steady, "total_connections_received") > before


def test_clients_that_do_not_read_keep_to_the_limit_of_all():
    with Server("--maxmemory-clients", "2mb") as server, Session(server) as observer:
        assert observer("SET", "value", b"v" * MIB) == "OK"
        lazy = [server.connect() for _ in range(60)]
        for client in lazy:
            client.sendall(command("GET", "value") * 40)
        eventually(lambda: info(observer, "evicted_clients") > 0, "some are closed")
        eventually(lambda: info(observer, "mem_clients_normal") <= 2 * MIB, "the others take less than the limit")
        assert observer("STRLEN", "value") == MIB
        for client in lazy:
            client.close()


def test_writes_are_refused_and_reads_served_where_nothing_may_go():
    with Server("--maxmemory", "24mb", "--maxmemory-policy", "noeviction") as server:
        with server.connect() as writer, Session(server) as reader:
            batch = [command("SET", f"key:{number}", b"x" * 1000) for number in range(40_000)]
            refused = 0
            for first in range(0, len(batch), 1000):
                writer.sendall(b"".join(batch[first : first + 1000]))
                replies = b""
                while replies.count(b"\r\n") < 1000:
                    replies += writer.recv(1 << 16)
                refused += replies.count(OOM)
                assert replies.count(OOM) + replies.count(b"+OK") == 1000
                assert reader("GET", "key:0") == b"x" * 1000
            assert refused > 10_000
            assert info(reader, "used_memory") - info(reader, "mem_not_counted_for_evict") <= 25 * MIB
            assert reader("DEL", *(f"key:{number}" for number in range(2000))) == 2000
            assert reader("SET", "key:0", "again") == "OK"


class MemoryGroup:
    """A control group whose processes get no more than so much memory: beyond it the kernel kills them."""

    ROOTS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")

    def __init__(self, limit_bytes):
        self.folder = None
        for root in map(pathlib.Path, self.ROOTS):
            folder = root / f"dunlin-test-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            for name in ("memory.limit_in_bytes", "memory.max"):
                if (folder / name).exists():
                    (folder / name).write_text(str(limit_bytes))
                    self.folder = folder
                    return
            folder.rmdir()

    def add(self, process):
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(process.pid))

    def remove(self):
        if self.folder:
            self.folder.rmdir()


def peak_bytes(process):
    """The most memory that a process has had, without the pages of its program: the kernel takes those back when it must."""
    with open(f"/proc/{process.pid}/status") as lines:
        status = dict(line.split(":", 1) for line in lines)
    return int(status["VmHWM"].split()[0]) - int(status["RssFile"].split()[0]) << 10


def test_server_survives_with_a_fifth_more_memory_than_its_limit():
    """Values of changing sizes, snapshots, the log, subscribers and clients that do not read, all at once."""
    limit = 320 * MIB
    flags = ["--maxmemory", limit, "--maxmemory-policy", "allkeys-lru", "--maxmemory-clients", "5%"]
    group = MemoryGroup(limit * 6 // 5)
    server = Server(*flags)
    try:
        group.add(server.process)
        rng = random.Random(3)
        with server.connect() as writer, Session(server) as observer:
            lazy = [server.connect() for _ in range(20)]
            for size in (100, 180, 1024, 100):
                assert observer("SET", "value", b"v" * 50_000) == "OK"
                for client in lazy:
                    try:
                        client.sendall(command("GET", "value") * 20)
                    except OSError:
                        pass
                if size == 1024:
                    observer("BGSAVE")
                sent = 0
                while sent < limit * 1.2:
                    keys = [rng.randrange(8_000_000) for _ in range(500)]
                    writer.sendall(b"".join(command("SET", f"k:{key}", b"x" * size) for key in keys))
                    assert exactly(writer, 5 * 500) == b"+OK\r\n" * 500
                    sent += 500 * (size + 30)
            assert info(observer, "evicted_keys") > 100_000
            assert peak_bytes(server.process) <= limit * 6 // 5
            for client in lazy:
                client.close()
    finally:
        server.stop()
        group.remove()
