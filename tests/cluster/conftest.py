"""An etcd for each test; modules whose tests share one have a fixture of their own."""

import pytest

from etcd_cluster import Etcd


@pytest.fixture()
def etcd():
    with Etcd() as etcd:
        yield etcd
