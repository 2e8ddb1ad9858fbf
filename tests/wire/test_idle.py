"""An empty server that nobody uses wakes up seldom, and is at work at once when it is used again."""

import pathlib
import time

import pytest
import redis

from harness import DUNLIN, Server, is_redis
from wire import eventually

SECONDS = 5
# Four a second, and as many again for what the machine does to it.
WAKE_UPS_MAX = 2 * 4 * SECONDS


def wake_ups(server):
    """How often threads of a server have slept so far."""
    count = 0
    for thread in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                count += int(line.split(":")[1])
    return count


def rests(server):
    """Whether the server wakes up seldom by now. Its threads come to rest within seconds of the last request."""
    before = wake_ups(server)
    time.sleep(SECONDS)
    return wake_ups(server) - before <= WAKE_UPS_MAX


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis wakes up ten times a second")
def test_empty_server_rests_and_is_at_work_when_it_is_used():
    with Server("--threads", "2") as server:
        eventually(lambda: rests(server), "the server is at rest")
        with redis.Redis(port=server.port) as client:
            client.config_set("notify-keyspace-events", "Ex")
            before = client.info("stats")
            with client.pipeline(transaction=False) as pipe:
                for number in range(100):
                    pipe.set(f"short:{number}", 1, px=50)
                pipe.execute()
            # Keys that nobody asks for are removed by the clock.
            eventually(lambda: client.dbsize() == 0, "the keys' time is over")
            after = client.info("stats")
            assert after["expired_keys"] - before["expired_keys"] == 100
            assert after["total_commands_processed"] > before["total_commands_processed"]
            client.set("k", "v")
            assert client.object("idletime", "k") == 0
            eventually(lambda: client.info("stats")["instantaneous_ops_per_sec"] > 0, "the rates")
            assert client.flushall()
        eventually(lambda: rests(server), "the server is at rest again")
