"""Blocking commands that are computed apart from their worker, and find that others were faster when they come back."""

import random
import threading

import pytest
import redis

from harness import DUNLIN, Server, is_redis

ELEMENTS = 30_000
STEAL = """
local stolen = {}
for _ = 1, 12 do
    local element = redis.call('lpop', KEYS[1])
    if element then stolen[#stolen + 1] = element end
end
return stolen
"""


@pytest.mark.skipif(is_redis(DUNLIN), reason="asks for what Redis has not")
@pytest.mark.parametrize("threads", [1, 2])
def test_blpop_that_was_late_waits_on_and_nothing_is_lost(threads):
    with Server("--threads", str(threads), "--enable-debug-command", "yes") as server:
        lists, got, nulls = ("a", "b"), [], []
        done = threading.Event()

        def client():
            return redis.Redis(port=server.port, socket_timeout=60)

        def pop():
            own = client()
            while (popped := own.execute_command("BLMPOP", 0, 3, "end", *lists, "LEFT", "COUNT", 12)) != [b"end", [b"1"]]:
                (nulls if popped is None else got).append(popped)

        def steal(draw):
            own = client()
            while not done.is_set():
                got.append((None, own.eval(STEAL, 1, draw.choice(lists))))

        writer = client()
        # A command that visits more than a few elements is long.
        writer.execute_command("DEBUG", "VISITS-MAX", 5)
        poppers = [threading.Thread(target=pop) for _ in range(6)]
        thieves = [threading.Thread(target=steal, args=(random.Random(seed),)) for seed in range(2)]
        for thread in poppers + thieves:
            thread.start()
        draw = random.Random(7)
        written = 0
        while written < ELEMENTS:
            count = draw.randint(8, 30)
            writer.rpush(draw.choice(lists), *range(written, written + count))
            written += count
        while any(writer.llen(name) for name in lists):
            pass
        done.set()
        for thread in thieves:
            thread.join()
        for _ in poppers:
            # One at a time: no client is to take another's.
            writer.rpush("end", 1)
            while writer.llen("end"):
                pass
        for thread in poppers:
            thread.join()
        assert not nulls, f"{len(nulls)} were answered that their time was over"
        taken = [int(element) for _, elements in got for element in elements]
        assert sorted(taken) == list(range(written))
        assert writer.info("clients")["blocked_clients"] == 0
