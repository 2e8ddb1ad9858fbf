"""docs/sizing.md: its table against what its script measures, and its example against its own formulas."""

import re
import subprocess
import sys

import pytest

import pages
from harness import DUNLIN, ROOT, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="figures of Dunlin")
PAGE = pages.page("sizing.md")


def rows(text):
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return found[0], {row[0]: [float(cell.replace(",", "")) for cell in row[1:]] for row in found[1:]}


def test_table_is_what_the_script_measures():
    heads, noted = rows(PAGE.partition("<!-- measured: ")[2].partition("\n\n")[0])
    done = subprocess.run([sys.executable, ROOT / "scripts" / "sizing.py", DUNLIN, "--keys", "100000"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    measured_heads, measured = rows(done.stdout)
    assert measured_heads == heads and list(measured) == list(noted)
    for kind, figures in measured.items():
        of = dict(zip(heads[1:], zip(figures, noted[kind], strict=True), strict=True))
        # Bytes hardly depend on the machine: fewer keys leave more room in tables. Resident memory and times do, and are not compared.
        for name in ("memory", "snapshot"):
            now, before = of[name]
            assert now == pytest.approx(before, rel=0.15), (kind, name)


def test_example_follows_the_formulas():
    [example] = re.findall(r"^```text\n(.*?)^```", pages.sections(PAGE)["An example"], re.M | re.S)
    _, noted = rows(PAGE.partition("<!-- measured: ")[2].partition("\n\n")[0])
    memory, _, log, snapshot, *_, from_log, _ = noted["session: 300 bytes, expiring"]
    shown = {line.split()[0]: float(re.search(r"= +([\d.]+)", line)[1]) for line in example.splitlines()}
    data = 50e6 * memory / 1e9
    assert shown["data"] == pytest.approx(data, abs=0.06)
    assert shown["maxmemory"] == pytest.approx(data * 1.1, abs=0.06)
    assert shown["machine"] == pytest.approx((data * 1.1 + 0.384 + 0.010) * 1.15, abs=0.1)
    assert shown["disk"] == pytest.approx(3 * 50e6 * snapshot / 1e9 + 1, abs=0.06)
    assert shown["written"] == pytest.approx(20_000 * log / 1e6, abs=0.06)
    assert shown["start"] == pytest.approx(50 * from_log, abs=0.6)
