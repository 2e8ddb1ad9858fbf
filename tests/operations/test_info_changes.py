"""INFO tells the truth: each of its lines changes under a scenario that must change it.

Every name of docs/info.md has a row here: the scenario below that changes it, the test elsewhere that does, or the reason why it never
changes. A new line without a row fails.
"""

import re
import signal
import socket
import ssl
import time

import pytest
import redis

from harness import DUNLIN, ROOT, Server, is_redis, suspend
from links import Link, Node, has_link, is_online, raw, until
from log_files import Piped
from peers import Files
from wire import command

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about the lines of Dunlin's INFO")

# Lines that are there for tools and have one value: what docs/info.md calls *always*.
CONSTANT = """
server_name dunlin_version redis_git_sha1 redis_git_dirty redis_build_id monotonic_clock multiplexing_api io_threads_active
clients_in_timeout_table mem_allocator async_loading current_cow_peak current_cow_size current_cow_size_age rdb_last_cow_size
aof_last_cow_size module_fork_in_progress module_fork_last_cow_size loading_rdb_used_mem expired_stale_perc latest_fork_usec total_forks
dump_payload_sanitizations io_threaded_reads_processed io_threaded_writes_processed reply_buffer_shrinks reply_buffer_expands
used_cpu_sys_children used_cpu_user_children cpu-time
""".split()

# Lines that one process does not change.
FIXED = {
    "redis_version": "the binary's",
    "module": "the binary's: which commands are there",
    "os": "the machine's",
    "arch_bits": "the machine's",
    "total_system_memory": "the machine's",
    "process_id": "the process'",
    "process_supervised": "chosen at the start",
    "run_id": "the process'",
    "executable": "the binary's",
    "config_file": "given at the start",
    "worker_threads": "chosen at the start",
    "used_memory_startup": "measured at the start",
    "uptime_in_days": "a day is too long for a test",
    "maxmemory_auto_weight": "learned from ages of minutes (crates/engine/src/keyspace/weighed.rs has its tests)",
}

# Lines that other tests change and compare, as these need faults or a cluster.
ELSEWHERE = {
    "redis_mode": "cluster/test_cluster_protocol.py",
    "cluster_enabled": "cluster/test_cluster_protocol.py",
    "cluster_connections": "cluster/test_cluster_membership.py",
    "mem_cluster_links": "cluster/test_cluster_membership.py",
    "cluster_slots_unserved": "cluster/test_cluster_membership.py",
    "cluster_is_down": "cluster/test_cluster_coverage.py",
    "cluster_shards_without_primary": "cluster/test_cluster_coverage.py",
    "cluster_etcd_refuses": "cluster/test_cluster_coverage.py",
    "cluster_strays": "cluster/test_cluster_restored.py",
    "cluster_follows_etcd": "cluster/test_cluster_membership.py",
    "cluster_moves_from_here": "cluster/test_cluster_moves.py",
    "cluster_moves_to_here": "cluster/test_cluster_moves.py",
    "cluster_moving_slots": "cluster/test_cluster_moves.py",
    "cluster_moves_sent_bytes": "cluster/test_cluster_moves.py",
    "cluster_moves_behind_bytes": "cluster/test_cluster_moves.py",
    "mem_http_consoles": "operations/test_console.py",
    "acl_access_denied_tls_cert": "tls/test_identity.py",
    "acl_auth_delayed": "wire/test_acl_changes.py",
    "audit_lines_dropped": "tls/test_audit.py",
    "audit_write_failures": "tls/test_audit.py",
    "audit_pending_bytes": "tls/test_audit.py",
    "tls_handshakes_resumed": "tls/test_tls_connections.py",
    "tls_handshakes_given_up": "tls/test_tls_connections.py",
    "active_defrag_running": "wire/test_memory_accounting.py",
    "current_active_defrag_time": "wire/test_memory_accounting.py",
    "module_commands_passed_over": "replication/test_module_commands.py",
    "module_values_stale": "replication/test_module_commands.py",
    "migrate_cached_sockets": "replication/test_migrate.py",
    "lazyfree_pending_objects": "wire/test_changes.py",
    "evicted_clients": "wire/test_client_eviction.py",
    "master_failover_state": "replication/test_roles.py",
    "shutdown_in_milliseconds": "replication/test_shutdown.py",
    "backup_in_progress": "durability/test_backup.py",
    "rdb_last_bgsave_status": "durability/test_faults.py",
    "aof_last_bgrewrite_status": "durability/test_faults.py",
    "aof_rewrites_consecutive_failures": "durability/test_faults.py",
    "aof_last_write_status": "durability/test_faults.py",
    "aof_delayed_fsync": "durability/test_faults.py",
    "aof_pending_bio_fsync": "durability/test_faults.py",
    "tracking-active": "wire/test_hot_keys.py",
    "used-memory": "wire/test_hot_keys.py",
}

