"""Publish and subscribe: confirmations, the order of messages, and the commands that a listener may
send."""

import random
import threading

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer, Push
from wire import eventually

ONLY_DUNLIN = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has one thread, or does otherwise")


@pytest.fixture(autouse=True)
def nobody_listens(server):
    """Listeners of the test before, which have hung up, are counted no more."""
    with Peer(server) as asker:

        def is_so():
            info = asker.line("INFO stats")
            left = [f"pubsub{what}:0" for what in ("_channels", "_patterns", "shard_channels")]
            return all(line in info for line in left) and not asker.line("CLIENT LIST TYPE pubsub")

        eventually(is_so, "the listeners of before have gone")


def test_confirmations_count_channels_and_patterns_together(server):
    with Peer(server) as peer:
        peer.send_all("SUBSCRIBE a a b", "PSUBSCRIBE p*", "SSUBSCRIBE a", "UNSUBSCRIBE b", "PUNSUBSCRIBE", "SUNSUBSCRIBE")
        expected = [
            ["subscribe", "a", 1],
            ["subscribe", "a", 1],
            ["subscribe", "b", 2],
            ["psubscribe", "p*", 3],
            ["ssubscribe", "a", 1],
            ["unsubscribe", "b", 2],
            ["punsubscribe", "p*", 1],
            ["sunsubscribe", "a", 0],
        ]
        assert [peer.read() for _ in expected] == expected
        assert peer.line("UNSUBSCRIBE") == ["unsubscribe", "a", 0]
        for name in ["unsubscribe", "punsubscribe", "sunsubscribe"]:
            assert peer.line(name.upper()) == [name, None, 0], "there is nothing to leave"
        assert peer.line("UNSUBSCRIBE x") == ["unsubscribe", "x", 0]
        assert peer.line("PING") == "PONG", "it is an ordinary client again"


@pytest.mark.parametrize("protocol", [2, 3])
def test_publish_reaches_channels_patterns_and_shard_channels(server, protocol):
    with Peer(server, protocol) as peer, Peer(server) as publisher:
        peer.send_all("SUBSCRIBE news", "PSUBSCRIBE n?ws", "PSUBSCRIBE *", "SSUBSCRIBE news")
        confirmations = [peer.read() for _ in range(4)]
        kind = Push if protocol == 3 else list
        assert {type(confirmation) for confirmation in confirmations} == {kind}
        assert publisher.ask("PUBLISH", "news", "one") == 3
        got = [peer.read() for _ in range(3)]
        assert {type(message) for message in got} == {kind}
        assert sorted(got) == [
            ["message", "news", "one"],
            ["pmessage", "*", "news", "one"],
            ["pmessage", "n?ws", "news", "one"],
        ]
        assert publisher.ask("SPUBLISH", "news", "two") == 1
        assert peer.read() == ["smessage", "news", "two"]
        assert publisher.ask("PUBLISH", "nobody", "") == 1
        assert peer.read() == ["pmessage", "*", "nobody", ""]
        assert publisher.ask("SPUBLISH", "nobody", "") == 0


@pytest.mark.parametrize("size", [0, 1, 16 * 1024 - 1, 16 * 1024, 1 << 20])
def test_messages_of_any_size_arrive_whole(server, size):
    payload = random.Random(size).randbytes(size)
    with Peer(server) as old, Peer(server, 3) as new, Peer(server) as publisher:
        old.line("SUBSCRIBE big")
        new.line("SUBSCRIBE big")
        publisher.send("PUBLISH", "big", payload)
        assert publisher.read() == 2
        for peer in (old, new):
            assert peer.read() == ["message", "big", payload.decode("latin1")]


def test_subscriber_in_resp2_may_do_little(server):
    with Peer(server) as peer:
        peer.line("SUBSCRIBE a")
        for line, name in [("GET k", "get"), ("CONFIG GET x", "config|get"), ("PUBLISH a b", "publish"), ("HELLO 3", "hello")]:
            assert peer.line(line) == Failure(
                f"ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
                "are allowed in this context"
            )
        assert peer.line("GET") == Failure("ERR wrong number of arguments for 'get' command")
        assert peer.line("PING") == ["pong", ""]
        assert peer.line("PING hi") == ["pong", "hi"]
        assert peer.line("RESET") == "RESET"
        assert peer.line("PING") == "PONG"
        peer.line("SSUBSCRIBE a")
        assert peer.line("QUIT") == "OK"
        assert peer.is_closed()


