"""Links while the machine around them misbehaves (environment.c): clocks that jump, names that take long to look up."""

import pathlib
import subprocess
import threading

import pytest

from harness import DUNLIN
from links import Link, Node, has_link, raw, settle, until

HOUR = 3600


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("environment") / "environment.so"
    source = pathlib.Path(__file__).with_name("environment.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"], check=True)
    return path


class Clock:
    """The time of day of a server."""

    def __init__(self, library, path):
        self.path = path
        self.environment = {"LD_PRELOAD": str(library), "ENVIRONMENT_CLOCK": str(path)}
        self.jump(0)

    def jump(self, seconds):
        beside = self.path.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.rename(self.path)


@pytest.mark.parametrize("side", ["primary", "replica", "both"])
def test_clocks_that_jump_cut_no_link_and_change_no_data(library, tmp_path, side):
    clocks = [Clock(library, tmp_path / name) for name in ("primary", "replica")]
    jumping = {"primary": clocks[:1], "replica": clocks[1:], "both": clocks}[side]
    with Node(DUNLIN, environment=clocks[0].environment) as primary:
        with Node(DUNLIN, environment=clocks[1].environment) as replica, Link(primary.port) as link:
            replica.follow(link.port)
            settle(primary, replica)
            ended = threading.Event()

            def write():
                with raw(primary.port) as client:
                    number = 0
                    while not ended.is_set():
                        number += 1
                        client.execute_command("SET", f"k{number % 500}", number, "EX", 1 + number % 100)
                        client.execute_command("HSET", "h", f"f{number % 50}", number)
                        client.execute_command("HEXPIRE", "h", 1 + number % 100, "FIELDS", 1, f"f{number % 50}")
                        client.execute_command("INCR", "counter")

            writer = threading.Thread(target=write)
            writer.start()
            try:
                for offset in (HOUR, -HOUR, 24 * HOUR, 0):
                    for clock in jumping:
                        clock.jump(offset)
                    at = int(primary.client.get("counter") or 0)
                    until(lambda: int(primary.client.get("counter") or 0) > at + 300, "writes behind the jump")
                    reached = primary.info()["master_repl_offset"]
                    until(lambda: replica.info()["slave_repl_offset"] >= reached, "a replica that follows")
                    assert has_link(replica)
            finally:
                ended.set()
                writer.join()
            for clock in clocks:
                clock.jump(0)
            settle(primary, replica)
            assert (link.made, primary.info("stats")["sync_full"]) == (1, 1)


def test_names_are_looked_up_beside_orders(library, tmp_path):
    environment = {"LD_PRELOAD": str(library), "ENVIRONMENT_NAMES": str(tmp_path)}
    with Node(DUNLIN) as primary, Node(DUNLIN, environment=environment) as replica:
        primary.client.set("a", 1)
        replica.call("REPLICAOF", "primary.slow", primary.port)
        until((tmp_path / "primary.slow.asked").exists, "the question")
        assert replica.info()["role"] == "slave"
        assert replica.call("REPLICAOF", "NO", "ONE") == b"OK", "while the name is looked up"
        assert replica.client.set("own", 1)
        replica.call("REPLICAOF", "primary.slow", primary.port)
        (tmp_path / "primary.slow").touch()
        until(lambda: has_link(replica), f"a link\n{replica.log()[-2000:]}")
        settle(primary, replica)


def test_names_without_an_address_are_tried_again():
    with Node(DUNLIN) as replica:
        replica.call("REPLICAOF", "no.such.name.invalid", 6379)
        until(lambda: replica.log().count("The link to the primary is lost") >= 2, "attempts", deadline_s=300)
        assert replica.call("REPLICAOF", "NO", "ONE") == b"OK"
