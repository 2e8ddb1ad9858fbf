"""GET /metrics: both formats, the same figures as INFO, and everything that dashboard and alerts ask for."""

import json
import re
import shutil
import subprocess
import threading

import pytest
import redis
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

import pages
from harness import ROOT, Server
from web import ask, eventually, serving

DEPLOY = ROOT / "deploy"
PROMTOOL = shutil.which("promtool")
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian package prometheus)")


def scrape(port, accept="text/plain"):
    answer = ask(port, "/metrics", headers={"Accept": accept})
    assert answer.status == 200
    return answer


def samples(text, read=read_text):
    """Values by name and labels."""
    found = {}
    for family in read(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found, name, **labels):
    return found[(name, tuple(sorted(labels.items())))]


@pytest.fixture(scope="module")
def busy():
    """A primary with a log that has done something of each kind, the port of its HTTP, and that of its replica's."""
    with serving("--appendonly", "yes", "--threads", 2, "--enable-debug-command", "yes") as (server, port):
        client = redis.Redis(port=server.port)
        client.execute_command("ACL", "SETUSER", 'o"dd\\name', "on", "nopass", "+@all", "~*")
        odd = redis.Redis(port=server.port, username='o"dd\\name', password="x")
        odd.set("k", "v")
        client.set("expires", "v", ex=100)
        client.hset("h", mapping={str(number): "v" for number in range(100)})
        client.execute_command("SELECT", 3)
        client.set("in3", "v")
        with pytest.raises(redis.ResponseError):
            client.execute_command("INCR", "in3")
        # What is slow by chance may be the newest event of that name, but is no faster than this; later, it would be another series.
        client.config_set("latency-monitor-threshold", 20)
        client.execute_command("DEBUG", "SLEEP", "0.03")
        client.config_set("latency-monitor-threshold", 0)
        client.config_set("slowlog-log-slower-than", 0)
        with serving("--replicaof", "127.0.0.1", server.port) as (replica, replica_port):
            link = redis.Redis(port=replica.port)
            eventually(lambda: link.info("replication")["master_link_status"] == "up")
            eventually(lambda: client.info("replication")["slave0"]["state"] == "online")
            yield server, client, port, replica_port
        odd.close()


def test_metrics_format_is_chosen_by_accept(busy):
    *_, port, _ = busy
    assert scrape(port).headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    answer = scrape(port, OPENMETRICS)
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.text.endswith("# EOF\n")


def test_metrics_have_the_same_series_in_both_formats(busy):
    *_, port, _ = busy
    # Bounds are written as 1 in one and as 1.0 in the other.
    plain = lambda key: (key[0], tuple((name, label.removesuffix(".0")) for name, label in key[1]))
    text = lambda: {plain(key) for key in samples(scrape(port).text)}
    openmetrics = lambda: {plain(key) for key in samples(scrape(port, OPENMETRICS).text, read_openmetrics)}
    # The replica may send a command for the first time meanwhile.
    while True:
        before, beside = text(), openmetrics()
        if text() == before:
            break
    assert before == beside


def test_figures_are_those_of_info(busy):
    server, client, port, _ = busy
    found, info = samples(scrape(port).text), client.info("everything")
    assert value(found, "redis_up") == 1
    assert value(found, "redis_db_keys", db="db0") == info["db0"]["keys"]
    assert value(found, "redis_db_keys", db="db3") == 1
    assert value(found, "redis_db_keys_expiring", db="db0") == 1
    assert 0 < value(found, "redis_db_avg_ttl_seconds", db="db0") <= 100
    assert value(found, "redis_connected_slaves") == 1
    assert value(found, "redis_aof_enabled") == 1
    assert value(found, "redis_aof_last_write_status") == 1
    assert value(found, "redis_config_maxclients") == info["maxclients"]
    assert value(found, "redis_commands_total", cmd="hset") == 1
    assert value(found, "redis_commands_failed_calls_total", cmd="incr") == 1
    assert value(found, "redis_errors_total", err="ERR") >= 1
    assert value(found, "redis_slowlog_length") >= 1
    assert value(found, "redis_latency_spike_duration_seconds", event_name="command") >= 0.02
    assert value(found, "dunlin_user_clients", user='o"dd\\name') == 1
    assert value(found, "dunlin_worker_threads") == 2
    labels = next(dict(labels) for name, labels in found if name == "redis_instance_info")
    assert (labels["role"], labels["tcp_port"], labels["run_id"]) == ("master", str(server.port), info["run_id"])


