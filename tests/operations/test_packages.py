"""What is installed: the Debian package through its life, the container image, units, manual pages, completions."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import kubernetes_validate
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
        "./usr/share/man/man1/dunlin-bench-replay.1.gz",
        "./usr/share/doc/dunlin/copyright",
        "./usr/share/doc/dunlin/runbook.md",
        "./usr/share/doc/dunlin/disaster-recovery.md",
    ]:
        assert path in listed, path
    root = next(line for line in listed.splitlines() if line.endswith(" ./"))
    assert root.startswith("drwxr-xr-x"), "dpkg gives these permissions to the root of the system"
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", packages[0]], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as files:
        licences = gzip.decompress(files.extractfile("./usr/share/doc/dunlin/licences.gz").read()).decode()
        copyright = files.extractfile("./usr/share/doc/dunlin/copyright").read().decode()
    for library in ("Lua 5.1 (MIT)", "1994-2012 Lua.org", "mimalloc (MIT)", "rustls ", "Permission is hereby granted"):
        assert library in licences, library
    assert "Lua.org" in copyright and "licences.gz" in copyright
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

    wanted = tmp_path / "etc/systemd/system/multi-user.target.wants/dunlin.service"
    assert wanted.is_symlink(), "the unit is enabled"
    run(*dpkg, "--remove", "dunlin", env=environment)
    assert not installed.exists() and (data / "dump.rdb").exists()
    run(*dpkg, "--install", packages[1], env=environment)
    masked = tmp_path / "etc/systemd/system/dunlin.service"
    assert wanted.is_symlink() and not masked.is_symlink(), "the unit is on again"
    run(*dpkg, "--remove", "dunlin", env=environment)
    run(*dpkg, "--purge", "dunlin", env=environment)
    assert not data.exists() and not (tmp_path / "etc/dunlin").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_unit_is_understood_by_systemd(tmp_path):
    unit = tmp_path / "dunlin.service"
    # The program is not installed here.
    unit.write_text((DEPLOY / "systemd" / "dunlin.service").read_text().replace("/usr/bin/dunlin", DUNLIN))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert [line for line in checked.stderr.splitlines() if "dunlin.service" in line] == []


def version():
    return run(DUNLIN, "--version").split()[1]


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The archive of an image."""
    out = tmp_path_factory.mktemp("archive") / "image.tar"
    run(ROOT / "scripts" / "make-image.py", DUNLIN, out)
    return out


@pytest.fixture(scope="module")
def image(archive, tmp_path_factory):
    """The folder of an image, and its layer's tar."""
    out = tmp_path_factory.mktemp("image")
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
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


def test_image_is_whole_and_the_same_each_time(archive, image, tmp_path):
    config, tar = unpack(image)
    assert config["User"] == "10001:10001" and config["Entrypoint"] == ["/usr/bin/dunlin", "server"]
    names = tarfile.open(fileobj=io.BytesIO(tar)).getnames()
    licences = tarfile.open(fileobj=io.BytesIO(tar)).extractfile("usr/share/doc/dunlin/licences").read().decode()
    assert "Lua 5.1 (MIT)" in licences and "rustls " in licences
    assert "usr/bin/dunlin" in names and "data" in names and not any("/.." in name for name in names)
    again = tmp_path / "again.tar"
    run(ROOT / "scripts" / "make-image.py", DUNLIN, again)
    assert again.read_bytes() == archive.read_bytes()
    # What `docker load` reads names the same blobs.
    [saved] = json.loads((image / "manifest.json").read_text())
    assert saved["RepoTags"] == [f"dunlin:{version()}"]
    assert gzip.decompress((image / saved["Layers"][0]).read_bytes()) == tar


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


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    """The tarball of the program under test, which is not static; DUNLIN_STATIC names one that is."""
    static = os.environ.get("DUNLIN_STATIC")
    environment = {**os.environ, "KEEP_SYMBOLS": "1", **({} if static else {"ALLOW_DYNAMIC": "1"})}
    out = tmp_path_factory.mktemp("tarball")
    return run(ROOT / "scripts" / "make-tarball.sh", static or DUNLIN, out, env=environment).strip()


