"""A client's own connection: its user, database, protocol and name.

A real Redis gives the expected replies; those that Redis 7.0 does not have yet are written out.
"""

import re
import threading

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from wire import command, eventually, exactly, rest

# One conversation each, on a connection of its own. The reply to every line is that of Redis.
AS_REDIS = {
    "auth without a password": ["AUTH", "AUTH x", "AUTH default x", "AUTH nobody x", "AUTH a b c", "AUTH default "],
    "hello": [
        "HELLO", "HELLO 3", "HELLO", "GET nothing", "HELLO 2", "HELLO 1", "HELLO 4", "HELLO x",
        "HELLO 99999999999999999999", "HELLO 2 x", "HELLO 3 AUTH default", "HELLO 3 AUTH default x",
        "HELLO 3 AUTH nobody x", "HELLO 3 SETNAME a", "CLIENT GETNAME", "HELLO 2 SETNAME", "HELLO 2 SETNAME \n",
        "HELLO 2 SETNAME x SETNAME y", "CLIENT GETNAME", "HELLO 3 SETNAME z AUTH default x", "CLIENT GETNAME",
    ],
    "echo and ping": ["ECHO", "ECHO a", "ECHO a b", "PING", "PING a", "PING a b", "HELLO 3", "PING", "PING a"],
    "select": [
        "SELECT", "SELECT x", "SELECT -1", "SELECT 16", "SELECT 15", "SELECT 99999999999", "SELECT 0 1", "SELECT 0",
    ],
    "reset": [
        "RESET x", "HELLO 3 SETNAME a", "SELECT 1", "SET only-here 1", "CLIENT REPLY SKIP", "RESET", "CLIENT REPLY OFF",
        "RESET", "CLIENT GETNAME", "GET only-here", "SELECT 1", "DEL only-here", "HELLO",
    ],
    "quit": ["QUIT with words", "PING"],
    "modules": [
        "MODULE", "MODULE LIST", "MODULE LIST x", "MODULE LOAD", "MODULE LOAD /x.so", "MODULE LOAD /x.so a b",
        "MODULE LOADEX /x.so CONFIG a b ARGS c", "MODULE UNLOAD", "MODULE UNLOAD x", "MODULE UNLOAD x y", "MODULE NONSENSE",
        "EVAL return(redis.pcall('module','list')) 0", "HELLO 3", "MODULE LIST",
    ],
    "names": [
        "CLIENT GETNAME", "CLIENT SETNAME", "CLIENT SETNAME abc", "CLIENT GETNAME", "CLIENT GETNAME x",
        "CLIENT SETNAME a\nb", "CLIENT SETNAME a\x7f", "CLIENT SETNAME é", "CLIENT SETNAME ~!", "CLIENT GETNAME",
        "CLIENT SETNAME ", "CLIENT GETNAME", "HELLO 3", "CLIENT GETNAME",
    ],
    "replies": [
        "CLIENT REPLY", "CLIENT REPLY foo", "CLIENT REPLY on", "CLIENT REPLY skip", "PING", "ECHO a", "CLIENT REPLY SKIP",
        "CLIENT REPLY SKIP", "ECHO b", "ECHO c", "CLIENT REPLY SKIP", "NONSENSE", "ECHO d", "CLIENT REPLY SKIP",
        "CLIENT REPLY ON", "ECHO e", "CLIENT REPLY OFF", "ECHO f", "NONSENSE", "CLIENT REPLY SKIP", "ECHO g",
        "CLIENT REPLY foo", "CLIENT REPLY ON", "ECHO h",
    ],
    "small ones": [
        "CLIENT", "CLIENT FOO", "CLIENT ID x", "CLIENT INFO x", "CLIENT NO-EVICT", "CLIENT NO-EVICT foo",
        "CLIENT NO-EVICT on", "CLIENT NO-EVICT OFF", "CLIENT UNBLOCK", "CLIENT UNBLOCK x", "CLIENT UNBLOCK 1 foo",
        "CLIENT UNBLOCK 99999 TIMEOUT", "CLIENT UNBLOCK 99999 ERROR", "CLIENT UNBLOCK 1 TIMEOUT x",
        "CLIENT UNBLOCK 99999", "CLIENT GETREDIR", "CLIENT GETREDIR x", "CLIENT TRACKINGINFO", "CLIENT TRACKING",
        "CLIENT TRACKING off", "CLIENT TRACKING foo", "CLIENT CACHING", "CLIENT CACHING yes", "HELLO 3",
        "CLIENT TRACKINGINFO", "CLIENT HELP x",
    ],
    "list": [
        "CLIENT LIST TYPE", "CLIENT LIST TYPE foo", "CLIENT LIST TYPE pubsub", "CLIENT LIST TYPE master",
        "CLIENT LIST TYPE slave", "CLIENT LIST ID", "CLIENT LIST ID x", "CLIENT LIST ID 0", "CLIENT LIST ID -1",
        "CLIENT LIST ID 99999 x", "CLIENT LIST ID 99999 99998", "CLIENT LIST FOO bar", "CLIENT LIST FOO",
        "CLIENT LIST TYPE normal FOO", "HELLO 3", "CLIENT LIST ID 99999",
    ],
    "kill": [
        "CLIENT KILL", "CLIENT KILL 1.2.3.4:5", "CLIENT KILL ID", "CLIENT KILL ID x", "CLIENT KILL ID 0",
        "CLIENT KILL ID -1", "CLIENT KILL ID 99999", "CLIENT KILL TYPE foo", "CLIENT KILL TYPE pubsub",
        "CLIENT KILL TYPE slave", "CLIENT KILL USER nobody", "CLIENT KILL ID 99999 USER default SKIPME foo",
        "CLIENT KILL ADDR a", "CLIENT KILL LADDR a", "CLIENT KILL FOO bar", "CLIENT KILL ID 99999 FOO",
        "CLIENT KILL ID 99999 ID 99998", "CLIENT KILL SKIPME no ID 99999", "CLIENT KILL ID 99999 SKIPME", "PING",
    ],
    "pause": [
        "CLIENT PAUSE", "CLIENT PAUSE x", "CLIENT PAUSE -1", "CLIENT PAUSE 1 foo", "CLIENT PAUSE x foo",
        "CLIENT PAUSE 1 all x", "CLIENT PAUSE 99999999999999999999", "CLIENT PAUSE 0", "CLIENT PAUSE 0 WRITE",
        "CLIENT UNPAUSE x", "CLIENT UNPAUSE", "PING",
    ],
}

