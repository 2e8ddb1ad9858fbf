"""The Helm chart: rendered by helm, and its pods as processes of this machine, started and ended by the commands of their containers."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
import redis
import yaml

from etcd_cluster import records
from harness import DUNLIN, ROOT, free_port
from waiting import until
from web import ask

CHART = ROOT / "deploy" / "helm" / "dunlin"
_built = ROOT / "tests" / ".env" / "bin" / "helm"
HELM = os.environ.get("HELM") or (str(_built) if _built.exists() else shutil.which("helm"))
needs_helm = pytest.mark.skipif(not HELM, reason="there is no helm (scripts/setup-tests.sh builds it with Go, or HELM names one)")
HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
KUBERNETES = "1.34"
RELEASE, NAMESPACE = "orders", "shop"
PASSWORD = "secret-of-a-test"


def helm(*words):
    """What helm says, and whether it succeeds."""
    done = subprocess.run([HELM, *map(str, words)], capture_output=True, text=True, timeout=120)
    return done.returncode == 0, done.stdout + done.stderr


def render(*words, release=RELEASE):
    """The manifests of a release with these words of helm behind, as `-f FILE` and `--set A=B`."""
    command = ["template", release, CHART, "--namespace", NAMESPACE, "--kube-version", f"{KUBERNETES}.0", *words]
    done = subprocess.run([HELM, *map(str, command)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def find(documents, kind, name=None, component=None):
    """The only manifest of a kind, with that name or component."""
    [found] = [
        document for document in documents
        if document["kind"] == kind and name in (None, document["metadata"]["name"])
        and component in (None, document["metadata"].get("labels", {}).get("app.kubernetes.io/component"))
    ]  # fmt: skip
    return found


def server_of(documents):
    """The StatefulSet of the servers, and their container."""
    stateful = find(documents, "StatefulSet", component="server")
    [container] = [one for one in stateful["spec"]["template"]["spec"]["containers"] if one["name"] == "dunlin"]
    return stateful, container


def expand(text, env):
    """Kubernetes' own expansion of $(NAME)."""
    return re.sub(r"\$\((\w+)\)", lambda name: env.get(name[1], name[0]), text)


