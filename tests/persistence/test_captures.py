"""Captured files of real servers, with every type and with values of modules: they are loaded, counted, dumped byte for byte
and written back, and the servers that wrote them read what comes back. See captures.py."""

import shutil
import subprocess

import pytest

from captures import CAPTURES, DEBUG, FOLDER, HAS_MODULES, HERE, READS, WITH_MODULES, describe, kept, shown, value_of, without_reads
from harness import DUNLIN, REDIS_VERSIONS, Server, is_redis
from links import Node, has_link, until
from resp import Client

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin")
WITHOUT_MODULES = "the package with Redis 7.4 and its modules could not be had (scripts/get-redis.sh)"
LOG = ("--appendonly", "yes")
FILES = [("dump.rdb", "keys-rdb.json", ()), ("appendonlydir", "keys.json", LOG)]


def copied(name, file, folder):
    """A copy of a captured file in a folder."""
    source = FOLDER / name / file
    shutil.copytree(source, folder / file) if source.is_dir() else shutil.copy(source, folder)


def run(*arguments):
    done = subprocess.run([DUNLIN, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def foreign(described):
    """How many values there are of each type that Dunlin lacks."""
    counts = {}
    for keys in described["databases"].values():
        for said in keys.values():
            if "holds" not in said and said["type"] not in HERE:
                counts[said["type"]] = counts.get(said["type"], 0) + 1
    return counts


def hold_the_captured_bytes(client, name, file, expected):
    """Looks for each value of a module, as it is dumped, in the captured file."""
    path = FOLDER / name / file
    captured = b"".join(part.read_bytes() for part in ([path] if path.is_file() else sorted(path.iterdir())))
    for key, said in expected["databases"]["0"].items():
        if "holds" not in said:
            assert value_of(client, key) in captured, key


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize(("file", "keys", "directives"), FILES)
def test_files_of_real_servers_are_read_and_written_again(name, file, keys, directives, tmp_path):
    expected = without_reads(kept(name, keys))
    copied(name, file, tmp_path)
    told = run("check", tmp_path / file)
    for kind, count in foreign(expected).items():
        assert f"{kind} {count}" in told, told
    with Server(*DEBUG, "--dir", tmp_path, *directives) as server:
        client = Client(server)
        assert describe(client, read_modules=HERE) == expected
        hold_the_captured_bytes(client, name, file, expected)
        # The base is written again, by this server, and the log behind it begins anew.
        if directives:
            client("BGREWRITEAOF")
            until(lambda: b"aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0" in client("INFO", "persistence"), "a rewrite")
        else:
            client("SAVE")
    with Server(*DEBUG, "--dir", tmp_path, *directives) as server:
        client = Client(server)
        assert describe(client, read_modules=HERE) == expected
        hold_the_captured_bytes(client, name, file, expected)


@pytest.mark.parametrize("name", [name for name, (_, _, modules) in CAPTURES.items() if modules])
def test_values_of_modules_are_copied_renamed_and_restored_byte_for_byte(name, tmp_path):
    copied(name, "dump.rdb", tmp_path)
    captured = (FOLDER / name / "dump.rdb").read_bytes()
    keys = [key for key, said in kept(name, "keys-rdb.json")["databases"]["0"].items() if "holds" not in said]
    assert keys
    with Server(*DEBUG, "--dir", tmp_path) as server:
        client = Client(server)
        for key in keys:
            client("RESTORE", f"{key} restored", 0, client("DUMP", key))
            client("COPY", key, f"{key} copied")
            client("RENAME", key, f"{key} renamed")
            for way in ("restored", "copied", "renamed"):
                assert value_of(client, f"{key} {way}") in captured, (key, way)


def read_back(version, source, folder):
    """What the server that a file came from says when it gets it back from here."""
    folder.mkdir()
    run("convert", "--rdb-version", 12, source, folder / "dump.rdb")
    modules = WITH_MODULES if version == "7.4" else []
    with Server(*DEBUG, *modules, "--dir", folder, program=REDIS_VERSIONS[version]) as server:
        return describe(Client(server), read_modules=True)


@pytest.mark.skipif(not HAS_MODULES, reason=WITHOUT_MODULES)
@pytest.mark.parametrize(("file", "keys", "_"), FILES)
def test_redis_stack_reads_its_values_from_a_file_that_was_written_here(file, keys, _, tmp_path):
    copied("redis-stack-7.4", file, tmp_path)
    assert read_back("7.4", tmp_path / file, tmp_path / "back") == kept("redis-stack-7.4", keys)


@pytest.mark.skipif(not HAS_MODULES, reason=WITHOUT_MODULES)
def test_redis_stack_restores_what_is_dumped_here(tmp_path):
    copied("redis-stack-7.4", "dump.rdb", tmp_path)
    values = {key: said for key, said in kept("redis-stack-7.4", "keys-rdb.json")["databases"]["0"].items() if "read" in said}
    assert len(values) == 10
    with Server("--dir", tmp_path) as server, Server(*WITH_MODULES, program=REDIS_VERSIONS["7.4"]) as stack:
        here, there = Client(server), Client(stack)
        for key, said in values.items():
            there("RESTORE", key, 0, here("DUMP", key))
            assert shown(there(*READS[key])) == said["read"], key


@pytest.mark.skipif("8.2" not in REDIS_VERSIONS, reason="Redis 8.2 could not be had (scripts/get-redis.sh)")
def test_redis_8_reads_its_vector_sets_from_a_file_that_was_written_here(tmp_path):
    copied("redis-8.2", "dump.rdb", tmp_path)
    assert read_back("8.2", tmp_path / "dump.rdb", tmp_path / "back") == kept("redis-8.2", "keys-rdb.json")


@pytest.mark.skipif(not HAS_MODULES, reason=WITHOUT_MODULES)
def test_redis_stack_primary_is_followed(tmp_path):
    (tmp_path / "primary").mkdir()
    copied("redis-stack-7.4", "dump.rdb", tmp_path / "primary")
    with (
        Node(REDIS_VERSIONS["7.4"], *WITH_MODULES, "--dir", tmp_path / "primary") as primary,
        Node(DUNLIN, "--dir", tmp_path) as replica,
    ):
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        assert describe(Client(replica), read_modules=HERE) == without_reads(kept("redis-stack-7.4", "keys-rdb.json"))
        # What comes behind the snapshot: keys of Redis's types, and values of modules that are moved.
        primary.call("SET", "behind", "the snapshot")
        primary.call("JSON.SET", "json", "$.a[1]", '{"new":[1.0,2]}')
        primary.call("JSON.NUMINCRBY", "json", "$.a[2]", "0.5")
        primary.call("JSON.ARRAPPEND", "json:text", "$.*", "7", '"x"')
        primary.call("RENAME", "json:text", "json renamed")
        primary.call("COPY", "series:plain", "series copied")
        primary.call("DEL", "bloom")
        assert primary.call("WAIT", 1, 60_000) == 1
        expected = describe(Client(primary), read_modules=True)
        for key in ("json", "json renamed"):
            assert replica.call("JSON.GET", key) == primary.call("JSON.GET", key)
        replica.call("SAVE")
    # The way back.
    assert read_back("7.4", tmp_path / "dump.rdb", tmp_path / "back") == expected


@pytest.mark.skipif(not HAS_MODULES, reason=WITHOUT_MODULES)
@pytest.mark.parametrize("treatment", ["keep", "skip"])
def test_indexes_of_redis_stack_are_in_the_files_that_are_written_here(treatment, tmp_path):
    (tmp_path / "there").mkdir()
    with Server(*WITH_MODULES, "--dir", tmp_path / "there", program=REDIS_VERSIONS["7.4"]) as stack:
        client = Client(stack)
        client("FT.CREATE", "titles", "ON", "HASH", "PREFIX", 1, "book:", "SCHEMA", "title", "TEXT")
        client("HSET", "book:1", "title", "whales")
        client("SAVE")
    with Server(*DEBUG, "--module-data", treatment, "--dir", tmp_path / "there") as server:
        client = Client(server)
        assert client("HGETALL", "book:1") == [b"title", b"whales"]
        client("DEBUG", "RELOAD")
        client("SAVE")
    with Server(*WITH_MODULES, "--dir", tmp_path / "there", program=REDIS_VERSIONS["7.4"]) as stack:
        client = Client(stack)
        assert client("FT._LIST") == ([b"titles"] if treatment == "keep" else [])
        assert client("HGETALL", "book:1") == [b"title", b"whales"]
