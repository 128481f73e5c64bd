"""Bundles with random changes at every layer and valid checksums: scans end in bounded time and memory, and report no clean log."""

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import kafka_forensics as kf
from kafka_forensics.errors import FormatError, SourceError, UsageError
from tests.support.bundles import bundle_members, decompressed_members, tar_of, unpack_bundle, with_checksums
from tests.support.peak_memory import traced_memory
from tests.support.segments import MUTATIONS

SECONDS: Final = 20
MAX_BYTES: Final = 320 << 20
EDGES: Final = (1 << 20, (1 << 31) - 1, 1 << 31, 1 << 61, (1 << 62) - 1, 1 << 62, 1 << 63, -(1 << 63), 10**40)
NUMBERS: Final = (0, 1, -1, 7, 8169, *EDGES)
HOSTILE: Final = ("../../etc/passwd", "/etc/passwd", "\0", "\x1b[2J", "\ud800", "\udcff", "x" * 5000)
TEXTS: Final = ("", "f", "l", "o", "bytes", "reduced", *HOSTILE)
VALUES: Final[tuple[Any, ...]] = (*NUMBERS, *TEXTS, None, True, False, 1.5, float("nan"), [], {}, [[]], [0] * 9)
Change = Callable[[random.Random, Path], bytes]


def changed_tar(rng: random.Random, bundle: Path) -> bytes:
    return rng.choice(MUTATIONS)(rng, bundle.read_bytes())


def changed_part(rng: random.Random, bundle: Path) -> bytes:
    members = decompressed_members(bundle)
    part = rng.choice(MUTATIONS)(rng, members["parts/000000.zst"])
    return tar_of(with_checksums(bundle_members(json.loads(members["bundle.json"]), [part], members["listing.zst"])))


def changed_section(rng: random.Random, bundle: Path) -> bytes:
    contents = unpack_bundle(bundle)
    section = rng.choice(contents.parts[0].sections)
    section[4] = rng.choice(MUTATIONS)(rng, section[4])
    return tar_of(with_checksums(contents.with_new_listing().members()))


def changed_index(rng: random.Random, bundle: Path) -> bytes:
    contents = unpack_bundle(bundle)
    sections = contents.parts[0].sections
    section, other = rng.choice(sections), rng.choice(sections)
    match rng.randrange(4):
        case 0:
            section[2:4], other[2:4] = other[2:4], section[2:4]
        case 1:
            section[0] = other[0]
        case 2:
            section[1] = rng.choice(("bytes", "batches", "raw", "reduced", "keys"))
        case _:
            section[rng.choice((2, 3))] = rng.choice(NUMBERS)
    with suppress(FormatError, KeyError):
        contents.with_new_listing()
    return tar_of(with_checksums(contents.members()))


def changed_listing(rng: random.Random, bundle: Path) -> bytes:
    contents = unpack_bundle(bundle)
    for _ in range(rng.choice((1, 1, 2, 5))):
        change_value(rng, contents.listing["files" if rng.random() < 0.9 else "directories"])
    members = contents.members()
    if rng.random() < 0.2:  # only the rows in the parts remain
        del members["listing.zst"]
        change_value(rng, contents.parts[0].files)
    return tar_of(with_checksums(members))


def changed_about(rng: random.Random, bundle: Path) -> bytes:
    contents = unpack_bundle(bundle)
    contents.about[rng.choice(list(contents.about))] = rng.choice(VALUES)
    return tar_of(with_checksums(contents.members()))


def change_value(rng: random.Random, value: list[Any]) -> None:
    """Change something in a list of lists."""
    while value and isinstance(inner := rng.choice(value), list) and inner and rng.random() < 0.9:
        value = inner
    match rng.randrange(4):
        case 0 if value:
            value.append(value[rng.randrange(len(value))])
        case 1 if value:
            value.pop(rng.randrange(len(value)))
        case _ if value:
            value[rng.randrange(len(value))] = rng.choice(VALUES)
        case _:
            value.append(rng.choice(VALUES))


CHANGES: Final[tuple[Change, ...]] = (changed_tar, changed_part, changed_section, changed_index, changed_listing, changed_about)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@given(seed=st.integers(0, (1 << 32) - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_bundles_are_never_called_clean(change: Change, bundle: Path, seed: int) -> None:
    path = bundle.with_name("changed.kfb")
    path.write_bytes(change(random.Random(seed), bundle))
    started, result = time.process_time(), None
    with traced_memory() as peak_bytes, suppress(SourceError, UsageError):
        result = kf.scan([str(path)])
    assert time.process_time() - started < SECONDS
    assert peak_bytes() < MAX_BYTES
    if result is None:
        return
    gaps = [gap for gap in json.loads(result.to_json())["incomplete"] if not gap["reason"].startswith("needs the records")]
    hiding = [gap for gap in gaps if gap["broker"] is None or gap["path"].endswith(".log")]  # a missing small file hides no records
    assert not (hiding and result.verdict in {"clean", "info"}), hiding