def test_tarball_has_all_that_belongs_to_it_and_serves(tarball, tmp_path):
    with tarfile.open(tarball) as tar:
        [root] = {name.split("/")[0] for name in tar.getnames()}
        assert re.fullmatch(r"dunlin-[0-9.]+-linux-\w+", root) and f"{root}.tar.gz" == os.path.basename(tarball)
        assert all(member.uid == 0 and member.mtime == 0 for member in tar)
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / root
    for path in [
        "bin/dunlin",
        "etc/dunlin.conf",
        "share/man/man1/dunlin-top.1",
        "share/completions/dunlin.bash",
        "share/systemd/dunlin.service",
        "LICENSE",
        "README",
    ]:
        assert (folder / path).stat().st_size > 0, path
    config = (folder / "etc/dunlin.conf").read_text()
    assert "# maxmemory 0" in config and not re.search(r"(?m)^[a-z]", config), "every default, commented out"
    with Server(program=str(folder / "bin/dunlin"), config=config) as server:
        client = redis.Redis(port=server.port)
        assert client.set("k", "v") and client.eval("return redis.call('GET', 'k')", 0) == b"v"
        assert client.info("memory")["mem_allocator"] == "mimalloc"


def test_tarball_is_refused_for_a_program_that_needs_libraries(tmp_path):
    done = subprocess.run([ROOT / "scripts" / "make-tarball.sh", DUNLIN, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "needs shared libraries" in done.stderr and list(tmp_path.iterdir()) == []


def test_tarball_says_what_a_build_lacks(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    # A machine with the shell's own tools, and a rustup without the target.
    for tool in ("bash", "env", "realpath", "dirname", "uname", "grep"):
        (tools / tool).symlink_to(shutil.which(tool))
    (tools / "rustup").write_text("#!/bin/sh\necho x86_64-unknown-linux-gnu\n")
    (tools / "rustup").chmod(0o755)
    command = [ROOT / "scripts" / "make-tarball.sh", "--build", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tools)})
    assert done.returncode == 1 and "apt install musl-tools" in done.stderr and "rustup target add" in done.stderr


class Buildah:
    """Debian's buildah, with a store of its own."""

    def __init__(self, folder):
        self.words = ["buildah", "--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs"]

    def __call__(self, *words):
        return run(*self.words, *words, timeout=300)

    def container(self, image):
        return self("from", "--pull-never", image).strip()


@pytest.fixture
def buildah(tmp_path):
    if shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("needs root and buildah (Debian: buildah)")
    # Removal of what containers have mounted is buildah's.
    with tempfile.TemporaryDirectory(prefix="dunlin-buildah-", ignore_cleanup_errors=True) as folder:
        store = Buildah(pathlib.Path(folder))
        yield store
        run(*store.words, "rm", "--all")


def test_image_is_taken_by_its_name_and_run_by_buildah(archive, buildah):
    buildah("pull", f"docker-archive:{archive}")
    container = buildah.container(f"dunlin:{version()}")
    assert buildah("run", "--isolation", "chroot", container, "--", "/usr/bin/dunlin", "--version").startswith("dunlin ")


def test_containerfile_makes_the_same_image(image, buildah, tmp_path):
    # No registry is needed: the image that it builds in is one with the tools that it uses, and a cargo that copies.
    base = tmp_path / "base"
    tools = [shutil.which(tool) for tool in ("sh", "mkdir", "cp", "chown")]
    listed = "".join(run("ldd", tool) for tool in tools)
    for path in {*tools, *re.findall(r"(?:=> )?(/\S+) \(0x", listed)}:
        place = base / ("bin" if path in tools else os.path.dirname(path).lstrip("/"))
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for name, text in {
        "apt-get": "exit 0",
        "rustup": 'test "$*" = "target add x86_64-unknown-linux-musl"',
        "cargo": "test -f Cargo.toml && mkdir -p target/x86_64-unknown-linux-musl/release && cp dunlin target/x86_64-unknown-linux-musl/release/",
    }.items():
        (base / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (base / "bin" / name).chmod(0o755)
    (base / "Containerfile").write_text("FROM scratch\nCOPY . /\n")
    bud = ["bud", "--isolation", "chroot"]
    [rust] = re.findall(r"(?m)^FROM (\S+) AS build", (DEPLOY / "container" / "Containerfile").read_text())
    buildah(*bud, "--tag", rust, base)
    sources = tmp_path / "sources"
    sources.mkdir()
    shutil.copy(DUNLIN, sources / "dunlin")
    (sources / "Cargo.toml").touch()
    buildah(*bud, "--pull-never", "--tag", "built", "--file", DEPLOY / "container" / "Containerfile", sources)
    built = json.loads(buildah("inspect", "--type", "image", "built"))["OCIv1"]["config"]
    ours, _ = unpack(image)
    for name in ("User", "Entrypoint", "Cmd", "WorkingDir", "ExposedPorts", "Volumes"):
        assert built[name] == ours[name], name
    mounted = pathlib.Path(buildah("mount", buildah.container("built")).strip())
    assert (mounted / "usr/bin/dunlin").read_bytes() == pathlib.Path(DUNLIN).read_bytes()
    assert (mounted / "data").stat().st_uid == 10001


# The version of Kubernetes whose schemas are asked.
KUBERNETES = "1.34"
# What the Prometheus operator's definition of a ServiceMonitor demands and allows, as far as ours goes
# (monitoring.coreos.com/v1): kinds of values by their paths.
SERVICE_MONITOR = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "labels": dict},
    "spec": {"selector": {"matchLabels": dict}, "endpoints": [{"port": str, "path": str, "interval": str}]},
}
# Of the Compose Specification: the elements that our file has.
COMPOSE = {
    "services": {
        "dunlin": {
            "image": str,
            "command": [str],
            "ports": [str],
            "volumes": [str],
            "read_only": bool,
            "cap_drop": [str],
            "security_opt": [str],
            "mem_limit": str,
            "stop_grace_period": str,
            "restart": str,
            "healthcheck": {"test": [str], "interval": str, "timeout": str, "start_period": str},
        }
    },
    "volumes": {"data": type(None)},
}


