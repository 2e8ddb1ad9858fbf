"""Streams as a message backbone: a producer, a group of consumers, one of which crashes with messages in its
hands. The others claim what it left: every message is handled at least once, and none is lost. (A consumer that
is only slow may be taken for dead, so handling a message twice must do no harm.)

    python consumers.py [MESSAGES]

    orders          the stream
    orders:done     hash: order → how often it was handled
"""

import os
import subprocess
import sys

import redis

STREAM, GROUP, DONE = "orders", "shop", "orders:done"
BATCH = 10
# Messages that nobody has acknowledged for so long are somebody else's to handle. (A real service waits
# longer than its slowest message takes.)
IDLE_MS = 50


def connect():
    return redis.Redis.from_url(os.environ.get("DUNLIN_URL", "redis://127.0.0.1:6379"), decode_responses=True)


def handle(store, message, fields):
    """Handling and acknowledging are one transaction: a crash between them is impossible."""
    with store.pipeline(transaction=True) as transaction:
        transaction.hincrby(DONE, fields["order"], 1)
        transaction.xack(STREAM, GROUP, message)
        transaction.execute()


def consume(name, crash_after):
    """Handles messages until none is left, or ends hard in the midst of a batch."""
    store = connect()
    handled = 0
    while True:
        # First what a crashed consumer has left, then new messages.
        _, claimed, *_ = store.xautoclaim(STREAM, GROUP, name, IDLE_MS, count=BATCH)
        batches = claimed or [
            message for _, messages in store.xreadgroup(GROUP, name, {STREAM: ">"}, count=BATCH) for message in messages
        ]
        if not batches and store.xpending(STREAM, GROUP)["pending"] == 0:
            return
        for message, fields in batches:
            if handled == crash_after:
                os._exit(1)
            handle(store, message, fields)
            handled += 1


def main(messages):
    store = connect()
    store.delete(STREAM, DONE)
    store.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    with store.pipeline(transaction=False) as pipeline:
        for order in range(messages):
            pipeline.xadd(STREAM, {"order": order})
        pipeline.execute()
    # One of the three ends hard after seven messages, three more of its batch still in its hands.
    plans = {"anna": -1, "bert": -1, "crasher": 7}
    # The one that crashes goes first, so that it has something to lose.
    crashed = subprocess.run([sys.executable, __file__, "--consumer", "crasher", str(plans.pop("crasher"))])
    left = store.xpending(STREAM, GROUP)["pending"]
    others = [subprocess.Popen([sys.executable, __file__, "--consumer", name, str(after)]) for name, after in plans.items()]
    assert all(process.wait() == 0 for process in others)
    done = store.hgetall(DONE)
    print(f"crashed with code {crashed.returncode}, {left} messages in its hands")
    print(f"{len(done)} of {messages} messages handled, {sum(map(int, done.values())) - len(done)} twice")
    print(f"pending: {store.xpending(STREAM, GROUP)['pending']}")


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--consumer"]:
            consume(sys.argv[2], int(sys.argv[3]))
        else:
            main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    except redis.ConnectionError as error:
        sys.exit(f"{error} Start a server (make run), or name one in DUNLIN_URL.")
