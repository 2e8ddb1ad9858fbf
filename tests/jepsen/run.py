"""One run: a seed, its history, its verdict."""

import json
import pathlib
import random
import threading
import time

from . import checkers, faults, systems, workloads
from .client import Client

_CLIENTS_EACH = 3
_GROUPS = 6
_PAUSE_S = 0.01
_FINISH_S = 60
# A run so long sees slots move, whatever goes wrong.
_MOVES_S = 50


def run(network, system, seed, seconds, folder, shards=2, replicas=2, say=print, is_calm=False, directives=()):
    """Plays a seed, without faults where it is calm; the lines that say what is wrong. History and faults stay in the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    cluster = systems.ALL[system](network, folder, shards, replicas, directives)
    begun = time.monotonic()
    clock = lambda: time.monotonic() - begun  # noqa: E731
    history = workloads.History(clock)
    happened = []

    def note(fault, target):
        happened.append({"at": clock(), "fault": fault, "target": target})
        say(f"{clock():7.2f} s  {fault}: {target}")

    try:
        cluster.begin()
        note("begin", f"{system}, seed {seed}")
        until = clock() + seconds
        chosen = [workload(_GROUPS) for workload in workloads.ALL]
        broken = []
        threads = []
        for number, workload in enumerate(chosen * _CLIENTS_EACH):
            arguments = (workload, f"{workload.name}-{number}", history, cluster, seed * 1000 + number, until, broken)
            threads.append(threading.Thread(target=_play, args=arguments))
        for thread in threads:
            thread.start()
        mover = None
        if cluster.stores:
            tags = [tag for workload in chosen for tag in workload.tags()]
            mover = faults.Mover(cluster, tags, random.Random(seed + 1), clock, until)
            mover.start()
        if not is_calm:
            faults.Nemesis(cluster, network, random.Random(seed), clock, note).run(until)
        if mover is not None:
            mover.join()
            note("moves", ", ".join(f"{count} {state}" for state, count in sorted(mover.outcomes.items())))
            assert mover.outcomes["success"] or seconds < _MOVES_S, "no slot has moved"
        for thread in threads:
            thread.join()
        assert not broken, broken
        cluster.await_ready()
        final = Client(cluster.addresses(), seed, timeout_s=5)
        for workload in chosen:
            _finish(workload, history, final)
        final.close()
    finally:
        network.heal()
        cluster.stop()
        with open(folder / "faults.jsonl", "w") as out:
            out.writelines(json.dumps(fault) + "\n" for fault in happened)
        with open(folder / "history.jsonl", "w") as out:
            out.writelines(json.dumps(record) + "\n" for record in history.records)
    return judge(history.records)


def judge(records):
    """The lines of all checkers about a history."""
    wrong = []
    for name, check in checkers.ALL.items():
        wrong += [f"{name}: {line}" for line in check([record for record in records if record["workload"] == name])]
    return wrong


def summary(records):
    """How many requests had which outcome."""
    outcomes = {"ok": 0, "fail": 0, "info": 0}
    for record in records:
        outcomes[record["outcome"]] += 1
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())


def _play(workload, process, history, cluster, seed, until, broken):
    client = Client(cluster.addresses(), seed)
    choices = random.Random(seed)
    try:
        while history.clock() < until:
            workload.step(history, process, client, choices)
            time.sleep(choices.uniform(0, 2 * _PAUSE_S))
    except Exception as error:  # noqa: BLE001
        broken.append(f"{process}: {error!r}")
    finally:
        client.close()


def _finish(workload, history, client):
    """Everything is repaired: what is there can be read, if not at once."""
    deadline = time.monotonic() + _FINISH_S
    while True:
        before = len(history.records)
        if workload.finish(history, client):
            return
        why = history.records[-1]["why"]
        del history.records[before:]
        assert time.monotonic() < deadline, f"{workload.name} cannot be read, though nothing is broken any more: {why}"
        time.sleep(0.5)
