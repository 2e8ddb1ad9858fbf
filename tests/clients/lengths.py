"""The value lengths that every client sends and reads back."""

EVERY_LENGTH_MAX = 70_000
LENGTH_MAX = 16 << 20


def landmarks():
    """Around every power of 2 and of 10 up to 16 MiB."""
    powers = [1 << n for n in range(25)] + [10**n for n in range(8)]
    around = {power + step for power in powers for step in (-1, 0, 1)}
    return sorted(length for length in around if 0 <= length <= LENGTH_MAX)


def pattern(size):
    """Bytes in which no part looks like its neighbour, so that a shifted or cut value shows."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out += state.to_bytes(8, "little")
    return bytes(out[:size])
