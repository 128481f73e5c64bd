"""The golden dumps hang together: inputs, outputs, manifest; and the mutations do what their names say."""

import gzip
import json
import struct
import zlib
from typing import Any

import google_crc32c
import pytest

from lab.golden_inputs import BROKEN_INDEXES, BROKEN_LOGS, TAKEN
from lab.make_golden import GOLDEN, modes
from lab.make_samples import SAMPLE_LOGS
from lab.mutations import batch_ranges, gzip_message, in_batch, legacy_log, message, patched

INPUTS = GOLDEN / "inputs"
HEALTHY_NAME = f"{TAKEN['idempotent'][1]}.log"
MANIFEST: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_text())


def crc_is_right(batch: bytes) -> bool:
    return bool(google_crc32c.value(batch[21:]) == struct.unpack_from(">I", batch, 17)[0])


@pytest.fixture(scope="module")
def healthy() -> bytes:
    return (INPUTS / "idempotent" / HEALTHY_NAME).read_bytes()


def test_every_golden_file_is_in_the_manifest_once_and_every_input_was_dumped_in_all_modes() -> None:
    assert sorted(case["stdout"] for case in MANIFEST["cases"]) == sorted(path.name for path in GOLDEN.glob("*.txt"))
    wanted = {
        (path.relative_to(INPUTS).as_posix(), mode, tuple(options))
        for path in INPUTS.rglob("*")
        if path.is_file()
        for mode, options in modes(path.parent.name, path.suffix).items()
    }
    assert {(case["file"], case["mode"], tuple(case["arguments"])) for case in MANIFEST["cases"]} == wanted


def test_golden_dumps_name_no_place_on_the_machine_that_made_them() -> None:
    for case in MANIFEST["cases"]:
        printed = (GOLDEN / case["stdout"]).read_text(errors="replace")
        assert printed.startswith(f"Dumping {case['file'].rpartition('/')[2]}\n")
        assert "/tmp" not in printed + case["stderr"]  # noqa: S108 - looked for, not used


def test_batches_of_a_healthy_segment_tile_it(healthy: bytes) -> None:
    ranges = batch_ranges(healthy)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == len(healthy)
    assert all(crc_is_right(healthy[start:end]) for start, end in ranges)


@pytest.mark.parametrize("case", sorted(BROKEN_LOGS))
def test_broken_inputs_are_what_their_maker_makes(case: str, healthy: bytes) -> None:
    broken = (INPUTS / case / HEALTHY_NAME).read_bytes()
    assert broken == BROKEN_LOGS[case](healthy)
    assert broken != healthy


@pytest.mark.parametrize("case", sorted(BROKEN_INDEXES))
def test_broken_indexes_stand_beside_an_unharmed_log(case: str, healthy: bytes) -> None:
    suffix, mutate = BROKEN_INDEXES[case]
    name = HEALTHY_NAME.replace(".log", suffix)
    assert (INPUTS / case / name).read_bytes() == mutate((INPUTS / "idempotent" / name).read_bytes())
    assert (INPUTS / case / HEALTHY_NAME).read_bytes() == healthy


def test_a_sealed_patch_has_a_right_crc_and_an_open_one_a_wrong_one(healthy: bytes) -> None:
    start, end = batch_ranges(healthy)[2]
    for sealed in (True, False):
        broken = in_batch(healthy, 2, 57, b"\0\0\0\1", sealed=sealed)
        assert crc_is_right(broken[start:end]) is sealed
        assert (broken[:start], broken[end:]) == (healthy[:start], healthy[end:])
    assert patched(b"abcdef", 2, b"XY") == b"abXYef"


def test_an_old_message_has_its_own_crc() -> None:
    entry = message(7, 1, b"k", None, timestamp=5)
    offset, size, crc = struct.unpack_from(">qiI", entry)
    assert (offset, size) == (7, len(entry) - 12)
    assert crc == zlib.crc32(entry[16:])
    assert entry[16:18] == b"\1\0"


@pytest.mark.parametrize(("magic", "offsets"), [(0, [10, 11]), (1, [0, 1])])
def test_a_wrapper_carries_the_last_offset_and_inner_messages(magic: int, offsets: list[int]) -> None:
    wrapper = gzip_message(10, magic, [b"a", b"b"])
    assert struct.unpack_from(">q", wrapper) == (11,)
    inner = gzip.decompress(wrapper[wrapper.index(b"\x1f\x8b") :])
    assert [struct.unpack_from(">q", inner, start)[0] for start, _ in batch_ranges(inner)] == offsets
    assert len(batch_ranges(legacy_log(magic))) == 5


def test_what_must_be_found_is_said_of_every_sample() -> None:
    expected = json.loads((SAMPLE_LOGS / "expected.json").read_text())
    assert sorted(expected) == sorted(path.name for path in SAMPLE_LOGS.iterdir() if path.is_dir())
    for name, one in expected.items():
        assert one["exit_code"] == (1 if one["findings"] else 0)
        assert sorted(path.name for path in (SAMPLE_LOGS / name).iterdir()) == ["broker-1", "broker-2", "broker-3"]


def test_the_samples_hold_what_must_be_found() -> None:
    log = f"{0:020}.log"
    audit = {broker: (SAMPLE_LOGS / "unclean-election" / f"broker-{broker}" / "audit-0" / log).read_bytes() for broker in (1, 2, 3)}
    assert audit[1].startswith(audit[3])
    assert audit[2].startswith(audit[3])
    assert [audit[broker].count(b'"event":"login"') for broker in (1, 2, 3)] == [300, 370, 300]
    assert audit[1].count(b'"event":"login-again"') == 45
    ledger = {
        broker: (SAMPLE_LOGS / "silent-divergence" / f"broker-{broker}" / "ledger-0" / log).read_bytes() for broker in (1, 2, 3)
    }
    assert ledger[2] == ledger[3]
    assert (ledger[1].count(b"payment-"), ledger[2].count(b"after-")) == (3, 3)
