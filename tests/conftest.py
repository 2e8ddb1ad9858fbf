"""Fixtures: one server under test per module, one oracle per module."""

import pytest

from harness import ORACLE, Server

pytest_plugins = ["retellings", "tiers"]


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
