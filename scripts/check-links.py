#!/usr/bin/env python3
"""Checks the Markdown pages: files and headings behind links, paths of sources in backticks, tests in tables of tests.
Of ARCHITECTURE.md also the tests and lints that hold its invariants, and its table of threads.

Prints a line for each name of something that is not there and ends with 1 if there is one. Links to other sites are not followed.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
# A path of a source: relative to the tree, or to a crate, whose name may stand in front without `crates/` and `src/`.
SOURCE = re.compile(r"[a-z][\w.-]*(/[\w.-]+)*(\.(rs|py|sh|js|mjs|proto|toml)|/)|(crates|tests|docs|scripts|deploy)(/[\w.-]+)+")
SKIPPED = ("docs/commands/", "docs/benchmarks/lab/")
TEST_TABLE = re.compile(r"^## Tests\n(.*?)(?=^## |\Z)", re.M | re.S)
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def anchors(text):
    """The names that GitHub gives to the headings of a page."""
    names = {}
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        names[name] = names.get(name, -1) + 1
    return {name if n == 0 else f"{name}-{n}" for name, last in names.items() for n in range(last + 1)}


def broken(page, texts):
    text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), texts[page])
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                yield number, target
            elif anchor and file.suffix == ".md" and file in texts and anchor not in anchors(texts[file]):
                yield number, target


def listed(*patterns):
    """The files of the tree, relative to its root: those that git has, or would have."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def places(names):
    """Every end of every path of files and folders: what a page may call a source."""
    ends = set()
    for name in names:
        for full in {name, name.replace("/src/", "/").removeprefix("crates/")}:
            parts = full.split("/")
            for start in range(len(parts)):
                ends.update("/".join(parts[start:stop]) for stop in range(start + 1, len(parts) + 1))
    return ends


def alternatives(name):
    """The paths that a name with braces stands for."""
    found = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", name)
    return [found[1] + part + found[3] for part in found[2].split(",")] if found else [name]


def ignored(name):
    """Whether git leaves that path out, or it is the form of a name: such a file is made later."""
    return "NNNN" in name or not subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT).returncode


def lost_sources(page, text, known):
    if str(page.relative_to(ROOT)).startswith(SKIPPED):
        return
    text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        for code in CODE.findall(line):
            for name in alternatives(code):
                if SOURCE.fullmatch(name) and name.rstrip("/") not in known and not ignored(name):
                    yield number, name


def lost_tests(text, known):
    """Names in the second column of a page's section `Tests`."""
    for table in TEST_TABLE.finditer(text):
        start = text.count("\n", 0, table.start(1)) + 1
        for number, line in enumerate(table[1].splitlines(), start):
            cells = line.split(" | ")
            for name in CODE.findall(cells[-1]) if len(cells) == 2 else []:
                if name not in known and "/" not in name:
                    yield number, name


BRACKETS = re.compile(r"\[([^\[\]]*`[^\[\]]*)\](?!\()")
THREAD = re.compile(r"""\.name\((?:format!\()?"([a-z-]+)(?:\{\w+\})?"(?:\.to_owned\(\))?\)""")


def unheld(text, known):
    """Tests and lints in brackets of ARCHITECTURE.md that are not there."""
    lints = (ROOT / "Cargo.toml").read_text()
    for holders in BRACKETS.finditer(text):
        for name in CODE.findall(holders[1].replace("\n", " ")):
            if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", name) and name not in known and name not in lints:
                yield text.count("\n", 0, holders.start()) + 1, name


def unnamed_threads(text):
    """Threads of a server that the table of ARCHITECTURE.md lacks."""
    table = text.partition("\n## Threads\n")[2].partition("\n## ")[0]
    for source in listed("crates/server/src/*.rs", "crates/net/src/*.rs", "crates/persist/src/*.rs", "crates/etcd/src/*.rs"):
        for name in THREAD.findall((ROOT / source).read_text()):
            if f"`{name}`" not in table and f"`{name}N`" not in table:
                yield 1, f"thread `{name}` of {source}"


def main():
    pages = [ROOT / name for name in listed("*.md")]
    texts = {page: page.read_text() for page in pages if page.exists()}
    sources = places(listed())
    code = "\n".join((ROOT / name).read_text() for name in listed("*.rs", "*.py") if (ROOT / name).exists())
    tests = set(re.findall(r"\bdef test_(\w+)|\bfn (\w+)", code))
    tests = {name for pair in tests for name in pair}
    lines = []
    for page, text in texts.items():
        found = [*broken(page, texts), *lost_sources(page, text, sources), *lost_tests(text, tests)]
        if page.name == "ARCHITECTURE.md":
            found += [*unheld(text, tests), *unnamed_threads(text)]
        lines += [f"{page.relative_to(ROOT)}:{number}: {name}" for number, name in sorted(found)]
    print("\n".join(lines))
    sys.exit(f"{len(lines)} names of what is not there" if lines else None)


if __name__ == "__main__":
    main()
