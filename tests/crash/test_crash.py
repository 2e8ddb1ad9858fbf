"""Kills and damaged files: a restarted server has all that it acknowledged (src/main.rs)."""

import os

import pytest

from harness import DUNLIN, driver, is_redis

ROUNDS = int(os.environ.get("DUNLIN_CRASH_ROUNDS", "40"))


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_kill_loses_nothing_acknowledged(policy):
    driver("dunlin-crash", "--server", DUNLIN, "kills", "--rounds", ROUNDS, "--appendfsync", policy)


@pytest.mark.skipif(is_redis(DUNLIN), reason="its files are written by what cannot be watched")
@pytest.mark.parametrize(
    "policy, lives", [("always", ROUNDS // 2), ("everysec", ROUNDS // 8), ("no", ROUNDS // 8), ("saves", ROUNDS // 4)]
)
def test_power_cut_loses_nothing_durable(policy, lives):
    driver("dunlin-crash", "--server", DUNLIN, "power", "--rounds", lives, "--cuts", 20, "--policy", policy)


@pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own messages")
def test_log_file_may_end_anywhere():
    driver("dunlin-crash", "--server", DUNLIN, "cuts")


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no checksums there")
def test_log_file_with_a_wrong_bit_is_noticed():
    driver("dunlin-crash", "--server", DUNLIN, "flips")
