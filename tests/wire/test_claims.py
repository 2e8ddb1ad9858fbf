"""XREADGROUP's CLAIM over connections: deliveries come of age while consumers wait, and the log keeps their
consumers.

Neither redis-server 7.0 nor Valkey has it: the replies are a table here.
"""

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import eventually

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has it from 8.4 on")


@pytest.fixture
def stream(server):
    """A stream with a group, and a client that watches."""
    with Peer(server) as boss:
        boss.line("DEL s other")
        assert boss.line("XGROUP CREATE s g 0 MKSTREAM") == "OK"
        yield boss


def wait(boss, client, line):
    number = client.line("CLIENT ID")
    client.send(*line.split(" "))
    eventually(lambda: " flags=b " in boss.line(f"CLIENT LIST ID {number}"), f"{line} waits")


@pytest.mark.parametrize("protocol", [2, 3])
def test_xreadgroup_claim_takes_a_delivery_that_comes_of_age(server, stream, protocol):
    with Peer(server, protocol) as bob:
        stream.line("XADD s 1 a 1")
        stream.line("XREADGROUP GROUP g ann STREAMS s >")
        # Not `wait`: on a busy machine the second may be over when he comes.
        bob.send(*"XREADGROUP GROUP g bob BLOCK 0 CLAIM 1000 STREAMS s >".split(" "))
        (key, [[entry, fields, idle, deliveries]]), = dict(bob.read()).items()
        assert (key, entry, fields, deliveries) == ("s", "1-0", ["a", "1"], 1)
        assert idle >= 1000
        assert stream.line("XPENDING s g - + 9")[0][1::2] == ["bob", 2]


def test_xreadgroup_claim_gives_two_waiting_clients_the_entry_in_turn(server, stream):
    with Peer(server) as ann, Peer(server) as bob:
        wait(stream, ann, "XREADGROUP GROUP g ann BLOCK 0 CLAIM 50 STREAMS s >")
        wait(stream, bob, "XREADGROUP GROUP g bob BLOCK 0 CLAIM 50 STREAMS s >")
        stream.line("XADD s 1 a 1")
        assert ann.read() == [["s", [["1-0", ["a", "1"], 0, 0]]]]
        [[_, [[entry, _, idle, deliveries]]]] = bob.read()
        assert (entry, deliveries) == ("1-0", 1) and idle >= 50


def test_xreadgroup_claim_takes_a_delivery_that_is_made_older_at_once(server, stream):
    with Peer(server) as bob:
        stream.line("XADD s 1 a 1")
        stream.line("XREADGROUP GROUP g ann STREAMS s >")
        wait(stream, bob, "XREADGROUP GROUP g bob BLOCK 0 CLAIM 600000 STREAMS s >")
        stream.line("XCLAIM s g ann 0 1 IDLE 600000 JUSTID")
        [[_, [[entry, _, idle, deliveries]]]] = bob.read()
        assert (entry, deliveries) == ("1-0", 1) and idle >= 600000


def test_xreadgroup_claim_times_out_while_deliveries_are_young(server, stream):
    with Peer(server) as bob:
        stream.line("XADD s 1 a 1")
        stream.line("XREADGROUP GROUP g ann STREAMS s >")
        assert bob.line("XREADGROUP GROUP g bob BLOCK 30 CLAIM 600000 STREAMS s >") is None
        assert bob.line("XREADGROUP GROUP g bob CLAIM 600000 STREAMS s >") is None


def test_xreadgroup_claim_of_several_streams_and_in_transactions(server, stream):
    stream.line("XGROUP CREATE other g 0 MKSTREAM")
    for key in ("s", "other"):
        stream.line(f"XADD {key} 1 a 1")
        stream.line(f"XADD {key} 2 b 2")
    stream.line("XREADGROUP GROUP g ann COUNT 1 STREAMS s other > >")
    stream.line("XCLAIM s g ann 0 1 IDLE 600000 JUSTID")
    for line in (
        "MULTI",
        "XREADGROUP GROUP g bob CLAIM 600000 STREAMS s other > >",
        "XREADGROUP GROUP g bob BLOCK 0 CLAIM 600000 STREAMS s >",
    ):
        stream.line(line)
    [[[first, claimed], [second, new]], nothing] = stream.line("EXEC")
    assert (first, second, nothing) == ("s", "other", None), "nobody waits in a transaction"
    assert [entry[0] for entry in claimed] == ["1-0", "2-0"] and claimed[0][2] >= 600000 and claimed[0][3] == 1
    assert new == [["2-0", ["b", "2"], 0, 0]]


def test_mistakes(server, stream):
    stream.line("XADD s 1 a 1")
    for words, error in [
        ("XREADGROUP GROUP g ann CLAIM 1.5 STREAMS s >", "ERR min-idle-time is not an integer"),
        ("XREADGROUP GROUP g ann CLAIM -1 STREAMS s >", "ERR min-idle-time must be a positive integer"),
        ("XREADGROUP GROUP g ann CLAIM", "ERR wrong number of arguments for 'xreadgroup' command"),
        ("XREAD CLAIM 1 STREAMS s 0", "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead."),
    ]:
        reply = stream.line(words)
        assert isinstance(reply, Failure) and reply == error, words


def test_xreadgroup_claim_is_kept_in_the_log():
    log = ("--appendonly", "yes", "--appendfsync", "always")
    with Server(*log) as server, Peer(server) as client:
        for line in (
            "XGROUP CREATE s g 0 MKSTREAM",
            "XADD s 1 a 1",
            "XADD s 2 b 2",
            "XADD s 3 c 3",
            "XREADGROUP GROUP g ann COUNT 2 STREAMS s >",
            "XCLAIM s g ann 0 1 IDLE 600000 JUSTID",
            "XREADGROUP GROUP g bob COUNT 1 CLAIM 600000 STREAMS s >",
            "XREADGROUP GROUP g cyd NOACK CLAIM 600000 STREAMS s >",
        ):
            assert not isinstance(client.line(line), Failure), line
        # Times are reported as they were, whole.
        told = [client.line("XINFO GROUPS s"), [entry[:2] + entry[3:] for entry in client.line("XPENDING s g - + 9")]]
        server.process.kill()
        server.process.wait()
        with Server(*log, files=server.folder) as again, Peer(again) as reader:
            found = [reader.line("XINFO GROUPS s"), [entry[:2] + entry[3:] for entry in reader.line("XPENDING s g - + 9")]]
        # It has ended already.
        server.stop = server.kill
        assert found == told
        assert told[1] == [["1-0", "bob", 2], ["2-0", "ann", 1]]
