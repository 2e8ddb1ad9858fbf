"""deploy/helm/dunlin at work: the pods of a release are processes, replaced, killed and drained as Kubernetes does it."""

import contextlib
import re
import subprocess
import threading

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from certificates import Authority
from chart import CHART, HAPROXY, PASSWORD, Pod, Release, find, needs_helm, render, server_of
from etcd_cluster import NEEDS_ETCD, Etcd, told_again, until
from harness import DUNLIN, free_port

pytestmark = [needs_helm, *NEEDS_ETCD, pytest.mark.timeout(1200)]


def values(name, *words):
    return render("-f", CHART / "ci" / f"{name}-values.yaml", *words)


@pytest.fixture
def etcd():
    with Etcd() as etcd:
        yield etcd


class Counter(threading.Thread):
    """A client that increments keys one after the other, and keeps what was acknowledged and what was answered by an error. An increment
    without an answer may have happened or not."""

    KEYS = [f"counter:{number}" for number in range(16)]

    def __init__(self, connect):
        super().__init__(daemon=True)
        self.connect, self.acknowledged, self.unknown, self.refused = connect, dict.fromkeys(self.KEYS, 0), dict.fromkeys(self.KEYS, 0), []
        self.is_over = threading.Event()
        self.start()

    def run(self):
        client, turn = self.connect(), 0
        while not self.is_over.is_set():
            key = self.KEYS[turn % len(self.KEYS)]
            turn += 1
            try:
                client.incr(key)
                self.acknowledged[key] += 1
            except redis.ResponseError as error:
                self.refused.append(str(error))
            except (redis.RedisError, OSError):
                self.unknown[key] += 1

    def total(self):
        return sum(self.acknowledged.values())

    def goes_on(self, by=200):
        """Waits until the client has done more."""
        before = self.total()
        until(lambda: self.total() >= before + by, lambda: str(self.refused[-3:]))

    def end(self):
        self.is_over.set()
        self.join()
        client = self.connect()
        for key in self.KEYS:
            found = int(client.get(key) or 0)
            assert self.acknowledged[key] <= found <= self.acknowledged[key] + self.unknown[key], key


def by_sentinel(release):
    def connect():
        nodes = [("127.0.0.1", pod.port) for pod in release.pods]
        # A node that is gone costs no time: the counter asks again by itself.
        options = {"password": PASSWORD, "socket_timeout": 5, "retry": Retry(NoBackoff(), 0)}
        sentinel = Sentinel(nodes, sentinel_kwargs=options, **options)
        return sentinel.master_for("orders-dunlin")

    return connect


def by_cluster(release):
    def connect():
        nodes = [redis.cluster.ClusterNode("127.0.0.1", pod.port) for pod in release.pods]
        return redis.RedisCluster(startup_nodes=nodes, password=PASSWORD, socket_timeout=5)

    return connect


def primary_of(release):
    """The pod of the primary, of one shard."""

    def primaries():
        there = [pod for pod in release.pods if pod.process.poll() is None]
        found = [pod for pod in there if pod.client().info("replication")["role"] == "master"]
        return found if len(found) == 1 else None

    return until(primaries, release.logs)[0]


@told_again
def test_rolling_update_of_a_primary_with_replicas_loses_nothing(etcd):
    with Release(values("replication"), etcd) as release:
        release.await_well()
        counter = Counter(by_sentinel(release))
        counter.goes_on()
        release.update()
        counter.goes_on()
        release.await_well()
        counter.end()
        # Each pod was asked, and the one that was the primary has given it away before its end.
        says = [pod.hook_says for pod in release.pods]
        assert all(len(said) == 1 for said in says)
        assert any("takes over" in said[0] for said in says) and not any("no node" in said[0] for said in says), says
        # A primary that hands over answers READONLY until its clients have heard of the new one.
        assert all("READONLY" in error or "read only" in error for error in counter.refused), counter.refused


@told_again
def test_rolling_update_of_a_cluster_loses_nothing(etcd):
    with Release(values("cluster"), etcd) as release:
        release.await_well()
        counter = Counter(by_cluster(release))
        counter.goes_on()
        release.update()
        counter.goes_on()
        release.await_well()
        counter.end()
        assert counter.refused == []
        assert sum("takes over" in said for pod in release.pods for said in pod.hook_says) >= 2, "two shards"


has_tls = "built without TLS" not in subprocess.run([DUNLIN, "cluster", "nodes", "--insecure", "-p", "1"], capture_output=True, text=True).stderr


