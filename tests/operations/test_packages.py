"""What is installed: the Debian package through its life, the container image, units, manual pages, completions."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest
import redis
import yaml

from harness import DUNLIN, ROOT, Server

DEPLOY = ROOT / "deploy"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages into a directory and enter it")
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed: this is no Debian")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The package, and that of a later version."""
    out = tmp_path_factory.mktemp("deb")
    # Stripping and compression take longer than everything else.
    environment = {**os.environ, "KEEP_SYMBOLS": "1", "DPKG_DEB_COMPRESSOR_TYPE": "none"}
    make = ROOT / "scripts" / "make-deb.sh"
    first = run(make, DUNLIN, out, env=environment).strip()
    later = run(make, DUNLIN, out, env={**environment, "DEB_VERSION": "9.9.9"}).strip()
    return first, later


@needs_dpkg
def test_package_has_all_that_belongs_to_it(packages):
    listed = run("dpkg-deb", "--contents", packages[0])
    for path in [
        "./usr/bin/dunlin",
        "./etc/dunlin/dunlin.conf",
        "./usr/lib/systemd/system/dunlin.service",
        "./usr/lib/sysusers.d/dunlin.conf",
        "./usr/share/man/man1/dunlin.1.gz",
        "./usr/share/man/man1/dunlin-server.1.gz",
        "./usr/share/bash-completion/completions/dunlin",
        "./usr/share/doc/dunlin/copyright",
    ]:
        assert path in listed, path
    about = run("dpkg-deb", "--info", packages[0])
    assert re.search(r"Depends: libc6 \(>= 2\.\d+\)", about) and "Package: dunlin" in about


@needs_dpkg
@needs_root
def test_package_is_installed_started_upgraded_and_purged(packages, tmp_path):
    (tmp_path / "var/lib/dpkg/info").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    dpkg = ["dpkg", f"--root={tmp_path}", "--force-script-chrootless", "--force-depends", "--log=/dev/null"]
    environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    run(*dpkg, "--install", packages[0], env=environment)
    assert (tmp_path / "etc/passwd").read_text().startswith("dunlin:")
    data = tmp_path / "var/lib/dunlin"
    assert data.stat().st_mode & 0o777 == 0o750 and data.stat().st_uid == 981

    # The packaged configuration starts a server; where it is may be said by flags.
    installed = tmp_path / "usr/bin/dunlin"
    config = (tmp_path / "etc/dunlin/dunlin.conf").read_text()
    with Server("--dir", data, "--unixsocket", tmp_path / "socket", program=str(installed), config=config) as server:
        assert redis.Redis(port=server.port).set("k", "v")

    changed = config + "\nmaxmemory 1gb\n"
    (tmp_path / "etc/dunlin/dunlin.conf").write_text(changed)
    (data / "dump.rdb").write_bytes(b"precious")
    run(*dpkg, "--install", packages[1], env=environment)
    assert "Version: 9.9.9" in (tmp_path / "var/lib/dpkg/status").read_text()
    assert (tmp_path / "etc/dunlin/dunlin.conf").read_text() == changed, "a configuration that was changed stays"
    assert (data / "dump.rdb").exists()

    run(*dpkg, "--remove", "dunlin", env=environment)
    assert not installed.exists() and (data / "dump.rdb").exists()
    run(*dpkg, "--purge", "dunlin", env=environment)
    assert not data.exists() and not (tmp_path / "etc/dunlin").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_unit_is_understood_by_systemd(tmp_path):
    unit = tmp_path / "dunlin.service"
    # The program is not installed here.
    unit.write_text((DEPLOY / "systemd" / "dunlin.service").read_text().replace("/usr/bin/dunlin", DUNLIN))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert [line for line in checked.stderr.splitlines() if "dunlin.service" in line] == []


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The folder of an image, and its layer's tar."""
    out = tmp_path_factory.mktemp("image")
    run(ROOT / "scripts" / "make-image.py", DUNLIN, out)
    return out


