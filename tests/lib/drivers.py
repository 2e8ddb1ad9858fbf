"""Client libraries as programs of one protocol, so that one test speaks for all of them.

A driver is started with a mode (`cluster` or `sentinel`), addresses of nodes, and in the mode `sentinel` the cluster's name. It
answers each line on standard input with one line, `ok …` or `failed …`:

    check PREFIX   works through the library's kinds of calls, on keys that begin with the prefix
    load PREFIX    begins to increment counters, on keys of many slots, and to read them back, until `stop`
    report         DONE ERRORS DOUBLED LOST LONGEST_MS TEXTS since the last report: steps that were answered; errors that the library
                   did not hide; increments that it has sent twice; replies that lack an acknowledged increment; the longest step
    stop           KEY=LAST:UNKNOWN for each counter: its last reply, and the attempts whose outcome is unknown: they may have an effect later

An increment's reply must exceed the last one of that counter: by one, unless an attempt has failed before. Libraries keep their
own policy of retries; what they do not retry is an error, and the driver goes on with the next counter.
"""

import contextlib
import dataclasses
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from etcd_cluster import Stalls, until
from harness import ROOT

HERE = ROOT / "tests" / "cluster" / "drivers"
ENV = ROOT / "tests" / ".env"
JAVA = ENV / "java-drivers"


def _node(library):
    return ["node", str(HERE / "nodejs.js"), library]