@pytest.mark.skipif(not has_tls, reason="the program was built without TLS for clients")
@told_again
def test_rolling_update_inside_tls_hands_over(etcd, tmp_path):
    documents = values("tls")
    authority = Authority(tmp_path)
    cert, key = authority.issue("node")
    with_names = {"ca.crt": authority.cert, "tls.crt": cert, "tls.key": key}
    release = Release(documents, etcd)
    for pod in release.pods:
        (pod.folder / "tls").mkdir()
        for name, path in with_names.items():
            (pod.folder / "tls" / name).write_bytes(path.read_bytes())
    # The name that the hook demands of certificates is one of Kubernetes.
    hook = server_of(documents)[1]["lifecycle"]["preStop"]["exec"]["command"]
    hook[hook.index("--sni") + 1] = "localhost"
    tls = {"ssl": True, "ssl_ca_certs": str(authority.cert), "ssl_certfile": str(cert), "ssl_keyfile": str(key)}
    with release:
        role = lambda pod: pod.client(**tls).info("replication")  # noqa: E731
        until(lambda: all(pod.is_ready() for pod in release.pods), release.logs)
        until(lambda: sorted(role(pod)["role"] for pod in release.pods) == ["master", "slave"], release.logs)
        [primary] = [pod for pod in release.pods if role(pod)["role"] == "master"]
        assert primary.client(**tls).set("k", "v")
        with pytest.raises(redis.RedisError):
            primary.client().ping()
        release.update()
        assert any("takes over" in pod.hook_says[0] for pod in release.pods), [pod.hook_says for pod in release.pods]
        until(lambda: sorted(role(pod)["role"] for pod in release.pods) == ["master", "slave"], release.logs)
        [primary] = [pod for pod in release.pods if role(pod)["role"] == "master"]
        assert primary.client(**tls).get("k") == b"v"


USERS = f"""user default off
user link on >{PASSWORD} ~* &* +@all
user app on >app ~app:* &* +@all -@admin
"""


@told_again
def test_nodes_and_hooks_log_in_as_a_user_of_the_acl_file(etcd):
    documents = values("replication", "--set", "replica.replicaCount=1,auth.acl.existingSecret=users,auth.acl.linkUser=link")
    release = Release(documents, etcd)
    for pod in release.pods:
        (pod.folder / "acl").mkdir()
        (pod.folder / "acl" / "users.acl").write_text(USERS)
    with release:
        release.await_well()
        app = {"username": "app", "password": "app"}
        assert primary_of(release).client(**app).set("app:1", "v")
        with pytest.raises(redis.RedisError):
            primary_of(release).client(username=None).ping()
        release.update()
        release.await_well()
        assert any("takes over" in pod.hook_says[0] for pod in release.pods), [pod.hook_says for pod in release.pods]
        assert primary_of(release).client(**app).get("app:1") == b"v"
        with pytest.raises(redis.exceptions.NoPermissionError):
            primary_of(release).client(**app).get("other")


@told_again
def test_loss_of_a_node_is_survived(etcd):
    with Release(values("replication"), etcd) as release:
        release.await_well()
        counter = Counter(by_sentinel(release))
        counter.goes_on()
        lost = primary_of(release)
        lost.kill()
        counter.goes_on()
        assert primary_of(release) is not lost
        # Kubernetes starts the pod anew, elsewhere.
        lost.env["NODE_NAME"] = "node-new"
        lost.start().await_ready()
        release.await_well()
        counter.end()


@told_again
def test_loss_of_a_zone_is_survived(etcd):
    with Release(values("cluster"), etcd, zones=["a", "b"]) as release:
        release.await_well()
        zones = {line.split()[7]: line.split() for line in release.pods[0].cli("nodes").splitlines()[1:]}
        assert len(zones) == 4
        shards = {}
        for row in (line.split() for line in release.pods[0].cli("nodes").splitlines()[1:]):
            shards.setdefault(row[6], set()).add(row[8])
        assert list(shards.values()) == [{"a", "b"}, {"a", "b"}], "each shard has a node in each zone"
        counter = Counter(by_cluster(release))
        counter.goes_on()
        lost = [pod for pod in release.pods if pod.env["ZONE"] == "a"]
        for pod in lost:
            pod.kill()
        counter.goes_on()
        for pod in lost:
            pod.start()
        release.await_well()
        counter.end()


