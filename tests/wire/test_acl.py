"""ACL beside redis-server 7.0, and beside Valkey for databases: decisions, texts and entries of the log are the same for
users, rules and commands drawn at random, and for scenarios."""

import random

import pytest

from harness import DUNLIN, VALKEY, WITHOUT_VALKEY, Server, is_redis
from peer import Failure, Peer

SEED = 20261125

RULES = (
    "+@all -@all +@read -@read +@write -@write +@string -@hash +@dangerous -@dangerous +@fast -@slow +@admin -@admin "
    "+@pubsub +@scripting -@connection +@keyspace +@transaction allcommands nocommands "
    "+get -get +set -set +mget +del +config -config +config|get -config|set +config|get +client|id -client +object "
    "+object|help -acl +acl|whoami +xinfo|stream +select|0 +select|1 -select +debug|sleep +ping -ping +eval -eval "
    "~a* ~b %R~r* %W~w* %RW~x %R~* ~* allkeys resetkeys ~[ab]? &ch* &b allchannels resetchannels &* "
    "on off >pw <pw nopass resetpass sanitize-payload skip-sanitize-payload reset clearselectors "
    "(+get|~a*) (+@all|%R~*|&ch*) (-@all|+set|~w*) ((+get)) (+get|foo) ( +nothing -nothing +@nothing +config|nothing "
    "+config|get|x +select| -select|0 %~a %RR~a %X~a ~ & % + - () #abc !abc <nobody foo Reset +GET +@Read"
).split(" ")

COMMANDS = [
    "GET a", "GET b", "GET r1", "GET w1", "GET other", "SET a 1", "SET w1 1", "SET r1 1", "SET w1 1 GET", "APPEND w1 x",
    "STRLEN w1", "EXISTS other", "MGET a r1", "MGET a other", "MSET a 1 w1 2", "COPY r1 w1", "COPY w1 r1", "DEL a b",
    "RENAME a w1", "OBJECT ENCODING a", "TTL r1", "EXPIRE w1 100", "SORT r1 BY nosort", "SORT r1 BY w*", "SORT r1 GET #",
    "SORT_RO a BY x* GET y*", "SORT r1 STORE w1", "BITFIELD r1 GET u8 0", "BITFIELD w1 SET u8 0 1",
    "ZUNIONSTORE w1 2 r1 a", "LMOVE r1 w1 LEFT LEFT", "XREAD COUNT 1 STREAMS a 0",
    "XREADGROUP GROUP g c STREAMS w1 0", "GEORADIUS r1 1 1 1 m STORE w1", "EVAL return(1) 1 a", "EVAL return(1) 1 other",
    "EVAL return(1) 0", "CONFIG GET port", "CONFIG SET maxmemory 0", "CLIENT ID", "ACL WHOAMI", "ACL LIST", "PING",
    "ECHO x", "SELECT 0", "SELECT 1", "KEYS nothing", "PUBLISH ch1 m", "PUBLISH other m", "SPUBLISH ch1 m", "GET",
    "NOTHING a", "CONFIG NOTHING", "WATCH a", "WATCH other", "UNWATCH", "XINFO STREAM a", "SCRIPT EXISTS a",
    "FCALL f 1 a", "PFCOUNT r1", "PFMERGE w1 r1", "DBSIZE", "FLUSHDB", "WAIT 0 0", "TIME", "LOLWUT",
]  # fmt: skip


@pytest.fixture(scope="module")
def valkey():
    if not VALKEY:
        pytest.skip(WITHOUT_VALKEY)
    with Server(program=VALKEY) as server:
        yield server


def shown(reply):
    """Whether a command has run, or the text with which it was refused."""
    return reply if isinstance(reply, Failure) and reply.startswith(("NOPERM", "NOAUTH", "WRONGPASS")) else "ran"


def log_of(owner):
    """The log without times, numbers and clients."""
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in owner.ask("ACL", "LOG", "100")]
    names = ("count", "reason", "context", "object", "username")
    return [tuple(entry[name] for name in names) for entry in entries]


def drawn_rules(dice):
    """Some rules; a selector is one word for the server."""
    return [rule.replace("|~", " ~").replace("|+", " +").replace("|%", " %").replace("|&", " &").replace("|foo", " foo")
            if rule.startswith("(") else rule for rule in dice.choices(RULES, k=dice.randint(1, 8))]  # fmt: skip


