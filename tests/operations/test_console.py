"""The console in a real browser, Debian's chromium. One browser walks through all pages (console.mjs); each test here is one
of its steps, or looks at what it has left in the server."""

import json
import os
import pathlib
import random
import re
import socket
import subprocess
import threading
import time

import pytest
import redis

from harness import ROOT
from web import CHROMIUM, MODULES, PATIENCE_S, UPGRADE, ask, eventually, needs_browser, serving

SCRIPT = pathlib.Path(__file__).with_name("console.mjs")
STEPS = re.findall(r'await step\(["`](\w+)["`]', SCRIPT.read_text())
@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """What became of each step, and a client of the server, after the walk."""
    with serving("--requirepass", "secret", "--enable-debug-command", "yes", "--threads", 2) as (server, port):
        client = redis.Redis(port=server.port, password="secret", decode_responses=False)
        fill(client)
        victim = redis.Redis(port=server.port, password="secret", client_name="victim")
        victim.ping()
        stop = threading.Event()
        if os.environ.get("CONSOLE_SHOTS"):
            # Pictures of a server that does something.
            threading.Thread(target=load, args=(server.port, stop), daemon=True).start()
            time.sleep(45)
        out = tmp_path_factory.mktemp("console") / "results.json"
        walk = subprocess.run(
            ["node", str(SCRIPT), str(port), str(server.port), str(out), *filter(None, [os.environ.get("CONSOLE_SHOTS")])],
            env={**os.environ, "CHROMIUM": CHROMIUM},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=540,
        )
        stop.set()
        assert walk.returncode == 0, walk.stdout.decode()
        yield json.loads(out.read_text()), client


def load(port, stop):
    client = redis.Redis(port=port, password="secret")
    while not stop.is_set():
        pipe = client.pipeline(transaction=False)
        for _ in range(random.randrange(40, 400)):
            number = random.randrange(140)
            pipe.get(f"user:{number}:name")
            pipe.hgetall(f"user:{number % 100}:profile")
        pipe.execute()
        time.sleep(random.random() / 20)


def fill(client):
    pipe = client.pipeline(transaction=False)
    for number in range(100):
        pipe.set(f"user:{number}:name", f"name {number}", ex=100_000)
        pipe.hset(f"user:{number}:profile", mapping={"email": f"{number}@example.com", "visits": number})
        pipe.zadd(f"user:{number}:scores", {"a": number})
    for number in range(50):
        pipe.set(f"doomed:{number}", "x")
    pipe.set("edit:string", "before", ex=5000)
    pipe.set("edit:large", "x" * 300_000)
    pipe.hset("edit:hash", mapping={"f1": "1", "f2": "2"})
    pipe.rpush("edit:list", "a", "b", "c")
    pipe.sadd("edit:set", "a", "b")
    pipe.zadd("edit:zset", {"one": 1, "two": 2})
    pipe.execute_command("JSON.SET", "edit:json", "$", '{"name":"Ann","list":[1,2,3]}')
    pipe.xadd("edit:stream", {"k": "v"})
    pipe.xgroup_create("edit:stream", "workers", "0")
    pipe.xreadgroup("workers", "joe", {"edit:stream": ">"})
    pipe.set(b"bin:\xff\x00", b"\x00\xff\\")
    pipe.set("app:1", "one")
    for number in range(6000):
        pipe.set(f"many:{number}", "x")
    # Beyond the first five thousand keys of any scan, by its size.
    pipe.set("zz-large", "z" * 20_000_000)
    for begin in range(0, 100_000, 1_000):
        pipe.hset("wide", mapping={f"field:{number}": "v" for number in range(begin, begin + 1_000)})
    pipe.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~app:*", "+@read", "+@connection", "-client|list")
    pipe.execute()


@needs_browser
@pytest.mark.parametrize("step", STEPS)
def test_console(walked, step):
    results, _ = walked
    assert results[step] == "ok"


