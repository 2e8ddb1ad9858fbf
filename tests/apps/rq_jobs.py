"""The jobs of the rq test; every attempt is counted in Redis."""

import os
import time

import redis
from rq.job import Job

_client = redis.Redis(port=int(os.environ["APP_PORT"]))


def _attempt(name):
    return _client.hincrby("attempts", name, 1)


def double(name, value):
    _attempt(name)
    return value * 2


def total(name, *ids):
    """The sum of other jobs' results."""
    _attempt(name)
    return sum(Job.fetch(id, connection=_client).return_value() for id in ids)


def flaky(name, failures):
    attempt = _attempt(name)
    if attempt <= failures:
        raise RuntimeError(f"attempt {attempt}")
    return attempt


def note(name, value):
    """Leaves the order in which jobs were begun."""
    _attempt(name)
    _client.rpush("order", value)


def begun_at(name):
    _attempt(name)
    return time.time()


def on_failure(job, connection, kind, value, traceback):
    connection.rpush("failures", job.id)
