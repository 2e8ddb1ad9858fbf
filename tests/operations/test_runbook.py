"""docs/runbook.md: a section for each alert and an alert for each section, and the commands of the sections, as they stand there."""

import pytest
import redis
import yaml

import pages
from etcd_cluster import ETCD, ETCDCTL, Etcd, dunlin_nodes
from harness import DUNLIN, ROOT, is_redis
from web import ask, eventually, serving

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="the runbook of Dunlin")

PAGE = pages.page("runbook.md")
RULES = ROOT / "deploy" / "prometheus" / "dunlin.rules.yml"
INSTALLED = "file:///usr/share/doc/dunlin/runbook.md"


def alerts():
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_runbook_has_a_section_for_each_alert():
    sections = pages.sections(PAGE)
    assert sections.pop("Tests")
    assert list(sections) == list(alerts()), "in the order of the rules"
    kinds = {"page": "*Page.*", "ticket": "*Ticket.*"}
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"] == f"{INSTALLED}#{name.lower()}"
        assert sections[name].strip().startswith(kinds[rule["labels"]["severity"]]), name
        assert pages.blocks(f"## {name}\n{sections[name]}"), f"{name} says nowhere where to look"
        assert "\n- " in sections[name], f"{name} does not say what to do"
    make_deb = (ROOT / "scripts" / "make-deb.sh").read_text()
    assert "usr/share/doc/dunlin/$page.md" in make_deb and "runbook" in make_deb


def lines(of_clusters):
    found = pages.blocks(PAGE)
    return [line for name, block in found.items() if name.startswith("DunlinCluster") == of_clusters for line in block]


def test_commands_of_the_runbook_work():
    with serving("--appendonly", "yes", "--slowlog-log-slower-than", "0") as (server, http):
        client = redis.Redis(port=server.port)
        client.set("k", "v")
        # A denied user, for ACL LOG.
        with pytest.raises(redis.AuthenticationError):
            client.execute_command("AUTH", "nobody", "guess")
        # The recorder has a second to tell of.
        eventually(lambda: ask(http, "/health").status == 200)
        places = {"-p 8379": f"-p {http}", "-p 6379": f"-p {server.port}", "-h db1": "-h 127.0.0.1"}
        for line in lines(of_clusters=False):
            assert pages.run(line, places).strip(), line


@pytest.mark.skipif(not ETCD or not ETCDCTL, reason="there is no etcd (apt-get install etcd-server etcd-client)")
def test_commands_of_the_runbook_for_clusters_work(monkeypatch):
    # Before etcd 3.4 that was not what it speaks by itself.
    monkeypatch.setenv("ETCDCTL_API", "3")
    with Etcd() as etcd, dunlin_nodes(etcd, 2, replicas=1) as cluster:
        places = {"-p 6379": f"-p {cluster.nodes[0].port}", "-h db1": "-h 127.0.0.1", "127.0.0.1:2379": f"127.0.0.1:{etcd.port}"}
        for line in lines(of_clusters=True):
            # There is no alarm to list.
            assert pages.run(line, places).strip() or "alarm list" in line, line
