"""Scripts that run for long: the replies to other clients meanwhile, and how such a script ends.

The tests with one thread expect the behaviour of Redis 7.0; `DUNLIN=redis-server` passes these tests, but for
those that say otherwise. Of four clients two are on the worker that runs the script where there are two workers.
"""

import contextlib
import signal
import time

import pytest

from harness import DUNLIN, Server, is_redis
from wire import Session, command

BUSY = "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
LOOP = "redis.call('get', KEYS[1]) while true do end"
# It reaches a key that it has not declared: no other client gets at any key meanwhile.
LOOP_ALONE = "redis.call('get', 'k') while true do end"
WRITING_LOOP = "redis.call('set', KEYS[1], 'begun') while true do end"
THREADS = [1] if is_redis(DUNLIN) else [1, 2]
# A server that does not end fails the test; one on a busy machine may take its time.
END_MAX_S = 120


def await_reply(answer, *words, session):
    """Asks until that is the answer."""
    deadline = time.monotonic() + 60
    while True:
        got = session(*words)
        if isinstance(got, str) and got.startswith(answer):
            return got
        assert time.monotonic() < deadline, f"{words}: {got}"


@contextlib.contextmanager
def served(threads, *directives, clients=4):
    """A server, and clients spread over its workers."""
    count = [] if is_redis(DUNLIN) else ["--threads", threads]
    with Server("--busy-reply-threshold", "50", *count, *directives) as server:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(Session(server))
            # Newcomers go to the worker with fewer clients: the client of the readiness check has to be gone, and
            # all others have to have arrived.
            while b"connected_clients:1\r\n" not in first("INFO", "clients"):
                pass
            others = [stack.enter_context(Session(server)) for _ in range(clients - 1)]
            assert {other("PING") for other in others} == {"PONG"}
            yield server, [first, *others]


@contextlib.contextmanager
def held_up(threads, *words, directives=(), before=lambda *_: None):
    """A server at work on a command that takes long, the client that has sent it, and three that get BUSY."""
    with served(threads, *directives) as (server, (slow, *others)):
        before(slow, *others)
        slow.send(*words)
        for other in others:
            await_reply("-BUSY", "GET", "k", session=other)
        yield server, slow, others


def end(slow, other):
    assert other("SCRIPT", "KILL") == "OK"
    assert slow.read().startswith("-ERR Script killed by user with SCRIPT KILL.")
    await_reply("-NOTBUSY", "SCRIPT", "KILL", session=other)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("script, keys", [(LOOP, ("1", "k")), (LOOP_ALONE, ("0",))])
def test_slow_script_holds_up_no_client_and_any_client_can_end_it(threads, script, keys):
    for killer in range(3):
        with held_up(threads, "EVAL", script, *keys) as (_, slow, others):
            for other in others:
                assert other("GET", "k") == other("SET", "k", 1) == other("EVAL", LOOP, 1, "k") == BUSY
            end(slow, others[killer])
            for other in others:
                assert other("SET", "k", "v") == "OK"


@pytest.mark.parametrize("threads", THREADS)
def test_slow_script_lets_through_what_ends_it_or_begins_a_conversation(threads):
    with held_up(threads, "EVAL", LOOP_ALONE, 0) as (server, slow, others):
        for other in others:
            for refused in ["PING", "INFO", "CLIENT LIST", "SUBSCRIBE c", "FLUSHALL", "KEYS *", "SAVE", "SELECT 1"]:
                assert other(*refused.split()) == BUSY, refused
            assert other("SHUTDOWN") == other("SHUTDOWN", "SAVE") == BUSY
            assert other("NONSENSE").startswith("-ERR unknown command")
            assert other("GET").startswith("-ERR wrong number")
            assert other("FUNCTION", "KILL") == BUSY
            assert other("HELLO", 2)[:2] == [b"server", b"redis"]
            assert other("AUTH", "x").startswith("-ERR AUTH <password> called without any password")
            assert other("RESET") == "RESET"
            assert other("MULTI") == "OK"
            assert other("DISCARD") == "OK"
            assert other("UNWATCH") == "OK"
        assert others[0]("QUIT") == "OK"
        assert others[0].file.read() == b""
        end(slow, others[1])