class Pod:
    """A pod of the servers as a process. Its files lie in a folder of this machine, its ports are free ones, and its address is
    127.0.0.1; everything else is as the manifests say: arguments, configuration, hook, probes, grace."""

    def __init__(self, documents, number, etcd=None, zone="", host=None):
        self.stateful, self.container = server_of(documents)
        self.name = f"{self.stateful['metadata']['name']}-{number}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-pod-"))
        self.log_path = self.folder / "output"
        (self.folder / "data").mkdir()
        self.port, self.http = free_port(), free_port()
        self.env = {"POD_NAME": self.name, "POD_IP": "127.0.0.1", "NODE_NAME": host or f"node-{number}", "ZONE": zone}
        self.env["DUNLIN_PASSWORD"] = PASSWORD
        self.env.update((variable["name"], variable["value"]) for variable in self.container["env"] if "value" in variable)
        self.user = self.env.get("DUNLIN_USER")
        self.ports = {"redis": self.port, "http": self.http}
        self.etcd, self.process, self.hook_says = etcd, None, []
        self.write_files(documents)

    def write_files(self, documents):
        for document in documents:
            of_servers = document["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "server"
            for name, text in document.get("data", {}).items():
                if document["kind"] == "ConfigMap" and of_servers:
                    (self.folder / name).write_text(self.placed(text))

    def placed(self, text):
        """A text of the manifests with this machine's paths and ports."""
        for port in self.container["ports"]:
            text = re.sub(rf"(?m)^((?:tls-|http-)?port) {port['containerPort']}$", lambda found, port=port: f"{found[1]} {self.ports[port['name']]}", text)
        if self.etcd:
            text = re.sub(r"(cluster-join etcds?://)[^/]+", lambda found: f"{found[1]}127.0.0.1:{self.etcd.port}", text)
        text = text.replace("dir /data", f"dir {self.folder}/data").replace("bind * -::*", "bind 127.0.0.1")
        for mount in ("/etc/dunlin/tls/", "/etc/dunlin/acl/", "/etc/dunlin/dunlin.conf"):
            text = text.replace(mount, f"{self.folder}/{mount.removeprefix('/etc/dunlin/')}")
        return text

    def start(self):
        """The container's start: the image's entry point with the arguments of the manifest."""
        words = [self.placed(expand(word, self.env)) for word in self.container["args"]]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([DUNLIN, "server", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.env})
        return self

    def is_ready(self):
        """What the readiness probe says."""
        assert self.process.poll() is None, self.log()
        probe = self.container["readinessProbe"]["httpGet"]
        try:
            return ask(self.ports[probe["port"]], probe["path"]).status == 200
        except OSError:
            return False

    def await_ready(self):
        until(self.is_ready, self.log)

    def stop(self, settle="0"):
        """The end of a pod: the preStop hook, then SIGTERM, and the wait for the end."""
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook:
            shell, sh, script, port, timeout, seconds, *flags = hook["exec"]["command"]
            assert (shell, sh, script) == ("/tools/busybox", "sh", "/hooks/pre-stop.sh") and int(seconds) >= 0
            assert int(port) == next(one["containerPort"] for one in self.container["ports"] if one["name"] == "redis")
            words = [self.placed(word) for word in flags]
            command = ["sh", self.folder / "pre-stop.sh", self.port, timeout, settle, *words]
            # The container's environment, and none of its expansions: Kubernetes does not expand words of hooks.
            given = {**os.environ, **self.env, "DUNLIN": DUNLIN}
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=given, timeout=300)
            assert done.returncode == 0, done.stdout + done.stderr + self.log()
            self.hook_says.append(done.stdout.strip())
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(int(self.stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])) == 0, self.log()

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def client(self, **options):
        return redis.Redis(port=self.port, **{"username": self.user, "password": PASSWORD, "socket_timeout": 30, **options})

    def cli(self, *words, code=0):
        """What `dunlin cluster` says, asked at this pod."""
        command = [DUNLIN, "cluster", *map(str, words), "-p", str(self.port), "-a", PASSWORD, *(["--user", self.user] if self.user else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def log(self):
        return f"{self.name}:\n{self.log_path.read_text(errors='replace')[-3000:]}"


class Release:
    """All pods of a release."""

    def __init__(self, documents, etcd, zones=()):
        self.documents, self.etcd = documents, etcd
        count = server_of(documents)[0]["spec"]["replicas"]
        self.pods = [Pod(documents, number, etcd, zones[number % len(zones)] if zones else "") for number in range(count)]

    def __enter__(self):
        for pod in self.pods:
            pod.start()
        return self

    def __exit__(self, kind, *_):
        for pod in self.pods:
            pod.kill()
            if kind:
                print(pod.log())
            shutil.rmtree(pod.folder, ignore_errors=True)

    def logs(self):
        return "\n".join(pod.log() for pod in self.pods)

    def is_well(self):
        """Whether each pod is ready, the cluster waits for nothing, and every replica is in sync."""
        shards = [record for key, record in records(self.etcd, f"{RELEASE}-dunlin").items() if key.startswith("shards/")]
        are_in_sync = shards and not any(record["learners"] for record in shards)
        return are_in_sync and all(pod.is_ready() for pod in self.pods) and "Nothing waits." in self.pods[0].cli("status")

    def await_well(self):
        until(self.is_well, lambda: self.pods[0].cli("status") + self.logs(), deadline_s=180)

    def update(self, change=lambda pod: None):
        """A rolling update as a StatefulSet makes it: from the last pod to the first, each replaced when the one before is ready."""
        for pod in reversed(self.pods):
            pod.stop()
            change(pod)
            pod.start()
            pod.await_ready()