@contextlib.contextmanager
def proxy(release, folder):
    """The release's HAProxy, and its two ports."""
    config = find(release.documents, "ConfigMap", "orders-dunlin-haproxy")["data"]["haproxy.cfg"]
    ports = [free_port() for _ in range(3)]
    for port, bind in zip(ports, ("bind :6379", "bind :6380", "bind :8404"), strict=True):
        assert config.count(bind + "\n") == 1
        config = config.replace(bind, f"bind 127.0.0.1:{port}")
    for pod in release.pods:
        config, count = re.subn(rf"server {pod.name} \S+", f"server {pod.name} 127.0.0.1:{pod.port} port {pod.http}", config)
        assert count == 2
    (folder / "haproxy.cfg").write_text(config)
    container = find(release.documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    words = [HAPROXY, *(str(folder / "haproxy.cfg") if word == "/etc/haproxy/haproxy.cfg" else word for word in container["args"])]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield ports[:2]
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy (Debian package)")
@told_again
def test_proxy_leads_plain_clients_to_the_primary(etcd, tmp_path):
    with Release(values("haproxy"), etcd) as release, proxy(release, tmp_path) as (port, reads):
        release.await_well()

        def connect():
            return redis.Redis(port=port, password=PASSWORD, socket_timeout=5, retry=Retry(NoBackoff(), 0))

        counter = Counter(connect)
        counter.goes_on()
        for number in (0, 1):
            lost = primary_of(release)
            lost.kill() if number else lost.stop()
            counter.goes_on()
            lost.start().await_ready()
            release.await_well()
        counter.goes_on()
        counter.end()
        assert all("READONLY" in error or "read only" in error or "UNBLOCKED" in error for error in counter.refused), counter.refused

        def replica():
            try:
                return redis.Redis(port=reads, password=PASSWORD, socket_timeout=5).info("replication")["role"] == "slave"
            except redis.ConnectionError:
                return False

        until(replica, "a replica")


@told_again
def test_hook_waits_for_a_replica_and_no_longer_than_it_may(etcd):
    documents = values("replication", "--set", "replica.replicaCount=1", "--set", "hooks.preStop.timeoutSeconds=3")
    with Release(documents, etcd) as release:
        release.await_well()
        primary = primary_of(release)
        [replica] = [pod for pod in release.pods if pod is not primary]
        replica.kill()
        primary.stop()
        assert primary.hook_says == ["pre-stop: no node took over within 3 s"]
        for pod in release.pods:
            pod.start()
        release.await_well()
        # The replica is on its way: the hook waits for it.
        primary = primary_of(release)
        [replica] = [pod for pod in release.pods if pod is not primary]
        replica.kill()
        replica.start()
        hook = server_of(documents)[1]["lifecycle"]["preStop"]["exec"]["command"]
        hook[4] = "120"
        primary.stop()
        assert "takes over" in primary.hook_says[1], primary.hook_says
        primary.start()
        release.await_well()


def test_hook_passes_shellcheck():
    script = CHART / "files" / "pre-stop.sh"
    for shell in ("sh", "bash"):
        checked = subprocess.run([shell, "-n", script], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
    text = script.read_text()
    # Of the shell of busybox: no arrays, no [[, no local, no process substitution.
    for word in ("[[", "local ", "function ", "<(", "declare ", "=~"):
        assert word not in text, word


@told_again
def test_pods_that_are_drained_can_be_taken_away(etcd):
    with Release(values("cluster", "--set", "cluster.nodes=3,cluster.replicas=0"), etcd) as release:
        release.await_well()
        counter = Counter(by_cluster(release))
        counter.goes_on()
        last = release.pods[-1]
        release.pods[0].cli("drain", last.name)
        is_empty = lambda: "2 shards" in release.pods[0].cli("status")  # noqa: E731
        until(is_empty, lambda: release.pods[0].cli("status"), deadline_s=180)
        last.stop()
        assert last.hook_says == ["pre-stop: no other node has this node's data"], "and it does not wait for one"
        release.pods.remove(last)
        counter.goes_on()
        counter.end()
        assert counter.refused == []


def job(documents, moment):
    """The command of the Job that writes the number of replicas, without the program."""
    [found] = [document for document in documents if document["kind"] == "Job" and document["metadata"]["annotations"]["helm.sh/hook"] == moment]
    command = found["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:2] == ["/usr/bin/dunlin", "cluster"] and command[-2:] == ["-a", "$(DUNLIN_PASSWORD)"]
    return command[2:4]


@told_again
def test_replicas_that_come_form_no_second_shard(etcd):
    with Release(values("replication", "--set", "replica.replicaCount=1"), etcd) as release:
        release.await_well()
        # The upgrade: the Job before it, more pods, the Job behind it.
        documents = values("replication", "--set", "replica.replicaCount=3")
        release.pods[0].cli(*job(documents, "pre-upgrade"))
        release.documents = documents
        for number in (2, 3):
            release.pods.append(Pod(documents, number, etcd).start())
        release.pods[0].cli(*job(documents, "post-upgrade"))
        release.await_well()
        assert "1 shard, 4 nodes" in release.pods[0].cli("status")
        assert DUNLIN
