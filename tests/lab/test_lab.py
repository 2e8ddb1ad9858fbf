"""The lab at a tiny scale: every experiment runs with its own checks, every form of the report is there,
and a server that answers wrongly makes it fail and say so."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading

import pytest

from harness import DUNLIN, LAB, ORACLE, Server, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="the lab is a part of dunlin")

TINY = ["--scale", "0.0002", "--rounds", "1", "--seed", "1"]
PEERS = ["--peer", f"redis-server={shutil.which(ORACLE)}", "--peer", "memcached", "--peer", "nutcracker=2"]


def lab(*arguments, timeout=600, **environment):
    """Runs the lab; its exit code and its output."""
    own = [] if "--without-dunlin" in arguments else ["--dunlin", os.path.abspath(DUNLIN)]
    command = [LAB, *own, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout + done.stderr


def names():
    code, text = lab("list")
    assert code == 0, text
    return re.findall(r"^\d+\. ([a-z-]+) \((?:E\d|YCSB)\): ", text, re.MULTILINE)


def test_list_explains_every_experiment_in_three_lines():
    _, text = lab("list")
    blocks = re.split(r"\n(?=\S)", text.rstrip())
    assert [block.split()[0] for block in blocks] == [f"{number}." for number in range(1, len(blocks) + 1)]
    assert len(blocks) == len(names())
    for block in blocks:
        assert len(block.splitlines()) == 4, block


@pytest.mark.parametrize("name", names())
def test_experiment_runs_with_all_its_checks(name, tmp_path):
    code, text = lab(name, *TINY, *PEERS, "--out", tmp_path)
    assert code == 0, text
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert [result["experiment"] for result in results] == [name]
    [result] = results
    assert result["checks"], "it has checked nothing"
    left_out = {note.split()[0] for note in result["notes"] if " is left out: " in note}
    for section in result["sections"]:
        taking_part = {re.split("[ ,]", server)[0] for server in section["servers"]} | left_out
        assert {"dunlin", "redis-server"} <= taking_part
        assert section["figures"] and all(figure["samples"] for figure in section["figures"])
    plots = sum(len(section["plots"]) for section in result["sections"])
    assert (tmp_path / "report.html").read_text().count("<svg") == plots
    assert len(list(tmp_path.glob("*.svg"))) == plots
    assert (tmp_path / "results.csv").read_text().startswith("experiment,section,row,server,metric,unit,")
    assert result["title"] in (tmp_path / "report.md").read_text()


def test_fan_pages_can_show_one_page(tmp_path):
    code, text = lab("fan-pages", "--query", 0, *TINY, "--peer", "memcached", "--out", tmp_path)
    assert code == 0, text
    answers = {line.split("page 0 has ")[1] for line in text.splitlines() if ": page 0 has " in line}
    assert len(answers) == 1 and "of them are also fans of page" in answers.pop()


def test_running_server_is_measured_and_left_empty(tmp_path):
    with Server() as server:
        url = f"redis://127.0.0.1:{server.port}/3"
        target = ["--without-dunlin", "--target", f"mine={url}", "--out", tmp_path]
        # More than one: each finds it as empty as the first.
        code, text = lab("pipelining", "round-trips", "mixes", *TINY, *target)
        assert code == 0, text
        with server.connect() as client:
            client.sendall(b"INFO keyspace\r\n")
            assert b"db" not in client.recv(4096)


def test_keys_of_somebody_else_are_not_touched(tmp_path):
    with Server() as server, server.connect() as client:
        client.sendall(b"SET precious 1\r\n")
        assert client.recv(64) == b"+OK\r\n"
        code, text = lab("pipelining", *TINY, "--target", f"mine=redis://127.0.0.1:{server.port}", "--out", tmp_path)
        assert code == 1 and "mine: holds 1 keys" in text, text
        client.sendall(b"GET precious\r\n")
        assert client.recv(64) == b"$1\r\n1\r\n"


class Liar:
    """A store of a few commands whose answers are wrong in one way."""

    def __init__(self, lie):
        self.lie = lie
        self.data = {}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, client.makefile("rb") as requests:
            try:
                while head := requests.readline():
                    words = []
                    for _ in range(int(head[1:])):
                        length = int(requests.readline()[1:])
                        words.append(requests.read(length + 2)[:-2])
                    client.sendall(self._answer(words))
            except (ConnectionError, ValueError):
                pass

    def _answer(self, words):
        name, arguments = words[0].upper(), words[1:]
        if name == b"SET":
            if not (self.lie == "forgets" and len(arguments[1]) % 16 == 0):
                self.data[arguments[0]] = arguments[1]
            return b"+OK\r\n"
        if name == b"GET":
            value = self.data.get(arguments[0])
            if value is None:
                return b"$-1\r\n"
            if self.lie == "flips" and len(value) > 64:
                value = value[:64] + bytes([value[64] ^ 1]) + value[65:]
            if self.lie == "cuts" and len(value) > 64:
                value = value[:-1]
            return b"$%d\r\n%s\r\n" % (len(value), value)
        if name == b"DEL":
            return b":%d\r\n" % sum(self.data.pop(key, None) is not None for key in arguments)
        if name == b"DBSIZE":
            return b":%d\r\n" % (len(self.data) + (self.lie == "miscounts" and len(self.data) > 10))
        if name == b"FLUSHDB":
            self.data.clear()
            return b"+OK\r\n"
        if name == b"INFO":
            return b"$0\r\n\r\n"
        return b"-ERR unknown command\r\n"


@pytest.mark.parametrize(
    "lie, experiment, says",
    [
        ("flips", "pipelining", "wrong answer to GET"),
        ("cuts", "pipelining", "wrong answer to GET"),
        ("forgets", "pipelining", "wrong answer to GET"),
        ("miscounts", "pipelining", "keys instead of"),
        ("flips", "fan-pages", "wrong answer"),
        ("cuts", "fan-pages", "wrong answer"),
        ("cuts", "lengths", "wrong answer at length 65"),
    ],
)
def test_server_that_answers_wrongly_fails_the_lab(lie, experiment, says, tmp_path):
    liar = Liar(lie)
    target = f"liar=redis://127.0.0.1:{liar.port}"
    code, text = lab(experiment, *TINY, "--without-dunlin", "--target", target, "--out", tmp_path)
    assert code == 1, text
    assert says in text and "liar" in text and experiment in text, text
    assert not (tmp_path / "report.html").exists(), "a time was reported"


def test_programs_that_are_missing_are_left_out(tmp_path):
    (tmp_path / "bin").mkdir()
    peers = ["--peer", "memcached", "--peer", f"redis={shutil.which(ORACLE)}"]
    arguments = ["http", "pings", *TINY, *peers, "--out", tmp_path]
    code, text = lab(*arguments, PATH=str(tmp_path / "bin"))
    assert code == 0, text
    report = (tmp_path / "report.md").read_text()
    for line in [
        "--peer memcached is left out: there is no `memcached` on PATH",
        "the experiment is left out: `ab` is missing (on Debian in the package apache2-utils)",
    ]:
        assert line in text and line in report, (line, text)
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert {result["experiment"]: bool(result["sections"]) for result in results} == {"pings": True, "http": False}


def test_report_is_rewritten_from_its_results(tmp_path):
    code, text = lab("pings", *TINY, "--peer", f"redis={shutil.which(ORACLE)}", "--out", tmp_path / "first")
    assert code == 0, text
    code, text = lab("--from", tmp_path / "first/results.json", "--out", tmp_path / "second")
    assert code == 0, text
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes(), file.name


def test_unknown_arguments_are_named():
    for arguments, says in [
        (["nothing"], "there is no experiment 'nothing'"),
        (["E9"], "founding experiments, E1, E2, E3, E4, E5, YCSB"),
        (["--from", "/no/such.json"], "cannot read /no/such.json"),
        (["--peer", "/no/such"], "no such program"),
        (["--target", "a=http://host"], "it must start with redis://"),
        (["--target", "a=rediss://host?cacert=/no/such.pem"], "/no/such.pem"),
    ]:
        code, text = lab(*arguments)
        assert code == 1 and says in text, text
