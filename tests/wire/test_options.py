"""Every option of every command, as the oracle's own COMMAND DOCS lists them: well used, misused, and together with
every other one. Replies and error texts are the oracle's, and so is what the call has changed."""

from fnmatch import fnmatchcase

import pytest

from harness import ORACLE, VALKEY, WITHOUT_VALKEY, Server
from options import ELSEWHERE, RawPeer, calls, documented, replaced, reset, traits

# Their replies are neither the same nor of the same length on two servers.
OF_KIND_ONLY = ["dump", "function?dump", "h*ttl", "object*", "xinfo*", "scan"]
def ordered(reply):
    kind, held = reply
    return (kind, sorted(map(ordered, held), key=repr)) if isinstance(held, tuple) else reply


def agree(traits, name, ours, oracles):
    if ours == oracles or "-" in (ours[0], oracles[0]):
        return ours == oracles
    if "nondeterministic_output" in traits or any(fnmatchcase(name, pattern) for pattern in OF_KIND_ONLY):
        return ours[0] == oracles[0]
    return ordered(ours) == ordered(oracles)


def numbers(reply):
    """A reply with numbers in the place of texts that are some."""
    kind, held = reply
    if isinstance(held, tuple):
        return kind, tuple(map(numbers, held))
    try:
        return kind, float(held or b"-")
    except ValueError:
        return reply


def refuses(reply, *starts):
    return reply[0] == "-" and reply[1].startswith(tuple(start.encode() for start in starts))


def is_endless(call, ours, oracles):
    return refuses(ours, "ERR timeout is out of range") and (not refuses(oracles) or b"negative" in oracles[1])


def has_no_opposite(call, ours, oracles):
    return refuses(ours, "ERR value is out of range") and "-9223372036854775808" in call


def is_unbalanced(call, ours, oracles):
    return refuses(ours, "ERR Unbalanced '") and refuses(oracles, "ERR Unbalanced XREAD list")


def is_of_equal_weights(call, ours, oracles):
    words = [str(word).upper() for word in call]
    return "BY" in words and "ALPHA" in words and ours[0] == oracles[0]


def is_the_same_number(call, ours, oracles):
    return numbers(ours) == numbers(oracles)


def has_optional_word(call, ours, oracles):
    return len(call) == 4 and refuses(oracles, "ERR wrong number of arguments")


def is_part_first(call, ours, oracles):
    return refuses(ours, "ERR syntax error", "ERR value is not an integer") or (
        len(call) == 3 and refuses(oracles, "ERR syntax error")
    )


def is_expired_at_once(call, ours, oracles):
    return ours == oracles and any(str(word).upper() in ("EXAT", "PXAT") for word in call)


def told_otherwise(*starts):
    return lambda call, ours, oracles: refuses(oracles, *starts)


def is_key_called_fields(call, ours, oracles):
    return call[1].upper() == "FIELDS"


def is_cut_to_32_bits(call, ours, oracles):
    return refuses(ours, "ERR index out of range") and call[2].startswith(("922", "-922"))


# Differences that are meant: of which commands, when, and why.
MEANT = [
    ("b*", is_endless, "a timeout that is too long is out of range, not negative, as in Redis 7.2 and newer"),
    ("xread*", is_endless, "a timeout that is too long is out of range, as in Redis 7.2 and newer"),
    ("wait*", is_endless, "a timeout that is too long is out of range, as in Redis 7.2 and newer"),
    ("xread*", is_unbalanced, "an unbalanced list of streams is told with the command's own name, as in Redis 7.2"),
    ("l*", has_no_opposite, "the smallest number has no opposite: refused, as in Redis 7.2 and newer"),
    ("sort*", is_of_equal_weights, "elements of equal weight are in the order of their bytes; in Redis in any"),
    ("z*", is_the_same_number, "scores are told in the shortest text that reads back, as in Redis 7.2 and newer"),
    ("z*rank", has_optional_word, "ZRANK and ZREVRANK take WITHSCORE, as in Redis 7.2 and newer"),
    ("move", has_optional_word, "MOVE takes REPLACE, as in Valkey 9.2"),
    ("bit*", is_part_first, "the part of a string is read before the key is looked at, and its end may be left out"),
    ("*set*", is_expired_at_once, "a key whose time is past is gone at once; other servers count it until it is looked at"),
    ("geo*", told_otherwise("ERR member "), "a member that is missing is told in Redis's words, not in Valkey's"),
    ("evalsha*", told_otherwise("NOSCRIPT No matching script."), "a script that is missing is told in Redis's words"),
    ("*scan", told_otherwise("ERR invalid cursor"), "a cursor is read as in Redis: what is no number is 0"),
    ("scan", told_otherwise("ERR unknown type name"), "no key has a type that there is not, as in Redis"),
    ("h?etex", is_key_called_fields, "a key may be called FIELDS, which Valkey takes for the word"),
    ("lset", is_cut_to_32_bits, "Valkey cuts an index to 32 bits"),
]


def meant(name, call, ours, oracles):
    return any(fnmatchcase(name, of) and holds(call, ours, oracles) for of, holds, _ in MEANT)


def walk(ours, oracle, protocol):
    """The differences, as lines. Errors are the same in both protocols: mistakes are made in one."""
    with RawPeer(oracle, 3) as asked:
        commands = documented(asked)
        commands = {name: told for name, told in commands.items() if not any(fnmatchcase(name, one) for one in ELSEWHERE)}
        of = traits(asked, commands)
    differences, count = [], 0
    peers = [RawPeer(server, protocol) for server in (ours, oracle)]
    try:
        clean = reset(peers)
        assert clean[0] == clean[1], "the data differ before anything was asked"
        for name, told in commands.items():
            for call in calls(name, told, with_mistakes=protocol == 2):
                count += 1
                for peer in peers:
                    peer.begin(call)
                (our_reply, our_digest), (reply, digest) = (peer.finish() for peer in peers)
                is_random = "nondeterministic_output" in of[name] or b"*" in map(bytes_of, call)
                same = agree(of[name], name, our_reply, reply) and (is_random or our_digest == digest)
                if not same and not meant(name, call, our_reply, reply):
                    differences.append(f"{' '.join(map(str, call))}\n  ours   {our_reply}\n  oracle {reply}")
                waits = "waits" in (our_reply[0], reply[0])
                if waits:
                    peers[:] = [replaced(peer, server, protocol) for peer, server in zip(peers, (ours, oracle))]
                # Times and consumers are not in the digest, scripts and functions are no data.
                has_written = "write" in of[name] and reply[0] != "-" or told["group"] == "scripting"
                if waits or has_written or [our_digest, digest] != clean:
                    reset(peers)
    finally:
        for peer in peers:
            peer.close()
    assert count > 500, "there was hardly anything to ask"
    return differences


def bytes_of(word):
    return word if isinstance(word, bytes) else word.encode()


def compare(oracle_program, protocol):
    debug = ["--enable-debug-command", "yes"]
    with Server(*debug) as ours, Server(*debug, program=oracle_program) as oracle:
        differences = walk(ours, oracle, protocol)
    shown = "\n".join(differences[:40])
    assert not differences, f"{len(differences)} calls are answered differently:\n{shown}"


@pytest.mark.parametrize("protocol", [2, 3])
def test_options_do_what_they_do_in_redis(protocol):
    compare(ORACLE, protocol)


@pytest.mark.skipif(not VALKEY, reason=WITHOUT_VALKEY)
@pytest.mark.parametrize("protocol", [2, 3])
def test_newer_options_do_what_they_do_in_valkey(protocol):
    compare(VALKEY, protocol)
