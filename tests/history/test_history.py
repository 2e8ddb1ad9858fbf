"""Several connections, the same keys: no reply that an order of the commands cannot explain (src/main.rs)."""

import pytest

from harness import DUNLIN, ORACLE, driver, is_redis

SCENARIOS = [
    "increments",
    "one-winner",
    "torn-reads",
    "all-or-nothing",
    "handed-out-once",
    "one-place",
    "whole-copies",
    "appended-records",
    "mutual-exclusion",
    "no-going-back",
    "swapped-databases",
    "transfers",
    "scripted-transfers",
    "serializable",
    "serializable-scripts",
    "killed-scripts",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("threads", [2, 4])
def test_history_is_explicable(scenario, threads):
    # A script that stands still with its machine is not to be one that others are answered BUSY for.
    words = ["--threads", threads, "--busy-reply-threshold", 600_000]
    directives = [] if is_redis(DUNLIN) else [f"--directive={word}" for word in words]
    driver("dunlin-history", "--server", DUNLIN, *directives, scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_history_run_can_fail(scenario):
    """With clients that send several commands in the place of one, a violation has to show."""
    with pytest.raises(AssertionError):
        driver("dunlin-history", "--server", ORACLE, "--broken", scenario)
