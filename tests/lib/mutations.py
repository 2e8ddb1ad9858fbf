"""Inputs changed in a few places as such inputs go wrong."""

INPUT_BYTES_MAX = 4096
NUMBERS = [b"0", b"-1", b"2147483647", b"4294967296", b"9223372036854775807", b"\xff\xff\xff\xff", b"\x00" * 8, b"\r\n", b"\x80"]


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
