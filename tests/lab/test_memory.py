"""A small grid of `bench compare --memory`: no key of Dunlin's takes more memory, beside the better of redis-server and
Valkey, than the table `memory_ceilings.txt` allows. A ceiling may only fall: after a change that saves memory,

    LOWER_CEILINGS=1 tests/.env/bin/pytest tests/lab/test_memory.py

lowers those that can be, and adds those of new cells. `used_memory` is compared, which is exact; the resident memory of so few keys is not."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="the comparison is a part of dunlin")

TABLE = pathlib.Path(__file__).with_name("memory_ceilings.txt")
# Tables of keys are as full as hashes have it, which differ from run to run.
NOISE = 0.02


def name(figure):
    expiry = {"none": "", "one": ", one expires", "all": ", all expire"}[figure["expiry"]]
    return f"{figure['kind']} {figure['members']} × {figure['value_bytes']} B{expiry}"


def read_ceilings():
    lines = TABLE.read_text().splitlines()
    pairs = (line.rsplit(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {cell: float(ceiling) for cell, ceiling in pairs}


def write_ceilings(ceilings):
    head = [line for line in TABLE.read_text().splitlines() if line.startswith("#")]
    TABLE.write_text("\n".join(head + [f"{cell:40} {ceiling:.2f}" for cell, ceiling in ceilings.items()]) + "\n")


@pytest.fixture(scope="module")
def ratios(tmp_path_factory):
    """Of each cell, Dunlin's used_memory for a key, over the better peer's."""
    if not VALKEY:
        pytest.skip(WITHOUT_VALKEY)
    folder = tmp_path_factory.mktemp("grid")
    peers = ["--redis", shutil.which(ORACLE), "--peer", f"valkey={VALKEY}"]
    command = [DUNLIN, "bench", "compare", "--memory", "--quick", *peers, "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    cells = {}
    for figure in json.loads((folder / "collection-memory.json").read_text())["figures"]:
        cells.setdefault(name(figure), {})[figure["server"]] = figure["used_bytes"]
    text = (folder / "collection-memory.md").read_text()
    assert "## Ratios" in text
    assert (folder / "collection-memory.svg").read_text().count("<rect") > len(cells)
    return {
        cell: used["dunlin"] / min(bytes for server, bytes in used.items() if server != "dunlin")
        for cell, used in cells.items()
    }


def test_key_memory_stays_below_its_ceilings(ratios):
    ceilings = read_ceilings()
    assert set(ceilings) <= set(ratios)
    if os.environ.get("LOWER_CEILINGS"):
        ceilings = {cell: min(ceilings.get(cell, ratio + 0.01), ratio + 0.01) for cell, ratio in ratios.items()}
        write_ceilings(ceilings)
    above = {cell: f"{ratio:.2f}" for cell, ratio in ratios.items() if ratio > ceilings.get(cell, ratio) + NOISE}
    assert not above, "cells above their ceilings"