# By scenario, the lines that it changes. Of those that are there now and then, their coming is a change.
CHANGES = {
    "configuration": """
        hz configured_hz maxclients tcp_port maxmemory maxmemory_policy db_maxmemory_ repl_backlog_size aof_enabled
        slave_priority slave_read_only replica_announced listener<n>
        """,
    "time": """
        uptime_in_seconds server_time_usec lru_clock used_cpu_sys used_cpu_user used_cpu_sys_main_thread used_cpu_user_main_thread
        used_cpu_worker_ instantaneous_ops_per_sec instantaneous_input_kbps instantaneous_output_kbps eventloop_cycles
        eventloop_duration_sum eventloop_duration_cmd_sum instantaneous_eventloop_cycles_per_sec instantaneous_eventloop_duration_usec
        """,
    "clients": """
        connected_clients client_recent_max_input_buffer client_recent_max_output_buffer blocked_clients tracking_clients pubsub_clients
        watching_clients total_watched_keys total_blocking_keys total_blocking_keys_on_nokey pubsub_channels pubsub_patterns
        pubsubshard_channels tracking_total_keys tracking_total_items tracking_total_prefixes total_connections_received
        rejected_connections client_query_buffer_limit_disconnections client_output_buffer_limit_disconnections mem_clients_normal
        """,
    "users": """
        acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key acl_access_denied_channel acl_access_denied_db
        total_error_replies errorstat_
        """,
    "commands": """
        total_commands_processed total_net_input_bytes total_net_output_bytes total_reads_processed total_writes_processed
        keyspace_hits keyspace_misses expired_keys expired_fields expired_time_cap_reached_count expire_cycle_cpu_milliseconds
        evicted_keys total_eviction_exceeded_time current_eviction_exceeded_time lazyfreed_objects cmdstat_
        latency_percentiles_usec_ latency_stage_usec_ db
        """,
    "memory": """
        used_memory used_memory_rss used_memory_peak used_memory_peak_perc used_memory_overhead used_memory_dataset
        used_memory_dataset_perc allocator_allocated allocator_active allocator_resident allocator_frag_ratio allocator_frag_bytes
        allocator_rss_ratio allocator_rss_bytes rss_overhead_ratio rss_overhead_bytes mem_fragmentation_ratio mem_fragmentation_bytes
        mem_not_counted_for_evict mem_aof_ring active_defrag_hits active_defrag_misses active_defrag_key_hits active_defrag_key_misses
        total_active_defrag_time
        """,
    "scripts": """
        used_memory_lua used_memory_vm_eval used_memory_lua_human used_memory_scripts_eval number_of_cached_scripts number_of_functions
        number_of_libraries used_memory_vm_functions used_memory_vm_total used_memory_functions used_memory_scripts
        """,
    "persistence": """
        rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec
        rdb_saves current_fork_perc current_save_keys_processed current_save_keys_total aof_rewrite_in_progress aof_rewrite_scheduled
        aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_rewrites aof_current_size aof_base_size aof_pending_rewrite
        aof_buffer_length mem_aof_buffer
        """,
    "loading": """
        loading loading_start_time loading_total_bytes loading_loaded_bytes loading_loaded_perc loading_eta_seconds
        rdb_last_load_keys_expired rdb_last_load_keys_loaded
        """,
    "tls": """
        tls_server_cert_serial tls_server_cert_expires_in_seconds tls_client_cert_serial tls_client_cert_expires_in_seconds
        tls_ca_cert_serial tls_ca_cert_expires_in_seconds tls_port tls_handshakes tls_handshakes_failed audit_lines
        """,
    "primary": """
        connected_slaves min_slaves_good_slaves slave<n> master_repl_offset repl_backlog_active repl_backlog_first_byte_offset
        repl_backlog_histlen mem_replication_backlog mem_total_replication_buffers mem_clients_slaves total_net_repl_output_bytes
        instantaneous_output_repl_kbps sync_full sync_partial_ok sync_partial_err
        """,
    "replica": """
        role master_host master_port master_link_status master_last_io_seconds_ago master_sync_in_progress slave_read_repl_offset
        slave_repl_offset master_sync_total_bytes master_sync_read_bytes master_link_down_since_seconds master_link_error master_replid
        master_replid2 second_repl_offset total_net_repl_input_bytes instantaneous_input_repl_kbps slave_expires_tracked_keys
        unexpected_error_replies
        """,
}
CHANGES = {scenario: text.split() for scenario, text in CHANGES.items()}


