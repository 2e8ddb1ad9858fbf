"""docs/releases.md: checksums and their signature, the bill of materials, two builds compared, versions that agree."""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml

from harness import DUNLIN, ROOT

SCRIPTS = ROOT / "scripts"


def run(*command, code=0, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("gpg"), reason="there is no gpg")
def test_checksums_are_written_signed_and_verified(tmp_path):
    dist, home = tmp_path / "dist", tmp_path / "gpg"
    dist.mkdir(), home.mkdir(mode=0o700)
    (dist / "dunlin_0.1.0_amd64.deb").write_bytes(b"package")
    (dist / "dunlin image.tar").write_bytes(b"image")
    environment = {**os.environ, "GNUPGHOME": str(home)}
    checksums = SCRIPTS / "checksums.sh"
    run(checksums, dist, env=environment)
    assert [line.split("  ")[1] for line in (dist / "SHA256SUMS").read_text().splitlines()] == ["dunlin image.tar", "dunlin_0.1.0_amd64.deb"]
    assert "not signed" in run(checksums, "--verify", dist, env=environment)
    try:
        run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "Releases <releases@dunlin.test>", "ed25519", "sign", "never", env=environment)
        run(checksums, dist, "releases@dunlin.test", env=environment)
        assert "Good signature" in run(checksums, "--verify", dist, env=environment)
        # Neither a file nor the list can be another one.
        (dist / "dunlin image.tar").write_bytes(b"imagE")
        assert "FAILED" in run(checksums, "--verify", dist, code=1, env=environment)
        sums = "".join(run("sha256sum", name, cwd=dist) for name in ("dunlin image.tar", "dunlin_0.1.0_amd64.deb"))
        (dist / "SHA256SUMS").write_text(sums)
        assert "BAD signature" in run(checksums, "--verify", dist, code=1, env=environment)
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no files" in run(checksums, empty, code=1)


# A compiler that is none: it writes the sources' names as they are mapped, or, where it is told to, as they are.
CARGO = """#!/bin/sh
mkdir -p "$CARGO_TARGET_DIR/release"
where=$PWD
if [ -z "${FORGETS_MAPS:-}" ]; then
    for map in $RUSTFLAGS; do
        case $map in --remap-path-prefix=$PWD=*) where=${map##*=} ;; esac
    done
fi
cp "$PROGRAM" "$CARGO_TARGET_DIR/release/dunlin"
printf '%s %s' "$where" "$SOURCE_DATE_EPOCH" >>"$CARGO_TARGET_DIR/release/dunlin"
"""


def test_reproduce_compares_two_builds(tmp_path):
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "reproduce.sh", tree / "scripts")
    git = ["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        run(*git, *words)
    cargo, strip = tmp_path / "bin" / "cargo", tmp_path / "bin" / "strip"
    cargo.parent.mkdir()
    cargo.write_text(CARGO)
    strip.write_text('#!/bin/sh\ncp "$4" "$3"\n')
    cargo.chmod(0o755), strip.chmod(0o755)
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF something")
    environment = {**os.environ, "CARGO": str(cargo), "PROGRAM": str(program), "PATH": f"{strip.parent}:{os.environ['PATH']}"}
    reproduce = tree / "scripts" / "reproduce.sh"
    assert "reproduce: the same" in run(reproduce, env=environment)
    assert "DIFFERENT" in run(reproduce, code=1, env={**environment, "FORGETS_MAPS": "1"})
    # Beside a release.
    dist, root = tmp_path / "dist", tmp_path / "dunlin-0.1.0-linux-x86_64"
    (root / "bin").mkdir(parents=True), dist.mkdir()
    time = run("git", "-C", tree, "log", "-1", "--format=%ct").strip()
    (root / "bin" / "dunlin").write_bytes(b"\x7fELF something" + f"/dunlin {time}".encode())
    pack = lambda: run("tar", "-czf", dist / f"{root.name}.tar.gz", "-C", tmp_path, root.name)  # noqa: E731
    pack(), run(SCRIPTS / "checksums.sh", dist)
    assert "reproduce: the same" in run(reproduce, "--against", dist / "SHA256SUMS", env=environment)
    (root / "bin" / "dunlin").write_bytes(b"\x7fELF something else")
    pack()
    run(reproduce, "--against", dist / "SHA256SUMS", code=1, env=environment)
    run(SCRIPTS / "checksums.sh", dist)
    assert "DIFFERENT" in run(reproduce, "--against", dist / "SHA256SUMS", code=1, env=environment)
    (tree / "scripts" / "reproduce.sh").write_text(reproduce.read_text() + "# changed\n")
    assert "commit or stash" in run(reproduce, code=2, env=environment)


def linked():
    """Crates that scripts/licences.py names, and the libraries in C among them."""
    text = run(SCRIPTS / "licences.py")
    return set(re.findall(r"(?m)^={80}\n(\S+) (\S+):", text)), set(re.findall(r"(?m)^--- in C: (.*?) \(", text))


def has_cyclonedx():
    return subprocess.run(["cargo", "cyclonedx", "--version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_cyclonedx(), reason="there is no cargo-cyclonedx (scripts/sbom.py installs it)")
def test_sbom_names_what_is_linked(tmp_path):
    first, second = tmp_path / "one.cdx.json", tmp_path / "two.cdx.json"
    run(SCRIPTS / "sbom.py", first)
    bill = json.loads(first.read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5"
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("dunlin", version())
    components = {(one["name"], one["version"]): one for one in bill["components"]}
    crates, in_c = linked()
    assert crates - set(components) == set(), "each crate that is linked"
    assert {inner["name"] for one in components.values() for inner in one.get("components", [])} == in_c != set()
    assert all(one["licenses"] for name, one in components.items() if name in crates)
    assert str(ROOT) not in first.read_text()
    run(SCRIPTS / "sbom.py", second)
    assert first.read_bytes() == second.read_bytes()
    assert not run("git", "-C", ROOT, "status", "--porcelain", "--", "*dunlin-sbom*")


def version():
    return re.search(r'(?m)^version = "(.*)"', (ROOT / "Cargo.toml").read_text())[1]


def test_versions_of_the_tree_agree():
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "dunlin" / "Chart.yaml").read_text())
    assert chart["appVersion"] == version()
    assert f"## {version()}" in (ROOT / "CHANGELOG.md").read_text()
    for path in ("kubernetes/dunlin.yaml", "container/compose.yaml"):
        assert f"image: dunlin:{version()}\n" in (ROOT / "deploy" / path).read_text()
    assert "| newest minor version | yes |" in (ROOT / "SECURITY.md").read_text() and f"{version()} is the first version" in (ROOT / "SECURITY.md").read_text()
    assert run(DUNLIN, "--version").split()[1] == version()
