#!/usr/bin/env python3
"""Checks the links of all Markdown pages: files and headings that they name, and files in backticks of ARCHITECTURE.md.

Prints a line for each broken link and ends with 1 if there is one. Links to other sites are not followed.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
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


def main():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pages = [ROOT / name for name in listed.stdout.split()]
    texts = {page: page.read_text() for page in pages if page.exists()}
    lines = [f"{page.relative_to(ROOT)}:{number}: {target}" for page in texts for number, target in broken(page, texts)]
    print("\n".join(lines))
    sys.exit(f"{len(lines)} broken links" if lines else None)


if __name__ == "__main__":
    main()
