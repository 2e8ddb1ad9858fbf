"""Clusters under faults: nothing acknowledged is lost, and no reply that an order of the requests cannot explain."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from harness import DUNLIN, is_redis
from jepsen import network

TESTS = pathlib.Path(__file__).parent.parent
SECONDS = float(os.environ.get("JEPSEN_SECONDS", "60"))

pytestmark = [
    pytest.mark.skipif(network.missing() is not None, reason=str(network.missing())),
    # Runs that break off wait for long before.
    pytest.mark.timeout(1800),
]


def play(*arguments):
    """Whether the history of a run is right; None where the run has broken off."""
    command = [sys.executable, "-m", "jepsen", "--runs", "1", *map(str, arguments)]
    paths = {"PYTHONPATH": str(TESTS / "lib")}
    played = subprocess.run(command, cwd=TESTS, env={**os.environ, **paths}, capture_output=True, text=True)
    print(played.stdout, played.stderr)
    return played.returncode == 0 if "runs are right" in played.stdout else None


def test_redis_cluster_without_faults_is_right():
    # A node that stands still for longer than this is a fault: its replica takes over, without its last writes.
    patient = ("--directive=--cluster-node-timeout", "--directive=30000")
    # A cluster that a busy machine does not bring about in time proves nothing.
    verdicts = (play("--system", "redis", "--seconds", 5, "--calm", *patient) for _ in range(3))
    assert next((verdict for verdict in verdicts if verdict is not None), None)


def test_redis_cluster_under_faults_loses_acknowledged_writes():
    """A checker that finds nothing here proves nothing elsewhere."""
    # It does not come back from everything, which ends a run without a verdict. The first seeds cut a primary off from the others for
    # long while clients write to it, or have one without a file start again before a replica takes over.
    seeds = (28, 6, 21, 17, 7, 8, 1, 2, 3, 4, 5)
    assert any(play("--system", "redis", "--seconds", 25, "--seed", seed) is False for seed in seeds)


needs_etcd = pytest.mark.skipif(
    is_redis(DUNLIN) or shutil.which("etcd") is None, reason="nodes of Dunlin meet in etcd (apt-get install etcd-server)"
)


# One seed for each choice of what nodes keep (systems.KEPT).
@needs_etcd
@pytest.mark.parametrize("seed", [30, 31, 32])
def test_dunlin_under_faults_loses_nothing(seed):
    assert play("--system", "dunlin", "--seconds", SECONDS, "--seed", seed)
