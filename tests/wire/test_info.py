"""INFO: sections, names and their order are those of redis-server; each difference has its reason here."""

import re

import pytest
from peer import Peer
from wire import eventually

# Lines of redis-server 7.0 that are not here.
MISSING = {
    "atomicvar_api": "the compiler of C",
    "gcc_version": "the compiler of C",
}

# Lines that redis-server 7.0 has not.
ADDED = {
    "server_name": "Valkey 8.0",
    "latency_stage_usec_N": "stages of requests: queue, lock, run, write",
    "dunlin_version": "the version of this server beside that of the protocol",
    "worker_threads": "threads that execute commands",
    "listenerN": "Redis 7.2",
    "backup_in_progress": "Redis 8.10",
    "mem_aof_ring": "the ring of the log, which Redis has not",
    "maxmemory_auto_weight": "what the policies allkeys-auto and volatile-auto have learned",
    "pubsub_clients": "Redis 7.4",
    "watching_clients": "Redis 7.4",
    "total_watched_keys": "Redis 7.4",
    "total_blocking_keys": "Redis 7.2",
    "total_blocking_keys_on_nokey": "Redis 7.2",
    "expired_fields": "Valkey 9.0",
    "client_query_buffer_limit_disconnections": "Redis 7.4",
    "client_output_buffer_limit_disconnections": "Redis 7.4",
    "eventloop_cycles": "Redis 7.2",
    "eventloop_duration_sum": "Redis 7.2",
    "eventloop_duration_cmd_sum": "Redis 7.2",
    "instantaneous_eventloop_cycles_per_sec": "Redis 7.2",
    "instantaneous_eventloop_duration_usec": "Redis 7.2",
    "acl_access_denied_auth": "Redis 7.2",
    "acl_access_denied_cmd": "Redis 7.2",
    "acl_access_denied_key": "Redis 7.2",
    "acl_access_denied_channel": "Redis 7.2",
    "acl_access_denied_db": "Valkey 9.1",
    "acl_access_denied_tls_cert": "Valkey 9.0",
    "mem_http_consoles": "buffers of consoles, which redis-server does not have",
    "acl_auth_delayed": "attempts that wait behind many failures of their address",
    "used_cpu_worker_N": "processor time of each worker thread",
    "cluster_slots_unserved": "slots that no primary serves",
    "cluster_is_down": "whether requests are answered CLUSTERDOWN",
    "cluster_shards_without_primary": "shards that nobody leads",
    "cluster_strays": "whether the node does not obey the records in etcd",
    "cluster_etcd_refuses": "whether etcd makes no changes",
    "cluster_follows_etcd": "whether the node obeys the records in etcd",
    "cluster_moving_slots": "slots on their way from and to the node",
    "cluster_moves_from_here": "slots on their way from and to the node",
    "cluster_moves_to_here": "slots on their way from and to the node",
    "cluster_moves_sent_bytes": "slots on their way from and to the node",
    "cluster_moves_behind_bytes": "slots on their way from and to the node",
}

# Sections that redis-server 7.0 has not.
ADDED_SECTIONS = {"TLS": "Valkey 9.1", "Audit": "the audit log"}

# The kinds of lines of which there are as many as commands, errors, databases or workers.
FAMILIES = ("cmdstat_", "errorstat_", "latency_percentiles_usec_", "latency_stage_usec_", "db", "used_cpu_worker_", "listener")


def text(one, *sections):
    with Peer(one) as peer:
        peer.ask("SET", "expires", "1", "EX", "100")
        peer.ask("GET")
        return peer.ask("INFO", *sections)


def lines(reply):
    """Pairs of a title and the lines behind it: names with their values, in order."""
    section, found = None, {}
    for line in reply.split("\r\n"):
        if line.startswith("# "):
            section = line[2:]
            found[section] = []
        elif line:
            name, _, value = line.partition(":")
            found[section].append((name, value))
    return found


def family(name):
    for prefix in FAMILIES:
        if re.fullmatch(prefix + (r"\d+" if prefix in ("db", "used_cpu_worker_", "listener") else ".+"), name):
            return prefix + "N"
    return name


