"""Changes of users while they are connected, users in files, and guessed passwords."""

import pathlib
import tempfile

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import command, eventually

OWN = pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server has other texts, or does not do this")


def login(server, name="u", password="pw", protocol=2):
    peer = Peer(server, protocol=protocol)
    assert peer.line(f"AUTH {name} {password}") == "OK"
    return peer


@pytest.fixture
def owner(server):
    owner = Peer(server)
    # Clients of former tests are counted no more from here on, and listen to nothing when they have gone.
    owner.line("ACL DELUSER u")
    eventually(lambda: owner.line("PUBSUB NUMSUB other") == ["other", 0], "a client of a former test still listens")
    assert owner.line("ACL SETUSER u reset on >pw +@all ~* &*") == "OK"
    return owner


def test_acl_deluser_closes_the_connections_of_the_user(server, owner):
    user, other = login(server), Peer(server)
    assert owner.line("ACL DELUSER u nobody") == 1
    assert user.is_closed()
    assert other.line("PING") == "PONG"
    assert isinstance(Peer(server).line("AUTH u pw"), Failure)


def test_acl_deluser_of_oneself_is_answered(server, owner):
    user = login(server)
    assert user.line("ACL DELUSER u") == 1
    assert user.is_closed()


def test_acl_deluser_takes_effect_on_what_was_sent_before(server, owner):
    """Commands that a removed user has sent behind the removal do not run, though a user of its
    name is there again."""
    user = login(server)
    owner.send_all("ACL DELUSER u", "ACL SETUSER u on >pw +@all ~*")
    assert [owner.read(), owner.read()] == [1, "OK"]
    try:
        user.send("SET", "after", "1")
    except OSError:
        pass
    assert user.is_closed()
    assert owner.line("EXISTS after") == 0


def test_acl_setuser_counts_for_the_next_command_everywhere(server, owner):
    users = [login(server) for _ in range(8)]
    for rule, expected in [("-get", Failure), ("+get", str), ("resetkeys", Failure), ("~x", str)] * 20:
        owner.line("SET x 1")
        assert owner.line(f"ACL SETUSER u {rule}") == "OK"
        for user in users:
            assert isinstance(user.line("GET x"), Failure) == (expected is Failure), rule


def test_acl_setuser_of_oneself_counts_within_a_pipeline(server, owner):
    user = login(server)
    user.send_all("GET x", "ACL SETUSER u -get", "GET x", "PING", "RESET", "GET x")
    replies = [user.read() for _ in range(6)]
    assert [isinstance(reply, Failure) for reply in replies] == [False, False, True, False, False, False]


@pytest.mark.parametrize("command,channel", [("SUBSCRIBE", "news"), ("PSUBSCRIBE", "n*"), ("SSUBSCRIBE", "news")])
def test_acl_setuser_closes_listeners_that_lose_a_channel(server, owner, command, channel):
    loser, keeper = login(server), login(server)
    loser.line(f"{command} {channel}")
    keeper.line("SUBSCRIBE other")
    assert owner.line("ACL SETUSER u resetchannels &other") == "OK"
    assert loser.is_closed()
    assert owner.line("PUBLISH other x") == 1
    keeper.read()
    assert keeper.line("PING") == ["pong", ""]


@OWN
def test_acl_setuser_ends_waits_for_lost_keys(server, owner):
    user = login(server)
    user.send("BLPOP", "queue", "0")
    eventually(lambda: "blocked_clients:1" in owner.line("INFO clients"), "BLPOP does not wait")
    assert owner.line("ACL SETUSER u resetkeys ~other") == "OK"
    owner.line("RPUSH queue x")
    assert user.read() == "NOPERM this user has no permissions to access one of the keys used as arguments"
    assert owner.line("LRANGE queue 0 -1") == ["x"]
    owner.line("DEL queue")


def test_acl_denied_command_changes_and_reveals_nothing(server, owner):
    owner.line("SET secret value")
    owner.line("ACL SETUSER u resetkeys ~own* -@dangerous")
    user = login(server)
    missing, present = (user.line(f"GET {key}") for key in ("missing", "secret"))
    assert missing == present and isinstance(present, Failure)
    for line in ["SET secret x", "DEL secret", "RENAME secret own", "COPY secret own", "LPUSH secret x", "FLUSHALL",
                 "EVAL return(redis.call('GET','secret')) 0", "SORT own BY secret* GET secret*", "WATCH secret",
                 "BLPOP secret 0", "OBJECT ENCODING secret", "DUMP secret", "MGET own secret", "INCR secret"]:  # fmt: skip
        assert isinstance(user.line(line), Failure), line
    assert owner.line("GET secret") == "value" and owner.line("EXISTS own") == 0


