"""Glob patterns: they match as in redis-server, and no pattern is expensive."""

import random

import pytest

from wire import Bystander, Session, eventually

TOO_COMPLEX = "-ERR pattern is too complex: more than 1024 characters in parts with '?' or '[...]'"


def random_bytes(source, letters, length_max):
    return bytes(source.choice(letters) for _ in range(source.randint(0, length_max)))


@pytest.fixture
def both(server, oracle):
    with Session(server) as ours, Session(oracle) as theirs:
        ours("FLUSHALL"), theirs("FLUSHALL")
        yield ours, theirs
        ours("FLUSHALL"), theirs("FLUSHALL")


def same(both, *words):
    ours, theirs = (client(*words) for client in both)
    if isinstance(ours, list):
        ours, theirs = sorted(ours), sorted(theirs)
    assert ours == theirs, words
    return ours


def await_no_patterns(client):
    """Who has hung up may still be registered."""
    eventually(lambda: client("PUBSUB", "NUMPAT") == 0, "nobody has a pattern")


def test_random_patterns_match_what_redis_matches(both):
    source = random.Random(23)
    for text in {random_bytes(source, b"aabbABx-]^*\\?[\x80\xff\n", 9) for _ in range(300)}:
        same(both, "SET", text, "v")
    for _ in range(3000):
        same(both, "KEYS", random_bytes(source, b"aabAB**??[[]]^--\\x\x80\xff", 12))


def test_random_patterns_in_any_letter_case_match_what_redis_matches(both):
    source = random.Random(24)
    for _ in range(2000):
        part = random_bytes(source, b"mMaAxX*??[[]]^--\\yYZz_", 5)
        pattern = source.choice([b"%sxmemory", b"max%s", b"ma%smory", b"*%s"]) % part
        found = [client("CONFIG", "GET", pattern) for client in both]
        # The two do not have all directives in common; an unknown name may be spelled as it was asked for.
        ours, theirs = ({name.lower() for name in names[::2]} for names in found)
        assert (b"maxmemory" in ours) == (b"maxmemory" in theirs), pattern


def test_pattern_matches_an_empty_text_as_in_redis(both):
    same(both, "SET", "", "v")
    same(both, "SADD", "set", "")
    for pattern in ["*", "**", "", "?", "*?"]:
        same(both, "KEYS", pattern)
        for scan in [["SCAN", 0], ["SSCAN", "set", 0]]:
            ours, theirs = (client(*scan, "COUNT", 100, "MATCH", pattern)[1] for client in both)
            assert sorted(ours) == sorted(theirs), (scan, pattern)


def test_pattern_matches_an_empty_channel_as_in_redis(server, oracle):
    for pattern in ["*", "**", "", "?*"]:
        counts = []
        for target in (server, oracle):
            with Session(target) as listener, Session(target) as client:
                await_no_patterns(client)
                listener("PSUBSCRIBE", pattern)
                counts.append(client("PUBLISH", "", "message"))
        assert counts[0] == counts[1], pattern


def test_patterns_of_many_stars_match_as_in_redis(both):
    same(both, "SET", "a" * 50_000, "v")
    for stars in [999, 1000, 1001, 50_000]:
        for element in ["*?", "*a"]:
            same(both, "KEYS", element * stars)
            same(both, "KEYS", element * stars + "*")


def test_pattern_of_any_form_is_cheap(server):
    """Each of these took seconds to minutes, and everybody waited."""
    text = "a" * 50_000
    with Session(server) as client, Session(server) as listener, Bystander(server):
        await_no_patterns(client)
        client("FLUSHALL")
        client("SET", text, "v")
        client("SADD", "set", text)
        for pattern in ["*[" + "b" * 300_000 + "]", "*" + "[ab]" * 1000 + "b*", "*a" * 999 + "*b"]:
            assert client("KEYS", pattern) == []
            assert client("SCAN", 0, "MATCH", pattern, "COUNT", 100)[1] == []
            assert client("SSCAN", "set", 0, "MATCH", pattern)[1] == []
            listener("PSUBSCRIBE", pattern)
            assert client("PUBLISH", text, "message") == 0
            assert client("CONFIG", "GET", pattern) == []
            assert client("PUBSUB", "CHANNELS", pattern) == []
            assert len(client("COMMAND", "LIST", "FILTERBY", "PATTERN", pattern)) < 10
            assert client("FUNCTION", "LIST", "LIBRARYNAME", pattern) == []
        client("FLUSHALL")


def test_pattern_too_complex_is_refused(server):
    pattern = "*a" + "?" * 1024 + "*"
    with Session(server) as client:
        await_no_patterns(client)
        client("SADD", "set", *map(str, range(1000)), "member")
        assert client("KEYS", pattern) == TOO_COMPLEX
        assert client("SCAN", 0, "MATCH", pattern) == TOO_COMPLEX
        assert client("SSCAN", "set", 0, "MATCH", pattern) == TOO_COMPLEX
        assert client("PUBSUB", "CHANNELS", pattern) == TOO_COMPLEX
        assert client("FUNCTION", "LIST", "LIBRARYNAME", pattern) == TOO_COMPLEX
        assert client("PSUBSCRIBE", "news.*", pattern) == TOO_COMPLEX
        assert client("PUBSUB", "NUMPAT") == 0, "all of the patterns or none"
        # No name is that long.
        assert client("CONFIG", "GET", pattern) == []
        assert client("COMMAND", "LIST", "FILTERBY", "PATTERN", pattern) == []
