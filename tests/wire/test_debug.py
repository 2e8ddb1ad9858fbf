"""DEBUG: what test suites of Redis and Valkey ask of a server."""

import signal

import pytest
import redis

from harness import DUNLIN, ORACLE, Server


def server(program=DUNLIN, **options):
    return Server("--enable-debug-command", "yes", program=program, **options)


def test_debug_reload_nosave_of_a_refused_file_keeps_the_data():
    with server() as node:
        client = redis.Redis(port=node.port)
        client.set("kept", "v")
        client.save()
        client.set("kept", "newer")
        dump = node.folder / "dump.rdb"
        whole = dump.read_bytes()
        # A bit of the value, a torn end, another format.
        for broken in (whole.replace(b"kept", b"kepu"), whole[:-12], b"no snapshot at all"):
            dump.write_bytes(broken)
            with pytest.raises(redis.ResponseError, match="cannot load"):
                client.execute_command("DEBUG", "RELOAD", "NOSAVE")
            assert client.get("kept") == b"newer" and client.dbsize() == 1
        dump.write_bytes(whole)
        assert client.execute_command("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert client.get("kept") == b"v"


@pytest.mark.parametrize("program", [DUNLIN, ORACLE])
def test_debug_sleep_in_a_transaction_sleeps(program):
    with server(program) as node:
        client = redis.Redis(port=node.port)
        with client.pipeline() as pipeline:
            pipeline.time()
            pipeline.execute_command("DEBUG", "SLEEP", "0.2")
            pipeline.time()
            pipeline.execute_command("DEBUG", "SLEEP", "0")
            (before, _), slept, (after, _), at_once = pipeline.execute()
        # Redis reads the clock once for a transaction; its own LATENCY is the witness of the sleep there.
        assert slept == at_once and after >= before
        assert float(client.info("commandstats")["cmdstat_debug"]["usec"]) >= 200_000


@pytest.mark.parametrize(
    ("name", "ended_by"), [("ASSERT", signal.SIGABRT), ("PANIC", signal.SIGABRT), ("OOM", signal.SIGABRT), ("SEGFAULT", signal.SIGSEGV)]
)
def test_debug_ends_the_process_on_request(name, ended_by):
    node = server()
    try:
        with pytest.raises(redis.ConnectionError):
            redis.Redis(port=node.port).execute_command("DEBUG", name)
        assert node.process.wait(60) == -ended_by
        assert f"DEBUG {name} ends the process" in node.log()
    finally:
        node.kill()


def test_debug_answers_what_suites_of_others_switch():
    with server() as node:
        client = redis.Redis(port=node.port)
        for words in (
            "DICT-RESIZING 0",
            "HASHTABLE-CAN-ABORT-SHRINK 0",
            "CLIENT-ENFORCE-REPLY-LIST 1",
            "REPLYBUFFER RESIZING 0",
            "REPLYBUFFER PEAK-RESET-TIME NEVER",
            "LEAK abc",
        ):
            assert client.execute_command("DEBUG", *words.split()) == b"OK", words
        with pytest.raises(redis.ResponseError, match="unknown subcommand or wrong number of arguments"):
            client.execute_command("DEBUG", "ASSERT", "x")


def test_restore_refuses_a_plain_block_without_bytes():
    with server() as node:
        client = redis.Redis(port=node.port)
        # A quicklist of one plain block of length 0, of Redis's own tests.
        payload = b"\x12\x01\x01\x00\x0a\x00\x8f\xc6\xc0\x57\x1c\x0a\xb3\x3c"
        with pytest.raises(redis.ResponseError, match="Bad data format"):
            client.restore("list", 0, payload)
        assert client.dbsize() == 0


@pytest.mark.parametrize("program", [DUNLIN, ORACLE])
@pytest.mark.parametrize(("format", "shown"), [("txt", b"txt"), ("tx", b"tx "), ("", b"   "), ("markdown", b"mar"), ("\\255\\254x", b"\xff\xfex")])
def test_script_answers_a_verbatim_string_with_three_bytes_of_format(program, format, shown):
    with server(program) as node, node.connect() as client:
        client.sendall(b"HELLO 3\r\nPING\r\n")
        read = b""
        while not read.endswith(b"+PONG\r\n"):
            read += client.recv(4096)
        script = f"redis.setresp(3) return {{verbatim_string={{format='{format}',string='ab'}}}}"
        client.sendall(f"*3\r\n$4\r\nEVAL\r\n${len(script)}\r\n{script}\r\n$1\r\n0\r\nPING\r\n".encode())
        read = b""
        while not read.endswith(b"+PONG\r\n"):
            read += client.recv(4096)
        assert read == b"=6\r\n" + shown + b":ab\r\n+PONG\r\n"