@pytest.mark.parametrize("threads", THREADS)
def test_transactions_are_spoiled(threads):
    aborted = "-EXECABORT Transaction discarded because of: " + BUSY[1:]

    def queue(slow, first, second, third):
        assert first("MULTI") == "OK"
        assert first("SET", "k", 1) == "QUEUED"
        assert second("WATCH", "k") == "OK"
        assert second("MULTI") == "OK"

    with held_up(threads, "EVAL", LOOP_ALONE, 0, before=queue) as (_, slow, others):
        first, second, third = others
        for other in others[:2]:
            assert other("EXEC") == aborted
        assert third("MULTI") == "OK"
        assert third("GET", "k") == BUSY
        end(slow, second)
        assert third("EXEC") == "-EXECABORT Transaction discarded because of previous errors."
        for other in others:
            assert other("EXEC") == "-ERR EXEC without MULTI"
        # Nothing that was watched before is left.
        assert first("SET", "k", 2) == "OK"
        assert second("WATCH", "other") == "OK"
        assert second("MULTI") == "OK"
        assert second("GET", "k") == "QUEUED"
        assert first("SET", "k", 3) == "OK"
        assert second("EXEC") == [b"3"]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("ending", ["DISCARD", "UNWATCH", "RESET"])
def test_watch_can_be_ended_during_a_slow_script_and_begun_afterwards(threads, ending):
    def watch(slow, first, *_):
        assert first("WATCH", "k") == "OK"
        if ending == "DISCARD":
            assert first("MULTI") == "OK"

    # Within MULTI another worker would go on queueing while it only holds a shard.
    script = LOOP_ALONE if ending == "DISCARD" else LOOP
    with held_up(threads, "EVAL", script, 1, "k", before=watch) as (_, slow, (first, second, _)):
        assert first(ending) in ("OK", "RESET")
        end(slow, second)
        await_reply("OK", "WATCH", "k", session=first)
        assert second("SET", "k", 1) == "OK"
        assert first("MULTI") == "OK"
        assert first("GET", "k") == "QUEUED"
        assert first("EXEC") is None


@pytest.mark.parametrize("threads", THREADS)
def test_pipelines_and_requests_in_pieces_are_answered_in_order(threads):
    with held_up(threads, "EVAL", LOOP_ALONE, 0) as (_, slow, (first, second, third)):
        first.socket.sendall(command("GET", "k") * 1000 + command("HELLO") + command("GET", "k"))
        assert [first.read() for _ in range(1000)] == [BUSY] * 1000
        assert first.read()[:2] == [b"server", b"redis"]
        assert first.read() == BUSY
        # A reply to another client is a sign that the pieces have been looked at.
        for piece in (b"*2\r\n$3\r\nGET\r\n$", b"1\r\nk", b"\r\n*1\r\n$4\r\nPI"):
            second.socket.sendall(piece)
            assert third("GET", "k") == BUSY
        assert second.read() == BUSY
        second.socket.sendall(b"NG\r\n")
        assert second.read() == BUSY
        second.socket.sendall(b"*2\r\n$3\r\nGET\r\n$")
        assert third("GET", "k") == BUSY
        end(slow, third)
        second.socket.sendall(b"1\r\nk\r\n")
        assert second.read() is None


@pytest.mark.parametrize("threads", THREADS)
def test_request_too_long_for_one_read_arrives_during_a_slow_script(threads):
    with held_up(threads, "EVAL", LOOP_ALONE, 0) as (_, slow, (first, second, _)):
        first.send("SET", "k", b"x" * 4_000_000)
        assert first.read() == BUSY
        end(slow, second)
        assert first("GET", "k") is None


@pytest.mark.parametrize("threads", THREADS)
def test_pipeline_behind_a_slow_script_is_run_after_it(threads):
    with served(threads) as (_, (slow, other, *_)):
        behind = command("SET", "behind", "v") + command("GET", "behind")
        slow.socket.sendall(command("EVAL", LOOP, 1, "k") + behind)
        await_reply("-BUSY", "GET", "k", session=other)
        slow.send("GET", "k")
        assert other("GET", "k") == BUSY
        end(slow, other)
        assert [slow.read() for _ in range(3)] == ["OK", b"v", None]


@pytest.mark.parametrize("threads", THREADS)
def test_newcomers_are_let_in_and_who_hangs_up_makes_room(threads):
    with served(threads, "--maxclients", 8) as (server, (slow, other, *_)):
        slow.send("EVAL", LOOP_ALONE, 0)
        await_reply("-BUSY", "GET", "k", session=other)
        for _ in range(40):
            with Session(server) as newcomer:
                answer = newcomer("GET", "k")
                assert answer == BUSY or answer == "-ERR max number of clients reached"
        answers = set()
        while BUSY not in answers:
            with Session(server) as newcomer:
                answers.add(newcomer("GET", "k"))
        end(slow, other)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("script", [LOOP, LOOP_ALONE])
