"""INFO: sections, names and their order are those of redis-server; each difference has its reason in info_lines.py."""

import re

import pytest

from info_lines import ADDED, ADDED_SECTIONS, MISSING, lines, names, text
from peer import Peer
from wire import eventually


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
