"""deploy/helm/dunlin: what the templates render, against Kubernetes' schemas, the chart's own schema, the page and the program."""

import base64
import copy
import re
import shlex
import subprocess

import kubernetes_validate
import pytest
import redis
import yaml

import pages
from chart import CHART, HAPROXY, HELM, KUBERNETES, NAMESPACE, PASSWORD, RELEASE, Pod, expand, find, helm, needs_helm, render, server_of
from etcd_cluster import ETCD, Etcd, until
from harness import DUNLIN, ROOT, is_redis
from web import ask

pytestmark = [needs_helm, pytest.mark.skipif(is_redis(DUNLIN), reason="the chart of Dunlin")]

VALUES = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
PAGE = pages.page("kubernetes.md")
# What the Prometheus operator's definitions demand and allow, as far as the chart goes (monitoring.coreos.com/v1).
METADATA = {"name": str, "namespace": str, "labels": dict, "annotations": dict}
MONITORING = {
    "ServiceMonitor": {
        "apiVersion": str, "kind": str, "metadata": METADATA,
        "spec": {
            "jobLabel": str, "namespaceSelector": {"matchNames": [str]}, "selector": {"matchLabels": dict, "matchExpressions": [dict]},
            "endpoints": [{"port": str, "path": str, "interval": str, "scrapeTimeout": str, "relabelings": [dict], "metricRelabelings": [dict]}],
        },
    },
    "PrometheusRule": {
        "apiVersion": str, "kind": str, "metadata": METADATA,
        "spec": {"groups": [{"name": str, "rules": [{"alert": str, "expr": str, "for": str, "labels": dict, "annotations": dict}]}]},
    },
}  # fmt: skip


def check(value, kinds, path=""):
    if isinstance(kinds, dict):
        assert isinstance(value, dict), path
        for name, element in value.items():
            assert name in kinds, f"{path}/{name} is unknown"
            check(element, kinds[name], f"{path}/{name}")
    elif isinstance(kinds, list):
        for element in value:
            check(element, kinds[0], path)
    else:
        assert isinstance(value, kinds), f"{path} is no {kinds.__name__}"


def fails(*words):
    """What helm says of values that it refuses."""
    is_good, said = helm("template", RELEASE, CHART, "--kube-version", f"{KUBERNETES}.0", *words)
    assert not is_good, said
    return said


@pytest.mark.parametrize("name", VALUES)
def test_chart_passes_lint(name):
    is_good, said = helm("lint", "--strict", CHART, "-f", VALUES[name])
    assert is_good and "[WARNING]" not in said, said


def test_chart_is_packed_without_its_tests(tmp_path):
    is_good, said = helm("package", CHART, "--destination", tmp_path)
    assert is_good, said
    listed = subprocess.run(["tar", "-tzf", next(tmp_path.glob("*.tgz"))], capture_output=True, text=True, check=True).stdout
    assert "dunlin/files/pre-stop.sh" in listed and "dunlin/values.schema.json" in listed and "dunlin/ci/" not in listed


