"""The fan pages over a PostgreSQL that the test starts: both ways give the right records, a user's tables stay."""

import glob
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from harness import DUNLIN, LAB, free_port, is_redis

PROGRAMS = os.pathsep.join([os.environ["PATH"], *glob.glob("/usr/lib/postgresql/*/bin")])
INITDB, PG_CTL, PSQL = (shutil.which(name, path=PROGRAMS) for name in ("initdb", "pg_ctl", "psql"))

pytestmark = [
    pytest.mark.skipif(is_redis(DUNLIN), reason="the lab is a part of dunlin"),
    pytest.mark.skipif(not (INITDB and PG_CTL and PSQL), reason="PostgreSQL is not installed"),
]

TINY = ["--scale", "0.0002", "--rounds", "1", "--seed", "1", "--without-dunlin"]
LONG = ["--scale", "0.1", "--rounds", "100", "--seed", "1", "--without-dunlin"]


def owner():
    """PostgreSQL refuses to be root: then it runs as the user of Debian's package, or as nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        except KeyError:
            pass
    pytest.skip("there is no user for PostgreSQL to run as")


class Postgres:
    """A cluster of its own; with `certificates` it also speaks TLS."""

    def __init__(self, certificates=None):
        self.certificates = certificates
        self.owner = owner()
        self.folder = tempfile.mkdtemp(prefix="dunlin-postgres-")
        if self.owner:
            os.chown(self.folder, self.owner["user"], self.owner["group"])
        self.data, self.port = os.path.join(self.folder, "data"), free_port()
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, *command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, **self.owner)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def __enter__(self):
        try:
            self.run(INITDB, "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C")
            settings = f"-h 127.0.0.1 -p {self.port} -k {self.folder} -F"
            if self.certificates:
                settings += " -l"
                self.install("server.crt", "server.key")
            self.run(PG_CTL, "-D", self.data, "-o", settings, "-l", os.path.join(self.folder, "log"), "-w", "start")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # It may not have come up; then there is only the folder to remove.
        subprocess.run(
            [PG_CTL, "-D", self.data, "-m", "immediate", "-w", "stop"], cwd=self.folder, capture_output=True, **self.owner
        )
        shutil.rmtree(self.folder, ignore_errors=True)

    def install(self, *names):
        """Puts files where the server looks for its certificate; it wants its key to itself."""
        for name in names:
            path = os.path.join(self.data, name)
            shutil.copy(self.certificates / name, path)
            os.chmod(path, 0o600)
            if self.owner:
                os.chown(path, self.owner["user"], self.owner["group"])

    def ask(self, statement):
        # By its Unix socket, whatever its rules for addresses are.
        return self.run(PSQL, "-h", self.folder, "-p", str(self.port), "-U", "postgres", "-Atc", statement)


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as server:
        yield server


def lab(*arguments):
    command = [LAB, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_fan_pages_are_checked_both_ways_and_leave_nothing(postgres, tmp_path):
    code, text = lab("fan-pages", *TINY, "--target", f"sql={postgres.url}", "--query", 0, "--out", tmp_path)
    assert code == 0, text
    answers = {line.split("page 0 has ")[1] for line in text.splitlines() if ": page 0 has " in line}
    assert len(answers) == 1, answers
    [result] = json.loads((tmp_path / "results.json").read_text())["results"]
    rows = {figure["row"] for figure in result["sections"][0]["figures"] if figure["server"] == "sql"}
    assert rows == {"whole records", "counters, hash"}
    assert "PostgreSQL" in (tmp_path / "report.md").read_text()
    assert postgres.ask("SELECT count(*) FROM pg_namespace WHERE nspname = 'dunlin_lab'") == "0"


def test_schema_of_others_is_refused_and_stays(postgres, tmp_path):
    postgres.ask("CREATE SCHEMA dunlin_lab")
    postgres.ask("CREATE TABLE dunlin_lab.precious (n INTEGER); INSERT INTO dunlin_lab.precious VALUES (1)")
    try:
        code, text = lab("fan-pages", *TINY, "--target", f"sql={postgres.url}", "--out", tmp_path)
        assert code == 1 and "sql: it has a schema dunlin_lab" in text, text
        assert postgres.ask("SELECT n FROM dunlin_lab.precious") == "1"
        assert not (tmp_path / "report.html").exists()
    finally:
        postgres.ask("DROP SCHEMA dunlin_lab CASCADE")


def killed_lab(postgres, folder):
    """Kills a lab as soon as it has written into its tables."""
    command = [LAB, "fan-pages", *LONG, "--target", f"sql={postgres.url}", "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    try:
        # Its profiles are transactions: the size of a table shows its contents.
        while postgres.ask("SELECT coalesce(pg_relation_size(to_regclass('dunlin_lab.record')), 0) > 0") != "t":
            assert process.poll() is None and time.monotonic() < deadline, "it writes nothing"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_schema_of_a_killed_lab_is_dropped_by_the_next(postgres, tmp_path):
    killed_lab(postgres, tmp_path)
    code, text = lab("fan-pages", *TINY, "--target", f"sql={postgres.url}", "--out", tmp_path)
    assert code == 0 and "sql: dropped the schema that a lab had left which was killed" in text, text
    assert postgres.ask("SELECT count(*) FROM pg_namespace WHERE nspname = 'dunlin_lab'") == "0"


def test_table_that_was_added_later_is_kept(postgres, tmp_path):
    killed_lab(postgres, tmp_path)
    postgres.ask("CREATE TABLE dunlin_lab.precious (n INTEGER)")
    code, text = lab("fan-pages", *TINY, "--target", f"sql={postgres.url}", "--out", tmp_path)
    assert code == 1 and "sql: it has a schema dunlin_lab" in text, text
    assert postgres.ask("SELECT count(*) FROM dunlin_lab.precious") == "0"
    postgres.ask("DROP SCHEMA dunlin_lab CASCADE")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_tls_is_spoken_and_strangers_are_not_trusted(certificates, tmp_path):
    with Postgres(certificates) as server:
        # No client comes in without TLS.
        with open(os.path.join(server.data, "pg_hba.conf"), "w") as rules:
            rules.write("local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
        loaded = lambda: server.ask("SELECT pg_conf_load_time()")  # noqa: E731
        before, deadline = loaded(), time.monotonic() + 60
        server.run(PG_CTL, "-D", server.data, "reload")
        # It does so by itself.
        while loaded() == before:
            assert time.monotonic() < deadline, "the rules are not loaded"
        authority = f"sslrootcert={certificates / 'ca.crt'}"
        for options, says in [
            ("", "no encryption"),
            ("?sslmode=require", None),
            (f"?sslmode=verify-full&{authority}", None),
            ("?sslmode=verify-full", "UnknownIssuer"),
            (f"?sslmode=verify-full&sslrootcert={certificates / 'client.crt'}", "invalid peer certificate"),
        ]:
            code, text = lab("fan-pages", *TINY, "--target", f"sql={server.url}{options}", "--out", tmp_path / "report")
            assert (code, says is None or says in text) == (0 if says is None else 1, True), (options, text)


def test_store_that_answers_wrongly_fails_the_lab(postgres, tmp_path):
    """As soon as the lab has made its tables, a trigger cuts the values written into them."""
    postgres.ask(
        "CREATE FUNCTION public.cut() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.text := substring(NEW.text FOR 40); RETURN NEW; END $$"
    )
    postgres.ask(
        "CREATE FUNCTION public.lie() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF to_regclass('dunlin_lab.shared') IS NOT NULL THEN"
        " CREATE TRIGGER lie BEFORE INSERT OR UPDATE ON dunlin_lab.record FOR EACH ROW EXECUTE FUNCTION public.cut();"
        " END IF; END $$"
    )
    postgres.ask("CREATE EVENT TRIGGER lies ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.lie()")
    try:
        code, text = lab("fan-pages", *TINY, "--target", f"sql={postgres.url}", "--out", tmp_path)
        assert code == 1 and "whole records in sql: wrong answer: page " in text, text
        assert not (tmp_path / "report.html").exists()
    finally:
        postgres.ask("DROP EVENT TRIGGER lies")
        postgres.ask("DROP FUNCTION public.lie(), public.cut()")


def test_experiments_with_keys_leave_postgres_out(postgres, tmp_path):
    code, text = lab("pings", "--scale", "0.0002", "--rounds", "1", "--target", f"sql={postgres.url}", "--out", tmp_path)
    assert code == 0 and "sql is left out: it keeps tables, not keys" in text, text
