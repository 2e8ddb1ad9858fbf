"""Pages of docs/ as tests read them: their commands, run as they stand there."""

import re
import shlex
import subprocess

from harness import DUNLIN, ROOT

SECTION = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.M | re.S)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)


def page(name):
    return (ROOT / "docs" / name).read_text()


def sections(text):
    """The sections of a page by their headings."""
    return dict(SECTION.findall(text))


def blocks(text, is_elsewhere=lambda line: False):
    """The lines of the shell's blocks of a page, by the heading that they stand under. Lines that end with a backslash are joined."""
    found = {}
    for heading, section in sections(text).items():
        lines = [line for block in BLOCK.findall(section) for line in block.replace("\\\n", " ").splitlines()]
        found[heading] = [line for line in lines if line and not line.startswith("#") and not is_elsewhere(line)]
    return {heading: lines for heading, lines in found.items() if lines}


def placed(line, places):
    """A line with the names of the page replaced by `places`, the longest names first."""
    names = sorted(places, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, names)), lambda name: str(places[name[0]]), line) if names else line


def words_of(line, places):
    words = shlex.split(placed(line, places), comments=True)
    if words[0] == "dunlin":
        words[0] = DUNLIN
    return words


def run(line, places, code=0, more=()):
    """Runs a line of a page, with its names replaced by `places`, and `more` words behind; what it has printed."""
    words = [*words_of(line, places), *map(str, more)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{line}\n{words}\n{done.stdout}{done.stderr}"
    # redis-cli ends with 0 after an error, too.
    assert code or words[0] != "redis-cli" or not re.match(r"\(error\)|ERR |NOAUTH|WRONGPASS|[A-Z]+ERR ", done.stdout), f"{line}\n{done.stdout}"
    return done.stdout + done.stderr
