"""Waiting for what must come about, without a sleep for luck."""

import time

DEADLINE_S = 60


def until(condition, what="a condition", deadline_s=DEADLINE_S):
    """Waits until `condition` returns something that holds, and returns it. `what` says what is awaited, or is called to say it. The
    deadline only protects against waiting for ever: on a busy machine a process may stand still for seconds."""
    deadline = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"in vain: {what() if callable(what) else what}"
        time.sleep(0.01)
