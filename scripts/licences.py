#!/usr/bin/env python3
"""Prints the licences of all that is linked into the binary: name, version, expression, and the texts that each crate carries.

    scripts/licences.py [--features FEATURES] [--target TRIPLE] > LICENCES

A text that several crates carry is printed once. Asks `cargo metadata`, offline, so a build must have run before. Libraries in C come with the crates that build them; their
texts are looked up in the sources of these crates.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.I)
# Crate: (what it builds in C, its licence, a file with the text below the crate's folder or that of another crate).
IN_C = {
    "lua-src": ("Lua 5.1", "MIT", "lua-5.1.5/lua.h"),
    "libmimalloc-sys": ("mimalloc", "MIT", "c_src/mimalloc/LICENSE"),
    "ring": ("BoringSSL's parts of ring", "Apache-2.0 AND ISC", "LICENSE-BoringSSL"),
}


def linked(metadata, root):
    """The packages that a package links: its dependencies but those for builds and tests, and theirs."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    seen, waiting = set(), [root]
    while waiting:
        package = waiting.pop()
        if package in seen:
            continue
        seen.add(package)
        for dependency in nodes[package]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
            # What builds C sources brings these sources along.
            if None in kinds or dependency["name"].replace("_", "-") in IN_C:
                waiting.append(dependency["pkg"])
    return seen


def texts(folder):
    """The licences in a crate's folder, by their file names."""
    names = sorted(name for name in os.listdir(folder) if TEXTS.match(name) and (folder / name).is_file())
    return {name: (folder / name).read_text(errors="replace").strip() for name in names}


def of_c(package, folder):
    """The licence of what a crate builds in C: a file, or the comment at the end of a header."""
    name, expression, path = IN_C[package["name"]]
    found = next(iter(sorted(folder.glob(f"**/{pathlib.PurePath(path).name}"))), None)
    if found is None:
        return f"{name} ({expression})\n"
    text = found.read_text(errors="replace")
    if found.suffix == ".h":
        text = text[text.rindex("/****") :] if "/****" in text else text
    return f"{name} ({expression})\n\n{text.strip()}\n"


def host():
    """The platform of this machine, as rustc names it."""
    about = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return re.search(r"^host: (.*)$", about, re.M)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", help="features of the binary; its default ones if omitted")
    parser.add_argument("--target", help="platform of the binary; this machine's if omitted")
    arguments = parser.parse_args()
    features = arguments.features
    chosen = [] if features is None else ["--no-default-features", "--features", features]
    chosen += ["--filter-platform", arguments.target or host()]
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--locked", "--offline", *chosen]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    root = next(package["id"] for package in packages.values() if package["name"] == "dunlin")
    others = [packages[package] for package in linked(metadata, root) if packages[package]["source"] is not None]
    others.sort(key=lambda package: (package["name"], package["version"]))
    print("Libraries that are linked into dunlin, with their licences.\n")
    lacking, printed = [], {}
    for package in others:
        folder = pathlib.Path(package["manifest_path"]).parent
        print("=" * 80)
        print(f"{package['name']} {package['version']}: {package['license'] or 'see below'}")
        print(f"{package['repository'] or ''}\n".lstrip("\n"))
        for name, text in texts(folder).items():
            first = printed.setdefault(text, package["name"])
            print(f"--- {name}\n\n{text}\n" if first == package["name"] else f"--- {name}: as of {first}\n")
        if package["name"] in IN_C:
            print(f"--- in C: {of_c(package, folder)}")
        if not package["license"] and not texts(folder):
            lacking.append(package["name"])
    if lacking:
        sys.exit(f"no licence is known of: {', '.join(lacking)}")


if __name__ == "__main__":
    main()
