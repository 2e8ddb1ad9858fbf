"""At most so many requests in any window of time, however many processes ask.

    python rate_limiter.py USER LIMIT WINDOW_MS REQUESTS

    limit:<user>   sorted set of admitted requests, scored with their time

A script decides, so that two processes that ask at once cannot both get the last place. The time is the
server's: clocks of clients may differ.
"""

import os
import sys
import uuid

import redis

SCRIPT = """
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local window_ms, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - window_ms)
if redis.call('ZCARD', KEYS[1]) < limit then
    redis.call('ZADD', KEYS[1], now_ms, ARGV[3])
    redis.call('PEXPIRE', KEYS[1], window_ms)
    return 0
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return math.max(1, oldest[2] + window_ms - now_ms)
"""


class RateLimiter:
    """Admits `limit` requests of a user in any `window_ms`."""

    def __init__(self, store, limit, window_ms):
        self.script = store.register_script(SCRIPT)
        self.limit, self.window_ms = limit, window_ms

    def ask(self, user):
        """0 when the request is admitted, else the milliseconds to wait for the next place."""
        return self.script(keys=[f"limit:{user}"], args=[self.window_ms, self.limit, uuid.uuid4().hex])


def main(user, limit, window_ms, requests):
    store = redis.Redis.from_url(os.environ.get("DUNLIN_URL", "redis://127.0.0.1:6379"))
    limiter = RateLimiter(store, int(limit), int(window_ms))
    waits = [limiter.ask(user) for _ in range(int(requests))]
    print(f"{waits.count(0)} admitted, {len(waits) - waits.count(0)} refused")
    if waits[-1]:
        print(f"next place in {waits[-1]} ms")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except redis.ConnectionError as error:
        sys.exit(f"{error} Start a server (make run), or name one in DUNLIN_URL.")
