"""Users, functions and settings that are the cluster's: set on one node, in force on all, also on one that was away."""

import subprocess
import threading
import time

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from etcd_cluster import NEEDS_ETCD, dunlin_nodes, put, records, told_again, until

pytestmark = NEEDS_ETCD

LIBRARY = "#!lua name={0}\nredis.register_function('{0}', function() return {1} end)"


def kill(node):
    node.process.kill()
    node.process.wait()


def start(node):
    """Starts a node that was killed, in its directory."""
    with open(node.log_path, "ab") as log:
        node.process = subprocess.Popen(node.process.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    node._await_ping()


def users(client):
    return sorted(name if isinstance(name, str) else name.decode() for name in client.acl_users())


def functions(client):
    return {library[1]: library[-1] for library in map(flat, client.function_list(withcode=True))}


def flat(library):
    pairs = library.items() if isinstance(library, dict) else zip(library[::2], library[1::2])
    fields = {text(name): value for name, value in pairs}
    return [None, text(fields["library_name"]), text(fields["library_code"])]


def text(value):
    return value if isinstance(value, str) else value.decode()


def test_users_are_the_same_on_all_nodes(etcd):
    with dunlin_nodes(etcd, 3, replicas=0) as cluster:
        one, two, three = (cluster.client(number) for number in range(3))
        one.acl_setuser("app", enabled=True, passwords=["+secret"], keys=["app:*"], categories=["+@read"])
        assert one.acl_getuser("app")["keys"] == ["~app:*"], "the client that changes it sees it at once"
        for other in (two, three):
            until(lambda other=other: "app" in users(other), lambda: other.acl_list())
            assert other.acl_list() == one.acl_list()
        # Another node builds on it, and nothing shows the password.
        two.acl_setuser("app", enabled=True, passwords=["+other"], categories=["+@connection"])
        assert "other" not in str(records(etcd)["users"]) and len(records(etcd)["users"]["users"]) == 2
        app = redis.Redis(port=cluster.nodes[2].port, username="app", password="other")
        until(lambda: "+@connection" in str(three.acl_list()), lambda: three.acl_list())
        assert app.ping()
        # A user that is removed is disconnected everywhere.
        assert three.acl_deluser("app", "nobody") == 1
        until(lambda: all(users(client) == ["default"] for client in (one, two, three)), "the end of the user")
        with pytest.raises(redis.ConnectionError):
            app.connection_pool.connection_kwargs["retry"] = None
            app.ping()
            app.ping()
        with pytest.raises(redis.ResponseError, match="^Error in ACL SETUSER modifier 'nonsense': Syntax error"):
            one.execute_command("ACL SETUSER app nonsense")
        assert "app" not in str(records(etcd)["users"])


def test_user_that_removes_itself_is_answered_and_disconnected(etcd):
    with dunlin_nodes(etcd, 1) as cluster:
        cluster.client(0).execute_command("ACL SETUSER root on nopass +@all")
        stream = cluster.nodes[0].connect().makefile("rwb")
        stream.write(b"AUTH root x\r\nACL DELUSER root\r\nPING\r\n")
        stream.flush()
        assert stream.read() == b"+OK\r\n:1\r\n"


def test_node_that_was_away_has_what_was_set(etcd):
    with dunlin_nodes(etcd, 2, replicas=0) as cluster:
        one, away = cluster.client(0), cluster.nodes[1]
        kill(away)
        one.execute_command("ACL SETUSER default resetpass >secret")
        one = cluster.client(0, password="secret")
        one.config_set("maxmemory-policy", "allkeys-lru")
        one.function_load(LIBRARY.format("away", 1))
        start(away)
        two = cluster.client(1, password="secret")
        until(lambda: connects_now(two), away.log)
        until(lambda: functions(two) == functions(one) and functions(two), away.log)
        assert two.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
        # Without etcd, a node that starts is not open to strangers.
        until(lambda: (away.folder / "cluster-users").exists() and (away.folder / "cluster-settings").exists(), away.log)
        etcd.kill()
        kill(away)
        start(away)
        with pytest.raises(redis.AuthenticationError):
            cluster.client(1).ping()
        assert two.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}


def connects_now(client):
    try:
        return client.ping()
    except (redis.ConnectionError, redis.AuthenticationError, redis.exceptions.BusyLoadingError):
        return False