@pytest.mark.parametrize("version", ["1.30", KUBERNETES])
@pytest.mark.parametrize("name", VALUES)
def test_manifests_obey_schemas(name, version):
    documents = render("-f", VALUES[name])
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(set(names)) == len(names)
    for document in documents:
        if document["apiVersion"].startswith("monitoring."):
            check(document, MONITORING[document["kind"]])
        else:
            kubernetes_validate.validate(document, version, strict=True)
    wrong = copy.deepcopy(server_of(documents)[0])
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_references_between_manifests_meet(name):
    documents = render("-f", VALUES[name])
    stateful, container = server_of(documents)
    pod = stateful["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    there = {(document["kind"], document["metadata"]["name"]) for document in documents}
    given = yaml.safe_load(VALUES[name].read_text())
    elsewhere = {"passwords", "users", "certificates", "etcd-tls", "etcd-password"} if name == "everything" else set()
    for volume in spec["volumes"]:
        if "secret" in volume and volume["secret"]["secretName"] not in elsewhere:
            assert ("Secret", volume["secret"]["secretName"]) in there
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in there
    volumes = {volume["name"] for volume in spec["volumes"]} | {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    for one in spec["containers"] + spec.get("initContainers", []):
        assert {mount["name"] for mount in one.get("volumeMounts", [])} <= volumes
    assert ("ServiceAccount", spec["serviceAccountName"]) in there
    assert ("Service", stateful["spec"]["serviceName"]) in there
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert next(iter(container[probe].values()))["port"] in ports
    selecting = [document for document in documents if document["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy")]
    servers = [document for document in selecting if document["metadata"]["labels"]["app.kubernetes.io/component"] == "server"]
    assert len(servers) == 4
    # The others select pods that their own component has.
    for document in selecting:
        component = document["metadata"]["labels"]["app.kubernetes.io/component"]
        if component != "server":
            template = next(one for one in documents if one["kind"] in ("StatefulSet", "Deployment") and one["metadata"]["labels"]["app.kubernetes.io/component"] == component)
            selector = document["spec"].get("podSelector", document["spec"].get("selector"))
            assert selector.get("matchLabels", selector).items() <= template["spec"]["template"]["metadata"]["labels"].items(), document["kind"]
    for document in servers:
        selector = document["spec"].get("podSelector", document["spec"].get("selector"))
        assert selector.get("matchLabels", selector).items() <= labels.items(), document["kind"]
    # Every name in the arguments is one of the environment.
    known = {variable["name"] for variable in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= known
    # Nothing secret in what is not a Secret.
    password = given.get("auth", {}).get("password")
    open_ones = [document for document in documents if document["kind"] != "Secret"]
    assert not password or password not in yaml.safe_dump_all(open_ones)


def test_architectures_differ_in_what_they_are():
    of = {name: render("-f", VALUES[name]) for name in ("standalone", "replication", "cluster")}
    replicas = {name: server_of(documents)[0]["spec"]["replicas"] for name, documents in of.items()}
    assert replicas == {"standalone": 1, "replication": 3, "cluster": 4}
    configs = {name: find(documents, "ConfigMap", f"{RELEASE}-dunlin")["data"]["dunlin.conf"] for name, documents in of.items()}
    assert "cluster-" not in configs["standalone"]
    assert "cluster-plain-clients yes" in configs["replication"] and "cluster-replicas 2" in configs["replication"]
    assert "cluster-plain-clients" not in configs["cluster"] and "cluster-replicas 1" in configs["cluster"]
    assert not [document for document in of["standalone"] if "etcd" in document["metadata"]["name"] or document["kind"] == "Job"]
    for name in ("replication", "cluster"):
        etcd = find(of[name], "StatefulSet", component="etcd")
        [peers] = [word for word in etcd["spec"]["template"]["spec"]["containers"][0]["command"] if word.startswith("--initial-cluster=")]
        assert len(peers.split(",")) == etcd["spec"]["replicas"] == 3
    # 75% of 1Gi.
    assert "maxmemory 805306368" in configs["standalone"]
    assert "maxmemory" not in find(render("--set", "resources.limits.memory=null"), "ConfigMap")["data"]["dunlin.conf"]
    assert "maxmemory 2gb\n" in find(render("--set", "maxmemory=2gb"), "ConfigMap")["data"]["dunlin.conf"]


def test_values_are_all_passed_on():
    documents = render("-f", VALUES["everything"])
    stateful, container = server_of(documents)
    spec = stateful["spec"]["template"]["spec"]
    config = find(documents, "ConfigMap", f"{RELEASE}-dunlin")["data"]["dunlin.conf"]
    lines = config.splitlines()
    for line in [
        "port 0", "tls-port 6379", "tls-auth-clients optional", "tls-cluster yes", "cluster-preferred-endpoint-type hostname",
        "cluster-join etcds://etcd-0.etcd.infra.svc:2379,etcd-1.etcd.infra.svc:2379/orders", "cluster-etcd-user dunlin", "cluster-min-sync 2",
        "cluster-etcd-cert-file /etc/dunlin/etcd/tls.crt", "maxmemory 3gb", "aclfile /etc/dunlin/acl/users.acl", "masteruser link",
        "http-console no", "appendfsync always",
    ]:  # fmt: skip
        assert line in lines, line
    assert container["image"] == "registry.example.org/dunlin@sha256:" + yaml.safe_load(VALUES["everything"].read_text())["image"]["digest"][7:]
    assert container["args"][-2:] == ["--maxclients", "20000"]
    assert spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert spec["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"
    assert find(documents, "PodDisruptionBudget")["spec"]["minAvailable"] == 6
    policy = find(documents, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    froms = policy["ingress"][0]["from"]
    assert {"podSelector": {"matchLabels": {f"{RELEASE}-dunlin-client": "true"}}} in froms
    assert {"namespaceSelector": {"matchLabels": {"team": "shop"}}, "podSelector": {"matchLabels": {"app": "web"}}} in froms
    monitor = find(documents, "ServiceMonitor")
    service = find(documents, "Service", f"{RELEASE}-dunlin-headless")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {expression["key"] for expression in monitor["spec"]["selector"]["matchExpressions"]} <= set(service["metadata"]["labels"])
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "dunlin.rules.yml").read_text())
    found = find(documents, "PrometheusRule")["spec"]
    urls = {rule["annotations"].pop("runbook_url") for rule in found["groups"][0]["rules"]}
    assert "https://wiki.example.org/dunlin/runbook#dunlindown" in urls and len(urls) == len(found["groups"][0]["rules"])
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]["runbook_url"]
    assert found == rules
    dashboard = find(documents, "ConfigMap", f"{RELEASE}-dunlin-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["data"]["dunlin.json"].strip() == (ROOT / "deploy" / "grafana" / "dunlin.json").read_text().strip()
    assert find(documents, "ConfigMap", f"{RELEASE}-extra")


def test_alerts_and_dashboard_of_the_chart_are_those_of_the_tree():
    assert (CHART / "files" / "dunlin.rules.yml").read_text() == (ROOT / "deploy" / "prometheus" / "dunlin.rules.yml").read_text()
    assert (CHART / "files" / "dashboard.json").read_text() == (ROOT / "deploy" / "grafana" / "dunlin.json").read_text()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = subprocess.run([DUNLIN, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert chart["appVersion"] == version


def moved():
    text = (CHART / "templates" / "_validate.tpl").read_text()
    return yaml.safe_load(re.search(r'define "dunlin.moved" -}}\n(.*?){{- end', text, re.S)[1])


def test_values_of_other_charts_are_answered_with_their_names_here():
    said = fails("--set", "master.resources.limits.cpu=1", "--set", "redisPassword=x", "--set", "persistentVolume.size=1Gi")
    for name in ("master", "redisPassword", "persistentVolume"):
        assert f"{name}: here it is {moved()[name]}" in said
    # The page has the same table.
    table = dict(re.findall(r"^\| `([\w.]+)` \| [^|]+ \| (.+) \|$", PAGE.partition("| there | of | here |")[2].partition("\n\n")[0], re.M))
    plain = lambda text: text.replace("`", "")  # noqa: E731
    assert {name: plain(text) for name, text in table.items()} == moved()


def test_values_are_described_on_the_page():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    lacking = [name for name in values if f"`{name}" not in PAGE]
    assert lacking == []


def test_commands_of_the_page_render():
    commands = [line for lines in pages.blocks(PAGE).values() for line in lines if line.startswith("helm ")]
    assert len(commands) == 5
    counts = []
    for line in commands:
        verb, release, chart, *words = shlex.split(line)[1:]
        assert verb in ("install", "upgrade") and (release, chart) == (RELEASE, "deploy/helm/dunlin")
        words = [word for word in words if word != "--reuse-values"]
        counts.append(server_of(render(*words))[0]["spec"]["replicas"])
    assert counts[:3] == [1, 3, 6]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "archtecture=cluster"], "archtecture"),
        (["--set", "architecture=sentinel"], "architecture"),
        (["--set", "replica.replicaCount=17"], "replicaCount"),
        (["--set", "persistence.sise=1Gi"], "sise"),
        (["--set", "maxmemory=lots"], "maxmemory"),
        (["--set", "etcd.replicaCount=2"], "replicaCount"),
        (["--set", "auth=true"], "auth"),
        (["--set", "tls.enabled=true"], "tls.existingSecret: name a secret with certificates, or set tls.autoGenerated"),
        (["--set", "architecture=cluster,etcd.enabled=false"], "externalEtcd.endpoints: name an etcd"),
        (["--set", "architecture=cluster,cluster.nodes=2,cluster.replicas=2"], "cluster.nodes: not enough for one shard"),
        (["--set", "minSync=2"], "minSync: more than 1 needs durability sync"),
        (["--set", "architecture=replication,durability=sync,minSync=4"], "minSync: a shard has no more members"),
        (["--set", "architecture=cluster,persistence.existingClaim=one"], "persistence.existingClaim"),
        (["--set", "architecture=cluster,haproxy.enabled=true"], "haproxy.enabled: a proxy to the primary is for architecture replication alone"),
        (["--set", "pdb.minAvailable=1,pdb.maxUnavailable=1"], "pdb: minAvailable or maxUnavailable"),
    ],
)
def test_wrong_values_are_refused(words, said):
    assert said in fails(*words)


def test_password_is_made_and_certificates_fit_the_names():
    documents = render()
    password = base64.b64decode(find(documents, "Secret")["data"]["password"])
    assert re.fullmatch(rb"[A-Za-z0-9]{32}", password) and password != base64.b64decode(find(render(), "Secret")["data"]["password"])
    documents = render("-f", VALUES["tls"])
    secret = find(documents, "Secret", f"{RELEASE}-dunlin-tls")["data"]
    cert = base64.b64decode(secret["tls.crt"])
    text = subprocess.run(["openssl", "x509", "-noout", "-text"], input=cert, capture_output=True, check=True).stdout.decode()
    assert f"DNS:*.{RELEASE}-dunlin-headless.{NAMESPACE}.svc.cluster.local" in text and "DNS:localhost" in text and "IP Address:127.0.0.1" in text
    hook = server_of(documents)[1]["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[hook.index("--sni") + 1] == f"{RELEASE}-dunlin-0.{RELEASE}-dunlin-headless.{NAMESPACE}.svc.cluster.local"


@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy (Debian package)")
def test_haproxy_accepts_its_configuration(tmp_path):
    config = find(render("-f", VALUES["haproxy"]), "ConfigMap", f"{RELEASE}-dunlin-haproxy")["data"]["haproxy.cfg"]
    (tmp_path / "haproxy.cfg").write_text(config)
    checked = subprocess.run([HAPROXY, "-c", "-f", tmp_path / "haproxy.cfg"], capture_output=True, text=True)
    assert checked.returncode == 0 and "WARNING" not in checked.stderr.upper(), checked.stderr
    assert config.count(f".{RELEASE}-dunlin-headless.{NAMESPACE}.svc.cluster.local:6379") == 4, "two pods, twice"


def directives(documents):
    """The names of all directives that a pod's configuration and arguments use."""
    config = find(documents, "ConfigMap", f"{RELEASE}-dunlin")["data"]["dunlin.conf"]
    _, container = server_of(documents)
    return {line.split()[0] for line in config.splitlines()} | {word[2:] for word in container["args"] if word.startswith("--")}


@pytest.mark.parametrize("name", VALUES)
def test_program_knows_each_directive(name):
    printed = subprocess.run([DUNLIN, "server", "--print-config"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^#? ?([a-z][a-z-]+)(?: |$)", printed, re.M))
    assert directives(render("-f", VALUES[name])) - known == set()


def test_pod_starts_and_ends_as_the_manifests_say():
    pod = Pod(render("-f", VALUES["standalone"]), 0)
    try:
        pod.start().await_ready()
        client = pod.client()
        assert client.set("k", "v") and client.config_get("maxmemory") == {"maxmemory": "805306368"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=pod.port).ping()
        pod.stop()
        pod.start().await_ready()
        assert pod.client().get("k") == b"v"
    finally:
        pod.kill()


def test_readiness_knows_loading():
    pod = Pod(render("-f", VALUES["standalone"], "--set-string", "commonConfiguration=appendonly no\nenable-debug-command yes"), 0)
    try:
        pod.start().await_ready()
        client = pod.client()
        client.execute_command("DEBUG", "POPULATE", 2_000_000)
        client.save()
        pod.kill()
        pod.start()
        # HTTP is there before the data is: alive, and not ready.
        probe = pod.container["livenessProbe"]
        assert probe["tcpSocket"] == {"port": "http"} == pod.container["startupProbe"]["tcpSocket"]
        loading = []

        def looks():
            try:
                answer = ask(pod.http, "/health")
            except OSError:
                return False
            loading.append((answer.status, answer.text))
            return answer.status == 200

        until(looks, pod.log)
        assert any(status == 503 and "is being loaded" in text for status, text in loading), loading[:3]
        assert pod.client().dbsize() == 2_000_000
    finally:
        pod.kill()


@pytest.mark.skipif(not ETCD, reason="there is no etcd (apt-get install etcd-server)")
def test_etcd_of_the_chart_starts(tmp_path):
    etcd = find(render("-f", VALUES["cluster"], "--set", "etcd.replicaCount=1"), "StatefulSet", component="etcd")
    command = etcd["spec"]["template"]["spec"]["containers"][0]["command"]
    with Etcd() as own:
        client, peer = f"127.0.0.1:{own.port}", f"127.0.0.1:{own.peer_port}"
        own.kill()
        name = f"{etcd['metadata']['name']}-0"
        words = [expand(word, {"POD_NAME": name}) for word in command]
        words = [re.sub(r"http://[\w.-]+:2379", f"http://{client}", re.sub(r"http://[\w.-]+:2380", f"http://{peer}", word)) for word in words]
        words = [word.replace("/data/etcd", str(tmp_path / "etcd")) for word in words]
        assert words[0] == "etcd" and f"--initial-cluster={name}=http://{peer}" in words
        with open(tmp_path / "log", "wb") as log:
            own.process = subprocess.Popen([ETCD, *words[1:]], stdout=log, stderr=log)
        pod = Pod(render("-f", VALUES["cluster"], "--set", "cluster.nodes=1,cluster.replicas=0"), 0, own)
        try:
            pod.start().await_ready()
            assert "1 shard" in pod.cli("status")
        finally:
            pod.kill()
    assert HELM