def _java(library):
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{JAVA / 'classes'}:{JAVA / 'libraries'}/*", "Driver", library]


def _php(library):
    return ["php", str(HERE / "php.php"), library]


def _rust(kind):
    return [str(ENV / "rust" / "debug" / "redis-rs-driver"), kind]


PROGRAMS = {
    "redis-py": [sys.executable, str(HERE / "redis_py.py")],
    "ioredis": _node("ioredis"),
    "node-redis": _node("node-redis"),
    "jedis": _java("jedis"),
    "lettuce": _java("lettuce"),
    "go-redis": [str(ENV / "bin" / "goredis-driver")],
    "redis-rs": _rust("sync"),
    "redis-rs-async": _rust("async"),
    "libvalkey": [str(ENV / "bin" / "libvalkey-driver")],
    "phpredis": _php("phpredis"),
    "predis": _php("predis"),
}
# Their libraries find a primary by Sentinel. That of redis-rs takes only nodes for Sentinels whose ROLE is that alone.
OF_SENTINEL = ["redis-py", "ioredis", "node-redis", "jedis", "lettuce", "go-redis", "phpredis", "predis"]


def missing(name):
    """Why a driver cannot be had here; None where it can."""
    program = PROGRAMS[name]
    if not shutil.which(program[0]):
        return f"there is no {program[0]} (scripts/setup-tests.sh)"
    if program[0] == "java" and not (JAVA / "classes").exists():
        return "the drivers in Java are not built (scripts/setup-tests.sh)"
    if program[0] == "php" and subprocess.run(["php", "-r", "exit(extension_loaded('redis') ? 0 : 1);"]).returncode:
        return "PHP has no extension redis (apt-get install php-redis)"
    return None


def skip_without(name):
    reason = missing(name)
    if reason:
        pytest.skip(reason)


@dataclasses.dataclass
class Report:
    """What a driver did since its last report."""

    done: int = 0
    errors: int = 0
    doubled: int = 0
    lost: int = 0
    longest_ms: int = 0
    texts: str = ""

    def __add__(self, other):
        sums = (getattr(self, name) + getattr(other, name) for name in ("done", "errors", "doubled", "lost"))
        return Report(*sums, max(self.longest_ms, other.longest_ms), " | ".join(filter(None, (self.texts, other.texts))))


class Ended(AssertionError):
    """A driver has ended by itself, with a status."""

    def __init__(self, name, status, text):
        super().__init__(f"{name} has ended, with {status}: {text}")
        self.status = status


class Driver:
    def __init__(self, name, mode, ports, cluster=None):
        self.name = name
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        arguments = [*PROGRAMS[name], mode, addresses, *([cluster] if cluster else [])]
        # No pipe, which a library that warns of every attempt to connect would fill, and wait.
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1
        )

    def order(self, *words):
        """Gives an order, whose answer is to be read."""
        try:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise self._ended()
        word, _, rest = line.strip().partition(" ")
        assert word == "ok", f"{self.name}: {line}"
        return rest.strip()

    def _ended(self):
        status = self.process.wait()
        self.errors.seek(0)
        return Ended(self.name, status, self.errors.read())

    def ask(self, *words):
        self.order(*words)
        return self.answer()

    def report(self):
        *numbers, texts = (self.ask("report") + " ").split(" ", 5)
        return Report(*map(int, numbers), texts.strip())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.errors.close()


# Libraries that crash by themselves: the signal, and where that is known.
CRASHES = {"phpredis": (signal.SIGSEGV, "phpredis 5.3.7 crashes at times when roles change (phpredis/phpredis#2323, #2723)")}


class Drivers:
    """Drivers that work at once, and what they report of each phase. One that ends by itself leaves the others at work."""

    # A phase goes on until every client has done this much after what happens in it.
    STEPS = 150

    def __init__(self, names, *arguments):
        self.drivers, self.reports, self.counters, self.ended = [], {}, {}, {}
        # Phases in which the machine stood still, so that a healthy primary may have been replaced: libraries report errors then,
        # or send increments again, as when a node dies.
        self.troubled, self.stalls = set(), None
        try:
            for name in names:
                self.drivers.append(Driver(name, *arguments))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for driver in self.drivers:
            driver.__exit__()

    def ask(self, word, argument=None):
        """Gives all drivers an order at once; their answers."""
        self._each(lambda driver: driver.order(word, *([argument(driver.name)] if argument else [])))
        return self._each(Driver.answer)

    def _each(self, act):
        """What comes of it for every driver that is still there."""
        results = {}
        for driver in [*self.drivers]:
            try:
                results[driver.name] = act(driver)
            except Ended as error:
                print(error)
                self.ended[driver.name] = error
                self.drivers.remove(driver)
                driver.__exit__()
        return results

    def expect_alive(self, name):
        """Fails or skips the test of a driver that has ended."""
        error = self.ended.get(name)
        if error is None:
            return
        number, why = CRASHES.get(name, (None, None))
        if number is not None and error.status == -number:
            pytest.skip(why)
        raise error

    def load(self):
        self.ask("load", lambda name: f"load-{name}")

    @contextlib.contextmanager
    def phase(self, phase):
        """What happens in a phase, to its end."""
        with Stalls() as self.stalls:
            yield
            if self.stalls.is_excuse():
                print(f"{phase}: the machine stood still for {self.stalls.longest_s:.1f} s")
                self.troubled.add(phase)

    def settle(self, phase, errors_end=False):
        """Waits until every client has done some steps; with `errors_end`, or where the machine stood still, without an error in
        between."""
        reports = self.reports.setdefault(phase, {driver.name: Report() for driver in self.drivers})
        done = dict.fromkeys(reports, 0)

        def is_settled():
            for name, report in self._each(Driver.report).items():
                reports[name] += report
                is_troubled = errors_end or self.stalls is not None and self.stalls.is_excuse()
                done[name] = 0 if report.errors and is_troubled else done[name] + report.done
            return all(done[driver.name] >= self.STEPS for driver in self.drivers)

        until(is_settled, lambda: f"{phase}: {done} {reports}", 180)

    def stop(self, client):
        """Ends the load, and reads the counters: (key, last reply, attempts of unknown outcome, value)."""
        for name, answer in self.ask("stop").items():
            items = [item.rpartition("=") for item in answer.split()]
            self.counters[name] = [(key, *map(int, counts.split(":")), int(client.get(key) or 0)) for key, _, counts in items]

    def check_counters(self, name):
        """What was acknowledged is there: once, but where an attempt has failed."""
        assert self.counters[name]
        for key, last, unknown, value in self.counters[name]:
            assert value >= last if unknown else value == last, (name, key, last, unknown, value)
