"""Calls of a command with each of its options, made from the arguments that COMMAND DOCS lists.

    arguments ─▶ good calls: the required words, each option and alternative, each pair of options, all of them
              ─▶ bad calls:  words left out, doubled, too many; values out of range; keys of another type;
                             options that exclude each other, without their values or with too many

Everything follows from the tree, in the same order in every run. At the end: clients that make such calls on two servers.
"""

import hashlib
import itertools
import time
from fnmatch import fnmatchcase
from typing import NamedTuple

from peer import Peer
from wire import command

LIBRARY = (
    "#!lua name=library\n"
    "redis.register_function('f', function(keys, args) return {keys, args} end)\n"
    "redis.register_function{function_name='g', callback=function(keys, args) return args end, flags={'no-writes'}}"
)
SCRIPT = "return {KEYS, ARGV}"
# The keys before a call: every type, small, with a second key beside the one that is named first.
DATA = [
    line.split(" ")
    for line in """FLUSHALL
SET string hello
SET number 10
SET float 10.5
SET volatile hello PX 10000000
SET bits abcdefgh
HSET hash a 1 b 2 c 3.5 d text
HSET hash:2 e 5 f 6
RPUSH list a b c a 1 2
RPUSH list:2 x y z
RPUSH numbers 3 1 2
SADD set a b c d
SADD set:2 b c x
ZADD zset 1 a 2 b 3 c 4 d
ZADD zset:2 1 b 2 c 5 x
ZADD lex 0 a 0 b 0 c 0 d
GEOADD geo 13.361389 38.115556 a 15.087269 37.502669 b 2.35 48.85 c
XADD stream 1-1 a 1
XADD stream 2-1 b 2
XADD stream 3-1 c 3
XADD stream:2 1-1 a 1
XGROUP CREATE stream g 0
XGROUP CREATECONSUMER stream g c1
XREADGROUP GROUP g c1 COUNT 2 STREAMS stream >
PFADD hyperloglog a b c
PFADD hyperloglog:2 c d e
SET w_1 3
SET w_2 1
SET w_3 2
SET d_1 x
SET d_2 y
SET d_3 z
SCRIPT FLUSH
FUNCTION FLUSH""".splitlines()
] + [["SCRIPT", "LOAD", SCRIPT], ["FUNCTION", "LOAD", LIBRARY]]