@pytest.mark.parametrize("seed", range(SEED, SEED + 8))
def test_acl_decides_as_redis(server, oracle, seed):
    dice = random.Random(seed)
    owners = [Peer(one) for one in (server, oracle)]
    for owner in owners:
        owner.line("ACL LOG RESET")
    for turn in range(40):
        rules = drawn_rules(dice)
        # One by one: most of them are good.
        for rule in rules:
            got, expected = (owner.ask("ACL", "SETUSER", "u", rule) for owner in owners)
            assert got == expected, rule
        got, expected = (owner.ask("ACL", "SETUSER", "all", *rules) for owner in owners)
        assert got == expected, rules
        if turn % 5 == 4:
            for owner in owners:
                owner.ask("ACL", "SETUSER", "u", "on", ">pw")
            users = [Peer(one) for one in (server, oracle)]
            logins = [user.line("AUTH u pw") for user in users]
            assert logins[0] == logins[1]
            if isinstance(logins[0], Failure):
                continue
            for line in dice.choices(COMMANDS, k=40):
                got, expected = (user.line(line) for user in users)
                assert shown(got) == shown(expected), (rules, line)
                if line.startswith("SORT") and isinstance(expected, Failure):
                    assert got == expected, line
            for line in dice.choices(COMMANDS, k=10):
                script = "return redis.pcall(unpack(ARGV))"
                got, expected = (user.ask("EVAL", script, 0, *line.split(" ")) for user in users)
                if isinstance(expected, Failure) and "The user executing" in expected:
                    assert got == expected, line
                else:
                    assert "The user executing" not in str(got), line
            assert log_of(owners[0]) == log_of(owners[1]), rules


def names_of(peer):
    """Full names and arities of all commands."""

    def flat(row):
        subcommands = row[9] if len(row) > 9 else []
        if not subcommands:
            yield row[0], row[1]
        for subcommand in subcommands:
            yield from flat(subcommand)

    return {name: arity for row in peer.line("COMMAND") for name, arity in flat(row)}


COMMAND_RULES = [rule for rule in RULES if rule[:1] in "+-" and "nothing" not in rule]


@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_acl_dryrun_of_every_command_is_that_of_redis(server, oracle, seed):
    dice = random.Random(seed)
    peers = [Peer(one) for one in (server, oracle)]
    ours, theirs = map(names_of, peers)
    # Later versions have changed these.
    common = [(name, arity) for name, arity in theirs.items() if ours.get(name) == arity]
    assert len(common) > 280
    rules = ["reset", "~1", *dice.choices(COMMAND_RULES, k=dice.randint(1, 12))]
    for rule in rules:
        first, second = (peer.ask("ACL", "SETUSER", "dry", rule) for peer in peers)
        assert first == second, rule
    requests = []
    for name, arity in common:
        words = name.split("|")
        requests.append(words + ["1"] * max(0, abs(arity) - len(words)))
    for peer in peers:
        for words in requests:
            peer.send("ACL", "DRYRUN", "dry", *words)
    for words in requests:
        got, expected = (peer.read() for peer in peers)
        assert got == expected, (rules, words)


def test_acl_errors_have_the_texts_of_redis(server, oracle):
    peers = [Peer(one) for one in (server, oracle)]
    for line in [
        "ACL", "ACL NOTHING", "ACL SETUSER", "ACL SETUSER u (", "ACL SETUSER u (+get ~x", "ACL SETUSER u +get)",
        "ACL SETUSER u (+get on)", "ACL DELUSER", "ACL DELUSER default", "ACL DELUSER u default", "ACL DELUSER nobody",
        "ACL GETUSER nobody", "ACL GETUSER", "ACL DRYRUN", "ACL DRYRUN nobody get a", "ACL DRYRUN u nothing",
        "ACL DRYRUN u get", "ACL DRYRUN u config nothing", "ACL CAT nothing", "ACL CAT a b", "ACL GENPASS 0",
        "ACL GENPASS -1", "ACL GENPASS 4097", "ACL GENPASS x", "ACL GENPASS 1 2", "ACL LOG x", "ACL LOG 1 2", "ACL LOG -1",
        "ACL LOAD", "ACL SAVE", "ACL USERS x", "ACL WHOAMI x", "AUTH", "AUTH a b c", "AUTH x", "AUTH nobody x",
        "HELLO 3 AUTH nobody x", "HELLO 2 AUTH u", "CLIENT KILL USER nobody", "CONFIG SET acl-pubsub-default x",
        "CONFIG SET acllog-max-len -1", "CONFIG SET aclfile x",
    ]:  # fmt: skip
        for peer in peers:
            peer.line("ACL SETUSER u reset")
        got, expected = (peer.line(line) for peer in peers)
        assert got == expected, line
    for name in ("a b", "a\0b", "a\x0bb", ""):
        got, expected = (peer.ask("ACL", "SETUSER", name, "on") for peer in peers)
        assert got == expected, name


def test_acl_getuser_and_log_have_the_types_of_redis(server, oracle):
    found = []
    for one in (server, oracle):
        peer = Peer(one, protocol=3)
        peer.line("ACL SETUSER typed reset on >pw +@all ~a %R~b &c (+get ~d) (~e)")
        fields = peer.line("ACL GETUSER typed")
        assert isinstance(fields, dict)
        fields.pop("databases", None)
        selectors = [{name: text for name, text in one.items() if name != "databases"} for one in fields["selectors"]]
        found.append((fields | {"selectors": selectors}, peer.line("ACL GETUSER nobody"), peer.line("ACL WHOAMI")))
        stranger = Peer(one, protocol=3)
        stranger.line("AUTH typed wrong")
        entry = peer.line("ACL LOG 1")[0]
        assert isinstance(entry, dict) and isinstance(entry["age-seconds"], float)
        assert entry["object"] == "AUTH" and entry["username"] == "typed"
    assert found[0] == found[1]


