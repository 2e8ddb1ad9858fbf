"""Random command streams through the append-only log: after a kill and a start the data set is the same, in
Dunlin and, as far as Redis 7.0 knows the commands, in Redis (tests/differential/src/replay.rs).

REPLAY_COMMANDS sets how many commands each case sends.
"""

import os

import pytest

from harness import DUNLIN, ORACLE, driver, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's log")

COMMANDS = int(os.environ.get("REPLAY_COMMANDS", "8000"))
# As in tests/differential: the same streams in every run of `make test`, or 0 for the clock.
SEED = os.environ.get("DIFFERENTIAL_SEED", "1753186323310522").lstrip("0")

FAMILIES = {
    "string": "string",
    "bitmap": "bitmap,string",
    "hash": "hash",
    "list": "list",
    "set": "set",
    "sorted_set": "sorted_set,sorted_set_lex",
    "geo": "geo,sorted_set",
    "stream": "stream",
    "hyperloglog": "hyperloglog",
    "sort": "sort",
    "generic": "generic",
    "transaction": "transaction",
    "scripting": "scripting",
    "everything": "string,hash,list,set,sorted_set,geo,stream,hyperloglog,bitmap,generic,transaction,scripting",
}
NEWER = ["hash-expiry", "sorted_set_newer", "stream_newer", "geo_polygon", "hash,hash-expiry,generic,transaction"]


def replay(writer, reader, families, *arguments):
    seed = ["--seed", SEED] if SEED else []
    arguments = ["--families", families, "--commands", COMMANDS, *seed, *arguments]
    return driver("dunlin-differential", "--server", writer, "--replay-in", reader, *arguments)


@pytest.mark.parametrize("families", [*FAMILIES.values(), *NEWER], ids=[*FAMILIES, *NEWER])
def test_start_finds_what_was_there(families):
    replay(DUNLIN, DUNLIN, families)


def test_start_with_many_threads_finds_what_was_there():
    replay(DUNLIN, DUNLIN, FAMILIES["everything"], "--directive=--threads", "--directive", "6")


@pytest.mark.parametrize("families", [*FAMILIES.values(), *NEWER], ids=[*FAMILIES, *NEWER])
def test_base_of_commands_holds_everything(families):
    replay(DUNLIN, DUNLIN, families, "--rewrite", "--directive=--aof-use-rdb-preamble", "--directive=no")


# Families that a version carries: libraries and counts of streams from 10 on, fields that expire
# from 12 on.
THROUGH = [
    (9, "string,hash,list,set,sorted_set,geo,hyperloglog,bitmap,generic,transaction"),
    (10, FAMILIES["everything"]),
    (11, FAMILIES["everything"]),
    (12, FAMILIES["everything"] + ",hash-expiry"),
    (80, FAMILIES["everything"] + ",hash-expiry"),
]


@pytest.mark.parametrize("version, families", THROUGH, ids=lambda value: str(value).split(",")[0])
def test_files_of_other_versions_hold_everything(version, families):
    replay(DUNLIN, DUNLIN, families, "--through", version)


@pytest.mark.parametrize("families", FAMILIES.values(), ids=FAMILIES.keys())
def test_redis_finds_it_too(families):
    replay(DUNLIN, ORACLE, families)


@pytest.mark.parametrize("families", FAMILIES.values(), ids=FAMILIES.keys())
def test_log_of_redis_is_replayed(families):
    replay(ORACLE, DUNLIN, families)
