"""Small files have Kafka's layout, byte for byte, and are read back; numbers that do not fit are refused."""

import re
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.errors import FormatError
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.model.pseudonyms import NameKind
from kafka_forensics.parsers import checkpoints, indexes
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.questions.collect import PseudonymMap
from kafka_forensics.storage.source import BytesFile
from kafka_forensics.writers import files
from kafka_forensics.writers.redacted_files import redacted_file
from tests.support.memory import MemoryFile
from tests.support.segments import write_offset_index, write_time_index

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
PRODUCERS = st.builds(ProducerEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64)


SNAPSHOT = files.write_producer_snapshot([ProducerEntry(1, 2, 3, 4, 5, 6, 7, -1)])
ABORTED = AbortedTxn(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=-1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (write_offset_index([(0x0102, 0x0A0B0C0D)], 1), "00000101 0a0b0c0d"),
        (write_time_index([(0x0102030405060708, 12)], 2), "0102030405060708 0000000a"),
        (files.write_transaction_index([ABORTED]), "0000 0000000000000001 0000000000000002 0000000000000003 ffffffffffffffff"),
        (SNAPSHOT[:2], "0001"),
        (SNAPSHOT[6:], "00000001 0000000000000001 0002 00000003 0000000000000004 00000005 0000000000000006 00000007" + "ff" * 8),
    ],
    ids=["index", "timeindex", "txnindex", "version of a snapshot", "snapshot after its CRC"],
)
def test_index_files_have_kafkas_bytes(data: bytes, expected: str) -> None:
    assert data == bytes.fromhex(expected)


def test_checkpoints_and_identity_files_have_kafkas_text() -> None:
    assert files.write_leader_epochs([EpochEntry(0, 0), EpochEntry(2, 300)]) == b"0\n2\n0 0\n2 300\n"
    assert files.write_offset_checkpoint({("t", 0): 5}) == b"0\n1\nt 0 5\n"
    assert files.write_partition_metadata("dMwERMehRq6SQBEYsfIf9A") == b"version: 0\ntopic_id: dMwERMehRq6SQBEYsfIf9A"
    assert files.write_meta_properties(node_id=1, cluster_id="c=d") == b"#\nversion=1\nnode.id=1\ncluster.id=c\\=d\n"
    assert files.write_meta_properties(version=0, node_id=1) == b"#\nversion=0\nbroker.id=1\n"


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(FormatError):
        write_offset_index([(2**31, 0)], 0)
    with pytest.raises(FormatError):
        write_time_index([(2**63, 0)], 0)
    with pytest.raises(FormatError):
        files.write_transaction_index([AbortedTxn(2**63, 0, 0, 0)])
    with pytest.raises(FormatError):
        files.write_producer_snapshot([ProducerEntry(0, 2**15, 0, 0, 0, 0, 0, 0)])


@given(st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=20), st.integers(0, 2**62))
def test_indexes_are_read_back(entries: list[tuple[int, int]], base: int) -> None:
    absolute = [(base + relative, position) for relative, position in entries]
    index = indexes.parse_offset_index(MemoryFile(write_offset_index(absolute, base)), base)
    assert list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True)) == absolute
    swapped = [(position, offset) for offset, position in absolute]
    times = indexes.parse_time_index(MemoryFile(write_time_index(swapped, base)), base)
    assert list(zip(times.timestamps.tolist(), times.offsets.tolist(), strict=True)) == swapped
    assert index.damage == times.damage == []


@given(st.lists(st.tuples(INT64, INT64, INT64, st.integers(1, 2**63 - 1)), max_size=10))
def test_transaction_indexes_are_read_back(rows: list[tuple[int, int, int, int]]) -> None:
    entries = [AbortedTxn(*row, position=number * 34) for number, row in enumerate(rows)]
    index = indexes.parse_transaction_index(MemoryFile(files.write_transaction_index(entries)))
    assert (index.entries, index.damage) == (entries, [])


@given(st.lists(PRODUCERS, max_size=10))
def test_producer_snapshots_are_read_back(entries: list[ProducerEntry]) -> None:
    snapshot = indexes.parse_producer_snapshot(MemoryFile(files.write_producer_snapshot(entries)), 0)
    assert (snapshot.entries, snapshot.damage) == (entries, [])


@given(st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=10))
def test_leader_epochs_are_read_back(entries: list[EpochEntry]) -> None:
    epochs = checkpoints.parse_leader_epochs(MemoryFile(files.write_leader_epochs(entries)))
    assert (epochs.entries, epochs.damage) == (entries, [])


