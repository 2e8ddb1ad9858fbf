"""The tiers of the black-box tests: `quick`, `slow`, `peers`, marks that are given by the name of a test.

    pytest -m quick            needs the server, Python packages, redis-server, openssl and a C compiler
    pytest -m "not peers"      and the drivers that cargo builds, and time
    pytest                     needs all of `make setup`

A test whose name begins with a line of `PEERS` needs a program beyond those of `quick`; one of a file in `SLOW` is in no hurry; the
others are quick. A quick test may compare with Valkey too if it is there, and is skipped otherwise, with the reason.
"""

import pytest

# Files that take longest, the longest first: from half a minute to five minutes each on two processors, or need drivers that cargo
# builds. Begun in this order, none of them is left alone at the end.
SLOW = [
    "differential/test_differential.py",
    "jepsen/test_clusters.py",
    "persistence/test_background.py",
    "wire/test_options.py",
    "lab/test_memory.py",
    "wire/test_overload.py",
    "wire/test_push_order.py",
    "replication/test_link_faults.py",
    "wire/test_scripting.py",
    "persistence/test_dump.py",
    "persistence/test_convert.py",
    "wire/test_changes.py",
    "examples/test_examples.py",
    "cluster/test_cluster_disks.py",
    "cluster/test_cluster_moves.py",
    "cluster/test_cluster_outages.py",
    "cluster/test_cluster_failover.py",
    "replication/test_sentinel.py",
    "replication/test_restarts.py",
    "clients/test_other_clients.py",
    "crash/test_crash.py",
    "cluster/test_cluster_clients.py",
    "cluster/test_cluster_move_cases.py",
    "wire/test_long_arguments.py",
    "replication/test_links.py",
    "durability/test_faults.py",
    "durability/test_replay.py",
    "history/test_history.py",
    "wire/test_walks.py",
    "durability/test_backup.py",
    "operations/test_helm_played.py",
]
# Beginnings of tests' names, and what they need.
PEERS = {
    "apps/": "Node.js and Go with libraries of queues",
    "clients/test_other_clients.py": "Node.js, Go and Java with client libraries",
    "cluster/test_cluster_": "etcd and client libraries",
    "examples/": "Node.js, Go and Rust with client libraries",
    "fuzz/": "a C++ compiler",
    "jepsen/test_clusters.py": "etcd and network namespaces",
    "lab/test_lab.py": "memcached and nutcracker",
    "lab/test_memory.py": "Valkey",
    "lab/test_postgres.py": "PostgreSQL",
    "operations/test_console.py::test_built_files": "Node.js",
    "operations/test_console.py::test_console[": "a browser",
    "operations/test_console.py::test_edits": "a browser",
    "operations/test_console_cluster.py": "etcd and a browser",
    "operations/test_drill.py::test_drill_recovers": "etcd",
    "operations/test_drill.py::test_drill_survives": "etcd",
    "operations/test_helm": "helm, etcd and haproxy",
    "operations/test_metrics.py::test_expressions": "promtool",
    "operations/test_metrics.py::test_promtool": "promtool",
    "operations/test_metrics.py::test_queries": "promtool",
    "operations/test_packages.py": "programs of Debian, systemd and buildah",
    "operations/test_runbook.py::test_commands_of_the_runbook_for_clusters": "etcd",
    "operations/test_top.py": "tmux",
    "operations/test_upgrade.py::test_upgrade_of_a_cluster": "etcd",
    "replication/test_versions.py": "servers of other versions of Redis",
}


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: needs Python packages, redis-server, openssl and a C compiler")
    config.addinivalue_line("markers", "slow: one of the files that take long, or needs drivers that cargo builds")
    config.addinivalue_line("markers", "peers: needs another program or library, which `make setup` installs")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(SLOW)}
    for item in items:
        is_slow = item.nodeid.split("::")[0] in places
        needs_peers = item.nodeid.startswith(tuple(PEERS))
        for name, holds in (("slow", is_slow), ("peers", needs_peers), ("quick", not is_slow and not needs_peers)):
            if holds:
                item.add_marker(name)
    items.sort(key=lambda item: places.get(item.nodeid.split("::")[0], len(SLOW)))
