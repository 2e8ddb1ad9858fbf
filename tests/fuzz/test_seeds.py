"""Every fuzz target, over its seeds and over mutations of them: always the same ones, so that a failure is a change's.

The targets are built without the instrumentation that `make fuzz` gives them, and so do not look for new paths; they show
that each of them compiles, that its seeds are good, and that nothing near these panics or takes memory without end.
"""

import pathlib
import random
import subprocess
import tomllib

import pytest

from harness import DRIVERS, ROOT

FUZZ = ROOT / "fuzz"
TARGETS = [program["name"] for program in tomllib.loads((FUZZ / "Cargo.toml").read_text())["bin"]]
# Mutations of all seeds together; each target takes a second or a few.
MUTATIONS = 2000
INPUT_BYTES_MAX = 4096
NUMBERS = [b"0", b"-1", b"2147483647", b"4294967296", b"9223372036854775807", b"\xff\xff\xff\xff", b"\x00" * 8, b"\r\n", b"\x80"]


def seeds(target):
    return sorted(path for path in (FUZZ / "seeds" / target).iterdir() if path.is_file())


def mutated(rng, inputs):
    """One of the inputs, changed in a few places as such inputs go wrong."""
    data = bytearray(rng.choice(inputs)[:INPUT_BYTES_MAX])
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        match rng.randrange(6):
            case 0 if data:
                data[at - 1] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at - 1] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randint(1, 16)]
            case 3:
                data[at:at] = rng.choice(NUMBERS)
            case 4:
                other = rng.choice(inputs)
                start = rng.randint(0, len(other))
                data[at:at] = other[start : start + rng.randint(1, 64)]
            case _:
                data[at:at] = data[max(0, at - rng.randint(1, 64)) : at]
    # An empty file would be passed over.
    return bytes(data[:INPUT_BYTES_MAX]) or b"\0"


def run(target, *inputs):
    program = DRIVERS / target
    assert program.exists(), "build it first: cargo build --profile fast -p dunlin-fuzz"
    limits = ["-runs=0", "-timeout=20", "-rss_limit_mb=2048"]
    done = subprocess.run([program, *limits, *inputs], cwd=FUZZ, capture_output=True, timeout=300)
    return done.returncode, done.stderr.decode(errors="replace")


def test_every_target_has_seeds():
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