def documented():
    """The names of docs/info.md; those that it calls constant."""
    names, always = [], []
    for line in (ROOT / "docs" / "info.md").read_text().splitlines():
        # Fields of a family's lines have no name of their own.
        if row := re.match(r"\| `([^`]+)`[^|]*\| ([^|]*) \|", line):
            names.append(row[1])
            if row[2].startswith("always"):
                always.append(row[1])
    return names, always


def test_info_lines_each_have_a_row_here():
    names, always = documented()
    rows = [*CONSTANT, *FIXED, *ELSEWHERE, *(name for lines in CHANGES.values() for name in lines)]
    assert sorted(set(rows)) == sorted(rows), "a line has one row"
    assert sorted(names) == sorted(rows)
    assert sorted(CONSTANT) == sorted(always)
    for name, file in ELSEWHERE.items():
        text = (ROOT / "tests" / file).read_text()
        assert name in text or name.removeprefix("cluster_") in text, f"{file} says nothing about {name}"


FAMILIES = re.compile("(slave|db|db_maxmemory_|used_cpu_worker_|cmdstat_|errorstat_|latency_percentiles_usec_|latency_stage_usec_)")


def name_of(line):
    """A line's name in docs/info.md."""
    for prefix, form in (("slave", r"slave\d+"), ("listener", r"listener\d+"), ("db", r"db\d+")):
        if re.fullmatch(form, line):
            return prefix if prefix == "db" else f"{prefix}<n>"
    for prefix in ("db_maxmemory_", "used_cpu_worker_", "cmdstat_", "errorstat_", "latency_percentiles_usec_", "latency_stage_usec_"):
        if line.startswith(prefix):
            return prefix
    return line


class Looks:
    """What looks at a server's INFO have seen."""

    def __init__(self, scenario, port, **options):
        self.scenario = scenario
        self.client = raw(port, **options)
        self.looks = 0
        self.seen = {}
        self.look()

    def look(self):
        self.note(self.client.execute_command("INFO", "everything"))

    def note(self, reply):
        found = {}
        for line in reply.decode().split("\r\n"):
            name, colon, value = line.partition(":")
            if colon:
                found.setdefault(name_of(name), []).append(f"{name}:{value}")
        for name in {*self.seen, *found}:
            # One that has not been there before.
            values = self.seen.setdefault(name, {None} if self.looks else set())
            values.add(tuple(found[name]) if name in found else None)
        self.looks += 1

    def unchanged(self):
        return [name for name in CHANGES[self.scenario] if len(self.seen.get(name, ())) < 2]

    def until_all_have_changed(self, again=lambda: None):
        def is_done():
            again()
            self.look()
            return not self.unchanged()

        deadline = time.monotonic() + 60
        while not is_done():
            shown = {name: self.seen.get(name) for name in self.unchanged()}
            assert time.monotonic() < deadline, f"these lines never change: {shown}"
            time.sleep(0.02)


