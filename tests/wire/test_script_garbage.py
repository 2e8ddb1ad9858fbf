"""Garbage of scripts is nobody's data: no key gives way to it, no write is refused for it, and it is collected without
another script."""

import re

import pytest
from harness import DUNLIN, Server, is_redis
from peer import Peer
from wire import eventually

MB = 1 << 20
pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server has one heap of Lua, and other figures")

TABLES = "local t = {} for i = 1, 150000 do t[i] = {i} end return #t"
STRINGS = "local t = {} for i = 1, 150000 do t[i] = 'string ' .. i end return #t"
JSON = "return #cjson.decode('[' .. string.rep('[1,2,3],', 60000) .. '1]')"
PACKED = "return #cmsgpack.unpack(cmsgpack.pack(cjson.decode('[' .. string.rep('[1],', 60000) .. '1]')))"
LIBRARY = "#!lua name={0}\nlocal function f() {1} end\n{2}\nredis.register_function{{function_name='{0}', callback=f, flags={{'no-writes'}}}}"


def info(peer, field):
    found = re.search(rf"^{field}:(\d+)", peer.ask("INFO", "everything"), re.M)
    return int(found.group(1))


def limited(peer):
    """What maxmemory limits, as of one moment."""
    text = peer.ask("INFO", "memory")
    used, uncounted = (
        int(re.search(rf"^{field}:(\d+)", text, re.M).group(1)) for field in ("used_memory", "mem_not_counted_for_evict")
    )
    return used - uncounted


def heaps(peer):
    return info(peer, "used_memory_vm_total")


@pytest.fixture
def short():
    """A client of a server that has 3 MB of keys, and room for 2 MB more."""
    with Server("--threads", "2", "--maxmemory-policy", "allkeys-lru") as server, Peer(server) as peer:
        assert peer.ask("EVAL", "return 1", 0) == 1
        for number in range(3000):
            peer.send("SET", f"key:{number}", b"x" * 1000)
        assert {peer.read() for _ in range(3000)} == {"OK"}
        assert peer.line("ACL SETUSER reader on nopass +@read +@scripting +multi +exec +auth ~*") == "OK"
        assert peer.ask("CONFIG", "SET", "maxmemory", limited(peer) + 2 * MB) == "OK"
        yield peer


def in_transaction(peer, script):
    assert peer.line("MULTI") == "OK"
    peer.ask("EVAL_RO", script, 0)
    return peer.line("EXEC")[0]


def in_function(peer, script):
    assert peer.ask("FUNCTION", "LOAD", LIBRARY.format("garbage", script, "")) == "garbage"
    return peer.line("FCALL_RO garbage 0")


def at_loading(peer, script):
    code = script.replace("return #t", "")
    assert peer.ask("FUNCTION", "LOAD", LIBRARY.format("garbage", "return 1", code)) == "garbage"
    return 1


def as_reader(peer, script):
    assert peer.line("AUTH reader any") == "OK"
    reply = peer.ask("EVAL_RO", script, 0)
    assert peer.line("AUTH default any") == "OK"
    return reply


def plain(peer, script):
    return peer.ask("EVAL", script, 0)


WAYS = [
    (plain, TABLES), (plain, STRINGS), (plain, JSON), (plain, PACKED),
    (as_reader, TABLES), (in_transaction, TABLES), (in_function, TABLES), (at_loading, TABLES),
]  # fmt: skip


@pytest.mark.parametrize(("way", "script"), WAYS)
@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_garbage_neither_evicts_nor_refuses(short, way, script, policy):
    assert short.ask("CONFIG", "SET", "maxmemory-policy", policy) == "OK"
    keys = short.line("DBSIZE")
    assert isinstance(way(short, script), int)
    # INFO sums up what heaps hold at this moment.
    assert info(short, "used_memory_vm_total") >= 0
    for number in range(1200):
        short.send("SET", f"key:{number}", b"y" * 1000)
    assert {short.read() for _ in range(1200)} == {"OK"}
    assert (short.line("DBSIZE"), info(short, "evicted_keys")) == (keys, 0)


@pytest.mark.parametrize(("way", "script"), WAYS)
def test_garbage_is_collected_without_another_script(short, way, script):
    before = heaps(short)
    way(short, script)
    eventually(lambda: heaps(short) < before + MB, "the garbage stays")


@pytest.mark.parametrize("purge", ["SCRIPT FLUSH", "MEMORY PURGE"])
def test_heaps_are_given_up(short, purge):
    before = heaps(short)
    plain(short, TABLES)
    assert short.line(purge) == "OK"
    eventually(lambda: heaps(short) < before + MB // 2, "the heap stays")
    assert plain(short, "return 5") == 5


def test_library_that_is_gone_counts_no_longer(short):
    held = "local kept = {} for i = 1, 150000 do kept[i] = {i} end"
    code = f"#!lua name=keeper\n{held}\nredis.register_function('keeper', function() return #kept end)"
    assert short.ask("FUNCTION", "LOAD", code) == "keeper"
    eventually(lambda: limited(short) > info(short, "maxmemory"), "what a library keeps is data")
    assert short.line("FUNCTION FLUSH") == "OK"
    assert limited(short) < info(short, "maxmemory")
    eventually(lambda: info(short, "used_memory_vm_functions") < MB, "the heap stays")


def test_arguments_of_a_script_do_not_stay(short):
    before = heaps(short)
    assert short.ask("CONFIG", "SET", "maxmemory", 0) == "OK"
    assert short.ask("EVAL", "return #ARGV[1]", 0, b"x" * (8 * MB)) == 8 * MB
    eventually(lambda: heaps(short) < before + MB, "the argument stays")