TOPIC_ID: Final = "EbZFS3wKSOSOZCc3KwMkgg"
NAMES: Final = PseudonymMap("00" * 32, {})
PARSERS: Final[dict[FileKind, Any]] = {
    FileKind.REPLICATION_OFFSET_CHECKPOINT: checkpoints.parse_offset_checkpoint,
    FileKind.LEADER_EPOCH_CHECKPOINT: checkpoints.parse_leader_epochs,
    FileKind.META_PROPERTIES: checkpoints.parse_meta_properties,
    FileKind.PARTITION_METADATA: checkpoints.parse_partition_metadata,
    FileKind.CLEAN_SHUTDOWN: checkpoints.parse_clean_shutdown,
}
SOUND: Final = {
    FileKind.REPLICATION_OFFSET_CHECKPOINT: b"0\n2\norders 0 7\n__consumer_offsets 3 4\n",
    FileKind.LEADER_EPOCH_CHECKPOINT: b"0\n2\n0 0\n3 300\n",
    FileKind.META_PROPERTIES: f"#\nversion=1\nnode.id=3\ncluster.id=hush\ndirectory.id={TOPIC_ID}\n".encode(),
    FileKind.PARTITION_METADATA: f"version: 0\ntopic_id: {TOPIC_ID}".encode(),
    FileKind.CLEAN_SHUTDOWN: b'{"version":0,"brokerEpoch":35}',
    FileKind.QUORUM_STATE: b'{"clusterId":"hush","leaderId":1,"currentVoters":[{"voterId":1}],"data_version":0}',
}
ALLOWED: Final = re.compile(
    rb"[0-9+\-\s:=#.?{}\[\],\"\0\\]|version|topic_id|other|u\b|node\.id|broker\.id|cluster\.id|directory\.id|topic-[0-9a-f]{12}|cluster-[0-9a-f]{12}"
    rb"|__[a-z_]+|[A-Za-z0-9_-]{22}|brokerEpoch|clusterId|leaderId|leaderEpoch|votedId|votedDirectoryId|appliedOffset|currentVoters"
    rb"|voterId|data_version|null|true|false"
)
"""Everything that a redacted file may contain: numbers, ids, pseudonyms and Kafka's names."""


def rewritten(kind: FileKind, data: bytes) -> bytes:
    file = redacted_file(kind, BytesFile(data), NAMES)
    return file.read_at(0, file.size_in_bytes)


def read(kind: FileKind, data: bytes) -> Any:
    """(fields that a parser reads from a file, kinds and details of its damage)."""
    parsed = PARSERS[kind](BytesFile(data))
    damage = [(row.kind, row.detail) for row in parsed.damage]
    redacted = {name: getattr(parsed, name) for name in type(parsed).__slots__ if name != "damage"}
    return redacted, damage


UNUSUAL_LINES: Final = [
    b"hush",
    b"0",
    b"7",
    b"hush 1 2",
    b"a: b",
    b"topic_id: x",
    b"version: y",
    b"version=x",
    b"=",
    b"\\u12",
    b"{",
    b"\0",
]


@st.composite
def any_file(draw: st.DrawFn, kind: FileKind) -> bytes:
    """Lines of a valid file and others, in any order, and any bytes."""
    lines = SOUND[kind].splitlines(keepends=True)
    unusual = st.sampled_from(UNUSUAL_LINES)
    chosen = draw(st.lists(st.sampled_from(lines) | unusual | st.binary(max_size=12), max_size=9))
    ends = st.sampled_from([b"", b"\n", b"\r\n", b"\r", b" "])
    return b"".join(line + draw(ends) for line in chosen)


@pytest.mark.parametrize("kind", SOUND)
@given(data=st.data())
def test_redacted_files_have_only_numbers_ids_and_pseudonyms(kind: FileKind, data: st.DataObject) -> None:
    redacted = rewritten(kind, data.draw(any_file(kind)))
    assert ALLOWED.sub(b"", redacted) == b""
    assert b"hush" not in redacted


@pytest.mark.parametrize("kind", PARSERS)
@given(data=st.data())
def test_any_redacted_file_gives_the_same_facts(kind: FileKind, data: st.DataObject) -> None:
    before = data.draw(any_file(kind))
    expected, damage = read(kind, before)
    if "offsets" in expected:
        expected["offsets"] = {
            (NAMES.pseudonym(NameKind.TOPIC, topic), partition): at for (topic, partition), at in expected["offsets"].items()
        }
    if expected.get("cluster_id") is not None:
        expected["cluster_id"] = NAMES.pseudonym(NameKind.CLUSTER, expected["cluster_id"])
    redacted, redacted_damage = read(kind, rewritten(kind, before))
    assert redacted == expected
    assert {row["reason"] for _, row in redacted_damage} == {row["reason"] for _, row in damage}
    if kind is not FileKind.META_PROPERTIES:  # the writer changes the order of its lines
        assert redacted_damage == damage


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        pytest.param(FileKind.CLEANER_OFFSET_CHECKPOINT, b"\n" * (2 << 20), id="lines", marks=pytest.mark.nightly),
        pytest.param(FileKind.LEADER_EPOCH_CHECKPOINT, b"hush " * (1 << 15) + b"\n0 hush\n", id="a long line"),
    ],
)
def test_redacted_malformed_files_do_not_grow_and_have_the_same_damage(kind: FileKind, data: bytes) -> None:
    redacted = rewritten(kind, data)
    assert len(redacted) <= len(data)
    assert b"hush" not in redacted
    parse = PARSERS.get(kind, checkpoints.parse_offset_checkpoint)
    reasons = [[row.detail["reason"] for row in parse(BytesFile(content)).damage] for content in (data, redacted)]
    assert reasons[0] == reasons[1]
    assert {"too_many_lines", "line_too_long"} & {*reasons[0]} or "more" in reasons[0]


@pytest.mark.parametrize("kind", SOUND)
def test_files_without_names_are_unchanged(kind: FileKind) -> None:
    for data in (b"", bytes(100)):
        assert rewritten(kind, data) == data
    assert rewritten(FileKind.INDEX, SOUND[kind]) == SOUND[kind]
    if b"hush" not in SOUND[kind] and b"orders" not in SOUND[kind]:
        assert rewritten(kind, SOUND[kind]) == SOUND[kind]