def test_info_follows_the_configuration():
    with Node(DUNLIN, "--appendonly", "no") as server:
        looks = Looks("configuration", server.port)
        for name, value in (("hz", 20), ("maxclients", 5000), ("port", 0), ("maxmemory", "300mb"), ("maxmemory-policy", "allkeys-lru"), ("db-maxmemory", "1:1mb"), ("repl-backlog-size", "2mb"), ("appendonly", "yes")):
            assert looks.client.execute_command("CONFIG", "SET", name, value) == b"OK"
            looks.look()
        # Only replicas have these.
        assert looks.client.execute_command("REPLICAOF", "127.0.0.1", 1) == b"OK"
        looks.until_all_have_changed()


def test_info_counts_time():
    with Node(DUNLIN) as server:
        looks = Looks("time", server.port)
        busy = redis.Redis(port=server.port)
        looks.until_all_have_changed(lambda: [busy.set("k", "v" * 10_000) for _ in range(100)])


def test_info_shows_clients():
    with Node(DUNLIN, "--threads", 2) as server:
        looks = Looks("clients", server.port)
        client, sockets = server.client, []

        def say(*words):
            socket_ = server.connect()
            sockets.append(socket_)
            socket_.sendall(command(*words))
            return socket_

        client.xgroup_create("stream", "g", mkstream=True)
        for words in (
            ["SUBSCRIBE", "c"],
            ["PSUBSCRIBE", "p*"],
            ["SSUBSCRIBE", "s"],
            ["WATCH", "watched"],
            ["BLPOP", "list", 0],
            ["XREADGROUP", "GROUP", "g", "me", "BLOCK", 0, "STREAMS", "stream", ">"],
        ):
            say(*words)
        one = redis.Redis(port=server.port, protocol=3, single_connection_client=True)
        one.execute_command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x")
        other = redis.Redis(port=server.port, protocol=3, single_connection_client=True)
        other.execute_command("CLIENT", "TRACKING", "ON")
        other.get("k")
        # Half of a request, and replies that nobody reads.
        sockets.append(server.connect())
        sockets[-1].sendall(b"*2\r\n$3\r\nGET\r\n$200000\r\n" + b"x" * 100_000)
        client.set("large", "x" * 20_000_000)
        say("GET", "large")
        # The limits end these clients, and the figures are sampled.
        for name in ("client_recent_max_input_buffer", "client_recent_max_output_buffer"):
            until(lambda: server.info("clients")[name] > 0, name)
        looks.look()
        looks.until_all_have_changed(lambda: limits(server, client))


def limits(server, client):
    """Clients that go beyond limits."""
    client.config_set("client-query-buffer-limit", "1mb")
    client.config_set("client-output-buffer-limit", "normal 1mb 0 0")
    for data in (b"*1\r\n$3000000\r\n" + b"x" * 2_000_000, b"GET large\r\n"):
        with server.connect() as beyond:
            try:
                beyond.sendall(data)
                while beyond.recv(1 << 20):
                    pass
            except OSError:
                pass
    client.config_set("maxclients", 3)
    with server.connect() as refused:
        # Other workers may accept it by the old limit: then it is answered, and another look follows.
        refused.sendall(b"PING\r\n")
        try:
            refused.recv(100)
        except OSError:
            pass
    client.config_set("maxclients", 1000)