def test_client_that_watched_or_waited_can_hang_up_during_a_slow_script(threads, script):
    def wait(slow, first, second, third):
        assert first("WATCH", "k", "watched") == "OK"
        second.send("BLPOP", "k", "list", 0)
        while b"blocked_clients:1\r\n" not in third("INFO", "clients"):
            pass

    with served(threads, clients=6) as (server, (slow, first, second, third, fourth, fifth)):
        wait(slow, first, second, third)
        slow.send("EVAL", script, 1, "k")
        for other in (third, fourth, fifth):
            await_reply("-BUSY", "GET", "k", session=other)
        first.hang_up()
        second.hang_up()
        for _ in range(3):
            for other in (third, fourth, fifth):
                assert other("GET", "k") == BUSY
        end(slow, third)
        # No client takes it.
        assert third("RPUSH", "k", "element") == third("RPUSH", "list", "element") == 1
        assert fourth("LRANGE", "k", 0, -1) == fourth("LRANGE", "list", 0, -1) == [b"element"]


@pytest.mark.parametrize("threads", THREADS)
def test_client_of_a_slow_script_can_hang_up(threads):
    with held_up(threads, "EVAL", LOOP, 1, "k") as (server, slow, (first, *_)):
        slow.hang_up()
        assert first("GET", "k") == BUSY
        assert first("SCRIPT", "KILL") == "OK"
        await_reply("-NOTBUSY", "SCRIPT", "KILL", session=first)
        while b"connected_clients:3\r\n" not in first("INFO", "clients"):
            pass


LIBRARY = """#!lua name=slow
redis.register_function('loop', function(keys) while true do end end)"""


@pytest.mark.parametrize("threads", THREADS)
def test_slow_function_has_an_end_of_its_own(threads):
    def load(slow, *_):
        assert slow("FUNCTION", "LOAD", LIBRARY) == b"slow"

    busy = "-BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
    with held_up(threads, "FCALL", "loop", 1, "k", before=load) as (_, slow, others):
        for other in others:
            assert other("GET", "k") == other("SCRIPT", "KILL") == busy
            stats = other("FUNCTION", "STATS")
            assert stats[0] == b"running_script"
            assert stats[1][:4] == [b"name", b"loop", b"command", [b"FCALL", b"loop", b"1", b"k"]]
        assert others[2]("FUNCTION", "KILL") == "OK"
        assert slow.read().startswith("-ERR Script killed by user with SCRIPT KILL.")
        await_reply("-NOTBUSY", "FUNCTION", "KILL", session=others[0])
        assert slow("FUNCTION", "STATS")[1] is None


@pytest.mark.parametrize("threads", THREADS)
def test_slow_script_in_a_transaction_can_be_ended(threads):
    with served(threads) as (_, (slow, other, *_)):
        slow.socket.sendall(
            command("MULTI") + command("SET", "k", 1) + command("EVAL", LOOP_ALONE, 0)
            + command("GET", "k") + command("EXEC")
        )
        await_reply("-BUSY", "GET", "k", session=other)
        assert other("SCRIPT", "KILL") == "OK"
        assert [slow.read() for _ in range(4)] == ["OK", "QUEUED", "QUEUED", "QUEUED"]
        first, killed, last = slow.read()
        assert (first, last) == ("OK", b"1") and killed.startswith("-ERR Script killed by user")


