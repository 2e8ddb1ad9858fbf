"""Kills and damaged files: a restarted server has all that it acknowledged (src/main.rs)."""

import os

import pytest

from harness import DUNLIN, driver, is_redis

ROUNDS = int(os.environ.get("DUNLIN_CRASH_ROUNDS", "40"))


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_nothing_acknowledged_is_lost_to_a_kill(policy):
    driver("dunlin-crash", "--server", DUNLIN, "kills", "--rounds", ROUNDS, "--appendfsync", policy)


@pytest.mark.skipif(is_redis(DUNLIN), reason="its files are written by what cannot be watched")
@pytest.mark.parametrize(
    "policy, lives", [("always", ROUNDS // 2), ("everysec", ROUNDS // 8), ("no", ROUNDS // 8), ("saves", ROUNDS // 4)]
)
def test_nothing_durable_is_lost_to_a_power_cut(policy, lives):
    driver("dunlin-crash", "--server", DUNLIN, "power", "--rounds", lives, "--cuts", 20, "--policy", policy)


@pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own messages")
def test_a_file_may_end_anywhere():
    driver("dunlin-crash", "--server", DUNLIN, "cuts")


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no checksums there")
def test_a_wrong_bit_is_noticed():
    driver("dunlin-crash", "--server", DUNLIN, "flips")
