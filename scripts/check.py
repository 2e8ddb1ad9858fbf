#!/usr/bin/env python3
"""The checks of a minute (`make check`): no network, no set-up, nothing but Rust, Python 3 and git.

    scripts/check.py [--base COMMIT] [--all] [--seeds N]

Formatting, links, prose, the generated documents, the order of the server's modules, the unit tests of changed crates and of the
crates that depend on them, and the cluster's simulator. A crate is changed if one of its files differs from COMMIT, which is the
point at which this branch left `main` unless another is named. If no file differs, and with `--all`, every crate is tested.

Everything is built by one command with one choice of crates: with another choice, cargo chooses other features of their
dependencies and builds them again. All steps run even if one fails; the last line names those that failed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
# Files that belong to no crate and change all of them.
OF_ALL = {"Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo/config.toml"}
BUILD = [CARGO, "test", "--offline", "--profile", "fast", "--workspace", "--lib", "--test", "rooms", "--test", "simulator"]


def output(*command):
    """Standard output of a command that must succeed."""
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def base_commit():
    """The commit that changes are counted from."""
    for main in ("main", "origin/main"):
        found = subprocess.run(["git", "merge-base", "HEAD", main], cwd=ROOT, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    return output("git", "rev-parse", "HEAD").strip()


def changed_files(base):
    """Files that differ from `base`, committed or not, and new ones."""
    new = output("git", "ls-files", "--others", "--exclude-standard")
    return sorted({*output("git", "diff", "--name-only", base).split(), *new.split()})


class Workspace:
    """The crates of the workspace: their folders, and which of them depend on which."""

    def __init__(self):
        found = json.loads(output(CARGO, "metadata", "--offline", "--no-deps", "--format-version", "1"))
        self.folders, self.needs = {}, {}
        for package in found["packages"]:
            folder = pathlib.Path(package["manifest_path"]).parent
            self.folders[package["name"]] = folder.relative_to(found["workspace_root"]).as_posix()
            self.needs[package["name"]] = {each["name"] for each in package["dependencies"]}

    def changed(self, files):
        """The crates that have one of these files."""
        if OF_ALL.intersection(files):
            return set(self.folders)
        return {
            name for name, folder in self.folders.items() if any(file.startswith(folder + "/") for file in files)
        }

    def with_dependents(self, crates):
        """These crates and all that depend on one of them."""
        reached = set(crates)
        while more := {name for name, needs in self.needs.items() if needs & reached} - reached:
            reached |= more
        return reached


class Programs:
    """The programs of tests that cargo has built, by crate and target."""

    def __init__(self, messages):
        self.paths = {}
        for line in messages.splitlines():
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
                manifest, target = pathlib.Path(message["manifest_path"]), message["target"]
                kind = "lib" if "lib" in target["kind"] else target["name"]
                self.paths[manifest.parent, kind] = message["executable"]

    def has(self, folder, kind):
        return (ROOT / folder, kind) in self.paths

    def run(self, folder, kind, *arguments, **environment):
        """Runs one as cargo would: its exit code and its output."""
        program = self.paths[ROOT / folder, kind]
        own = {**os.environ, "CARGO_MANIFEST_DIR": str(ROOT / folder), **environment}
        ended = subprocess.run(
            [program, "-q", *arguments],
            cwd=ROOT / folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        return ended.returncode, ended.stdout


class Steps:
    """Steps that have a name, a time and an end."""

    def __init__(self):
        self.begun, self.failed = time.monotonic(), []

    def step(self, name, work):
        """Runs `work`, which returns the exit code and the output of a program."""
        begun = time.monotonic()
        code, text = work()
        took = time.monotonic() - begun
        print(f"check: {took:5.1f} s  {'FAILED ' if code else ''}{name}\n{text if code else ''}", end="", flush=True)
        if code:
            self.failed.append(name)
        return text

    def together(self, steps):
        """Runs steps, pairs of name and work, as many at a time as there are processors; returns their outputs."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda step: self.step(*step), steps))

    def end(self):
        took = f"in {time.monotonic() - self.begun:.0f} s"
        print(f"check: failed {took}: {'; '.join(self.failed)}" if self.failed else f"check: all passed {took}")
        return 1 if self.failed else 0


def command(*words):
    """A step that is a command."""

    def work():
        ended = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return ended.returncode, ended.stdout

    return work


def build():
    """Builds all programs of tests. Messages of the compiler are shown as they come."""
    words = [*BUILD, "--no-run", "--quiet", "--message-format=json-render-diagnostics"]
    ended = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return ended.returncode, ended.stdout


def passed(outputs):
    """The number of tests that passed, from the last lines of their programs."""
    lines = [line for text in outputs for line in text.splitlines() if line.startswith("test result:")]
    return sum(int(line.split(" passed")[0].split()[-1]) for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="the commit from which changes count")
    parser.add_argument("--all", action="store_true", help="the unit tests of every crate")
    parser.add_argument("--seeds", type=int, default=500, help="seeds of the simulator (500); a few prove nothing, and fail")
    asked = parser.parse_args()

    workspace, base = Workspace(), asked.base or base_commit()
    files = changed_files(base)
    changed = set(workspace.folders) if asked.all or not files else workspace.changed(files)
    tested = workspace.with_dependents(changed)
    print(f"check: {len(files)} files differ from {base[:10]}; crates: {', '.join(sorted(changed)) or 'none'}", end="")
    print(f"; {len(tested - changed)} depend on them" if changed else "", flush=True)

    steps = Steps()
    steps.together([
        ("formatting (cargo fmt)", command(CARGO, "fmt", "--all", "--check")),
        ("links of pages (scripts/check-links.py)", command("scripts/check-links.py")),
        ("prose (scripts/check-prose.py)", command("scripts/check-prose.py")),
    ])
    messages = steps.step("build", build)
    if "build" in steps.failed:
        print("check: no network is used; if cargo lacks the sources of dependencies, `cargo fetch` gets them once")
        return steps.end()

    programs, folders = Programs(messages), workspace.folders
    # The longest come first, so that none of them is left alone at the end.
    longest = ["dunlin-persist", "dunlin-engine", "dunlin-server", "dunlin-cluster", "dunlin-structures"]
    order = sorted(tested, key=lambda name: (longest.index(name) if name in longest else len(longest), name))
    units = [name for name in order if programs.has(folders[name], "lib")]
    outputs = steps.together([
        ("generated documents", lambda: programs.run(folders["dunlin-server"], "lib", "documentation")),
        ("order of the server's modules", lambda: programs.run(folders["dunlin-server"], "rooms")),
        *((f"unit tests of {name}", lambda name=name: programs.run(folders[name], "lib")) for name in units),
    ])
    # On all processors by itself.
    storms = lambda: programs.run(folders["dunlin-cluster"], "simulator", "storm_breaks", "moves_lose", SEEDS=str(asked.seeds))  # noqa: E731
    outputs.append(steps.step(f"{asked.seeds} seeds of the cluster's simulator", storms))
    print(f"check: {passed(outputs)} tests passed")
    return steps.end()


if __name__ == "__main__":
    sys.exit(main())
