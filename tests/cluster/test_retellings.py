"""Tests that are told again are counted; too many of them fail the run."""

import os
import subprocess
import sys

import pytest

from harness import ROOT

TESTS = """
import pytest
from etcd_cluster import StoodStill, told_again

begun = []


@pytest.mark.parametrize("number", range({number}))
@told_again
def test_stands_still_once(number):
    begun.append(number)
    if begun.count(number) == 1:
        raise StoodStill("a replica has taken over")


def test_is_told_once():
    pass
"""


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("number, code", [(3, 0), (4, 1)])
def test_told_again_is_counted_and_bounded(tmp_path, number, code, processes):
    (tmp_path / "test_it.py").write_text(TESTS.format(number=number))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "retellings", "-p", "no:cacheprovider", "-n", str(processes), "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "lib")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == code, ran.stdout
    assert f"{number + 1} passed" in ran.stdout
    assert f"{number} told again, of 3 at most" in ran.stdout
    assert ("FAILED: 4 told again" in ran.stdout) == (code == 1)
    assert ran.stdout.count("StoodStill, the machine stood still for") == number
