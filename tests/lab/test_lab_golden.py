"""The golden dumps hang together: inputs, outputs, manifest; and the mutations do what their names say."""

import gzip
import json
import struct
import zlib

import google_crc32c
import pytest

from lab.dump_facts import DECODERS, Row, as_table, from_table, record
from lab.golden_inputs import BROKEN_INDEXES, BROKEN_LOGS, TAKEN
from lab.make_golden import GOLDEN, INPUTS, decoders, input_files, table_name
from lab.make_samples import SAMPLE_LOGS
from lab.mutations import batch_ranges, gzip_message, in_batch, legacy_log, message, patched

HEALTHY_NAME = f"{TAKEN['idempotent'][1]}.log"


def crc_is_right(batch: bytes) -> bool:
    return bool(google_crc32c.value(batch[21:]) == struct.unpack_from(">I", batch, 17)[0])


@pytest.fixture(scope="module")
def healthy() -> bytes:
    return (INPUTS / "idempotent" / HEALTHY_NAME).read_bytes()


def test_every_input_has_a_table_and_no_other_is_there() -> None:
    files = input_files()
    assert sorted(map(table_name, files)) == sorted(path.name for path in GOLDEN.glob("*.tsv"))
    assert {name.partition("/")[0] for name in files} == {path.name for path in INPUTS.iterdir()}
    assert set(decoders(files).values()) == set(DECODERS.values())


def test_golden_tables_are_written_as_they_are_read_and_name_no_place_on_the_machine_that_made_them() -> None:
    for path in GOLDEN.glob("*.tsv"):
        text = path.read_text()
        assert as_table(from_table(text)) == text
        assert "/tmp" not in text  # noqa: S108 - looked for, not used


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (
            "| offset: 7 isValid: true crc: null keySize: 8 valueSize: 4 CreateTime: 9 sequence: 3 headerKeys: [b c] key: 1\n2",
            {"sequence": "3", "headerKeys": "[b c]", "said": "key: 1\n2"},
        ),
        (
            "| offset: 7 CreateTime: 9 keySize: 8 valueSize: 4 isValid: true crc: 35061} key: k payload: v",
            {"isvalid": "true", "crc": "35061", "said": "key: k payload: v"},
        ),
        (
            "| offset: 7 CreateTime: 9 keySize: 8 valueSize: 4 sequence: -1 headerKeys: []",
            {"sequence": "-1", "headerKeys": "[]", "said": ""},
        ),
    ],
    ids=["2.8", "3.9", "4.3"],
)
def test_lines_of_records_as_each_version_prints_them(line: str, row: Row) -> None:
    own = {"span": "record", "offset": "7", "timestampType": "CreateTime", "timestamp": "9", "keySize": "8", "valueSize": "4"}
    assert record(line) == own | row


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