# With requirepass sesame.
STRANGERS = {
    "everything is refused": [
        "GET k", "PING", "FOO", "CLIENT ID", "GET", "CLIENT FOO", "CLIENT", "ECHO a", "SELECT 1", "AUTH x",
        "AUTH default x", "AUTH nobody sesame", "AUTH default ", "HELLO", "HELLO 3", "HELLO 3 SETNAME a", "HELLO 4",
        "HELLO 3 AUTH default x", "HELLO 3 SETNAME", "RESET", "PING",
    ],
    "auth": ["AUTH sesame", "PING", "AUTH x", "PING", "RESET", "PING", "AUTH default sesame", "PING"],
    "hello": ["HELLO 3 AUTH default sesame SETNAME me", "CLIENT GETNAME", "RESET", "CLIENT GETNAME"],
    "quit": ["QUIT"],
}

# Replies of Valkey 9.1 to commands that Redis 7.0 does not know.
NEWER = {
    "CLIENT SETINFO": "-ERR wrong number of arguments for 'client|setinfo' command",
    "CLIENT SETINFO lib-name foo": "+OK",
    "CLIENT SETINFO LIB-VER 1.2": "+OK",
    "CLIENT SETINFO LIB-NAME a\nb": "-ERR LIB-NAME cannot contain spaces, newlines or special characters.",
    "CLIENT SETINFO lib-ver a\tb": "-ERR lib-ver cannot contain spaces, newlines or special characters.",
    "CLIENT SETINFO foo bar": "-ERR Unrecognized option 'foo'",
    "CLIENT NO-TOUCH foo": "-ERR syntax error",
    "CLIENT NO-TOUCH on": "+OK",
    "CLIENT CAPA foo": "+OK",
    "CLIENT CAPA foo redirect": "+OK",
    "CLIENT PAUSE 9223372036854775807": "-ERR timeout is out of range",
    "CLIENT LIST USER nobody": "-ERR No such user 'nobody'",
    "CLIENT LIST SKIPME foo": "-ERR syntax error",
    "CLIENT LIST MAXAGE x": "-ERR maxage is not an integer or out of range",
    "CLIENT LIST IDLE 0": "-ERR idle should be greater than 0",
    "CLIENT LIST FLAGS N?": "-ERR Unknown flags found in the provided filter: N?",
    "CLIENT LIST NOT-FLAGS ?": "-ERR Unknown flags found in the NOT-FLAGS filter: ?",
    "CLIENT LIST DB 16": "-ERR DB number should be between 0 and 15",
    "CLIENT LIST NOT-DB x": "-ERR NOT-DB is not an integer or out of range",
    "CLIENT LIST NOT-CAPA rx": "-ERR Unknown capa found in the NOT-CAPA filter: rx",
    "CLIENT LIST NOT-ID 0": "-ERR client-id should be greater than 0",
    "CLIENT KILL MAXAGE 0": "-ERR maxage should be greater than 0",
    "CLIENT KILL ID 99998 99999": ":0",
    "CLIENT KILL NAME nobody NOT-TYPE pubsub": ":0",
}