@needs_browser
def test_edits_are_in_the_store(walked):
    _, client = walked
    assert client.get("edit:string") == "grün".encode()
    assert client.execute_command("JSON.GET", "edit:json") in ('{"name":"Bob","list":[2,3,{"x":7}]}', b'{"name":"Bob","list":[2,3,{"x":7}]}')
    assert client.ttl("edit:string") > 0, "an edit keeps the expiry"
    assert client.strlen("edit:large") == 300_000
    assert client.hgetall("edit:hash") == {b"f1": b"changed", b"new": b"x y"}
    assert client.lrange("edit:list", 0, -1) == [b"first", b"c"]
    assert client.smembers("edit:set") == {b"b", b"c"}
    assert 0 < client.ttl("edit:set") <= 1000
    assert client.zscore("edit:zset", "one") == 1.5
    assert client.xlen("edit:stream") == 2
    assert client.get(b"bin:\xff\x00") == b"\x00\xff\\"
    assert client.keys("doomed:*") == []
    assert len(client.keys("user:*")) == 300
    assert client.get("a b") == b"c\nd"
    assert client.config_get("slowlog-max-len") == {b"slowlog-max-len": b"77"} or client.config_get("slowlog-max-len") == {"slowlog-max-len": "77"}
    assert b"user made on" in b"\n".join(line if isinstance(line, bytes) else line.encode() for line in client.acl_list())


def test_built_files_are_those_of_the_sources(tmp_path):
    if not (MODULES / "esbuild").exists():
        pytest.skip("console/node_modules lacks esbuild")
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=ROOT / "console", check=True)
    committed = ROOT / "crates" / "server" / "src" / "http" / "console"
    names = {file.name for file in committed.iterdir()}
    assert names == {file.name for file in tmp_path.iterdir()}
    for name in names:
        assert (committed / name).read_bytes() == (tmp_path / name).read_bytes(), f"{name} is stale: make console"


def test_files_of_the_page_have_their_types_and_a_strict_policy():
    with serving() as (server, port):
        for path, content_type in [("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css"), ("/directives.json", "application/json")]:
            answer = ask(port, path)
            assert answer.status == 200
            assert answer.headers["content-type"].startswith(content_type)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        names = [directive["name"] for directive in json.loads(ask(port, "/directives.json").text)]
        assert "http-console" in names
        client = redis.Redis(port=server.port)
        client.config_set("http-console", "no")
        assert ask(port, "/").status == 404
        assert ask(port, "/connect").status == 404
        assert ask(port, "/metrics").status == 200


def open_socket(port, address="127.0.0.1", **changed):
    """The answer to a request for a WebSocket from `address`, and its connection."""
    client = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0))
    headers = {"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}", **UPGRADE, **changed}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    client.sendall(("GET /connect HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = client.recv(4096)
        assert piece, head
        head += piece
    head, _, rest = head.partition(b"\r\n\r\n")
    return client, head.decode(), rest


def frame(payload, first=0x82, masked=True):
    mask = b"\x01\x02\x03\x04" if masked else b""
    length = len(payload)
    size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big") if length < 65536 else b"\x7f" + length.to_bytes(8, "big")
    size = bytes([size[0] | (0x80 if masked else 0)]) + size[1:]
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if masked else payload
    return bytes([first]) + size + mask + body


@pytest.fixture(scope="module")
def open_server():
    with serving() as (server, port):
        yield server, port


def test_websocket_carries_the_protocol(open_server):
    _, port = open_server
    client, head, rest = open_socket(port)
    assert head.startswith("HTTP/1.1 101") and "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    # A request in two messages; a ping between them.
    client.sendall(frame(b"*1\r\n$4\r\nPI") + frame(b"", first=0x89) + frame(b"NG\r\n"))
    while b"+PONG\r\n" not in rest:
        piece = client.recv(4096)
        assert piece
        rest += piece
    client.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": "http://evil.example.com"},
        {"Origin": None},
        {"Origin": "null"},
        {"Host": "evil.example.com", "Origin": "http://evil.example.com"},
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": None},
        {"Upgrade": "h2c"},
    ],
)
def test_websocket_of_another_site_or_kind_is_refused(open_server, changed):
    _, port = open_server
    client, head, _ = open_socket(port, **changed)
    assert head.split()[1] in ("400", "403", "421"), head
    client.close()