def test_metrics_have_a_series_for_each_replica(busy):
    server, _, port, replica_port = busy
    found = samples(scrape(port).text)
    lag = [dict(labels) for name, labels in found if name == "redis_connected_slave_lag_seconds"]
    assert [(labels["slave_ip"], labels["slave_state"]) for labels in lag] == [("127.0.0.1", "online")]
    primary = {"master_host": "127.0.0.1", "master_port": str(server.port)}
    found = samples(scrape(replica_port).text)
    assert value(found, "redis_master_link_up", **primary) == 1
    assert value(found, "redis_slave_info", read_only="1", **primary) == 1
    assert value(found, "redis_slave_repl_offset", **primary) >= 0


def test_histograms_grow_with_their_bounds_and_end_with_the_count(busy):
    *_, port, _ = busy
    found = samples(scrape(port).text)
    buckets = {}
    for (name, labels), count in found.items():
        if name.endswith("_bucket"):
            others = tuple(label for label in labels if label[0] != "le")
            bound = float(dict(labels)["le"].replace("+Inf", "inf"))
            buckets.setdefault((name.removesuffix("_bucket"), others), []).append((bound, count))
    names = {name for name, _ in buckets}
    assert names == {
        "redis_commands_latencies_usec",
        "dunlin_command_duration_seconds",
        "dunlin_aof_fsync_duration_seconds",
        "dunlin_stage_duration_seconds",
    }
    assert {dict(labels)["stage"] for name, labels in buckets if name == "dunlin_stage_duration_seconds"} == {"queue", "lock", "run", "write"}
    families = {dict(labels).get("family") for name, labels in buckets if name == "dunlin_command_duration_seconds"}
    assert {"string", "hash", "server"} <= families
    for (name, labels), rows in buckets.items():
        counts = [count for _, count in sorted(rows)]
        assert counts == sorted(counts)
        assert counts[-1] == found[(name + "_count", labels)]
        assert found[(name + "_sum", labels)] >= 0


def test_metrics_survive_a_reset_of_statistics(busy):
    _, client, port, _ = busy
    before = value(samples(scrape(port).text), "redis_connections_received_total")
    client.config_resetstat()
    after = samples(scrape(port).text)
    assert value(after, "redis_connections_received_total") >= before
    assert ("redis_commands_total", (("cmd", "hset"),)) not in after


def test_metrics_do_not_wait_for_an_endless_script():
    with serving("--busy-reply-threshold", 1, "--threads", 2) as (server, port):
        client = redis.Redis(port=server.port)
        client.set("k", "v")
        scrape(port)
        busy = threading.Thread(target=lambda: pytest.raises(redis.ResponseError, endless, server.port))
        busy.start()
        while True:
            try:
                client.get("k")
            except redis.exceptions.ResponseError as error:
                assert str(error).startswith("BUSY") or isinstance(error, redis.exceptions.BusyLoadingError)
                break
        found = samples(scrape(port).text)
        assert value(found, "redis_db_keys", db="db0") == 1
        assert ask(port, "/health").status == 200
        client.execute_command("SCRIPT", "KILL")
        busy.join()


def endless(port):
    redis.Redis(port=port, socket_timeout=60).eval("while true do redis.call('get', KEYS[1]) end", 1, "k")


@needs_promtool
def test_promtool_has_no_complaint_of_the_form(busy):
    *_, port, replica_port = busy
    for number in (port, replica_port):
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=scrape(number).text, capture_output=True, text=True)
        # Its lint is about names, which are redis_exporter's.
        assert "error while linting" not in checked.stderr, checked.stderr
        own = [line for line in checked.stderr.splitlines() if line.startswith("dunlin_")]
        assert own == []