THE_ID = re.compile(rb"(\$2\r\nid\r\n):\d+\r\n")
# JSON is a module to clients, and Redis 7.0 has none (decision 0098).
MODULES = re.compile(rb"\*\d+\r\n(?:[*%]\d\r\n\$4\r\nname\r\n.*?\$4\r\nargs\r\n\*0\r\n)+", re.DOTALL)
THE_VERSION = re.compile(rb"(\$7\r\nversion\r\n)\$\d+\r\n[\d.]+\r\n")


def talk(server, lines):
    """All lines in one write, and all that comes back; numbers of clients, the server's version and its modules left out."""
    with server.connect() as client:
        client.sendall(b"".join(command(*line.split(" ")) for line in lines) + command("QUIT"))
        said = MODULES.sub(b"*0\r\n", rest(client)[0])
        return THE_VERSION.sub(rb"\1?\r\n", THE_ID.sub(rb"\1:?\r\n", said))


@pytest.mark.parametrize("name", AS_REDIS)
def test_answers_as_redis(server, oracle, name):
    assert talk(server, AS_REDIS[name]) == talk(oracle, AS_REDIS[name])


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers(guarded, guarded_oracle, name):
    assert talk(guarded, STRANGERS[name]) == talk(guarded_oracle, STRANGERS[name])


@pytest.fixture(scope="module")
def guarded():
    with Server("--requirepass", "sesame") as server:
        yield server


@pytest.fixture(scope="module")
def guarded_oracle():
    with Server("--requirepass", "sesame", program=ORACLE) as server:
        yield server


@pytest.mark.skipif(is_redis(DUNLIN), reason="newer than this Redis")
@pytest.mark.parametrize("line", NEWER)
def test_answers_as_newer_servers(server, line):
    assert talk(server, [line]) == NEWER[line].encode() + b"\r\n+OK\r\n"


def ask(client, *words):
    """One command; its reply, a line or a bulk."""
    client.sendall(command(*words))
    line = b""
    while not line.endswith(b"\r\n"):
        line += exactly(client, 1)
    if line[:1] in b"$=" and line != b"$-1\r\n":
        return exactly(client, int(line[1:]) + 2)[:-2]
    return line[:-2]


def fields(line):
    """A line of CLIENT LIST."""
    return dict(field.split("=", 1) for field in line.decode().split())


def test_auth_lifts_the_limits_within_the_same_write(guarded):
    """The limits for strangers end with AUTH, not with the write that AUTH came in."""
    big = b"x" * 100_000
    with guarded.connect() as client:
        client.sendall(command("AUTH", "sesame") + command("SET", "big", big) + command("DEL", *range(100)))
        assert exactly(client, 14) == b"+OK\r\n+OK\r\n:0\r\n"
        client.sendall(command("RESET") + command("SET", "big", big))
        got, closed = rest(client)
        assert closed and got == b"+RESET\r\n-ERR Protocol error: unauthenticated bulk length\r\n"


