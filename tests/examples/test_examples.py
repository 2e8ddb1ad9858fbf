"""The programs under examples/ do what their first lines say."""

import json
import os
import subprocess
import sys
import time
import types
import urllib.parse
import urllib.request

import pytest

from harness import ROOT, free_port

EXAMPLES = ROOT / "examples"
RUST_EXAMPLE = ROOT / "tests" / ".env" / "rust" / "debug" / "dunlin-examples"
GO_EXAMPLES = ROOT / "tests" / ".env" / "bin" / "examples"
TIMEOUT_S = 120


def environment(server):
    modules = ROOT / "tests" / "clients" / "node_modules"
    return {**os.environ, "DUNLIN_URL": f"redis://127.0.0.1:{server.port}", "NODE_PATH": str(modules)}


def run(server, *command):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment(server)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(server, name, *arguments):
    return run(server, sys.executable, EXAMPLES / "python" / name, *arguments)


@pytest.mark.parametrize(
    "command",
    [
        *[[sys.executable, EXAMPLES / "python" / name] for name in ("geocoder.py", "genealogy.py", "flu.py", "consumers.py")],
        [sys.executable, EXAMPLES / "python" / "basket.py", "ann"],
        [sys.executable, EXAMPLES / "python" / "rate_limiter.py", "ann", 5, 1000, 1],
        *[["node", EXAMPLES / "node" / name] for name in ("autocomplete.js", "profile.js", "sessions.js")],
        *[[GO_EXAMPLES, name] for name in ("leaderboard", "jobs")],
        [RUST_EXAMPLE],
    ],
    ids=lambda command: " ".join(getattr(word, "name", str(word)) for word in command[:2]),
)
def test_example_without_a_server_says_so_in_one_line(command):
    nobody = types.SimpleNamespace(port=free_port())
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment(nobody)
    )
    assert done.returncode == 1 and done.stdout == "", done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "refused" in lines[0].lower() and "make run" in lines[0], done.stderr


def test_example_installations_are_ignored_by_git():
    for path in ("examples/node/node_modules/x", "examples/python/.venv/x", "examples/rust/target/x"):
        assert subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 0, path
    named = [json.loads((ROOT / folder / "package.json").read_text()) for folder in ("examples/node", "tests/clients")]
    used, there = (package["dependencies"].items() for package in named)
    assert used <= there, "the tests run the examples with their own modules"


def test_geocoder(server):
    for _ in range(2):  # the second time, the gazetteer is there already
        lines = python(server, "geocoder.py", "Athens").splitlines()
        assert lines[0].startswith("Athens, GR: 23.7") and "Athens, GR" in lines[1], lines
        assert any(line.startswith("Athens, US: ") for line in lines)
    near = python(server, "geocoder.py", "--near", "2.35", "48.86").splitlines()
    assert "Paris, FR" in "".join(near[1:]) and len(near) == 6


def test_genealogy(server):
    ancestors = python(server, "genealogy.py", "ancestors", "David Hilbert").splitlines()
    assert ancestors[0].split(maxsplit=1) == ["1", "Ferdinand von Lindemann"]
    assert "Gregory Palamas" in " ".join(ancestors)
    descendants = python(server, "genealogy.py", "descendants", "Carl Friedrich Gauss")
    assert "Saunders Mac Lane" in descendants and "Nicolaus Copernicus" not in descendants
    assert python(server, "genealogy.py", "common", "Richard Courant", "Richard Dedekind") == "Carl Friedrich Gauss\n"
    dot = python(server, "genealogy.py", "dot", "Felix Klein")
    assert dot.startswith("digraph mentors {") and '"Rudolf Lipschitz" -> "Felix Klein";' in dot
    assert dot.count(" -> ") == 26


def test_flu(server):
    text = python(server, "flu.py")
    assert text.splitlines()[1].split()[0] == "jan"
    assert "1976-02  3891" in text


def test_consumers_lose_nothing_when_one_crashes(server):
    text = python(server, "consumers.py", 200)
    assert "crashed with code 1, 3 messages in its hands" in text
    assert "200 of 200 messages handled" in text and "pending: 0" in text, text


def test_rate_limiter(server):
    assert python(server, "rate_limiter.py", "ann", 5, 60_000, 8).startswith("5 admitted, 3 refused\nnext place in ")
    assert python(server, "rate_limiter.py", "ann", 5, 60_000, 2).startswith("0 admitted")
    assert python(server, "rate_limiter.py", "bob", 5, 60_000, 2) == "2 admitted, 0 refused\n"


def test_autocomplete_serves_a_page_and_completes(server):
    port = free_port()
    program = [str(word) for word in ("node", EXAMPLES / "node" / "autocomplete.js", port)]
    node = subprocess.Popen(program, stdout=subprocess.PIPE, env=environment(server), text=True)
    try:
        url = node.stdout.readline().strip()
        assert url == f"http://127.0.0.1:{port}"
        assert "<input" in urllib.request.urlopen(url).read().decode()

        def complete(typed):
            return json.load(urllib.request.urlopen(f"{url}/complete?typed={urllib.parse.quote(typed)}"))

        assert complete("comp") == [
            "Compilers: Principles, Techniques and Tools", "Computer Networks",
            "Structure and Interpretation of Computer Programs", "The Art of Computer Programming",
        ]
        assert complete("Pearl") == ["Programming Pearls"]
        assert complete("xyz") == complete(" ") == []
    finally:
        node.kill()
        node.wait()


def test_basket(server):
    assert python(server, "basket.py", "ann") == "4 things for 62.5, of which dear: ['lamp']\n3 things for 22.5\n"


def test_profile(server):
    assert run(server, "node", EXAMPLES / "node" / "profile.js").splitlines() == [
        'address: {"city":"Ghent"}',
        'settings: {"newsletter":false,"theme":"dark"}',
    ]


def test_sessions(server):
    assert run(server, "node", EXAMPLES / "node" / "sessions.js").splitlines() == [
        "gregory has come back, visits before: 1",
        "a session that nobody used is gone, and stays gone",
    ]


@pytest.mark.parametrize(
    "name, says",
    [
        ("leaderboard", "player025 has rank"),
        ("jobs", "bert crashed with 1 job in his hands; 20 of 20 jobs done, 0 left"),
    ],
)
def test_go(server, name, says):
    assert says in run(server, GO_EXAMPLES, name)


def test_rust(server):
    expected = [
        "12 callers, 1 computation",
        "12 callers, 0 computations: it is in the cache",
        "12 callers after a crash, 1 computation",
    ]
    for _ in range(5):
        begun = time.monotonic()
        lines = run(server, RUST_EXAMPLE, 12).splitlines()
        # It takes a second. A caller that stands still for longer than its lease, another second, is rightly replaced.
        if lines == expected or time.monotonic() - begun < 2:
            break
    assert lines == expected
