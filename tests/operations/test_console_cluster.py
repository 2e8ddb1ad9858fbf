"""The console's page of a cluster in a real browser: console_cluster.mjs walks over it, each test here is one of its steps. The
cluster changes where the walk asks for it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest
import redis

from etcd_cluster import ETCD, WITHOUT_ETCD, Etcd, put, records, until
from harness import DUNLIN, Server, free_port, is_redis
from web import UPGRADE, ask, eventually, needs_browser

SCRIPT = pathlib.Path(__file__).with_name("console_cluster.mjs")
STEPS = re.findall(r'await step\("(\w+)"', SCRIPT.read_text())
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")

pytestmark = [
    needs_browser,
    pytest.mark.skipif(not ETCD, reason=WITHOUT_ETCD),
    pytest.mark.skipif(is_redis(DUNLIN), reason="a cluster of Dunlin's"),
]


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """What became of each step."""
    folder = tmp_path_factory.mktemp("console-cluster")
    out, http_port = folder / "results.json", free_port()
    nodes = []
    with Etcd() as etcd:
        try:
            for zone in ("east", "west", "east", "west"):
                own = ["--cluster-join", etcd.join(), "--cluster-replicas", "1", "--threads", "2", "--cluster-zone", zone]
                own += ["--cluster-host", f"host-{len(nodes)}", "--http-port", str(http_port if not nodes else free_port())]
                nodes.append(Server(*own))
            shards = lambda: {key.split("/")[1]: record for key, record in records(etcd).items() if key.startswith("shards/")}  # noqa: E731
            until(lambda: len(shards()) == 2 and all(len(one["in_sync"]) == 2 for one in shards().values()), lambda: str(records(etcd)))
            # Nobody plans: what is moved here stays.
            put(etcd, "controller", {"v": 1, "node": "f" * 40, "boot": "f" * 40})
            of = {redis.Redis(port=node.port).execute_command("CLUSTER MYID"): node for node in nodes}
            of = {name if isinstance(name, str) else name.decode(): node for name, node in of.items()}
            # The walk looks at a primary, which knows how far its replica is.
            first = next(name for name, node in of.items() if node is nodes[0])
            mine = next(one for one in shards().values() if first in one["in_sync"])
            if mine["primary"] != first:
                until(lambda: takes_over(nodes[0]), "a handover")
                until(lambda: any(one["primary"] == first for one in shards().values()), "its end")
            client = redis.RedisCluster(host="127.0.0.1", port=nodes[0].port)
            for number in range(400):
                client.set(f"many:{number}", number)
            for number in range(100):
                client.set(f"doomed:{number}", number)
            command = ["node", str(SCRIPT), str(http_port), str(out), *filter(None, [os.environ.get("CONSOLE_SHOTS")])]
            walk = subprocess.Popen(command, env={**os.environ, "CHROMIUM": CHROMIUM}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            deadline = time.monotonic() + 400
            while walk.poll() is None:
                assert time.monotonic() < deadline
                for wanted in folder.glob("*.wanted"):
                    change(wanted.stem, etcd, of, first, shards)
                    wanted.rename(wanted.with_suffix(".done"))
                time.sleep(0.05)
            assert walk.returncode == 0, walk.stdout.read().decode()
            yield json.loads(out.read_text()), http_port, f"127.0.0.1:{nodes[1].port}"
        finally:
            for node in nodes:
                node.kill()


def takes_over(node):
    try:
        return redis.Redis(port=node.port).execute_command("CLUSTER FAILOVER") in (True, b"OK")
    except redis.ResponseError:
        # It may not have read yet of which shard it is.
        return False


def change(name, etcd, of, first, shards):
    slots, own = records(etcd)["slots"], next(name for name, one in shards().items() if first in one["in_sync"])
    if name == "move":
        # A move that nobody begins, since its shards have had failovers; and a word about it.
        other = next(name for name in shards() if name != own)
        start = next(entry["slots"] for entry in slots["slots"] if entry["shard"] == own).split("-")[0]
        move = {"id": "a" * 40, "slots": f"{start}-{int(start) + 99}", "from": own, "to": other, "from_epoch": 999, "to_epoch": 999}
        told = {"id": "a" * 40, "state": "snapshotting", "walked": 420, "sent_bytes": 5 << 20, "behind_bytes": 1 << 20}
        put(etcd, "progress/" + "f" * 40, {"v": 1, "moves": [told]})
        put(etcd, "slots", {**slots, "moving": [move]})
    elif name == "end":
        put(etcd, "slots", {**slots, "moving": []})
    elif name == "kill":
        of[next(node for node in shards()[own]["in_sync"] if node != first)].process.kill()


@pytest.mark.parametrize("step", STEPS)
def test_console_cluster(walked, step):
    results, *_ = walked
    assert results[step] == "ok"


def test_websocket_leads_to_other_nodes_after_a_login_to_this_one(walked):
    _, http_port, address = walked
    upgrade = {"Host": f"127.0.0.1:{http_port}", "Origin": f"http://127.0.0.1:{http_port}", **UPGRADE}
    # The walk has closed its consoles.
    eventually(lambda: ask(http_port, f"/connect?node={address}", headers=upgrade).status == 403)
    assert ask(http_port, "/connect?node=127.0.0.1:22", headers=upgrade).status == 404