def blob(image, descriptor):
    content = (image / "blobs" / "sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
    assert digest(content) == descriptor["digest"] and len(content) == descriptor["size"]
    return content


def unpack(image):
    """Manifest, configuration and tar of an image, each checked against its digest."""
    assert json.loads((image / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((image / "index.json").read_text())
    manifest = json.loads(blob(image, index["manifests"][0]))
    config = json.loads(blob(image, manifest["config"]))
    tar = gzip.decompress(blob(image, manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == [digest(tar)]
    return config["config"], tar


def test_image_is_whole_and_the_same_each_time(image, tmp_path):
    config, tar = unpack(image)
    assert config["User"] == "10001:10001" and config["Entrypoint"] == ["/usr/bin/dunlin", "server"]
    names = tarfile.open(fileobj=io.BytesIO(tar)).getnames()
    assert "usr/bin/dunlin" in names and "data" in names and not any("/.." in name for name in names)
    run(ROOT / "scripts" / "make-image.py", DUNLIN, tmp_path)
    assert (tmp_path / "index.json").read_bytes() == (image / "index.json").read_bytes()


@needs_root
def test_image_serves_without_anything_else(image, tmp_path):
    config, tar = unpack(image)
    tarfile.open(fileobj=io.BytesIO(tar)).extractall(tmp_path, filter="fully_trusted")
    # The root of the container is everybody's to enter.
    tmp_path.chmod(0o755)
    inside = tmp_path / "inside"
    inside.write_text(f"#!/bin/sh\nexec chroot --userspec=10001:10001 {tmp_path} /usr/bin/dunlin \"$@\"\n")
    inside.chmod(0o755)
    with Server("--dir", "/data", "--unixsocket", "", program=str(inside)) as server:
        assert redis.Redis(port=server.port).set("k", "v")
        assert redis.Redis(port=server.port).save()
    assert (tmp_path / "data/dump.rdb").stat().st_uid == 10001


def test_manifests_of_kubernetes_and_compose_agree_with_the_image():
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "dunlin.yaml").read_text()))
    by_kind = {document["kind"]: document for document in documents}
    assert {"Service", "StatefulSet", "PodDisruptionBudget", "ServiceMonitor"} <= set(by_kind)
    for document in documents:
        assert document["apiVersion"] and document["metadata"]["name"] == "dunlin"
    template = by_kind["StatefulSet"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    for selector in [
        by_kind["Service"]["spec"]["selector"],
        by_kind["StatefulSet"]["spec"]["selector"]["matchLabels"],
        by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ]:
        assert selector.items() <= labels.items()
    [container] = template["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert {by_kind["ServiceMonitor"]["spec"]["endpoints"][0]["port"], container["readinessProbe"]["httpGet"]["port"]} <= ports
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    compose = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())["services"]["dunlin"]
    for arguments in (container["args"], compose["command"]):
        flags = [word for word in arguments if word.startswith("--")]
        known = run(DUNLIN, "server", "--help")
        for flag in flags:
            assert flag in known, flag


def test_manual_and_completions_are_written(tmp_path):
    run(DUNLIN, "man", tmp_path)
    pages = {page.name for page in tmp_path.iterdir()}
    assert {"dunlin.1", "dunlin-server.1", "dunlin-why.1", "dunlin-doctor.1", "dunlin-health.1"} <= pages
    assert "maxmemory" in (tmp_path / "dunlin-server.1").read_text()
    bash = run(DUNLIN, "completions", "bash")
    run("bash", "-n", input=bash)
    words = run("bash", "-c", bash + '\nCOMP_WORDS=(dunlin server --maxmem) COMP_CWORD=2; _dunlin dunlin --maxmem server; echo "${COMPREPLY[@]}"')
    assert "--maxmemory-policy" in words
    for shell in ("zsh", "fish"):
        assert "maxmemory" in run(DUNLIN, "completions", shell)
