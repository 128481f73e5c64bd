"""Small changes of bytes, as disks, copies and attackers make them."""

import random
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes], bytes]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def zero(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    size = rng.choice((1, 4, 8, 61, 512, 4096))
    return data[:start] + bytes(min(size, len(data) - start)) + data[start + size :]


def junk(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.choice((1, 8, 61, 300))) + data[start:]


def extreme(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    word = rng.choice(
        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"9" * 40)
    )
    return data[:start] + word + data[start + len(word) :]


MUTATIONS: tuple[Mutation, ...] = (cut, flip, zero, junk, extreme)