def test_subscriber_in_resp3_may_do_everything(server):
    with Peer(server, 3) as peer:
        assert peer.line("SUBSCRIBE a") == Push(["subscribe", "a", 1])
        assert peer.line("SET pubsub-key 1") == "OK"
        assert peer.line("DEL pubsub-key") == 1
        assert peer.line("PING") == "PONG"
        peer.line("HELLO 2")
        assert peer.line("PING") == ["pong", ""], "from here on it speaks RESP2"


def test_pushes_leave_whatever_replies_are_wanted(server):
    with Peer(server, 3) as peer, Peer(server) as publisher:
        peer.send_all("CLIENT REPLY OFF", "SUBSCRIBE quiet", "PING")
        assert peer.read() == ["subscribe", "quiet", 1]
        publisher.line("PUBLISH quiet 1")
        assert peer.read() == ["message", "quiet", "1"]
        peer.send_all("UNSUBSCRIBE", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "SUBSCRIBE quiet", "PING")
        assert [peer.read() for _ in range(4)] == [
            ["unsubscribe", "quiet", 0],
            "OK",
            ["subscribe", "quiet", 1],
            "PONG",
        ]


def test_subscriber_gets_only_what_follows_its_subscription(server):
    with Peer(server, 3) as peer:
        peer.send_all("PUBLISH self 0", "SUBSCRIBE self", "PUBLISH self 1", "UNSUBSCRIBE self", "PUBLISH self 2", "PING")
        got = [peer.read() for _ in range(7)]
        pushes = [reply for reply in got if isinstance(reply, Push)]
        assert pushes == [["subscribe", "self", 1], ["message", "self", "1"], ["unsubscribe", "self", 0]]
        assert [reply for reply in got if not isinstance(reply, Push)] == [0, 1, 0, "PONG"]


def test_subscriber_that_was_counted_gets_the_message_before_it_leaves(server):
    peers = [Peer(server) for _ in range(8)]
    with Peer(server) as publisher:
        for turn in range(200):
            for peer in peers:
                peer.send_all("SUBSCRIBE race")
                assert peer.read() == ["subscribe", "race", 1]
            assert publisher.ask("PUBLISH", "race", turn) == len(peers)
            for peer in peers:
                peer.send("UNSUBSCRIBE", "race")
            for peer in peers:
                assert peer.read() == ["message", "race", str(turn)]
                assert peer.read() == ["unsubscribe", "race", 0]
    for peer in peers:
        peer.close()


def test_subscribers_all_see_one_order(server):
    publishers, messages = 4, 2000
    listeners = [Peer(server, protocol) for protocol in (2, 3) * 4]
    for number, listener in enumerate(listeners):
        listener.line("SUBSCRIBE order" if number % 3 else "PSUBSCRIBE ord*")

    def publish(publisher):
        with Peer(server) as peer:
            for start in range(0, messages, 50):
                peer.send_all(*(f"PUBLISH order {publisher}:{number}" for number in range(start, start + 50)))
                assert [peer.read() for _ in range(50)] == [len(listeners)] * 50

    threads = [threading.Thread(target=publish, args=[publisher]) for publisher in range(publishers)]
    for thread in threads:
        thread.start()
    heard = [[listener.read()[-1] for _ in range(publishers * messages)] for listener in listeners]
    for thread in threads:
        thread.join()
    assert all(other == heard[0] for other in heard), "different orders"
    for publisher in range(publishers):
        own = [message for message in heard[0] if message.startswith(f"{publisher}:")]
        assert own == [f"{publisher}:{number}" for number in range(messages)]
    for listener in listeners:
        listener.close()


