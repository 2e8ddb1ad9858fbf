"""`make run` and `make install`, without building the program: a script that prints its words stands for it."""

import os
import subprocess

import pytest

from harness import ROOT


@pytest.fixture
def world(tmp_path):
    """The environment of a user whose target folder holds such a program."""
    program = tmp_path / "target" / "release" / "dunlin"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\n')
    program.chmod(0o755)
    state = tmp_path / "state"
    return {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target"), "XDG_STATE_HOME": str(state), "HOME": str(tmp_path)}


def script(world, name, *words, **changes):
    done = subprocess.run(
        [ROOT / "scripts" / name, *words], env={**world, **changes}, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    "words, port", [([], "6379"), (["--port", "7000"], "7000"), (["--port=7001"], "7001"), (["--hz", "20", "-p", "7002"], "7002")]
)
def test_server_files_go_into_a_folder_of_the_user(world, words, port):
    code, told, error = script(world, "serve.sh", *words)
    folder = f"{world['XDG_STATE_HOME']}/dunlin/{port}"
    assert code == 0 and told == ["<server>", "<--dir>", f"<{folder}>", *(f"<{word}>" for word in words)]
    assert f"data: {folder}" in error and os.path.isdir(folder)


@pytest.mark.parametrize("words", [["--dir", "/x"], ["--dir=/x"], ["/etc/dunlin.conf", "--hz", "20"], ["--help"], ["--version"]])
def test_server_files_stay_in_the_folder_that_the_user_names(world, words):
    assert script(world, "serve.sh", *words) == (0, ["<server>", *(f"<{word}>" for word in words)], "")
    assert not os.path.exists(world["XDG_STATE_HOME"])


def test_installing_says_where_and_whether_it_is_found(world, tmp_path):
    prefix = tmp_path / "prefix"
    code, _, error = script(world, "install.sh", PREFIX=str(prefix), DESTDIR="")
    assert code == 0 and f"installed {prefix}/bin/dunlin" in error and "not on PATH" in error
    assert os.access(prefix / "bin" / "dunlin", os.X_OK)
    path = f"{prefix}/bin:{world['PATH']}"
    assert "PATH" not in script(world, "install.sh", PREFIX=str(prefix), DESTDIR="", PATH=path)[2]
    assert script(world, "install.sh", PREFIX="~/.local", DESTDIR="")[0] == 0
    assert os.access(tmp_path / ".local" / "bin" / "dunlin", os.X_OK)
    (tmp_path / "file").write_text("")
    code, _, error = script(world, "install.sh", PREFIX=str(tmp_path / "file"), DESTDIR="")
    assert code == 1 and "make install PREFIX=" in error and "sudo install" in error


CARGO = r"""#!/bin/sh
# Three crates, of which the last is a program; where FRESH is set all are up to date.
artifact() { echo '{"reason":"compiler-artifact","target":{"kind":["'$1'"],"name":"'$2'"},"executable":'$3',"fresh":'${FRESH:-false}'}'; }
case $1 in
tree) printf 'one v1\ntwo v1\ntwo v1 (*)\nprogram v1\n' ;;
build)
    artifact custom-build build-script-build null
    artifact lib one null
    artifact lib two null
    [ -z "$BROKEN" ] || { echo "error: broken" >&2; exit 101; }
    artifact bin program '"/target/release/program"'
    ;;
esac
"""


def test_building_shows_its_progress_and_where_the_program_is(world, tmp_path):
    cargo = tmp_path / "cargo"
    cargo.write_text(CARGO)
    cargo.chmod(0o755)
    words = ("build.sh", "--release", "-p", "program", "--no-default-features")
    code, _, error = script(world, *words, CARGO=str(cargo))
    lines = error.splitlines()
    assert code == 0 and lines[0] == "building: 1 of 3 crates, one"
    assert lines[1] == "building: optimizing the program as a whole"
    assert "program" in lines[-1] and lines[-1].endswith(" s: /target/release/program")
    code, _, error = script(world, *words, CARGO=str(cargo), FRESH="true")
    assert code == 0 and "building" not in error and "/target/release/program" in error
    code, _, error = script(world, *words, CARGO=str(cargo), BROKEN="1")
    assert code == 101 and "error: broken" in error and "/target" not in error
