"""COMMAND INFO of every command and subcommand beside redis-server's, and beside Valkey's for those that it lacks:
arity, flags, categories, positions of keys, key specifications, tips. Every meant difference stands here with its reason.
"""

import pytest

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, Server, is_redis
from peer import Peer

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="it would be compared with itself")

FIELDS = ["name", "arity", "flags", "first key", "last key", "step", "categories", "tips", "key specifications"]

STORE = "a keyword search, as in Redis, takes a member that is called STORE for the option: the command itself is asked"

CONDITIONS = "conditions came with Valkey 9.2"

# (command, field): the reason.
MEANT = {
    ("wait", "flags"): "it blocks its client, as Valkey's flags say",
    ("wait", "categories"): "the category of commands that block, as in Valkey",
    ("georadius", "key specifications"): STORE,
    ("georadiusbymember", "key specifications"): STORE,
    ("exec", "arity"): CONDITIONS,
    ("exec", "flags"): CONDITIONS,
    ("exec", "key specifications"): CONDITIONS,
    ("move", "arity"): "REPLACE came with Valkey 9.2",
    ("sismember", "arity"): "XX came with Valkey 9.2",
    ("zrank", "arity"): "WITHSCORE came with Redis 7.2",
    ("zrevrank", "arity"): "WITHSCORE came with Redis 7.2",
}

# Commands that neither oracle has: those of Redis 8 and of Dunlin itself.
BEYOND = {
    "arcount", "ardel", "ardelrange", "arget", "argetrange", "argrep", "arinfo", "arinsert", "arlastitems", "arlen", "armget", "armset", "arnext", "arop", "arring",
    "arscan", "arseek", "arset",
    "backup", "blmovem",
    "json.arrappend", "json.arrindex", "json.arrinsert", "json.arrlen", "json.arrpop", "json.arrtrim", "json.clear", "json.debug", "json.del", "json.forget", "json.get",
    "json.merge", "json.mget", "json.mset", "json.nummultby", "json.numincrby", "json.numpowby", "json.objkeys", "json.objlen", "json.resp", "json.set", "json.strappend",
    "json.strlen", "json.toggle", "json.type",
    "client|durability", "cluster|drain", "cluster|import", "cluster|pin", "cluster|recover", "cluster|relay", "cluster|setreplicas", "cluster|status", "cluster|tell",
    "cluster|unpin", "delex", "digest", "himport", "hotkeys", "increx", "lmovem",
    "recorder", "sdiffcard", "sentinel", "sunioncard", "xackdel", "xcfgset", "xdelex", "xnack",
}


def pairs(items):
    """A map out of names and values in turn."""
    return dict(zip(items[::2], items[1::2]))


def specification(items):
    """A key specification without its notes, which are prose."""
    parts = pairs(items)
    parts.pop("notes", None)
    parts["flags"] = set(parts["flags"])
    return parts


def table(peer):
    """The fields of every command and subcommand by name."""
    rows, commands = peer.ask("COMMAND"), {}
    while rows:
        *fields, subcommands = rows.pop()[:10]
        values = dict(zip(FIELDS, fields))
        for unordered in ["flags", "categories"]:
            values[unordered] = set(values[unordered])
        values["key specifications"] = [specification(items) for items in values["key specifications"]]
        commands[values.pop("name")] = values
        rows.extend(subcommands)
    return commands


def tables(server, program):
    with Server(program=program) as other, Peer(server) as mine, Peer(other) as theirs:
        return table(mine), table(theirs)


def differences(mine, theirs):
    for name in sorted(mine.keys() & theirs.keys()):
        for field, value in mine[name].items():
            if value != theirs[name][field]:
                yield name, field, value, theirs[name][field]


def family(name):
    return name.split("|")[0]


def test_commands_are_described_as_in_redis(server):
    mine, theirs = tables(server, ORACLE)
    found = {(name, field): (value, other) for name, field, value, other in differences(mine, theirs)}
    assert {what: how for what, how in found.items() if what not in MEANT} == {}
    assert MEANT.keys() - found.keys() == set(), "no difference any more"
    assert theirs.keys() - mine.keys() == set()


@pytest.mark.skipif(not VALKEY, reason=WITHOUT_VALKEY)
def test_newer_commands_are_described_as_in_valkey(server):
    mine, redis = tables(server, ORACLE)
    _, valkey = tables(server, VALKEY)
    newer = {name: fields for name, fields in mine.items() if name not in redis}
    assert list(differences(newer, valkey)) == []
    beyond = {name for name in newer if name not in valkey and not {name, family(name)} & BEYOND}
    assert beyond == set()