def test_acl_log_is_bounded_and_groups(server, owner):
    owner.line("ACL LOG RESET")
    owner.line("CONFIG SET acllog-max-len 3")
    owner.line("ACL SETUSER u resetkeys")
    user = login(server)
    for key in ("a", "", "", "c", "d"):
        user.line(f"GET {key}")
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in owner.line("ACL LOG")]
    assert [(entry["object"], entry["count"]) for entry in entries] == [("d", 1), ("c", 1), ("", 2)]
    assert f"id={user.line('CLIENT ID')} " in entries[0]["client-info"]
    owner.line("CONFIG SET acllog-max-len 1")
    assert len(owner.line("ACL LOG")) == 1
    owner.line("CONFIG SET acllog-max-len 128")


@OWN
def test_acl_counts_denials_in_info(server, owner):
    owner.line("CONFIG RESETSTAT")
    owner.line("ACL SETUSER u resetkeys resetchannels -del db=0")
    user = login(server)
    for line in ["GET a", "PUBLISH a b", "DEL a", "SELECT 1", "AUTH u wrong", "MULTI", "GET a", "DISCARD"]:
        user.line(line)
    text = owner.line("INFO stats")
    for name, count in [("key", 2), ("channel", 1), ("cmd", 1), ("db", 1), ("auth", 1)]:
        assert f"acl_access_denied_{name}:{count}\r\n" in text, name


def test_client_list_and_kill_know_users(server, owner):
    user = login(server)
    assert " user=u " in user.line("CLIENT INFO")
    assert owner.line("CLIENT KILL USER u") == 1
    assert user.is_closed()


def test_requirepass_is_the_password_of_the_default_user():
    with Server() as server:
        owner = Peer(server)
        assert owner.line("CONFIG SET requirepass one") == "OK"
        # A client that has connected before stays in.
        assert owner.line("PING") == "PONG"
        stranger = Peer(server)
        assert stranger.line("GET a").startswith("NOAUTH")
        assert stranger.line("AUTH one") == "OK" and stranger.line("ACL WHOAMI") == "default"
        assert Peer(server).line("AUTH default one") == "OK"
        owner.line("ACL SETUSER default >two")
        assert Peer(server).line("AUTH one") == "OK" and Peer(server).line("AUTH two") == "OK"
        assert owner.line("CONFIG SET requirepass three") == "OK"
        assert isinstance(Peer(server).line("AUTH one"), Failure)
        assert owner.line("ACL SETUSER default nopass") == "OK"
        assert Peer(server).line("PING") == "PONG"


def test_acl_default_user_may_be_restricted():
    with Server() as server:
        owner = login_as_admin(server)
        assert owner.line("ACL SETUSER default -@all +ping") == "OK"
        stranger = Peer(server)
        assert stranger.line("PING") == "PONG"
        assert stranger.line("GET a").startswith("NOPERM")
        assert owner.line("ACL SETUSER default off") == "OK"
        assert stranger.line("PING") == "PONG", "a connection stays what it was"
        assert Peer(server).line("PING").startswith("NOAUTH")


def login_as_admin(server):
    peer = Peer(server)
    assert peer.line("ACL SETUSER admin on >pw +@all ~* &*") == "OK"
    assert peer.line("AUTH admin pw") == "OK"
    return peer


def test_acl_file_is_loaded_saved_and_loaded_again():
    with Server("--aclfile", "users.acl", files=folder_with("user admin on >pw +@all ~* &*\nuser old on nopass\n")) as server:
        admin, old = login(server, "admin"), login(server, "old", "any")
        file = server.folder / "users.acl"
        assert admin.line("ACL SETUSER new on >x ~a* +get (+set ~b)") == "OK"
        assert admin.line("ACL SAVE") == "OK"
        saved = file.read_text()
        assert [line.split(" ")[1] for line in saved.splitlines()] == ["admin", "default", "new", "old"]
        file.write_text(saved.replace("user old", "user changed"))
        assert admin.line("ACL LOAD") == "OK"
        assert old.is_closed()
        assert admin.line("ACL USERS") == ["admin", "changed", "default", "new"]
        assert admin.line("PING") == "PONG"


def folder_with(text):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-acl-"))
    (folder / "users.acl").write_text(text)
    return folder