def names(section):
    """Names in order, those of a family once."""
    return list(dict.fromkeys(family(name) for name, _ in section))


@pytest.mark.parametrize("sections", [(), ("all",), ("everything",), ("default",), ("memory", "CPU"), ("nothing",), ("server", "all")])
def test_info_has_the_sections_of_redis(server, oracle, sections):
    ours = [title for title in lines(text(server, *sections)) if title not in ADDED_SECTIONS]
    assert ours == list(lines(text(oracle, *sections)))


def test_info_has_the_names_of_redis_in_their_order(server, oracle):
    ours, redis = lines(text(server, "everything")), lines(text(oracle, "everything"))
    for title, section in redis.items():
        wanted = [name for name in names(section) if name not in MISSING]
        assert [name for name in names(ours[title]) if name not in ADDED] == wanted, title
    assert set(ADDED_SECTIONS) == set(ours) - set(redis)
    every = {name for title, section in ours.items() if title not in ADDED_SECTIONS for name in names(section)}
    assert set(ADDED) <= every, "each of them is there"
    assert not set(MISSING) & every, "none of them is there"


def shape(value):
    """The form that a tool must be able to read: digits stand for any number of them."""
    with_places = re.sub(r"\.\d+", lambda found: "." + "d" * (len(found[0]) - 1), value)
    return re.sub(r"\d+", "N", with_places)


def test_info_writes_values_as_redis_does(server, oracle):
    ours, redis = lines(text(server, "everything")), lines(text(oracle, "everything"))
    # Texts of each server's own, and numbers with a unit that depends on their size.
    own = re.compile("redis_(version|build_id)|os|run_id|executable|config_file|mem_allocator|master_replid|.*_human")
    for title, section in redis.items():
        mine = dict(ours[title])
        for name, value in section:
            if name in mine and not own.fullmatch(name):
                assert shape(mine[name]).lstrip("-") == shape(value).lstrip("-"), name


def statistics(peer):
    return {name: float(value) for name, value in lines(peer.ask("INFO", "stats"))["Stats"]}


def test_resetstat_starts_the_counters_that_redis_starts(server, oracle):
    # The question itself and the reset are counted again at once.
    at_once = ("total_commands_processed", "total_net_input_bytes", "total_net_output_bytes", "total_reads_processed", "total_writes_processed")
    for one in (server, oracle):
        with Peer(one) as peer:
            peer.ask("DEL", "h", "k")
            peer.ask("SET", "k", "v", "PX", "1")
            peer.ask("GET", "nowhere")
            peer.ask("SET", "k2", "v")
            peer.ask("GET", "k2")
            peer.ask("GET")
            eventually(lambda: peer.ask("EXISTS", "k") == 0 and statistics(peer)["expired_keys"] > 0, "k expires")
            before = statistics(peer)
            peer.ask("CONFIG", "RESETSTAT")
            after = statistics(peer)
            for name in ("keyspace_hits", "keyspace_misses", "expired_keys", "total_error_replies", "total_connections_received"):
                assert before[name] > 0 and after[name] == 0, (one, name)
            for name in at_once:
                assert 0 < after[name] < before[name], (one, name)
            peer.ask("GET", "nowhere")
            assert statistics(peer)["keyspace_misses"] == 1


def test_resetstat_leaves_what_is_no_statistic(server):
    with Peer(server) as peer:
        peer.ask("SET", "k", "v")
        kept = ("rdb_changes_since_last_save", "rdb_saves", "connected_clients", "uptime_in_seconds", "used_memory_peak")
        read = lambda: {name: int(value) for section in lines(peer.ask("INFO")).values() for name, value in section if name in kept}
        eventually(lambda: read()["connected_clients"] == 1, "clients of former tests have gone")
        before = read()
        peer.ask("CONFIG", "RESETSTAT")
        after = read()
        assert set(before) == set(kept)
        assert all(after[name] >= before[name] for name in kept), (before, after)