def test_select_inside_a_pipeline(server):
    with server.connect() as client:
        writes = [command("SELECT", n) + command("SET", "where", n) for n in range(16)]
        reads = [command("SELECT", n) + command("GET", "where") + command("DEL", "where") for n in range(16)]
        client.sendall(b"".join(writes + reads))
        expected = b"+OK\r\n" * 32
        expected += b"".join(b"+OK\r\n$%d\r\n%d\r\n:1\r\n" % (len(str(n)), n) for n in range(16))
        assert exactly(client, len(expected)) == expected


def test_client_list_line_has_the_fields_of_redis(server, oracle):
    """Fields, their order and their values: every field of Redis, in its order."""

    def line(which):
        with which.connect() as client:
            ask(client, "CLIENT", "SETNAME", "me")
            ask(client, "SELECT", 3)
            return ask(client, "CLIENT", "INFO")

    theirs, ours = fields(line(oracle)), fields(line(server))
    assert [name for name in ours if name in theirs] == list(theirs)
    for name in ("name", "flags", "db", "sub", "psub", "ssub", "multi", "events", "cmd", "user", "redir", "resp"):
        assert ours[name] == theirs[name], name


@pytest.mark.skipif(is_redis(DUNLIN), reason="newer than this Redis")
def test_clients_see_each_other(server):
    with server.connect(unix=True) as one, server.connect() as other:
        eventually(lambda: len(ask(other, "CLIENT", "LIST").splitlines()) == 2, "clients of former tests have gone")
        for words in (["SETNAME", "one"], ["SETINFO", "LIB-NAME", "library"], ["NO-TOUCH", "on"], ["NO-EVICT", "on"]):
            assert ask(one, "CLIENT", *words) == b"+OK"
        assert ask(one, "CLIENT", "CAPA", "redirect") == b"+OK"
        assert ask(one, "SELECT", 7) == b"+OK"
        number = ask(one, "CLIENT", "ID")[1:].decode()
        for words in (
            ["ID", number], ["ID", 99999, number], ["NAME", "one"], ["LIB-NAME", "library"], ["DB", 7], ["FLAGS", "UT"],
            ["CAPA", "r"], ["ADDR", f"{server.socket}:0"], ["NOT-DB", 0], ["SKIPME", "yes", "NOT-FLAGS", "N", "DB", "7"],
        ):
            lines = ask(other, "CLIENT", "LIST", *words).splitlines()
            assert [fields(line)["id"] for line in lines] == [number], words
        seen = fields(lines[0])
        assert seen["cmd"] == "client|id" and seen["flags"] == "UeT" and seen["capa"] == "r"
        assert seen["tot-cmds"] == "7" and int(seen["tot-net-in"]) > 100
        for words in (["NOT-ID", number], ["NOT-NAME", "one"], ["TYPE", "pubsub"], ["IP", "127.0.0.1"], ["IDLE", 1000]):
            lines = ask(other, "CLIENT", "LIST", *words).splitlines()
            assert number not in [fields(line)["id"] for line in lines], words
        assert ask(one, "RESET") == b"+RESET"
        seen = fields(ask(other, "CLIENT", "LIST", "ID", number))
        assert (seen["name"], seen["db"], seen["flags"], seen["lib-name"]) == ("", "0", "U", "library")


def test_killed_clients_are_gone(server):
    with server.connect() as killer:
        victims = [server.connect() for _ in range(20)]
        numbers = [ask(victim, "CLIENT", "ID")[1:] for victim in victims]
        for victim, number in zip(victims[:10], numbers):
            assert ask(killer, "CLIENT", "KILL", "ID", number) == b":1"
            assert ask(killer, "CLIENT", "KILL", "ID", number) == b":0", "listed no more at once"
        for victim in victims[10:]:
            host, port = victim.getsockname()
            assert ask(killer, "CLIENT", "KILL", f"{host}:{port}") == b"+OK"
        for victim in victims:
            assert rest(victim) == (b"", True)
            victim.close()
        listed = {fields(line)["id"].encode() for line in ask(killer, "CLIENT", "LIST").splitlines()}
        assert not listed & set(numbers)


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis waits for a reply that it does not send")
def test_quit_closes_without_replies_too(server):
    assert talk(server, ["CLIENT REPLY OFF", "ECHO a"]) == b""


