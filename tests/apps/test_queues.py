"""Queues of jobs that people run on Redis, doing real jobs: delays, priorities, failures, retries, several workers.

Every job counts its attempts, and each test demands exactly those that were promised. All of these libraries live by
what other multi-core servers lack: scripts with undeclared keys, transactions over many keys, lists that are waited for.
"""

import collections
import contextlib
import os
import pathlib
import subprocess
import sys
import time
from datetime import timedelta

import pytest
import redis

from harness import ROOT, Server

HERE = pathlib.Path(__file__).parent
WORKERS = 3
# Far longer than anything takes: a test that waits so long has failed.
PATIENCE_S = 120


@pytest.fixture
def server():
    """A server of its own for each library."""
    with Server() as server:
        yield server


@pytest.fixture
def client(server):
    with redis.Redis(port=server.port) as client:
        yield client


def program(*command):
    """Runs a program that audits itself."""
    result = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stdout.decode(errors="replace")


@contextlib.contextmanager
def workers(server, *commands):
    """Programs that work until a signal ends them; their output is shown when the test fails."""
    environment = {**os.environ, "APP_PORT": str(server.port), "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    logs = [open(server.folder / f"worker-{number}", "w+b") for number in range(len(commands))]
    running = [
        subprocess.Popen([*map(str, command)], stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=server.folder)
        for command, log in zip(commands, logs)
    ]
    try:
        yield running
    except BaseException:
        for log in logs:
            log.seek(0)
            print(log.read().decode(errors="replace")[-4000:])
        raise
    finally:
        for worker in running:
            worker.terminate()
        for worker in running:
            try:
                worker.wait(PATIENCE_S)
            finally:
                worker.kill()
        for log in logs:
            log.close()


def await_answer(ask, answer):
    """Asks again until that is the answer."""
    deadline = time.monotonic() + PATIENCE_S
    while (got := ask()) != answer:
        assert time.monotonic() < deadline, f"{got} is not {answer}"
        time.sleep(0.02)


def attempts(client):
    return {name.decode(): int(count) for name, count in client.hgetall("attempts").items()}


def test_bullmq(server):
    program("node", HERE / "bullmq.js", server.port)


def test_asynq(server):
    program(ROOT / "tests" / ".env" / "bin" / "asynq-jobs", server.port)


def test_rq(server, client, monkeypatch):
    monkeypatch.setenv("APP_PORT", str(server.port))
    monkeypatch.syspath_prepend(str(HERE))
    import rq_jobs
    from rq import Callback, Queue, Retry
    from rq.job import Job
    from rq.registry import FailedJobRegistry, ReadyJobRegistry, ScheduledJobRegistry

    high, default = Queue("high", connection=client), Queue("default", connection=client)
    wanted = collections.Counter()

    def enqueue(queue, function, name, *arguments, attempts=1, **options):
        wanted[name] += attempts
        return queue.enqueue(function, name, *arguments, **options)

    # Priorities: jobs that wait when the first worker comes are done queue after queue, in order.
    for value in range(20):
        enqueue(default, rq_jobs.note, f"low-{value}", 100 + value)
        enqueue(high, rq_jobs.note, f"high-{value}", value)
    simple = [sys.executable, "-m", "rq.cli", "worker", "-w", "rq.SimpleWorker", "-u", f"redis://127.0.0.1:{server.port}"]
    with workers(server, [*simple, "--burst", "high", "default"]) as (worker,):
        assert worker.wait(PATIENCE_S) == 0
    assert [int(value) for value in client.lrange("order", 0, -1)] == [*range(20), *range(100, 120)]

    forking = [sys.executable, "-m", "rq.cli", "worker", "--with-scheduler", "-u", f"redis://127.0.0.1:{server.port}"]
    commands = [*[[*simple, "high", "default"]] * (WORKERS - 1), [*forking, "default"]]
    with workers(server, *commands):
        with default.connection.pipeline() as pipeline:
            parts = [
                default.enqueue(rq_jobs.double, f"double-{value}", value, pipeline=pipeline) for value in range(150)
            ]
            pipeline.execute()
        wanted.update(f"double-{value}" for value in range(150))
        # One dependency each: with several, rq itself may forget a job (also on Redis).
        sums = [
            enqueue(default, rq_jobs.total, f"sum-{at}", parts[at].id, depends_on=parts[at]) for at in range(0, 150, 10)
        ]
        again = [
            enqueue(default, rq_jobs.flaky, f"flaky-{at}", at % 3, attempts=at % 3 + 1, retry=Retry(max=3)) for at in range(12)
        ]
        lost = [
            enqueue(high, rq_jobs.flaky, f"lost-{at}", 99, attempts=3, retry=Retry(max=2), on_failure=Callback(rq_jobs.on_failure))
            for at in range(6)
        ]
        asked_at = time.time()
        late = [default.enqueue_in(timedelta(seconds=1), rq_jobs.begun_at, f"late-{at}") for at in range(8)]
        wanted.update(f"late-{at}" for at in range(8))
        # One that was taken back is not scheduled any more.
        cancelled = default.enqueue_in(timedelta(hours=1), rq_jobs.double, "cancelled", 1)
        assert cancelled.id in ScheduledJobRegistry(queue=default)
        cancelled.cancel()

        done = [*parts, *sums, *again, *late]
        states = lambda jobs: {job.get_status(refresh=False).value for job in Job.fetch_many([job.id for job in jobs], connection=client)}

        def states_after_maintenance():
            # Where two workers make dependent jobs ready at once, rq leaves one of them to the maintenance that its
            # workers run every ten minutes (also on Redis).
            ReadyJobRegistry(queue=default).cleanup()
            return states(done)

        await_answer(states_after_maintenance, {"finished"})
        await_answer(lambda: states(lost), {"failed"})

    returned = [job.return_value() for job in Job.fetch_many([job.id for job in parts], connection=client)]
    assert returned == [value * 2 for value in range(150)]
    assert [job.return_value() for job in sums] == returned[::10]
    assert [job.return_value() for job in again] == [at % 3 + 1 for at in range(12)]
    # rq keeps the time of a job in whole seconds (also on Redis).
    assert all(job.return_value() >= int(asked_at + 1) for job in late)
    assert set(FailedJobRegistry(queue=high).get_job_ids()) == {job.id for job in lost}
    assert {id.decode() for id in client.lrange("failures", 0, -1)} == {job.id for job in lost}
    assert len(ScheduledJobRegistry(queue=default)) == 0
    assert attempts(client) == wanted
    assert len(high) == len(default) == 0


def test_celery(server, client, monkeypatch):
    monkeypatch.setenv("APP_PORT", str(server.port))
    monkeypatch.syspath_prepend(str(HERE))
    sys.modules.pop("celery_jobs", None)
    import celery_jobs as jobs
    from celery import chain, chord, group

    wanted = collections.Counter()

    def expect(name, attempts=1):
        wanted[name] += attempts
        return name

    # Priorities: jobs that wait when the first worker comes are done by priority, in order within one.
    for value in range(24):
        jobs.note.apply_async((expect(f"note-{value}"), value), priority=[0, 3, 6, 9][value % 4], queue="ordered")
    worker = [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "--without-gossip", "--without-mingle", "-l", "WARNING"]
    ordered = [*worker, "-P", "solo", "-n", "ordered@test", "-Q", "ordered"]
    several = [[*worker, "-P", "threads", "-c", "4", "-n", f"worker{number}@test", "-Q", "work"] for number in range(WORKERS - 1)]
    with workers(server, ordered, *several):
        doubles = group(jobs.double.s(expect(f"double-{value}"), value) for value in range(200)).apply_async()
        sums = [
            chord(
                (jobs.double.s(expect(f"part-{at}-{value}"), value) for value in range(10)), jobs.total.s(expect(f"sum-{at}"))
            ).apply_async()
            for at in range(10)
        ]
        chains = [
            chain(jobs.double.si(expect(f"first-{at}"), at), jobs.double.si(expect(f"second-{at}"), at + 1)).apply_async()
            for at in range(10)
        ]
        again = [jobs.flaky.delay(expect(f"flaky-{at}", at % 3 + 1), at % 3) for at in range(12)]
        lost = [jobs.hopeless.delay(expect(f"lost-{at}", 3)) for at in range(6)]
        asked_at = time.time()
        late = [jobs.begun_at.apply_async((expect(f"late-{at}"),), countdown=1) for at in range(8)]

        assert doubles.get(timeout=PATIENCE_S) == [value * 2 for value in range(200)]
        assert [result.get(timeout=PATIENCE_S) for result in sums] == [90] * 10
        assert [result.get(timeout=PATIENCE_S) for result in chains] == [(at + 1) * 2 for at in range(10)]
        assert [result.get(timeout=PATIENCE_S) for result in again] == [at % 3 + 1 for at in range(12)]
        for result in lost:
            with pytest.raises(RuntimeError, match="hopeless"):
                result.get(timeout=PATIENCE_S)
        assert all(result.get(timeout=PATIENCE_S) >= asked_at + 1 for result in late)
        await_answer(lambda: client.llen("order"), 24)
        await_answer(lambda: attempts(client), wanted)
        broker = redis.Redis(port=server.port, db=1)
        # Finished jobs are acknowledged: nothing is left for a worker that comes later.
        await_answer(lambda: broker.exists("unacked", "unacked_index", "work", "ordered"), 0)
        broker.close()
    order = [int(value) for value in client.lrange("order", 0, -1)]
    assert order == sorted(range(24), key=lambda value: (value % 4, value))
    assert attempts(client) == wanted
