"""A network of namespaces on one bridge, inside namespaces of the test's own: nothing outside of them changes.

    clients ── bridge 10.77.0.1 ── node 10.77.0.11
                     ├──────────── node 10.77.0.12
                     └──────────── etcd 10.77.0.10
"""

import ctypes
import os
import shutil
import subprocess
import sys

CLIENTS = "10.77.0.1"
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_INSIDE = "DUNLIN_JEPSEN_INSIDE"


def missing():
    """Why there can be no such network here; `None` where there can."""
    if not shutil.which("ip") or not shutil.which("unshare"):
        return "there is no ip or unshare (apt-get install iproute2 util-linux)"
    script = "ip link add bridge type bridge && ip link add left type veth peer name right"
    tried = subprocess.run([*_unshare(), "sh", "-c", script], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"the system gives no namespaces with bridges: {tried.stderr.strip()}"


def _unshare():
    own_user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--net", "--mount", *own_user]


def enter():
    """Has this program run again inside namespaces of its own, where it is not yet."""
    if os.environ.get(_INSIDE):
        return
    os.environ[_INSIDE] = "1"
    command = [*_unshare(), sys.executable, *sys.orig_argv[1:]]
    os.execvp(command[0], command)


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Host:
    """A machine of the network."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        self.outside = f"v-{name}"
        _ip("netns", "add", name)
        _ip("link", "add", self.outside, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", self.outside, "master", "bridge", "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        self._blocked = set()

    def start(self, command, **options):
        """Starts a program on it."""

        def enter_namespace():
            with open(f"/run/netns/{self.name}") as namespace:
                if _libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")

        return subprocess.Popen(command, preexec_fn=enter_namespace, **options)

    def link(self, on):
        """Connects it to everything, or to nothing."""
        _ip("link", "set", self.outside, "up" if on else "down")

    def block(self, *others):
        """From here on nothing that it sends reaches these; what they send reaches it."""
        for other in others:
            if other.address not in self._blocked and other is not self:
                _ip("-n", self.name, "route", "add", "blackhole", other.address)
                self._blocked.add(other.address)

    def unblock(self):
        for address in self._blocked:
            _ip("-n", self.name, "route", "del", "blackhole", address)
        self._blocked.clear()


class Network:
    """The bridge, on which the clients are, and hosts on it."""

    def __init__(self):
        os.makedirs("/run/netns", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("link", "set", "bridge", "up")
        _ip("addr", "add", f"{CLIENTS}/24", "dev", "bridge")
        self.hosts = []

    def host(self, name):
        host = Host(name, f"10.77.0.{10 + len(self.hosts)}")
        self.hosts.append(host)
        return host

    def heal(self):
        for host in self.hosts:
            host.link(True)
            host.unblock()

    def forget(self):
        """Takes all hosts away."""
        for host in self.hosts:
            _ip("link", "delete", host.outside)
            _ip("netns", "delete", host.name)
        self.hosts = []
