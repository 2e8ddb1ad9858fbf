"""What the clients do. Each workload makes one request at a time, and at the end reads what is there; its records are for the checker
of its name."""

import itertools
import threading

from .client import Refused, Unknown

# A key gets so many elements, and then another takes its place: each is under load while faults come and go, and no reply grows long.
_ELEMENTS_MAX = 200


class History:
    """The records of a run."""

    def __init__(self, clock):
        self.clock = clock
        self.records = []
        self._lock = threading.Lock()

    def run(self, workload, process, call, **record):
        """Makes a request and notes what became of it; its reply, or `None`."""
        record.update(workload=workload, process=process, begun=self.clock())
        reply = None
        try:
            reply = call()
            record["outcome"] = "ok"
        except Refused as refused:
            record.update(outcome="fail", why=str(refused))
        except Unknown as unknown:
            record.update(outcome="info", why=str(unknown))
        record["ended"] = self.clock()
        return reply, record

    def add(self, record):
        with self._lock:
            self.records.append(record)


class Lists:
    """Transactions that append to two lists of one slot, and read them."""

    name = "lists"

    def __init__(self, groups):
        self.groups = groups
        self.elements = itertools.count(1)
        self.rounds = [0] * groups
        self.lock = threading.Lock()

    def tags(self):
        return [f"l{group}.{number}" for group in range(self.groups) for number in range(4)]

    def _tag(self, random):
        with self.lock:
            group = random.randrange(self.groups)
            return f"l{group}.{self.rounds[group]}", group

    def step(self, history, process, client, random):
        tag, group = self._tag(random)
        steps = []
        for _ in range(random.randint(1, 4)):
            key = f"{{{tag}}}{random.choice('ab')}"
            if random.random() < 0.5:
                with self.lock:
                    element = next(self.elements)
                    if element % (_ELEMENTS_MAX * self.groups) == 0:
                        self.rounds[group] += 1
                steps.append(["append", key, element])
            else:
                steps.append(["read", key, []])
        self._run(history, process, client, tag, steps)

    def _run(self, history, process, client, tag, steps, **more):
        commands = [("RPUSH", key, value) if kind == "append" else ("LRANGE", key, 0, -1) for kind, key, value in steps]
        reads = all(kind == "read" for kind, _, _ in steps)
        reply, record = history.run(self.name, process, lambda: client.call(tag, *commands, reads=reads), steps=steps, **more)
        if record["outcome"] == "ok":
            replies = reply if len(commands) > 1 else [reply]
            for step, answer in zip(steps, replies):
                if step[0] == "read":
                    step[2] = [int(element) for element in answer]
        history.add(record)
        return record["outcome"] == "ok"

    def finish(self, history, client):
        """Reads everything; whether it could."""
        tags = [f"l{group}.{number}" for group in range(self.groups) for number in range(self.rounds[group] + 1)]
        return all(
            self._run(history, "final", client, tag, [["read", f"{{{tag}}}{name}", []]], final=True)
            for tag in tags
            for name in "ab"
        )


class Registers:
    """Single keys that are set and read."""

    name = "registers"

    def __init__(self, groups):
        self.keys = [f"r{number}" for number in range(groups)]
        self.values = itertools.count(1)

    def tags(self):
        return self.keys

    def step(self, history, process, client, random):
        key = random.choice(self.keys)
        if random.random() < 0.4:
            value = next(self.values)
            _, record = history.run(self.name, process, lambda: client.call(key, ("SET", key, value)), key=key, write=value)
            history.add(record)
        else:
            self._read(history, process, client, key)

    def _read(self, history, process, client, key, **more):
        reply, record = history.run(self.name, process, lambda: client.call(key, ("GET", key), reads=True), key=key, **more)
        record["read"] = int(reply) if reply is not None else None
        history.add(record)
        return record["outcome"] == "ok"

    def finish(self, history, client):
        return all(self._read(history, "final", client, key) for key in self.keys)


class Counters:
    """Single keys that are incremented and read."""

    name = "counters"

    def __init__(self, groups):
        self.keys = [f"c{number}" for number in range(groups)]

    def tags(self):
        return self.keys

    def step(self, history, process, client, random):
        self._run(history, process, client, random.choice(self.keys), increment=random.random() < 0.7)

    def _run(self, history, process, client, key, increment, **more):
        command = ("INCR", key) if increment else ("GET", key)
        call = lambda: client.call(key, command, reads=not increment)  # noqa: E731
        reply, record = history.run(self.name, process, call, key=key, increment=increment, **more)
        record["value"] = int(reply or 0)
        history.add(record)
        return record["outcome"] == "ok"

    def finish(self, history, client):
        return all(self._run(history, "final", client, key, False, final=True) for key in self.keys)


class Queues:
    """Elements that are put at one end of a list and taken from the other."""

    name = "queues"

    def __init__(self, groups):
        self.keys = [f"q{number}" for number in range(groups)]
        self.elements = itertools.count(1)

    def tags(self):
        return self.keys

    def step(self, history, process, client, random):
        key = random.choice(self.keys)
        if random.random() < 0.6:
            element = next(self.elements)
            _, record = history.run(self.name, process, lambda: client.call(key, ("RPUSH", key, element)), key=key, put=element)
        else:
            reply, record = history.run(self.name, process, lambda: client.call(key, ("LPOP", key)), key=key)
            record["taken"] = int(reply) if reply is not None else None
        history.add(record)

    def finish(self, history, client):
        for key in self.keys:
            call = lambda: client.call(key, ("LRANGE", key, 0, -1), reads=True)  # noqa: B023, E731
            reply, record = history.run(self.name, "final", call, key=key)
            record["rest"] = [int(element) for element in reply or []]
            history.add(record)
            if record["outcome"] != "ok":
                return False
        return True


ALL = (Lists, Registers, Counters, Queues)
