#!/usr/bin/env python3
"""Measures kinds of sentences that a stranger reads twice, in comments of Rust files and in Markdown pages, and tests' names
that do not begin with the command or part under test.

    scripts/check-prose.py               fail if a kind occurs more often than its ceiling
    scripts/check-prose.py --list KIND   print each place of a kind

Figures are occurrences per 1,000 sentences, and per 1,000 tests. The ceilings only fall: whoever lowers a figure lowers its ceiling.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# kind: (pattern over one sentence, ceiling per 1,000 sentences)
KINDS = {
    "pronoun-first": (r"^(It|They|One|Those|The same)\b", 1.0),
    "where-for-if": (r"(^Where|, where) (it|they|a|an|the|there|no|that|one|its|nothing)\b", 0.3),
    "so-much": (r"\bso (much|many|long)\b", 0.4),
    "nobody": (r"\b(?i:nobody|somebody|whoever|anybody|everybody)\b", 0.2),
    "no-more": (r"\b(no more|any more|of then)\b(?! than)", 0.2),
    "causative": (r"^(Has|Have|Having) (a|an|the|its|all|what|one)\b|\bhas (it|them|the \w+) [a-z]+ed\b", 0.6),
    "relative-subject": (r"^(What|Who) (?!would change)(?!.*\?$)", 0.9),
}
# A test's name that begins with an article, a relative, a pronoun or a quantity, unless that is the name of a part (`why`).
TEST_NAME = (
    r"^(a|an|the|this|that|these|those|its?|they|them|ones?|two|three|ten|what|who|whoever|whose|where|when|which|how|if|while"
    r"|every|each|all|any|both|either|neither|some|several|many|most|few|others?|another|no|none|not|nobody|nothing|somebody"
    r"|something|anybody|anything|everybody|everyone|everything|there|here|only|more|much|of|as|by|with|without)_"
)
TEST_NAME_CEILING = 1.5
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)


def paragraphs(path, text):
    """Runs of prose with the line on which each begins."""
    if path.suffix == ".md":
        text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
        lines = [re.sub(r"^\s*([-*+]|\d+\.|#+|>|\|)\s+", "\n", line).replace(" | ", ". ") for line in text.split("\n")]
    else:
        comments = (re.match(r"\s*//[/!]? ?(.*)$", line) for line in text.split("\n"))
        lines = [comment[1] if comment else "" for comment in comments]
        text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), "\n".join(lines))
        lines = text.split("\n")
    start, run = 1, []
    for number, line in enumerate([*lines, ""], 1):
        if line.strip() and not line.startswith("\n"):
            run.append(line.strip())
            continue
        if run:
            yield start, " ".join(run)
        start, run = (number, [line.strip()]) if line.strip() else (number + 1, [])


def sentences():
    """Every sentence of the tree with its file and line."""
    names = subprocess.run(["git", "ls-files", "*.rs", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split():
        path = ROOT / name
        for line, paragraph in paragraphs(path, path.read_text()):
            for sentence in re.split(r"(?<=[.:;!?]) +(?=[\"“(`A-Z])", paragraph):
                if re.search(r"[a-z]{2}.* [a-z]", sentence):
                    yield name, line, sentence


def named_tests():
    """The name of every test of the tree, without `test_`, with its file and line."""
    names = subprocess.run(["git", "ls-files", "*.rs", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split():
        is_test = False
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if found := re.match(r"\s*(?:async )?(?:fn (\w+)|def test_(\w+))", line):
                if is_test or found[2]:
                    yield name, number, found[1] or found[2]
                is_test = False
            elif re.match(r"\s*#\[(\w+::)*test\b", line):
                is_test = True


def main():
    listed = sys.argv[2] if sys.argv[1:2] == ["--list"] else None
    total, found, too_many = 0, dict.fromkeys(KINDS, 0), []
    for name, line, sentence in sentences():
        total += 1
        for kind, (pattern, _) in KINDS.items():
            if re.search(pattern, sentence):
                found[kind] += 1
                if kind == listed:
                    print(f"{name}:{line}: {sentence}")
    tests, ill_named = 0, 0
    for name, line, test in named_tests():
        tests += 1
        if re.search(TEST_NAME, test):
            ill_named += 1
            if listed == "test-name":
                print(f"{name}:{line}: {test}")
    figures = [(kind, 1000 * found[kind] / total, ceiling) for kind, (_, ceiling) in KINDS.items()]
    for kind, figure, ceiling in [*figures, ("test-name", 1000 * ill_named / tests, TEST_NAME_CEILING)]:
        print(f"{kind:18} {figure:5.1f} of {ceiling}", file=sys.stderr)
        if figure > ceiling:
            too_many.append(kind)
    if too_many:
        sys.exit(f"too many of these kinds: {', '.join(too_many)} (scripts/check-prose.py --list KIND)")


if __name__ == "__main__":
    main()
