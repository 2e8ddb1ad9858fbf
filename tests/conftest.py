"""Fixtures: one server under test per module, one oracle per module."""

import pytest

from harness import ORACLE, Server

pytest_plugins = ["retellings"]

# The files that take longest, one to five minutes each. Begun first, none of them is left alone at the end.
LONGEST = [
    "differential/test_differential.py",
    "jepsen/test_clusters.py",
    "persistence/test_dump.py",
    "wire/test_options.py",
    "wire/test_overload.py",
    "cluster/test_cluster_outages.py",
    "replication/test_sentinel.py",
    "crash/test_crash.py",
    "cluster/test_cluster_clients.py",
    "cluster/test_cluster_move_cases.py",
    "replication/test_link_faults.py",
]


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(f"{item.path.parent.name}/{item.path.name}", len(LONGEST)))


@pytest.fixture(scope="module")
def server():
    """The server under test, two worker threads where it has such."""
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def oracle():
    """A real Redis."""
    with Server(program=ORACLE) as server:
        yield server