def test_client_kill_of_itself_is_answered_first(server):
    with server.connect() as client:
        number = ask(client, "CLIENT", "ID")[1:]
        kill = command("CLIENT", "KILL", "ID", number, "SKIPME", "no")
        client.sendall(command("PING") + kill + command("PING"))
        assert rest(client) == (b"+PONG\r\n:1\r\n", True)


def test_kill_in_the_middle_of_a_large_reply(server):
    """A client that does not read holds nothing up, and goes when it is killed."""
    size = 8 << 20
    with server.connect() as killer, server.connect() as victim:
        number = ask(victim, "CLIENT", "ID")[1:]
        assert ask(killer, "SET", "big", b"x" * size) == b"+OK"
        victim.sendall(command("GET", "big") * 20)
        # The reply has begun, and cannot end while the client does not read.
        assert exactly(victim, 1) == b"$"
        assert ask(killer, "CLIENT", "KILL", "ID", number) == b":1"
        got, closed = rest(victim)
        assert closed and len(got) < 20 * size
        assert ask(killer, "DEL", "big") == b":1"


def test_client_kill_by_many_kills_each_once(server):
    """Every client is killed once, however many want to."""
    clients = [server.connect() for _ in range(40)]
    numbers = [ask(client, "CLIENT", "ID")[1:] for client in clients]
    killers = [server.connect() for _ in range(4)]
    counts = []

    def kill(killer):
        killer.sendall(b"".join(command("CLIENT", "KILL", "ID", number) for number in numbers))
        counts.append(exactly(killer, 4 * len(numbers)).count(b":1"))

    threads = [threading.Thread(target=kill, args=(killer,)) for killer in killers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) >= len(numbers)
    for client in clients:
        assert rest(client) == (b"", True)
    for client in clients + killers:
        client.close()


def test_requirepass_set_and_removed_while_clients_are_connected(server, oracle):
    """A client that is in stays in; one that came while there was a password is let in when there
    is none."""

    def scenario(which):
        told = []
        with which.connect() as boss, which.connect() as old:

            def require(password):
                assert ask(boss, "CONFIG", "SET", "requirepass", password) == b"+OK"

            told.append(ask(old, "PING"))
            require("one")
            try:
                with which.connect() as new, which.connect() as stranger:
                    told += [ask(old, "PING"), ask(new, "PING"), ask(new, "AUTH", "two"), ask(new, "AUTH", "one")]
                    told += [ask(new, "PING"), ask(stranger, "PING")]
                    require("")
                    told += [ask(stranger, "PING"), ask(stranger, "AUTH", "one"), ask(stranger, "AUTH", "default", "x")]
                    require("two")
                    told += [ask(new, "PING"), ask(stranger, "PING"), ask(old, "RESET"), ask(old, "PING")]
                    told += [ask(old, "AUTH", "one"), ask(old, "AUTH", "two"), ask(old, "PING")]
            finally:
                require("")
        return told

    assert scenario(server) == scenario(oracle)


def test_password_and_auth_in_one_pipeline(server):
    """A command sees the value that the one before it has set."""
    with server.connect() as client:
        stream = [("CONFIG", "SET", "requirepass", "one"), ("AUTH", "two"), ("AUTH", "one"), ("RESET",), ("PING",)]
        stream += [("AUTH", "one"), ("CONFIG", "SET", "requirepass", ""), ("RESET",), ("PING",)]
        client.sendall(b"".join(command(*words) for words in stream))
        expected = b"+OK\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n+OK\r\n+RESET\r\n"
        expected += b"-NOAUTH Authentication required.\r\n+OK\r\n+OK\r\n+RESET\r\n+PONG\r\n"
        assert exactly(client, len(expected)) == expected
