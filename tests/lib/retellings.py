"""Counts the tests that were told again, prints the number in pytest's summary, and fails a run with more than three.

A test of a cluster that failed while the machine stood still is told once more (`told_again` in cluster/etcd_cluster.py). Rare
retellings are the machine's; many are a fault of the tests or of the server, which retelling would hide. This plugin works over
the processes of pytest-xdist: the number travels with the report of its test.
"""

import pytest

RETELLINGS_MAX = 3
PROPERTY = "told again"
# Of the test that this process is at: why it was told again, once for each retelling.
_reasons = []


def note(reason):
    """The test that is being told begins again, for this reason."""
    _reasons.append(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    # The report takes the properties that its test has by now.
    while call.when == "call" and _reasons:
        item.user_properties.append((PROPERTY, _reasons.pop(0)))
    return (yield)


class Counter:
    """All retellings of a run, in the process that prints the summary."""

    def __init__(self):
        self.found = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            self.found += [(report.nodeid, reason) for name, reason in report.user_properties if name == PROPERTY]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        if len(self.found) > RETELLINGS_MAX and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter, config):
        if config.option.collectonly:
            return
        for test, reason in self.found:
            terminalreporter.write_line(f"told again: {test}: {reason}")
        line = f"{len(self.found)} told again, of {RETELLINGS_MAX} at most"
        if len(self.found) > RETELLINGS_MAX:
            terminalreporter.write_line(f"FAILED: {line}", red=True)
        else:
            terminalreporter.write_line(line)


def pytest_configure(config):
    # Processes of pytest-xdist have no terminal and report to the one that does.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counter(), "retellings-counter")