@pytest.mark.skipif(is_redis(DUNLIN), reason="databases are Valkey's")
def test_acl_rules_and_databases_are_those_of_valkey(server, valkey):
    dice = random.Random(SEED)
    databases = ["db=0", "db=1", "db=0,1", "db=2,1,1", "alldbs", "resetdbs", "db=", "db=x", "db=-1", "db=0,", "DB=1"]
    rules = [rule for rule in RULES if "payload" not in rule and rule not in ("reset", "Reset", "+@admin", "-@admin")]
    lines = ["GET a", "SET a 1", "MOVE a 1", "MOVE a 2", "COPY a b DB 1", "COPY a b DB 2", "SWAPDB 0 1", "SWAPDB 1 2",
             "SELECT 0", "SELECT 1", "SELECT 2", "SELECT x", "FLUSHALL", "FLUSHDB", "KEYS x", "DBSIZE", "RANDOMKEY",
             "SCAN 0", "PING", "PUBLISH ch1 x", "SPUBLISH ch1 x", "EVAL x 0", "FUNCTION FLUSH", "SCRIPT FLUSH", "MULTI",
             "AUTH x", "INFO", "CLIENT ID", "SUBSCRIBE ch1", "WATCH a", "EXEC"]  # fmt: skip
    ours, theirs = Peer(server), Peer(valkey)
    for _ in range(60):
        words = dice.choices(databases, k=2) + dice.choices(rules, k=4)
        words = [word for word in words if not word.startswith("(")] + ["(+@all ~* &* db=1)"] * dice.randint(0, 1)
        ours.line("ACL DELUSER v"), theirs.line("ACL DELUSER v")
        got, expected = (peer.ask("ACL", "SETUSER", "v", *words) for peer in (ours, theirs))
        assert got == expected, words
        if isinstance(expected, Failure):
            continue
        lists = [next(line for line in peer.line("ACL LIST") if line.startswith("user v ")) for peer in (ours, theirs)]
        assert lists[0] == lists[1], words
        ours.line("ACL DELUSER v"), theirs.line("ACL DELUSER v")
        assert ours.ask("ACL", "SETUSER", "v", *lists[1].split(" ")[2:]) == "OK"
        assert theirs.ask("ACL", "SETUSER", "v", *lists[0].split(" ")[2:]) == "OK"
        for line in lines:
            got, expected = (peer.line(f"ACL DRYRUN v {line}") for peer in (ours, theirs))
            assert decision(got) == decision(expected), (words, line)


def decision(reply):
    """The outcome of a dry run, in no server's words."""
    for sign, kind in [("database", "database"), ("to run", "command"), ("key", "key"), ("channel", "channel")]:
        if isinstance(reply, str) and sign in reply:
            return kind
    return reply


SCENARIOS = {
    "subscribed": ["PSUBSCRIBE ch*", "GET other", "GET a", "PUNSUBSCRIBE"],
    "queued": ["MULTI", "GET a", "GET other", "EXEC", "GET a"],
    "queued and allowed": ["MULTI", "GET a", "EXEC"],
    "exec denied": ["MULTI", "GET a", "!-exec", "EXEC", "!+exec", "DISCARD"],
    "changed before exec": ["MULTI", "GET a", "PUBLISH ch1 x", "!resetkeys -publish", "EXEC"],
    "channels lost before exec": ["MULTI", "PUBLISH ch1 x", "!resetchannels", "EXEC"],
    "user changed in exec": ["MULTI", "AUTH u wrong", "GET a", "EXEC"],
    "reset": ["RESET", "ACL WHOAMI", "AUTH u pw", "ACL WHOAMI"],
    "off": ["!off", "GET a", "AUTH u pw", "RESET", "AUTH u pw"],
    "two passwords": ["!>second", "AUTH u second", "!<pw", "AUTH u pw", "AUTH u second"],
    "checked by scripts": ["EVAL return{redis.acl_check_cmd('get','a'),redis.acl_check_cmd('get','other')} 0",
                           "EVAL return(redis.acl_check_cmd('nothing')) 0", "EVAL return(redis.acl_check_cmd()) 0",
                           "EVAL return(redis.acl_check_cmd('get')) 0", "EVAL return(redis.acl_check_cmd('config')) 0"],
}  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_acl_scenarios_are_those_of_redis(server, oracle, scenario):
    told = []
    for one in (server, oracle):
        owner, user = Peer(one), Peer(one)
        assert owner.line("ACL SETUSER u reset on >pw +@all ~a* %R~r* &ch*") == "OK"
        owner.line("ACL LOG RESET")
        told.append([user.line("AUTH u pw")])
        for line in SCENARIOS[scenario]:
            peer, line = (owner, "ACL SETUSER u " + line[1:]) if line.startswith("!") else (user, line)
            told[-1].append(peer.line(line))
        told[-1].append(log_of(owner))
    assert told[0] == told[1]
