"""Random command streams to the server under test and to Redis; see src/main.rs.

DIFFERENTIAL_COMMANDS sets how many commands each case sends; a failure prints its seed and the shortest
transcript that still fails.
"""

import os

import pytest

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, driver, is_redis

COMMANDS = int(os.environ.get("DIFFERENTIAL_COMMANDS", "200000"))
# The same streams in every run of `make test`; any number, or 0 for the clock, draws others.
SEED = os.environ.get("DIFFERENTIAL_SEED", "1753186323310522").lstrip("0")

CASES = {
    "string": ["string"],
    "generic": ["generic"],
    "bitmap": ["bitmap"],
    "hash": ["hash"],
    "list": ["list"],
    "set": ["set"],
    "sorted_set": ["sorted_set", "sorted_set_lex"],
    "geo": ["geo"],
    "stream": ["stream"],
    "transaction": ["transaction"],
    "sort": ["sort"],
    "hyperloglog": ["hyperloglog"],
    "scripting": ["scripting"],
    "function": ["function"],
    "connection-and-server": ["connection", "server"],
    "everything": [],
}


@pytest.mark.parametrize("families", CASES.values(), ids=CASES.keys())
def test_replies_are_those_of_redis(families):
    arguments = ["--server", DUNLIN, "--oracle", ORACLE, "--commands", COMMANDS]
    if families:
        arguments += ["--families", ",".join(families)]
    if SEED:
        arguments += ["--seed", SEED]
    driver("dunlin-differential", *arguments)


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis does it all in one thread")
def test_replies_are_the_same_where_commands_run_apart():
    families = "set,hash,list,sorted_set,stream,sort,string,generic,bitmap"
    arguments = ["--server", DUNLIN, "--oracle", ORACLE, "--commands", COMMANDS, "--families", families]
    driver("dunlin-differential", "--apart", *arguments, *(["--seed", SEED] if SEED else []))


@pytest.mark.skipif(not VALKEY, reason=WITHOUT_VALKEY)
@pytest.mark.parametrize("family", ["hash-expiry", "sorted_set_newer", "geo_polygon"])
def test_replies_are_those_of_valkey(family):
    arguments = ["--server", DUNLIN, "--oracle", VALKEY, "--commands", COMMANDS, "--families", family]
    driver("dunlin-differential", *arguments, *(["--seed", SEED] if SEED else []))


def test_differential_run_can_fail():
    """Two Redis servers of which one knows fewer commands must differ."""
    arguments = ["--server", ORACLE, "--oracle", ORACLE, "--families", "string", "--commands", 10_000, "--seed", 1]
    with pytest.raises(AssertionError):
        driver("dunlin-differential", *arguments, "--directive=--rename-command", "--directive=GETEX", "--directive=")