@pytest.mark.parametrize("threads", THREADS)
def test_script_that_has_written_is_not_ended(threads):
    script = "redis.call('set', KEYS[1], 'begun') while redis.call('time')[1] < ARGV[1] do end return 'done'"
    with served(threads) as (_, (slow, *others)):
        # The others ask meanwhile; nothing ends the script before its time.
        end_s = int(slow("TIME")[0]) + 8
        slow.send("EVAL", script, 1, "k", end_s)
        for other in others:
            await_reply("-BUSY", "GET", "k", session=other)
            assert other("SCRIPT", "KILL").startswith("-UNKILLABLE")
        assert slow.read() == b"done"
        assert others[0]("GET", "k") == b"begun"


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis stands still")
def test_slow_script_holds_up_only_what_it_has_locked():
    with served(2) as (_, (slow, *others)):
        slow.send("EVAL", LOOP, 1, "k")
        for other in others:
            await_reply("-BUSY", "GET", "k", session=other)
        # Two of four are on the worker that has nothing to do with it.
        served_ones = [other for other in others if other("PING") == "PONG"]
        assert len(served_ones) == 2
        for other in served_ones:
            answers = {str(other("SET", f"other:{n}", n)) for n in range(100)}
            assert "OK" in answers
            assert other("EVAL", "return redis.call('get', KEYS[1])", 1, "k") == BUSY
            assert other("FLUSHALL") == other("KEYS", "*") == other("WATCH", "k") == other("SHUTDOWN") == BUSY
        end(slow, others[0])


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis stands still")
def test_blmove_writer_does_not_wait_for_a_script_on_the_destination():
    with served(2, clients=8) as (_, (slow, *others)):
        waiters = {f"source:{n}": other for n, other in enumerate(others[:3])}
        for source, waiter in waiters.items():
            waiter.send("BLMOVE", source, "k", "LEFT", "RIGHT", 0)
        others = others[3:]
        while b"blocked_clients:3\r\n" not in others[0]("INFO", "clients"):
            pass
        slow.send("EVAL", LOOP, 1, "k")
        for other in others:
            await_reply("-BUSY", "GET", "k", session=other)
        pusher = next(other for other in others if other("PING") == "PONG")
        # One may be in the shard that the script has locked.
        ready = [source for source in waiters if pusher("RPUSH", source, "first", "second") == 2]
        assert ready
        for source in ready:
            # It has not overtaken the client that waits, and nothing is lost.
            assert pusher("BLPOP", source, 0.001) is None
            assert pusher("LRANGE", source, 0, -1) == [b"first", b"second"]
        end(slow, others[0])
        for source in ready:
            assert waiters[source].read() == b"first"
            assert pusher("LRANGE", source, 0, -1) == [b"second"]
        assert pusher("LRANGE", "k", 0, -1) == [b"first"] * len(ready)


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis stands still")
def test_messages_reach_subscribers_meanwhile_and_the_scripts_client_afterwards():
    with served(2, clients=6) as (_, (slow, *others)):
        slow("HELLO", 3)
        assert slow("SUBSCRIBE", "c") == [b"subscribe", b"c", 1]
        for other in others[:3]:
            assert other("SUBSCRIBE", "c") == [b"subscribe", b"c", 1]
        slow.send("EVAL", LOOP, 1, "k")
        for other in others[3:]:
            await_reply("-BUSY", "GET", "k", session=other)
        publishers = [other for other in others[3:] if other("PING") == "PONG"]
        assert publishers
        for number in range(10):
            assert publishers[0]("PUBLISH", "c", number) == 4
        assert publishers[0]("SCRIPT", "KILL") == "OK"
        killed = slow.read()
        assert killed.startswith("-ERR Script killed")
        for other in (slow, *others[:3]):
            assert [other.read() for _ in range(10)] == [[b"message", b"c", b"%d" % n] for n in range(10)]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("script", [LOOP, LOOP_ALONE, WRITING_LOOP])
def test_shutdown_nosave_ends_the_server_and_leaves_nothing_half_done(threads, script):
    directives = ["--appendonly", "yes", "--appendfsync", "always"]
    with held_up(threads, "EVAL", script, 1, "k", directives=directives, before=write) as (server, slow, others):
        others[0].send("SHUTDOWN", "NOSAVE")
        assert server.process.wait(END_MAX_S) == 0
        assert slow.file.read(7) in (b"", b"-ERR Sc")
        with Server(*directives, files=server.folder) as again, Session(again) as client:
            assert client("GET", "k") == b"before"


def write(slow, *_):
    assert slow("SET", "k", "before") == "OK"


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis waits for the script")
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("script", [LOOP, LOOP_ALONE, WRITING_LOOP])
def test_sigterm_ends_the_server(threads, script):
    directives = ["--appendonly", "yes"]
    with held_up(threads, "EVAL", script, 1, "k", directives=directives, before=write) as (server, slow, others):
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(END_MAX_S) == 0
        with Server(*directives, files=server.folder) as again, Session(again) as client:
            assert client("GET", "k") == b"before"