@needs_promtool
def test_promtool_accepts_the_rules_and_what_they_say():
    folder = DEPLOY / "prometheus"
    for arguments in (
        ["check", "rules", "dunlin.rules.yml"],
        ["test", "rules", "dunlin.rules.test.yml"],
        ["check", "config", "prometheus.yml"],
    ):
        checked = subprocess.run([PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def expressions():
    """What dashboard and alerts ask Prometheus for."""
    dashboard = json.loads((DEPLOY / "grafana" / "dunlin.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    for variable in dashboard["templating"]["list"]:
        query = variable["query"]
        yield query["query"] if isinstance(query, dict) else ""
    yield from (note["expr"] for note in dashboard["annotations"]["list"])
    yield (DEPLOY / "prometheus" / "dunlin.rules.yml").read_text()


def test_dashboard_and_alerts_name_metrics_that_are_there(busy):
    *_, port, replica_port = busy
    there = {name for name, _ in samples(scrape(port).text) | samples(scrape(replica_port).text)}
    # Of commands there is nothing after a reset but what came since.
    asked = {name for text in expressions() for name in re.findall(r"\b(?:redis|dunlin)_[a-z0-9_]+", text)}
    assert len(asked) > 40
    assert asked - there == set()


@needs_promtool
def test_expressions_of_the_dashboard_are_promql(tmp_path):
    rules = []
    for number, text in enumerate(expressions()):
        if text and not text.startswith(("label_values", "prometheus", "#")):
            text = text.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*")
            rules.append({"record": f"e{number}", "expr": text})
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = subprocess.run([PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_monitoring_names_series_and_alerts_that_are_there(busy):
    *_, port, replica_port = busy
    page, reference = pages.page("monitoring.md"), pages.page("metrics.md")
    there = {name for name, _ in samples(scrape(port).text) | samples(scrape(replica_port).text)}
    there |= set(re.findall(r"`((?:redis|dunlin)_\w+)`", reference))
    # A histogram has three series.
    there |= {re.sub("_(bucket|count|sum)$", "", name) for name in there}
    named = set(re.findall(r"\b(?:redis|dunlin)_[a-z0-9_]+", page)) - {"redis_exporter"}
    assert len(named) > 25 and named - there == set()
    alerts = set(re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus" / "dunlin.rules.yml").read_text()))
    assert set(re.findall(r"\bDunlin[A-Z]\w+", pages.sections(page)["Signals"])) == alerts


@needs_promtool
def test_queries_of_the_page_are_promql(tmp_path):
    [block] = re.findall(r"^```promql\n(.*?)^```", pages.page("monitoring.md"), re.M | re.S)
    rules = [{"record": f"q{number}", "expr": line} for number, line in enumerate(block.splitlines())]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "page", "rules": rules}]}))
    checked = subprocess.run([PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True)
    assert len(rules) == 6 and checked.returncode == 0, checked.stdout + checked.stderr


def test_metrics_need_http():
    with Server() as server:
        # Its line names every address.
        eventually(lambda: "Ready to accept connections" in server.log())
        assert "http://" not in server.log()


def stages(client):
    """How often each stage was measured, from INFO."""
    lines = client.info("latencystats")
    return {name.removeprefix("latency_stage_usec_"): row["count"] for name, row in lines.items() if name.startswith("latency_stage_")}


def test_stages_of_requests_are_measured_and_sleeps_for_locks_counted():
    with Server("--threads", "2") as server:
        # Connections go to the worker that has fewer. One that the harness has closed may be counted still.
        one, others = redis.Redis(port=server.port), [redis.Redis(port=server.port) for _ in range(3)]
        one.set("k", "v"), [other.ping() for other in others]

        def work():
            one.get("k")
            return all(stages(one)[stage] > 0 for stage in ("queue", "run", "write"))

        eventually(work)
        # Threads of the background may have slept for locks, too.
        before = stages(one)["lock"]
        is_over = threading.Event()

        def hold():
            while not is_over.is_set():
                one.eval("for i = 1, 100000 do end return redis.call('GET', KEYS[1])", 1, "k")

        holder = threading.Thread(target=hold)
        holder.start()
        try:
            eventually(lambda: all(other.get("k") for other in others) and stages(others[0])["lock"] > before)
        finally:
            is_over.set()
            holder.join()