KEYS = {
    "hash": "hash", "list": "list", "set": "set", "sorted-set": "zset", "sorted_set": "zset", "stream": "stream",
    "geo": "geo", "hyperloglog": "hyperloglog", "bitmap": "bits",
}  # fmt: skip
KEYS_OF_COMMANDS = {
    "incr": "number", "decr": "number", "incrby": "number", "decrby": "number", "incrbyfloat": "float", "persist": "volatile",
    "sort": "numbers", "sort_ro": "numbers", "z*lex*": "lex", "msetnx": "missing",
}  # fmt: skip
SECOND_KEYS = {
    "string": "number", "hash": "hash:2", "list": "list:2", "set": "set:2", "zset": "zset:2", "stream": "stream:2",
    "hyperloglog": "hyperloglog:2", "number": "float",
}  # fmt: skip
# Values by command and name of the argument; the first line that fits counts.
VALUES = """z*lex* min [a|z*lex* max [c|zrangestore min 0|zrangestore max 2|* min 1|* max 3
zrange start 0|zrange stop 2|* score 1.5|* weight 2
x* start -|x* end +|xautoclaim start 0|xread* id 0|xadd id 9-1|xadd threshold 2|xtrim threshold 2|xgroup* id 0|* id 1-1
* group* g|* consumer* c1|* min-idle-time 0|* ms 5|* lastid 1-1|* last-id 9-1|* max*del* 1-1|* entries* 5
h* field a|h* value 7|* element a|* pivot a|* member2 b|* member* a|lset index 0
* longitude 13.5|* latitude 38.0|* radius 200|* width 400|* height 400|* num-vertices 3
wait* timeout 10|* timeout 0.01|* numlocal 0|* numreplicas 0
bitfield* encoding u8|bitfield* offset 8|setbit value 1|bitop operation AND|* bit 1
* seconds 1000|* milliseconds 1000000|* *time-seconds 9999999999|* *time-milliseconds 9999999999999
* cursor 0|* by-pattern w_*|* get-pattern d_*|* pattern *a*|* function f|* destination-db 1|* db 1|* type string
* library-name library|* comparison-value hello|set value v|* numkeys 1|* numfields 1|* count 2|* offset 1|* limit 2
* start 0|* end 2|* stop 2|* index 1|* increment 2|* decrement 2|* frequency 5|* ttl 0|* rank 1|* len 3|* num-matches 2"""
VALUES = [rule.split(" ", 2) for line in VALUES.splitlines() for rule in line.split("|")]
TEXTS = {
    "script": SCRIPT,
    "sha1": hashlib.sha1(SCRIPT.encode()).hexdigest(),
    "function-code": LIBRARY.replace("library", "other").replace("'f'", "'p'").replace("'g'", "'q'"),
    "serialized-value": b"\x00\x01a\x09\x00",
}
OF_TYPES = {"integer": "1", "double": "1.5", "unix-time": "9999999999"}
WRONG = ["word", "-1", "0", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.5", "", "nan", "(1"]
# So many good calls are spoiled in each way; those behind them repeat their options in other pairs.
SHORTENED_MAX, MISTAKEN_MAX, VARIANTS_MAX = 40, 12, 10


class Word(NamedTuple):
    """A word of a call."""

    text: str | bytes
    # "token", "value" or "key".
    kind: str
    # Of the argument that it stands for.
    name: str = ""


def value(command, argument):
    name = argument["name"]
    if name in TEXTS:
        return TEXTS[name]
    fits = (text for of, called, text in VALUES if fnmatchcase(command, of) and fnmatchcase(name, called))
    return next(fits, OF_TYPES.get(argument["type"], "v"))


def is_optional(argument):
    return "optional" in argument.get("flags", ())


def another(word):
    """The word that follows where an argument is repeated."""
    if word.kind == "key":
        return word._replace(text=SECOND_KEYS.get(word.text, word.text))
    return word._replace(text={"a": "b", "1": "2"}.get(word.text, word.text))


def variants(command, argument, key):
    """The ways to write an argument; the first is the plainest."""
    token = [Word(argument["token"], "token")] if argument.get("token") else []
    match argument["type"]:
        case "pure-token":
            found = [[]]
        case "oneof":
            found = [way for one in argument["arguments"] for way in variants(command, one, key)]
        case "block":
            found = sequences(command, argument["arguments"], key)
        case "key":
            found = [[Word(key, "key")]]
        case _:
            found = [[Word(value(command, argument), "value", argument["name"])]]
    found = [token + way for way in found]
    if "multiple" in argument.get("flags", ()):
        repeated = found[0] if "multiple_token" in argument["flags"] else found[0][len(token) :]
        found.append(found[0] + [another(word) for word in repeated])
    return found


def sequences(command, arguments, key):
    """The required words; with each option in each of its ways; with each two options; with all."""
    ways = [variants(command, argument, key) for argument in arguments]
    options = [at for at, argument in enumerate(arguments) if is_optional(argument)]
    plainest = [[] if is_optional(argument) else way[0] for argument, way in zip(arguments, ways)]

    def changed(changes):
        return [word for at, way in enumerate(plainest) for word in changes.get(at, way)]

    found = [changed({})]
    for at, argument in enumerate(arguments):
        found += [changed({at: way}) for way in ways[at][0 if is_optional(argument) else 1 :]]
    for one, other in itertools.combinations(options, 2):
        pairs = itertools.product(ways[one][:VARIANTS_MAX], ways[other][:VARIANTS_MAX])
        found += [changed({one: first, other: second}) for first, second in pairs]
    if len(options) > 2:
        found.append(changed({at: ways[at][0] for at in options}))
    return found


def counted(words):
    """Puts the numbers in the place of numkeys and numfields."""
    words = list(words)
    for at, word in enumerate(words):
        if word.name in ("numkeys", "numfields"):
            behind = words[at + 1 :]
            count = sum(word.kind == "key" if words[at].name == "numkeys" else word.name == "field" for word in behind)
            words[at] = word._replace(text=str(count))
    return words


def tokens(arguments):
    for argument in arguments:
        if argument.get("token"):
            yield argument["token"]
        yield from tokens(argument.get("arguments", ()))


def key_of(command, group):
    named = (key for pattern, key in KEYS_OF_COMMANDS.items() if fnmatchcase(command, pattern))
    return next(named, KEYS.get(group, "string"))


def number(token):
    """A number to put behind a token; of times one that does not come before both servers have been looked at."""
    return "100000" if token in ("EX", "PX") else "1"


def spoiled(good, key, known):
    """Calls with one mistake, or with one option too many."""
    for words in good[:SHORTENED_MAX]:
        yield [word._replace(text=word.text.lower()) if word.kind == "token" else word for word in words]
        for at, word in enumerate(words):
            yield words[:at] + words[at + 1 :]
            yield words[:at]
            if word.kind == "token":
                yield [*words, word]
        for text in ["word", *known]:
            yield [*words, Word(text, "token")]
    of_other_types = [other for other in ("string", "hash", "zset") if other != key] + ["missing"]
    for words in good[:MISTAKEN_MAX]:
        for at, word in enumerate(words):
            mistakes = {"value": WRONG, "key": of_other_types, "token": []}[word.kind]
            for text in mistakes:
                yield words[:at] + [word._replace(text=text)] + words[at + 1 :]
    for text in known:
        for behind in ([number(text)], [number(text), "2"], ["word"]):
            yield good[0] + [Word(word, "token") for word in [text, *behind]]
    for first, second in itertools.product(known, repeat=2):
        yield good[0] + [Word(first, "token"), Word(second, "token")]
        yield good[0] + [Word(word, "token") for word in (first, number(first), second, number(second))]


def calls(command, documented, with_mistakes=True):
    """Every call of a command, each once: words."""
    arguments = documented.get("arguments", [])
    key = key_of(command, documented["group"])
    good = [counted(words) for words in sequences(command, arguments, key)]
    known = sorted(set(tokens(arguments)))
    seen = set()
    for words in itertools.chain(good, spoiled(good, key, known) if with_mistakes else []):
        call = (*command.split(" "), *(word.text for word in words))
        if call not in seen:
            seen.add(call)
            yield call


# Commands that wait for the server, report about the server itself, or change the connection: they have tests of
# their own.
ELSEWHERE = """acl* asking auth backup* bgrewriteaof bgsave client* cluster* command* commandlog* config* debug discard
exec failover hello info lastsave latency* lolwut memory* migrate module* monitor multi pfdebug pfselftest psubscribe psync
punsubscribe quit readonly readwrite replconf replicaof reset restore-asking role save script?debug shutdown slaveof
slowlog* ssubscribe subscribe sunsubscribe swapdb sync time unsubscribe function?stats function?kill script?kill *help""".split()
# The pause before each look whether a call waits; one that does not may take its time.
PATIENCE_S = 0.05
# The looks in a row at which it waits: some calls wait for 10 ms, and a server that stands still sees the end of that late. At each
# look the server lists its clients, so it has not stood still all the time.
LOOKS = 10
DEADLINE_S = 60


class RawPeer(Peer):
    """Reads replies as they are: their kind and contents."""

    def __init__(self, server, protocol):
        super().__init__(server, protocol)
        self.server = server
        self.id = int(self.ask("CLIENT", "ID")[1])

    def read(self):
        line = self._line()
        kind, rest = line[:1].decode(), line[1:]
        if kind in "$=":
            return kind, None if rest == b"-1" else self._bytes(int(rest))
        if kind in "*~>%":
            count = int(rest) * (2 if kind == "%" else 1)
            return kind, None if count < 0 else tuple(self.read() for _ in range(count))
        return kind, rest

    def begin(self, call):
        self.send(*call)
        self.send("DEBUG", "DIGEST")

    def finish(self):
        """The reply and the digest of all data; a call that waits has neither."""
        deadline = time.monotonic() + DEADLINE_S
        looks = 0
        while not self.held:
            assert time.monotonic() < deadline, "neither a reply nor a client that waits"
            self.socket.settimeout(PATIENCE_S)
            try:
                self._fill()
            except TimeoutError:
                looks = looks + 1 if self.is_waiting() else 0
                if looks == LOOKS:
                    return ("waits", b""), b""
            finally:
                self.socket.settimeout(DEADLINE_S)
        return self.read(), self.read()[1]

    def is_waiting(self):
        with Peer(self.server) as other:
            fields = dict(field.split("=", 1) for field in other.ask("CLIENT", "LIST", "ID", self.id).split())
            return "b" in fields["flags"]


def documented(peer):
    """All commands and subcommands with their documentation."""

    def text(held):
        return held.decode() if isinstance(held, bytes) else held

    def plain(reply):
        kind, held = reply
        if kind == "%":
            return {text(plain(name)): plain(told) for name, told in zip(held[::2], held[1::2])}
        return [plain(inner) for inner in held] if isinstance(held, tuple) else text(held)

    def leaves(commands):
        for name, told in commands.items():
            if told.get("subcommands"):
                yield from leaves(told["subcommands"])
            else:
                yield name.replace("|", " "), told

    return dict(sorted(leaves(plain(peer.ask("COMMAND", "DOCS")))))


def traits(peer, names):
    """The flags and the tips of commands, together."""
    told = {}
    for name in names:
        info = peer.ask("COMMAND", "INFO", name.replace(" ", "|"))[1][0][1]
        told[name] = {trait.decode() for _, trait in (*info[2][1], *info[7][1])}
    return told


RESET = b"".join(command(*words) for words in [*DATA, ["DEBUG", "DIGEST"]])


def reset(peers):
    """Brings the data back; their digests."""
    for peer in peers:
        peer.socket.sendall(RESET)
    return [[peer.read() for _ in range(len(DATA) + 1)][-1][1] for peer in peers]


def replaced(peer, server, protocol):
    """A connection in the place of one whose command still waits."""
    peer.close()
    return RawPeer(server, protocol)