@contextlib.contextmanager
def stopping(threads, script, clients):
    """A server that was sent SIGTERM while a script runs, for which the last snapshot waits; and the script's client. The
    worker of the script may have no other client."""
    count = [] if is_redis(DUNLIN) else ["--threads", threads]
    with Server("--busy-reply-threshold", "50", "--save", "900 1", *count) as server, contextlib.ExitStack() as stack:
        slow, *_ = [stack.enter_context(Session(server)) for _ in range(clients)]
        assert slow("SET", "k", "before") == "OK"
        slow.send("EVAL", script, 1, "k")
        with Session(server) as other:
            await_reply("-BUSY", "GET", "k", session=other)
        server.process.send_signal(signal.SIGTERM)
        while "SIGTERM" not in server.log():
            pass
        yield server, slow


def saved(server):
    """Whether a snapshot was written, and nothing else that an end in the middle of one would leave."""
    names = [path.name for path in server.folder.iterdir()]
    assert not [name for name in names if name.startswith("temp")]
    return "dump.rdb" in names


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("script", [LOOP, LOOP_ALONE])
def test_sigterm_that_waits_for_a_script_keeps_nobody_from_ending_it(threads, clients, script):
    with stopping(threads, script, clients) as (server, slow):
        # Enough of them to meet every moment of the server's end.
        for _ in range(100):
            with Session(server) as newcomer:
                assert newcomer("GET", "k") == BUSY
        with Session(server) as newcomer:
            newcomer.send("SCRIPT", "KILL")
            # Redis may end before it has answered.
            assert newcomer.file.readline() == b"+OK\r\n" or is_redis(DUNLIN)
        assert server.process.wait(END_MAX_S) == 0
        assert saved(server)
        with Server(files=server.folder) as again, Session(again) as client:
            assert client("GET", "k") == b"before"


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("script", [LOOP, LOOP_ALONE, WRITING_LOOP])
def test_sigterm_that_waits_for_a_script_can_be_made_a_shutdown_nosave(threads, clients, script):
    with stopping(threads, script, clients) as (server, slow):
        with Session(server) as newcomer:
            assert newcomer("GET", "k") == BUSY
            newcomer.send("SHUTDOWN", "NOSAVE")
            assert server.process.wait(END_MAX_S) == 0
        assert not saved(server)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("line", ["SAVE", "BGSAVE", "DEBUG RELOAD", "SHUTDOWN"])
def test_exclusive_command_does_not_wait_for_a_slow_script(threads, line):
    directives = ["--enable-debug-command", "yes", "--save", "900 1"]
    with held_up(threads, "EVAL", LOOP, 1, "k", directives=directives) as (_, slow, others):
        for other in others:
            assert other(*line.split()) == BUSY
        end(slow, others[0])


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis stands still")
def test_clients_of_the_held_up_worker_can_be_killed():
    with served(2) as (_, (slow, *others)):
        slow.send("EVAL", LOOP, 1, "k")
        for other in others:
            await_reply("-BUSY", "GET", "k", session=other)
        free = [other for other in others if other("PING") == "PONG"]
        (victim,) = [other for other in others if other not in free]
        ids = {line.split(b" ")[0] for line in free[0]("CLIENT", "LIST").splitlines()}
        mine = {b"id=%d" % other("CLIENT", "ID") for other in free}
        for name in ids - mine:
            assert free[0]("CLIENT", "KILL", "ID", name.split(b"=")[1]) == 1
        assert victim.file.read() == b""
        # The script's own client is gone as far as others can see, and its script runs on.
        assert free[1]("GET", "k") == BUSY
        assert free[0]("SCRIPT", "KILL") == "OK"
        # It closes at the latest behind the reply that was due.
        assert slow.file.read().count(b"\r\n") <= 1
        await_reply("-NOTBUSY", "SCRIPT", "KILL", session=free[1])


@pytest.mark.parametrize("words", [("CLIENT", "PAUSE", 1, "WRITE"), ("CLIENT", "TRACKING", "ON", "BCAST")])
def test_client_waiting_for_a_slow_script_holds_up_no_others(words):
    with served(2, "--busy-reply-threshold", "1000") as (_, clients):
        first, second, _, other = clients
        first.send("EVAL", LOOP, 1, "k")
        # On the other worker, before the script is slow.
        second.send(*words)
        await_reply("OK", "SCRIPT", "KILL", session=other)
        assert first.read().startswith("-ERR")
        assert second.read().startswith(("OK", "-BUSY"))
        assert second("PING") == "PONG"