def test_info_counts_what_users_may_not():
    with Node(DUNLIN) as server:
        looks = Looks("users", server.port)
        client = server.client
        client.execute_command("ACL", "SETUSER", "app", "on", ">word", "~app:*", "&app", "db=0", "+@all", "-keys")
        app = redis.Redis(port=server.port, username="app", password="word")
        for words in (["KEYS", "*"], ["GET", "other"], ["PUBLISH", "other", "x"], ["SELECT", 3], ["AUTH", "app", "wrong"]):
            with pytest.raises(redis.RedisError):
                app.execute_command(*words)
        looks.until_all_have_changed()


def test_info_counts_what_commands_do():
    with Node(DUNLIN, "--threads", 2) as server:
        looks = Looks("commands", server.port)
        client = server.client

        def work():
            client.config_set("maxmemory", 0)
            with client.pipeline(transaction=False) as pipe:
                for number in range(20_000):
                    pipe.set(f"short:{number}", "x", px=1)
                pipe.hset("h", mapping={"a": 1, "b": 2})
                pipe.execute_command("HPEXPIRE", "h", 1, "FIELDS", 1, "a")
                pipe.get("h:none")
                pipe.get("k")
                pipe.set("k", "v")
                pipe.rpush("large", *range(20_000))
                pipe.unlink("large")
                pipe.execute()
            client.set("more", "x" * 3_000_000)
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "1mb")
            for _ in range(3):
                looks.look()
                time.sleep(0.01)
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.ping()

        looks.until_all_have_changed(work)


def test_info_shows_memory():
    with Node(DUNLIN, "--appendonly", "yes", "--activedefrag", "yes", "--active-defrag-ignore-bytes", "100kb") as server:
        looks = Looks("memory", server.port)
        client = server.client
        turns = iter(range(100_000))

        def work():
            turn = next(turns)
            client.config_set("maxmemory-policy", "allkeys-auto")
            client.config_set("maxmemory", "64mb")
            with client.pipeline(transaction=False) as pipe:
                for number in range(20_000):
                    pipe.set(f"k:{turn % 60}:{number}", "x" * 300)
                    if number % 50 == 0:
                        pipe.get(f"k:{turn % 60}:{number - number % 1000}")
                for number in range(20_000):
                    if number % 5:
                        pipe.delete(f"k:{turn % 60}:{number}")
                pipe.execute()

        looks.until_all_have_changed(work)


def test_info_shows_scripts():
    with Node(DUNLIN) as server:
        looks = Looks("scripts", server.port)
        server.client.eval("return 1", 0)
        server.client.function_load("#!lua name=l\nredis.register_function('f', function() return 7 end)")
        server.client.fcall("f", 0)
        looks.until_all_have_changed()


def test_info_shows_snapshots_and_the_log():
    with Node(DUNLIN, "--appendonly", "yes", "--rdb-key-save-delay", "10000") as server:
        looks = Looks("persistence", server.port)
        client = server.client
        writer = server.connect()
        until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the first base")
        client.execute_command("DEBUG", "POPULATE", 100)
        client.bgsave()
        looks.look()
        # A rewrite that a transaction has ordered begins behind it.
        for words in (["MULTI"], ["BGREWRITEAOF"], ["INFO", "everything"]):
            looks.client.execute_command(*words)
        looks.note(looks.client.execute_command("EXEC")[1])
        turn = iter(range(1_000_000))

        def work():
            writer.sendall(command("SET", "k", b"%08d" % next(turn) * 10_000) * 10)
            looks.look()
            writer.recv(1 << 16)

        looks.until_all_have_changed(work)
        writer.close()