def test_pubsub_lists_what_is_subscribed_to(server):
    with Peer(server) as one, Peer(server) as other, Peer(server) as asker:
        one.line("SUBSCRIBE told")
        one.line("PSUBSCRIBE told*")
        other.line("SUBSCRIBE told")
        other.line("SSUBSCRIBE told-too")
        assert asker.line("PUBSUB CHANNELS told*") == ["told"]
        assert asker.line("PUBSUB CHANNELS nothing*") == []
        assert asker.line("PUBSUB NUMSUB told nothing") == ["told", 2, "nothing", 0]
        assert asker.line("PUBSUB NUMSUB") == []
        assert asker.line("PUBSUB NUMPAT") == 1
        assert asker.line("PUBSUB SHARDCHANNELS") == ["told-too"]
        assert asker.line("PUBSUB SHARDNUMSUB told-too told") == ["told-too", 1, "told", 0]
        lines = asker.line("CLIENT LIST TYPE pubsub").splitlines()
        fields = [dict(field.split("=", 1) for field in line.split(" ")) for line in lines]
        assert [(line["flags"], line["sub"], line["psub"]) for line in fields] == [("P", "1", "1"), ("P", "1", "0")]
        info = asker.line("INFO stats")
        for field in ["pubsub_channels:1", "pubsub_patterns:1", "pubsubshard_channels:1"]:
            assert field in info
        assert asker.line("PUBSUB CHANNELS a b") == Failure(
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP."
        )
    with Peer(server) as asker:
        told = lambda: (asker.line("PUBSUB CHANNELS told*"), asker.line("PUBSUB NUMPAT"))  # noqa: E731
        eventually(lambda: told() == ([], 0), "who has gone listens no more")
        assert asker.line("PUBLISH told x") == 0


def test_subscriber_that_does_not_read_is_closed():
    with Server("--client-output-buffer-limit", "pubsub 1mb 0 0") as server:
        with Peer(server) as slow, Peer(server) as reader, Peer(server) as publisher:
            slow.line("SUBSCRIBE flood")
            reader.line("SUBSCRIBE flood")
            payload = "x" * 10_000

            def flood():
                publisher.send_all(*[f"PUBLISH flood {payload}"] * 20)
                counts = [publisher.read() for _ in range(20)]
                for _ in counts:
                    assert reader.read() == ["message", "flood", payload]
                return counts[-1] == 1

            eventually(flood, "the slow one is gone")
            assert slow.is_closed()
            info = publisher.line("INFO stats")
            assert is_redis(DUNLIN) or "client_output_buffer_limit_disconnections:1" in info


@ONLY_DUNLIN
def test_publishers_wait_for_a_worker_that_is_behind():
    """Many listeners on few workers: a publisher does not get far ahead of them."""
    with Server("--threads", "2") as server:
        listeners = [Peer(server) for _ in range(50)]
        for listener in listeners:
            listener.line("SUBSCRIBE many")
        messages = 3000

        def publish():
            with Peer(server) as peer:
                peer.send_all(*(f"PUBLISH many {number:0500}" for number in range(messages)))
                assert [peer.read() for _ in range(messages)] == [len(listeners)] * messages

        threads = [threading.Thread(target=publish) for _ in range(2)]
        for thread in threads:
            thread.start()
        heard = [[listener.read()[2] for _ in range(2 * messages)] for listener in listeners]
        for thread in threads:
            thread.join()
        assert all(other == heard[0] for other in heard)
        for listener in listeners:
            listener.close()


def test_monitor_shows_commands_and_no_secrets(server):
    with Peer(server) as watcher, Peer(server) as peer:
        assert watcher.line("MONITOR") == "OK"
        address = "%s:%d" % peer.socket.getsockname()
        peer.send("SET", "k", b'a "\\\r\n\x00\xff')
        peer.send_all("SELECT 3", "HELLO 2 AUTH me secret", "AUTH secret", "CONFIG GET port", "NOSUCH", "GET", "PING")
        for _ in range(8):
            peer.read()
        got = [watcher.read() for _ in range(5)]
        texts = [line.split(" ", 1)[1] for line in got]
        assert texts == [
            f'[0 {address}] "SET" "k" "a \\"\\\\\\r\\n\\x00\\xff"',
            f'[3 {address}] "SELECT" "3"',
            f'[3 {address}] "HELLO" "2" "AUTH" "(redacted)" "(redacted)"',
            f'[3 {address}] "AUTH" "(redacted)"',
            f'[3 {address}] "PING"',
        ]
        times = [float(line.split(" ", 1)[0]) for line in got]
        assert times == sorted(times) and len(got[0].split(" ")[0].split(".")[1]) == 6
        assert watcher.line("GET k") == Failure("ERR Replica can't interact with the keyspace")
        assert " flags=O " in peer.line("CLIENT LIST")
        assert watcher.line("RESET") == "RESET"
        peer.line("PING")
        assert watcher.is_silent()
