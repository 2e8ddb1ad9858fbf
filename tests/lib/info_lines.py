"""Lines of INFO: of which sections, in which order, and what Dunlin adds to or lacks of those of redis-server 7.0."""

import re

from peer import Peer

# Lines of redis-server 7.0 that are not here.
MISSING = {
    "atomicvar_api": "the compiler of C",
    "gcc_version": "the compiler of C",
}
# Lines that redis-server 7.0 has not.
ADDED = {
    "server_name": "Valkey 8.0",
    "latency_stage_usec_N": "stages of requests: queue, lock, run, write",
    "module": "modules whose commands are there, as Redis Stack shows those that it has loaded",
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
    "module_commands_passed_over": "commands of modules that are not here, in a stream",
    "module_values_stale": "values that they have changed elsewhere",
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