def test_settings_are_the_same_on_all_nodes(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        one, two = cluster.client(0), cluster.client(1)
        # Of a replica, too; directives of the node's own stay its own.
        two.config_set("hash-max-ziplist-entries", 7, "maxmemory", "1gb", "notify-keyspace-events", "KEA")
        until(lambda: one.config_get("hash-max-listpack-entries") == {"hash-max-listpack-entries": "7"}, "the setting")
        assert one.config_get("notify-keyspace-events") == {"notify-keyspace-events": "AKE"}
        assert one.config_get("maxmemory") == {"maxmemory": "0"}
        assert two.config_get("maxmemory") == {"maxmemory": str(1 << 30)}
        assert records(etcd)["settings"]["settings"] == {
            "hash-max-listpack-entries": "7",
            "notify-keyspace-events": "AKE",
        }
        for words, why in [
            (("maxmemory-policy", "nonsense"), "argument.s. must be one of the following"),
            (("maxmemory-policy", "allkeys-lru", "port", "x"), "argument couldn't be parsed into an integer"),
            (("requirepass", "x"), "users are the cluster's: use ACL SETUSER default"),
        ]:
            with pytest.raises(redis.ResponseError, match=why):
                one.config_set(*words)
        assert one.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert len(records(etcd)["settings"]["settings"]) == 2
        with pytest.raises(redis.ResponseError, match="cannot be changed in a transaction"):
            one.execute_command("MULTI")
            pipe = redis.Redis(port=cluster.nodes[0].port).pipeline()
            pipe.config_set("maxmemory-policy", "allkeys-lru")
            pipe.execute()


def test_settings_of_a_later_version_are_named_and_leave_the_others_in_force(etcd):
    with dunlin_nodes(etcd, 1) as cluster:
        one = cluster.client(0)
        put(etcd, "settings", {"v": 1, "settings": {"from-the-future": "1", "lfu-decay-time": "3", "timeout": "x"}})
        until(lambda: one.config_get("lfu-decay-time") == {"lfu-decay-time": "3"}, cluster.nodes[0].log)
        until(lambda: "'from-the-future' is unknown to this version" in cluster.nodes[0].log(), cluster.nodes[0].log)
        assert "possibly related to argument 'timeout'" in cluster.nodes[0].log()


@told_again
def test_functions_are_the_same_on_all_nodes(etcd):
    with dunlin_nodes(etcd, 4, "--appendonly", "yes", replicas=1) as cluster:
        primaries = [cluster.client(0), cluster.client(1)]
        everybody = [cluster.client(number) for number in range(4)]
        agree = lambda: all(functions(client) == functions(primaries[0]) for client in everybody)  # noqa: E731
        primaries[0].function_load(LIBRARY.format("one", 1))
        until(lambda: agree() and functions(primaries[1]), "the library")
        assert primaries[1].fcall("one", 0) == 1
        with pytest.raises(redis.ResponseError, match="^Library 'one' already exists"):
            primaries[0].function_load(LIBRARY.format("one", 1))
        with pytest.raises(redis.ResponseError, match="^Function one already exists"):
            primaries[1].function_load(LIBRARY.format("two", 1).replace("'two'", "'one'"))
        with pytest.raises(redis.exceptions.ReadOnlyError):
            everybody[2].function_load(LIBRARY.format("two", 2))
        # A function changes its library, both at the other node.
        primaries[1].function_load(LIBRARY.format("two", 2))
        dump = primaries[1].function_dump()
        primaries[1].function_flush()
        until(lambda: agree() and not functions(primaries[0]), "the flush")
        primaries[0].function_restore(dump)
        until(lambda: agree() and len(functions(primaries[1])) == 2, "the dump")
        primaries[0].function_load(LIBRARY.format("two", 3), replace=True)
        until(lambda: agree() and primaries[1].fcall("two", 0) == 3, "the replacement")
        assert sorted(records(etcd)["functions"]["libraries"]) == ["one", "two"]
        # What the log has is what the record says.
        node = cluster.nodes[1]
        kill(node)
        start(node)
        until(lambda: connects_now(primaries[1]) and agree(), node.log)


def test_functions_that_a_client_sends_to_all_shards_are_accepted_by_all(etcd):
    with dunlin_nodes(etcd, 3, replicas=0) as cluster:
        client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", node.port) for node in cluster.nodes])
        for _ in range(3):
            client.function_load(LIBRARY.format("one", 1))
            client.function_load(LIBRARY.format("one", 2), replace=True)
            client.function_delete("one")
        client.function_load(LIBRARY.format("one", 1))
        client.function_flush()
        assert all(functions(cluster.client(number)) == {} for number in range(3))
        with pytest.raises(redis.ResponseError, match="Library not found"):
            client.function_delete("one")


def test_changes_need_etcd_and_change_nothing_without_it(etcd):
    with dunlin_nodes(etcd, 1) as cluster:
        one = cluster.client(0)
        one.acl_setuser("app", enabled=True)
        before = one.acl_list(), one.config_get("maxmemory-policy")
        etcd.kill()
        for words in (
            ["ACL", "SETUSER", "other"],
            ["ACL", "DELUSER", "app"],
            ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
            ["FUNCTION", "LOAD", LIBRARY.format("one", 1)],
        ):
            with pytest.raises(redis.ResponseError, match="are the cluster's and nothing was changed: "):
                one.execute_command(*words)
        assert (one.acl_list(), one.config_get("maxmemory-policy")) == before and functions(one) == {}
        # The node's own change as before, and nobody waits for those who wait for etcd.
        one.config_set("maxmemory", "1gb")
        etcd.start()
        until(lambda: succeeds(lambda: one.acl_setuser("other")), cluster.nodes[0].log)
        assert users(one) == ["app", "default", "other"]


def succeeds(call):
    try:
        return call()
    except redis.ResponseError:
        return False


@told_again
def test_change_that_waits_for_etcd_holds_up_no_client(etcd):
    with dunlin_nodes(etcd, 1, "--threads", "1") as cluster:
        one, other = cluster.client(0), cluster.client(0)
        etcd.pause(True)
        outcome = []

        def change():
            try:
                outcome.append(one.config_set("maxmemory-policy", "allkeys-lru"))
            except redis.ResponseError as error:
                outcome.append(str(error))

        waiting = threading.Thread(target=change)
        waiting.start()
        longest_s, asked = 0, time.monotonic()
        for number in range(1000):
            begun = time.monotonic()
            other.set("key", number)
            longest_s = max(longest_s, time.monotonic() - begun)
            if outcome:
                # The node gives etcd three seconds, which may be few for so many requests. One that had waited would have taken all.
                assert time.monotonic() - asked > 2, "the change was not waiting"
                break
        assert longest_s < 2, f"a request has waited for {longest_s:.1f} s"
        etcd.pause(False)
        waiting.join(60)
        until(lambda: outcome, cluster.nodes[0].log)


def test_concurrent_changes_on_several_nodes_lose_none(etcd):
    with dunlin_nodes(etcd, 3, replicas=0) as cluster:

        def change(number):
            client = cluster.client(number)
            for index in range(10):
                client.acl_setuser(f"u{number}-{index}")

        threads = [threading.Thread(target=change, args=(number,)) for number in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        expected = sorted(["default", *(f"u{number}-{index}" for number in range(3) for index in range(10))])
        for number in range(3):
            until(lambda: users(cluster.client(number)) == expected, lambda: users(cluster.client(number)))


def test_records_have_a_limit(etcd):
    with dunlin_nodes(etcd, 1) as cluster:
        one = cluster.client(0)
        with pytest.raises(redis.ResponseError, match="functions would take [0-9]+ bytes in etcd, and 1048576 is the limit"):
            one.function_load(LIBRARY.format("one", 1) + "\n--" + "x" * (1 << 20))
        assert functions(one) == {}
        with pytest.raises(redis.ResponseError, match="has to be UTF-8"):
            one.function_load(LIBRARY.format("one", 1).encode() + b"\n--\xff")
        with pytest.raises(redis.ResponseError, match="have to be UTF-8"):
            one.execute_command("ACL", "SETUSER", b"\xff")


def test_acl_load_is_the_clusters(etcd, tmp_path):
    file = tmp_path / "users.acl"
    file.write_text("user default on nopass ~* &* +@all\nuser old on nopass ~* +@read\n")
    with dunlin_nodes(etcd, 2, "--aclfile", str(file), replicas=0) as cluster:
        one, two = cluster.client(0), cluster.client(1)
        file.write_text("user default on nopass ~* &* +@all\nuser new on nopass ~* +@read\n")
        assert one.acl_load()
        until(lambda: users(two) == ["default", "new"], "the users of the file")
        two.acl_setuser("late")
        one.acl_save()
        until(lambda: "user late" in file.read_text() or one.acl_save() and False, file.read_text)


def test_user_of_an_emptied_cluster_is_not_changed(etcd):
    with dunlin_nodes(etcd, 1) as cluster:
        put(etcd, "cluster", {**records(etcd)["cluster"], "id": "ab" * 20})
        with pytest.raises(redis.ResponseError, match="it was emptied, or is another etcd"):
            cluster.client(0).acl_setuser("app")
        assert "users" not in records(etcd)