@OWN
def test_acl_load_of_a_bad_file_keeps_the_users():
    with Server("--aclfile", "users.acl", files=folder_with("user admin on >pw +@all ~* &*\n")) as server:
        admin = login(server, "admin")
        (server.folder / "users.acl").write_text("user fine on\nuser bad on +nothing\nuser worse on secret\nwhat\n")
        reply = admin.line("ACL LOAD")
        assert isinstance(reply, Failure)
        for part in ["users.acl:2", "'+nothing'", "users.acl:3: Syntax error (word 4)", "users.acl:4 should start"]:
            assert part in reply
        assert "secret" not in reply
        assert admin.line("ACL USERS") == ["admin", "default"]
        assert admin.line("PING") == "PONG"
        (server.folder / "users.acl").unlink()
        assert "No such file" in admin.line("ACL LOAD")


@OWN
@pytest.mark.parametrize(
    "config,files,expected",
    [
        ("user a on\nuser a off\n", None, "can only be defined once"),
        ("user a on secret\n", None, "server.conf:1: user a: rule 2: Syntax error"),
        ("user a (+get\n", None, "rule 1 is never closed"),
        ('user "a " on\n', None, "a name has no blanks"),
        ("user a on\naclfile users.acl\n", "user b on\n", "both in the configuration and in aclfile"),
        ("aclfile users.acl\n", "user b on\nuser c +nothing\n", "users.acl:2: Error in applying operation '+nothing'"),
        ("aclfile nowhere.acl\n", None, "No such file"),
    ],
)
def test_server_does_not_start_with_wrong_users(config, files, expected):
    with pytest.raises(AssertionError) as failed:
        Server(config=config, files=folder_with(files) if files else None).kill()
    assert expected in str(failed.value) and "secret" not in str(failed.value)


def test_config_rewrite_keeps_users():
    config = "user admin on >pw +@all ~* &*\nuser default on nopass -@all +ping\nhz 20\n"
    with Server(config=config) as server:
        admin = login(server, "admin")
        assert admin.line("ACL SETUSER new on >x ~a* %R~b +get (+set ~c)") == "OK"
        assert admin.line("ACL DELUSER nobody") == 0
        listed = admin.line("ACL LIST")
        assert admin.line("CONFIG REWRITE") == "OK"
        text = (server.folder / "server.conf").read_text()
    assert "pw" not in text.replace("nopass", "")
    with Server(config=text) as server:
        assert login(server, "admin").line("ACL LIST") == listed


@OWN
def test_auth_is_slowed_down_behind_many_failures_and_still_works():
    with Server() as server:
        owner = login_as_admin(server)
        guesser = Peer(server)
        for _ in range(15):
            assert isinstance(guesser.line("AUTH admin wrong"), Failure)
        assert "acl_auth_delayed:0" not in owner.line("INFO stats")
        assert Peer(server).line("AUTH admin pw") == "OK"
        # A connection that waits holds no other client up.
        guesser.send("AUTH", "admin", "wrong")
        assert owner.line("PING") == "PONG"
        assert isinstance(guesser.read(), Failure)
        assert "slowed down" in server.log()
        # A transaction cannot wait.
        owner.send_all("MULTI", "AUTH admin pw", "EXEC")
        assert [owner.read(), owner.read()] == ["OK", "QUEUED"]
        assert isinstance(owner.read()[0], Failure)


@OWN
def test_auth_of_many_wrong_passwords_unread_takes_no_memory():
    with Server("--requirepass", "pw") as server:
        owner = Peer(server)
        assert owner.line("AUTH pw") == "OK"

        def used():
            lines = owner.line("INFO memory").split("\r\n")
            return next(int(line.split(":")[1]) for line in lines if line.startswith("used_memory:"))

        before, guessers = used(), [Peer(server) for _ in range(8)]
        for guesser in guessers:
            guesser.socket.settimeout(0.2)
            try:
                guesser.socket.sendall(command("AUTH", "wrong") * 1_000_000)
            except OSError:
                pass
        assert used() - before < 1 << 20
        assert owner.line("PING") == "PONG"


def test_acl_setuser_shows_no_password_to_others(server, owner):
    watcher = Peer(server)
    watcher.line("MONITOR")
    owner.line("CONFIG SET slowlog-log-slower-than 0")
    owner.line("ACL SETUSER u >hush #" + "a" * 64)
    owner.line("CONFIG SET slowlog-log-slower-than 10000")
    owner.line("PING")
    seen = ""
    while "PING" not in seen:
        seen += str(watcher.read())
    assert "hush" not in seen and "hush" not in str(owner.line("SLOWLOG GET 100"))
