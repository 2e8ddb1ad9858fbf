#!/usr/bin/env python3
"""Writes the software bill of materials of the binary, as CycloneDX 1.5 in JSON: scripts/sbom.py OUT.cdx.json

cargo-cyclonedx finds the crates that are linked for this machine's platform; the libraries in C that some of them build are added, as
scripts/licences.py knows them. Installs cargo-cyclonedx if it is missing. SOURCE_DATE_EPOCH, or the time of the commit, is the bill's time.
"""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import uuid

from licences import IN_C, ROOT, host

VERSION = "0.5.9"
CARGO = os.environ.get("CARGO", "cargo")


def run(*command, **options):
    return subprocess.run(command, cwd=ROOT, check=True, text=True, **options)


def install():
    """The tool in the version that was tried."""
    asked = subprocess.run([CARGO, "cyclonedx", "--version"], capture_output=True, text=True)
    if asked.returncode != 0 or VERSION not in asked.stdout:
        print(f"sbom: installing cargo-cyclonedx {VERSION}", file=sys.stderr)
        done = subprocess.run([CARGO, "install", "--quiet", "--locked", f"cargo-cyclonedx@{VERSION}"])
        if done.returncode != 0:
            sys.exit(f"sbom: cargo-cyclonedx {VERSION} cannot be installed here, and nothing was written")


def commit_time():
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct", capture_output=True).stdout
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def add_libraries_in_c(bill):
    """A component for each library in C, which the crate that builds it contains."""
    for component in bill["components"]:
        if component["name"] in IN_C:
            name, licence, _ = IN_C[component["name"]]
            component.setdefault("components", []).append(
                {
                    "type": "library",
                    "bom-ref": f"{component['bom-ref']} c",
                    "name": name,
                    "licenses": [{"expression": licence}],
                    "scope": "required",
                }
            )


def without_paths(value):
    """The bill without the directory that it was made in."""
    if isinstance(value, dict):
        return {name: without_paths(element) for name, element in value.items()}
    if isinstance(value, list):
        return [without_paths(element) for element in value]
    return value.replace(str(ROOT), "/dunlin") if isinstance(value, str) else value


def main(out):
    install()
    name = "dunlin-sbom"
    made = ROOT / "crates" / "dunlin" / f"{name}.json"
    command = ["cyclonedx", "--format", "json", "--spec-version", "1.5", "--target", host()]
    try:
        run(CARGO, *command, "--manifest-path", "crates/dunlin/Cargo.toml", "--override-filename", name, "--quiet")
        bill = json.loads(made.read_text())
    finally:
        # The tool writes one for each crate of the workspace.
        others = run("git", "ls-files", "--others", "--", f"*{name}.json", capture_output=True).stdout
        for written in others.splitlines():
            (ROOT / written).unlink()
    add_libraries_in_c(bill)
    bill = without_paths(bill)
    bill["metadata"]["timestamp"] = commit_time()
    # Of the contents, so that the same tree has the same bill.
    bill["serialNumber"] = ""
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))}"
    path = pathlib.Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1])