def test_info_shows_how_far_loading_is():
    with Server("--enable-debug-command", "yes") as server:
        client = redis.Redis(port=server.port)
        client.execute_command("DEBUG", "POPULATE", 5000)
        client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
        client.set("gone", 1, px=1)
        client.save()
        snapshot = (server.folder / "dump.rdb").read_bytes()
    with Piped() as server:
        server.client()
        looks = Looks("loading", server.port)
        server.pipe.write(snapshot[: len(snapshot) // 2])
        until(lambda: looks.look() or len(looks.seen["loading_loaded_bytes"]) > 1, "some have come")
        server.pipe.write(snapshot[len(snapshot) // 2 :])
        server.pipe.close()
        looks.until_all_have_changed()


def test_info_shows_certificates_and_the_audit_log():
    files = Files()
    try:
        second = files.authority.issue("second", days=30)
        _, given = files.directives("--tls-replication", "yes", "--tls-auth-clients", "no")
        port = given[1]
        with Node(DUNLIN, *given, "--audit-log", "/dev/null") as server:
            looks = Looks("tls", server.port)
            context = ssl.create_default_context(cafile=str(files.authority.cert))
            with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, server_hostname="localhost"):
                looks.look()
            with socket.create_connection(("127.0.0.1", port)) as plain:
                plain.sendall(b"PING\r\n")
                plain.recv(100)
            cert, key = map(str, second)
            own = ("CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key, "tls-client-cert-file", cert, "tls-client-key-file", key)
            assert looks.client.execute_command(*own) == b"OK"
            looks.look()
            looks.client.execute_command("CONFIG", "SET", "tls-replication", "no", "tls-port", 0)
            looks.until_all_have_changed()
    finally:
        files.remove()


def test_info_shows_replication():
    with Node(DUNLIN) as replica, Node(DUNLIN) as primary, Link(primary.port) as link:
        of_primary, of_replica = Looks("primary", primary.port), Looks("replica", replica.port)
        both = (of_primary, of_replica)

        def look():
            for looks in both:
                looks.look()

        primary.client.config_set("min-replicas-to-write", 1)
        primary.client.config_set("repl-backlog-size", "1mb")
        primary.client.config_set("repl-diskless-sync-delay", 1)
        replica.client.config_set("replica-read-only", "no")
        replica.client.set("own", 1)
        replica.follow(1)
        until(lambda: look() or "master_link_error" in replica.info(), "nothing listens at that port")
        # A snapshot that takes its time, so that a look meets it.
        primary.call("DEBUG", "POPULATE", 100)
        primary.client.config_set("rdb-key-save-delay", 10_000)
        replica.follow(link.port)
        until(lambda: look() or has_link(replica), "the link")
        primary.client.config_set("rdb-key-save-delay", 0)
        replica.client.set("expires", 1, ex=1000)
        primary.client.config_set("min-replicas-to-write", 0)
        for _ in range(3):
            primary.client.set("k", "x" * 1_000_000)
            look()
        # A partial resynchronisation, and one that the backlog does not have.
        until(lambda: replica.info()["slave_repl_offset"] == primary.info()["master_repl_offset"], "the replica has all")
        link.cut(refuse=True)
        until(lambda: look() or not has_link(replica), "the cut")
        link.heal()
        until(lambda: look() or has_link(replica), "the link is back")
        link.cut(refuse=True)
        for _ in range(5):
            primary.client.set("k", "x" * 1_000_000)
        link.heal()
        until(lambda: look() or has_link(replica) and primary.info("stats")["sync_partial_err"], "another copy")
        # A replica that stands still holds more than the backlog.
        is_online(primary)
        suspend(replica.process)
        for _ in range(40):
            primary.client.set("k", "x" * 1_000_000)
        of_primary.until_all_have_changed()

        def line():
            return next(client for client in primary.client.client_list() if client["flags"] == "S")

        # The thread that feeds replicas notes it from time to time.
        until(lambda: int(line()["omem"]) > 5_000_000, "the stream that waits for the replica")
        held = line()
        assert int(held["tot-mem"]) > int(held["omem"]) and int(held["oll"]) > 0
        replica.process.send_signal(signal.SIGCONT)
        until(lambda: has_link(replica) and replica.client.strlen("k") == 1_000_000, "it goes on")
        # A command that cannot be applied stops the stream.
        replica.client.lpush("other", 1)
        primary.client.incr("other")
        until(lambda: look() or replica.info()["master_link_status"] == "down", "the stream stops")
        replica.call("REPLICAOF", "NO", "ONE")
        of_replica.until_all_have_changed()
        of_primary.until_all_have_changed()
