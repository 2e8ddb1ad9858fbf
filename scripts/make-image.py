#!/usr/bin/env python3
"""Writes a container image as one archive: scripts/make-image.py PROGRAM OUT.tar

Nothing but Python is needed. The image has one layer from scratch: the program, the shared libraries that it asks for (none
if it is linked statically), the licences of all that is linked, a user, and /data. The same program makes the same bytes.

The archive is an OCI layout with the manifest of `docker save` beside it, so that docker, podman, buildah, skopeo, containerd
and kind take it, each under the name dunlin:VERSION.
"""

import gzip
import hashlib
import io
import json
import pathlib
import platform
import re
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
USER = 10001
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def libraries(program):
    """The shared libraries of a program, by the paths at which its loader looks for them."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True)
    if listed.returncode != 0:
        return []
    return sorted(set(re.findall(r"(?:=> )?(/\S+) \(0x", listed.stdout)))


def layer(program):
    """The layer's tar: names in order, no times, owners by number."""
    files = {"usr/bin/dunlin": (pathlib.Path(program).read_bytes(), 0o755)}
    licences = subprocess.run([ROOT / "scripts" / "licences.py"], capture_output=True, check=True).stdout
    files["usr/share/doc/dunlin/licences"] = (licences, 0o644)
    files["usr/share/doc/dunlin/copyright"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    for path in libraries(program):
        files[path.lstrip("/")] = (pathlib.Path(path).read_bytes(), 0o755)
    files["etc/passwd"] = (f"root:x:0:0::/:/\ndunlin:x:{USER}:{USER}::/data:/\n".encode(), 0o644)
    files["etc/group"] = (f"root:x:0:\ndunlin:x:{USER}:\n".encode(), 0o644)
    folders = {"data": USER, "tmp": 0}
    for name in files:
        for parent in pathlib.PurePosixPath(name).parents:
            if str(parent) != ".":
                folders.setdefault(str(parent), 0)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(folders):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            entry.uid = entry.gid = folders[name]
            tar.addfile(entry)
        for name in sorted(files):
            content, mode = files[name]
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


class Layout:
    """The files of the archive by their names."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def add(self, content, media_type):
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, value, media_type):
        return self.add(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), media_type)


def main(program, out):
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    tar = layer(program)
    layout = Layout()
    packed = layout.add(gzip.compress(tar, 9, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
    labels = {
        "org.opencontainers.image.title": "dunlin",
        "org.opencontainers.image.description": "In-memory data store that speaks the Redis protocol",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "BSD-3-Clause",
    }
    config = layout.add_json(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "ExposedPorts": {"6379/tcp": {}, "8379/tcp": {}},
                "Volumes": {"/data": {}},
                "WorkingDir": "/data",
                "Entrypoint": ["/usr/bin/dunlin", "server"],
                "Cmd": ["--bind", "*", "--http-port", "8379", "--dir", "/data"],
                "StopSignal": "SIGTERM",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
        },
        "application/vnd.oci.image.config.v1+json",
    )
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = layout.add_json(
        {"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": [packed], "annotations": labels},
        manifest_type,
    )
    manifest["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"docker.io/library/dunlin:{version}",
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}
    path = {name: "blobs/" + part["digest"].replace(":", "/") for name, part in (("config", config), ("layer", packed))}
    saved = [{"Config": path["config"], "RepoTags": [f"dunlin:{version}"], "Layers": [path["layer"]]}]
    layout.files["index.json"] = json.dumps(index, sort_keys=True).encode()
    layout.files["manifest.json"] = json.dumps(saved, sort_keys=True).encode()
    pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(layout.files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(layout.files[name]), 0o644
            archive.addfile(entry, io.BytesIO(layout.files[name]))
    print(f"{out}: the image dunlin:{version}, {packed['size'] >> 10} KiB", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
