"""Strings in chunks that change while a snapshot or a new base of the log is written."""

import random
import time

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from resp import Client

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no delay that can be changed while it saves")

LENGTH = 20_000_000
# So that a snapshot is under way for as long as the test wants, until the delay becomes less: it writes long strings last.
OTHER_KEYS = 100
DELAY_US = 600_000_000


def info(client, field):
    lines = client("INFO", "persistence").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)[field]


def wait(client, field, value="0"):
    deadline = time.monotonic() + 60
    while info(client, field) != value:
        assert time.monotonic() < deadline, client("INFO", "persistence").decode()
        time.sleep(0.01)


def fill(client):
    """Keys, and the bytes of each long string."""
    for number in range(OTHER_KEYS):
        client("SET", f"other:{number}", number)
    dice = random.Random(25)
    texts = {
        "random": bytearray(dice.randbytes(LENGTH)),
        "compressible": bytearray(b"long text " * (LENGTH // 10)),
        "removed": bytearray(dice.randbytes(LENGTH // 4)),
    }
    for key, text in texts.items():
        client("SET", key, bytes(text))
    client("SETRANGE", "sparse", LENGTH, "end")
    texts["sparse"] = bytearray(LENGTH) + b"end"
    return texts


def change(client, texts, seed):
    """The same changes of the strings and of the bytes."""
    dice = random.Random(seed)
    client("DEL", "removed")
    texts.pop("removed", None)
    for key, text in texts.items():
        for _ in range(50):
            at = dice.choice([dice.randrange(len(text)), dice.randrange(len(text) >> 16) << 16])
            words = dice.randbytes(dice.choice([1, 3, 100_000]))
            client("SETRANGE", key, at, words)
            text[at : at + len(words)] = words
            at = dice.randrange(8 * len(text))
            client("SETBIT", key, at, 1)
            text[at // 8] |= 128 >> at % 8
            # A field of 16 bits across the place where two bytes, and often two chunks, meet.
            at = max(1, dice.randrange(len(text) >> 16) << 16)
            number = dice.randrange(1 << 16)
            client("BITFIELD", key, "SET", "u16", 8 * at - 8, number)
            text[at - 1 : at + 1] = number.to_bytes(2, "big")
            client("APPEND", key, words)
            text += words
        client("SETRANGE", key, len(text) + 1_000_000, "far")
        text += bytes(1_000_000) + b"far"
    client("COPY", "random", "copy", "REPLACE")
    texts["copy"] = bytearray(texts["random"])
    client("SETRANGE", "copy", 100_000, "only here")
    texts["copy"][100_000:100_009] = b"only here"


def check(client, texts):
    wait(client, "loading")
    assert client("DBSIZE") == OTHER_KEYS + len(texts)
    for key, text in texts.items():
        assert client("GET", key) == text, key


@pytest.mark.parametrize("loader", [ORACLE, DUNLIN])
@pytest.mark.parametrize("compression", ["yes", "no"])
def test_snapshot_has_long_strings_as_they_were(loader, compression, tmp_path):
    with Server("--rdb-key-save-delay", DELAY_US, "--rdbcompression", compression) as server:
        client = Client(server)
        texts = fill(client)
        before = {key: bytes(text) for key, text in texts.items()}
        client("BGSAVE")
        change(client, texts, 1)
        assert info(client, "rdb_bgsave_in_progress") == "1"
        client("CONFIG", "SET", "rdb-key-save-delay", 0)
        change(client, texts, 2)
        wait(client, "rdb_bgsave_in_progress")
        assert info(client, "rdb_last_bgsave_status") == "ok"
        check(client, texts)
        (tmp_path / "dump.rdb").write_bytes((server.folder / "dump.rdb").read_bytes())
    with Server(program=loader, files=tmp_path) as server:
        check(Client(server), before)


@pytest.mark.parametrize("loader", [ORACLE, DUNLIN])
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_log_has_long_strings_as_they_became(loader, preamble, tmp_path):
    log = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble]
    with Server("--rdb-key-save-delay", DELAY_US, *log) as server:
        client = Client(server)
        texts = fill(client)
        wait(client, "aof_rewrite_in_progress")
        client("BGREWRITEAOF")
        change(client, texts, 1)
        assert info(client, "aof_rewrite_in_progress") == "1"
        client("CONFIG", "SET", "rdb-key-save-delay", 0)
        change(client, texts, 2)
        wait(client, "aof_rewrite_in_progress")
        assert info(client, "aof_last_bgrewrite_status") == "ok"
        change(client, texts, 3)
        server.process.terminate()
        assert server.process.wait(60) == 0
        with Server(*log, program=loader, files=server.folder) as another:
            check(Client(another), texts)
