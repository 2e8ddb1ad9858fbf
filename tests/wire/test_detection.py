"""What clients detect before they use a server: modules, commands, categories of rules, INFO (docs/decisions/0098)."""

import pytest

from harness import DUNLIN, REDIS_VERSIONS, Server, is_redis
from info_lines import ADDED, ADDED_SECTIONS, MISSING, lines, names, text
from peer import Failure, Peer

# A module's name in MODULE LIST, and the command by which clients look for it otherwise.
FAMILIES = {"ReJSON": "json.set", "search": "ft.search", "bf": "bf.add", "timeseries": "ts.add", "vectorset": "vadd"}

# The categories that Redis 8 adds to those of Redis 7, and Redis 8.8 that of arrays.
CATEGORIES_OF_8 = ["array", "json", "search", "tdigest", "cms", "bloom", "cuckoo", "topk", "timeseries"]

# Lines of INFO of Redis 7.4 that are not here, and why.
MISSING_OF_7_4 = {
    **MISSING,
    "allocator_muzzy": "jemalloc's",
    "mem_overhead_db_hashtable_rehashing": "tables grow a bucket at a time",
    "expired_subkeys": "named expired_fields, as in Valkey 9.0",
    "evicted_scripts": "texts of scripts are not evicted",
}


def as_map(reply):
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis 8 announces its modules")
@pytest.mark.parametrize("protocol", [2, 3])
def test_modules_are_announced_if_and_only_if_their_commands_are_there(server, protocol):
    with Peer(server, protocol) as client:
        there = {name for name, command in FAMILIES.items() if client.ask("COMMAND", "INFO", command) != [None]}
        listed = [as_map(module) for module in client.ask("MODULE", "LIST")]
        assert {module["name"] for module in listed} == there
        assert as_map(client.ask("HELLO"))["modules"] == [*client.ask("MODULE", "LIST")]
        assert client.ask("INFO", "modules").count("module:name=") == len(there)
        for name, command in FAMILIES.items():
            documented = as_map(client.ask("COMMAND", "DOCS", command))
            assert (command in documented) == (name in there)


@pytest.mark.parametrize("protocol", [2, 3])
def test_unknown_command_is_described_as_in_redis(server, oracle, protocol):
    with Peer(server, protocol) as client, Peer(oracle, protocol) as redis:
        for line in ("COMMAND INFO no.such", "COMMAND INFO get no.such|x", "COMMAND DOCS no.such", "COMMAND COUNT x", "COMMAND GETKEYS no.such a"):
            ours, theirs = client.line(line), redis.line(line)
            if line.startswith("COMMAND INFO get"):
                ours, theirs = ours[1:], theirs[1:]
            assert ours == theirs, line


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis 7.0 has no such categories")
def test_acl_has_the_categories_of_redis_8(server, oracle):
    with Peer(server) as client, Peer(oracle) as redis:
        assert client.ask("ACL", "CAT") == redis.ask("ACL", "CAT") + CATEGORIES_OF_8
        for category in CATEGORIES_OF_8:
            assert isinstance(client.ask("ACL", "CAT", category), list)
            assert client.ask("COMMAND", "LIST", "FILTERBY", "ACLCAT", category) == client.ask("ACL", "CAT", category)
        assert client.ask("ACL", "CAT", "vectors") == Failure("ERR Unknown category 'vectors'")


USERS_OF_8 = """user default on nopass ~* &* +@all
user cacher on nopass ~cache:* resetchannels -@all +@read +@write +@json -@search +ft.search +json.get -json.del +ft.config|get
user stats on nopass ~* resetchannels +@all -@timeseries -@bloom -@cuckoo -@cms -@topk -@tdigest -vadd
"""


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis 7.0 has no such categories")
def test_aclfile_of_redis_8_loads_and_keeps_its_rules(tmp_path):
    path = tmp_path / "users.acl"
    path.write_text(USERS_OF_8)
    with Server("--aclfile", path) as server, Peer(server) as client:
        kept = dict(line.split(" ", 2)[1:] for line in client.ask("ACL", "LIST"))
        for rule in "+@json -@search +ft.search +json.get -json.del +ft.config|get".split():
            assert f" {rule}" in kept["cacher"], kept["cacher"]
        for rule in "-@timeseries -@bloom -@cuckoo -@cms -@topk -@tdigest -vadd".split():
            assert f" {rule}" in kept["stats"], kept["stats"]
        # Rules about commands that are not there allow nothing, and forbid nothing else.
        assert client.ask("ACL", "DRYRUN", "stats", "GET", "k") == "OK"
        assert client.ask("ACL", "SAVE") == "OK"
        before = client.ask("ACL", "LIST")
        assert client.ask("ACL", "LOAD") == "OK"
        assert client.ask("ACL", "LIST") == before
        assert client.ask("ACL", "SETUSER", "x", "+@vectors") == Failure(
            "ERR Error in ACL SETUSER modifier '+@vectors': Unknown command or category name in ACL"
        )


@pytest.mark.skipif("7.4" not in REDIS_VERSIONS, reason="no server of Redis 7.4 (scripts/get-redis.sh)")
def test_info_has_the_lines_of_redis_7_4_in_their_order(server):
    """Exporters read names, some of them lines by their place; what 7.4 adds to 7.0 stands where 7.4 has it."""
    with Server(program=REDIS_VERSIONS["7.4"]) as redis:
        theirs = lines(text(redis, "everything"))
    ours = lines(text(server, "everything"))
    assert [title for title in ours if title not in ADDED_SECTIONS] == list(theirs)
    found = set()
    for title, section in theirs.items():
        wanted = [name for name in names(section) if name not in MISSING_OF_7_4]
        found |= set(names(section))
        mine = [name for name in names(ours[title]) if name in wanted]
        assert mine == wanted, title
        # Lines of other servers stand between, and are known to test_info.
        rest = [name for name in names(ours[title]) if name not in wanted]
        assert all(name in ADDED or is_redis(DUNLIN) for name in rest), (title, rest)
    assert set(MISSING_OF_7_4) <= found, "each of them is of 7.4"
    assert is_redis(DUNLIN) or not {name for section in ours.values() for name in names(section)} & set(MISSING_OF_7_4)
