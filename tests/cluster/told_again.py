"""Tests of what healthy nodes do, on a machine that may stand still."""

import functools
import shutil
import threading
import traceback

import pytest

from etcd_cluster import Stalls
from test_cluster_failover import Writer

TELLINGS_MAX = 3


def afresh(etcd):
    """An etcd without data, whatever has become of it."""
    etcd.kill()
    for path in etcd.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    etcd.start()


def told_again(test):
    """A test in `etcd` that is told once more where it has failed and the machine stood still meanwhile: a primary that stands
    still for longer than its leases is rightly replaced, and a move whose other side is silent for seconds rightly fails."""

    @functools.wraps(test)
    def tell(etcd, **more):
        for telling in range(1, TELLINGS_MAX + 1):
            with Stalls() as stalls:
                try:
                    return test(etcd=etcd, **more)
                except (Exception, pytest.fail.Exception) as error:
                    # A test that has taken its whole time (pytest-timeout) is over.
                    if telling == TELLINGS_MAX or not stalls.is_excuse() or str(error).startswith("Timeout (>"):
                        raise
                    traceback.print_exc()
            print(f"the machine stood still for {stalls.longest_s:.1f} s: once more")
            for thread in threading.enumerate():
                if isinstance(thread, Writer):
                    thread.is_over.set()
            afresh(etcd)

    return tell
