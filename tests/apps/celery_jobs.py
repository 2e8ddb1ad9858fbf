"""The Celery application of the test: its tasks count every attempt in Redis."""

import os
import time

import redis
from celery import Celery

PORT = int(os.environ["APP_PORT"])
URL = f"redis://127.0.0.1:{PORT}"
app = Celery("celery_jobs", broker=f"{URL}/1", backend=f"{URL}/2")
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    result_extended=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"priority_steps": [0, 3, 6, 9], "queue_order_strategy": "priority"},
    task_default_queue="work",
    worker_hijack_root_logger=False,
)
_client = redis.Redis(port=PORT)


def _attempt(name):
    return _client.hincrby("attempts", name, 1)


@app.task
def double(name, value):
    _attempt(name)
    return value * 2


@app.task
def total(values, name):
    _attempt(name)
    return sum(values)


@app.task(bind=True, max_retries=3)
def flaky(self, name, failures):
    attempt = _attempt(name)
    if attempt <= failures:
        raise self.retry(countdown=0.05 * attempt)
    return attempt


@app.task(autoretry_for=(RuntimeError,), max_retries=2, retry_backoff=False, default_retry_delay=0.05)
def hopeless(name):
    _attempt(name)
    raise RuntimeError("hopeless")


@app.task
def begun_at(name):
    _attempt(name)
    return time.time()


@app.task
def note(name, value):
    _attempt(name)
    _client.rpush("order", value)