PING = 0x89
# A frame that is the beginning of a message, and one that goes on with it.
BEGINNING, MIDDLE = 0x02, 0x00


def flood(client, piece, bytes_max):
    """Sends a piece again and again without reading, until the server has had `bytes_max`."""
    sent = 0
    while sent < bytes_max:
        try:
            client.sendall(piece)
        except ConnectionError:
            return
        sent += len(piece)


def resident(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.parametrize("inside", [False, True], ids=["between-messages", "inside-a-message"])
@pytest.mark.parametrize("password", [True, False], ids=["strangers", "members"])
def test_pings_that_nobody_reads_the_answers_of_take_no_memory(inside, password):
    """Consoles send pings with 125 bytes each, 8 MB a console, and read nothing."""
    directives = ["--requirepass", "secret"] if password else []
    with serving(*directives) as (server, port):
        client = redis.Redis(port=server.port, password="secret" if password else None)
        consoles = [open_socket(port, f"127.0.0.{number // 8 + 2}") for number in range(16)]
        consoles = [console for console, head, _ in consoles if head.startswith("HTTP/1.1 101")]
        assert len(consoles) >= 8
        eventually(lambda: client.info("memory")["mem_http_consoles"] > 0)
        if inside:
            for console in consoles:
                console.sendall(frame(b"*1\r\n", first=BEGINNING))
        pings = frame(b"x" * 125, first=PING) * 500
        before = resident(server)
        for console in consoles:
            flood(console, pings, 8_000_000)
        # Half a MB a console, where its share of 1 GB stood before.
        assert resident(server) - before < 24_000_000
        shown = client.info("memory")
        assert 100_000 * len(consoles) < shown["mem_http_consoles"] < 300_000 * len(consoles)
        assert shown["used_memory"] > shown["mem_http_consoles"]
        assert client.ping()
        [console.close() for console in consoles]
        eventually(lambda: client.info("memory")["mem_http_consoles"] == 0)


def test_pings_are_answered_and_answers_stay_behind_each_other(open_server):
    """One that reads late gets all replies whole, and of the pings the latest at least."""
    _, port = open_server
    client, head, rest = open_socket(port)
    assert head.startswith("HTTP/1.1 101")
    big = "x" * 200_000
    client.sendall(frame(f"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$200000\r\n{big}\r\n".encode()))
    for number in range(2000):
        client.sendall(frame(b"%d" % number, first=PING))
        if number % 100 == 0:
            client.sendall(frame(b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n"))
    text, pongs = b"", []
    expected = b"+OK\r\n" + (b"$200000\r\n" + big.encode() + b"\r\n") * 20
    stream = Frames(client, rest)
    while len(text) < len(expected) or pongs[-1:] != [1999]:
        opcode, payload = stream.next()
        if opcode == 0xA:
            pongs.append(int(payload))
        else:
            text += payload
    assert text == expected
    assert pongs == sorted(set(pongs))
    client.close()


class Frames:
    """The frames of a server, one after the other."""

    def __init__(self, client, rest=b""):
        self.client, self.rest = client, rest

    def take(self, count):
        while len(self.rest) < count:
            piece = self.client.recv(1 << 16)
            assert piece, "the server has closed"
            self.rest += piece
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def next(self):
        first, size = self.take(2)
        if size == 126:
            size = int.from_bytes(self.take(2), "big")
        elif size == 127:
            size = int.from_bytes(self.take(8), "big")
        return first & 0xF, self.take(size)


def log_in(console):
    client, head, rest = console
    assert head.startswith("HTTP/1.1 101"), head
    client.sendall(frame(b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"))
    assert Frames(client, rest).next()[1] == b"+OK\r\n"
    return client


def test_strangers_keep_no_operator_out_of_the_console():
    with serving("--requirepass", "secret") as (server, port):
        client = redis.Redis(port=server.port, password="secret")
        operators = [log_in(open_socket(port, "127.0.0.9"))]
        strangers = []

        def fill():
            while True:
                console, head, _ = open_socket(port)
                strangers.append(console)
                if head.startswith("HTTP/1.1 503"):
                    return

        fill()
        # Half of the places is for those who have logged in; the rest may be taken by turns already.
        eventually(lambda: len(client.client_list()) == 1 + 1 + 8)
        # From another address an operator gets in at once.
        operators += [log_in(open_socket(port, "127.0.0.8")) for _ in range(7)]
        # From the same one when the strangers have had their time, whatever they say meanwhile.
        fill()

        def gets_in():
            for console in strangers:
                try:
                    console.sendall(frame(b"", first=PING))
                except OSError:
                    pass
            console = open_socket(port)
            if console[1].startswith("HTTP/1.1 503"):
                console[0].close()
                return False
            operators.append(log_in(console))
            return True

        eventually(gets_in)
        # Those who have logged in stay, though they are older.
        for operator in operators:
            operator.sendall(frame(b"PING\r\n"))
            assert Frames(operator).next()[1] == b"+PONG\r\n"
        assert client.ping()


def test_websocket_refuses_a_strangers_unfinished_long_message():
    with serving("--requirepass", "secret") as (_, port):
        stranger, head, _ = open_socket(port)
        assert head.startswith("HTTP/1.1 101")
        # It says that a megabyte comes, and sends less.
        flood(stranger, frame(b"x" * 1_000_000)[:900_000], 900_000)
        with pytest.raises((ConnectionError, AssertionError)):
            Frames(stranger).next()
        operator = log_in(open_socket(port))
        operator.sendall(frame(b"*2\r\n$4\r\nECHO\r\n$1000000\r\n" + b"x" * 1_000_000 + b"\r\n"))
        stream, got = Frames(operator), b""
        while len(got) < 1_000_012:
            got += stream.next()[1]
        assert got == b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n"


def test_websocket_leads_to_no_other_address(open_server):
    _, port = open_server
    for path in ("/connect?node=127.0.0.1:22", "/connect?node=", "/connect?other=1"):
        headers = {"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}", **UPGRADE}
        assert ask(port, path, headers=headers).status == 404, path


def test_frames_that_break_the_rules_end_their_connection_alone(open_server):
    server, port = open_server
    for bad in [frame(b"PING\r\n", masked=False), frame(b"x", first=0xFF), b"\x82\xff" + (2**40).to_bytes(8, "big") + b"mask", b"\x82\xff" + b"\xff" * 8 + b"mask"]:
        client, head, _ = open_socket(port)
        assert head.startswith("HTTP/1.1 101")
        client.sendall(bad)
        while client.recv(4096):
            pass
        client.close()
    assert redis.Redis(port=server.port).ping()


def test_consoles_are_clients_of_their_browsers_and_bounded(open_server):
    server, port = open_server
    client = redis.Redis(port=server.port)
    # Consoles of the tests before are closing still, and would be counted.
    eventually(lambda: len(client.client_list()) == 1)
    opened = [open_socket(port) for _ in range(16)]
    assert all(head.startswith("HTTP/1.1 101") for _, head, _ in opened)
    extra, head, _ = open_socket(port)
    assert head.startswith("HTTP/1.1 503")
    extra.close()
    # A console is answered before its worker has got to know of it.
    eventually(lambda: len(client.client_list()) == 1 + 16)
    own = opened[0][0].getsockname()
    assert f"{own[0]}:{own[1]}" in {one["addr"] for one in client.client_list()}
    for connection, *_ in opened:
        connection.close()
    eventually(lambda: len(client.client_list()) == 1)
    assert ask(port, "/health").status == 200
