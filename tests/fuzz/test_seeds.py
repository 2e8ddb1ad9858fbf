"""Every fuzz target, over its seeds and over mutations of them: always the same ones, so that a failure is a change's.

The targets are built without the instrumentation that `make fuzz` gives them, and so do not look for new paths; they show
that each of them compiles, that its seeds are good, and that nothing near these panics or takes memory without end.
"""

import random
import subprocess
import tomllib

import pytest

from harness import DRIVERS, ROOT
from mutations import mutated

FUZZ = ROOT / "fuzz"
TARGETS = [program["name"] for program in tomllib.loads((FUZZ / "Cargo.toml").read_text())["bin"]]
# Mutations of all seeds together; each target takes a second or a few.
MUTATIONS = 2000


def seeds(target):
    return sorted(path for path in (FUZZ / "seeds" / target).iterdir() if path.is_file())


def run(target, *inputs):
    program = DRIVERS / target
    assert program.exists(), "build it first: cargo build --profile fast -p dunlin-fuzz"
    limits = ["-runs=0", "-timeout=60", "-rss_limit_mb=2048"]
    done = subprocess.run([program, *limits, *inputs], cwd=FUZZ, capture_output=True, timeout=300)
    return done.returncode, done.stderr.decode(errors="replace")


def test_targets_all_have_seeds():
    assert TARGETS and TARGETS == [name for name in TARGETS if seeds(name)]
    assert sorted(TARGETS) == sorted(path.stem for path in (FUZZ / "fuzz_targets").iterdir())


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_and_their_mutations_are_taken(target, tmp_path):
    rng = random.Random(target)
    inputs = [path.read_bytes() for path in seeds(target)]
    for number in range(MUTATIONS):
        (tmp_path / f"{number:05}").write_bytes(mutated(rng, inputs))
    # libFuzzer writes into the first folder.
    code, text = run(target, f"-artifact_prefix={tmp_path}/", tmp_path, FUZZ / "seeds" / target)
    assert code == 0, text[-5000:]
    # The program says how much it has read, or it has read nothing.
    assert f"seed corpus: files: {len(inputs) + MUTATIONS} " in text, text[-2000:]