def check(value, schema, path=""):
    """A value against kinds of values: every element is known, and of its kind."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), path
        for name, element in value.items():
            assert name in schema, f"{path}/{name} is unknown"
            check(element, schema[name], f"{path}/{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list), path
        for element in value:
            check(element, schema[0], path)
    else:
        assert isinstance(value, schema), f"{path} is no {schema.__name__}"


def test_manifests_of_kubernetes_obey_its_schemas():
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "dunlin.yaml").read_text()))
    own = [document for document in documents if not document["apiVersion"].startswith("monitoring.")]
    assert len(own) == len(documents) - 1
    for document in own:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    wrong = next(document for document in own if document["kind"] == "StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)
    check(next(document for document in documents if document["kind"] == "ServiceMonitor"), SERVICE_MONITOR)


def test_compose_file_obeys_the_specification():
    compose = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
    check(compose, COMPOSE)
    service = compose["services"]["dunlin"]
    duration = r"(\d+(us|ms|s|m|h))+"
    for text in [service["stop_grace_period"], *(service["healthcheck"][name] for name in ("interval", "timeout", "start_period"))]:
        assert re.fullmatch(duration, text), text
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL", "NONE")
    assert service["restart"] in ("no", "always", "on-failure", "unless-stopped")
    for volume in service["volumes"]:
        assert volume.split(":")[0] in compose["volumes"]
    for port in service["ports"]:
        assert re.fullmatch(r"([\d.]+:)?\d+:\d+", port)


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
    assert container["image"] == compose["image"] == f"dunlin:{version()}", "the name under which `make image` is taken"
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
