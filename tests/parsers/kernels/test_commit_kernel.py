"""Skipping commits that a later commit supersedes does not change the replayed state, in either form of the kernel."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.coordinators import GroupLog
from kafka_forensics.parsers.kernels.commits import Superseded
from kafka_forensics.parsers.log.segment import SegmentReader
from kafka_forensics.scanning.witnesses.coordinators import replay_log
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch, write_marker
from tests.support.brokers import put_consumer_offsets
from tests.support.groups import TOPIC_ID_BYTES, commit_key, commit_value, coordinator_batches, group_key, group_value
from tests.support.memory import MemoryFile
from tests.support.segments import BASE_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEYS = [commit_key("g", "t", number) for number in range(2)] + [commit_key("ü"), commit_key("g", record_type=0)]
VALUES = st.builds(
    lambda version, offset, metadata: commit_value(
        offset, version=version, metadata=metadata, topic_id=TOPIC_ID_BYTES if version == 4 and offset % 2 else None
    ),
    st.integers(0, 4),
    st.integers(0, 9),
    st.sampled_from(["", "m", "é"]),
)
RECORD = st.one_of(
    st.builds(RecordToWrite, st.sampled_from(KEYS), VALUES),
    st.builds(RecordToWrite, st.sampled_from(KEYS), VALUES),
    st.builds(RecordToWrite, st.sampled_from(KEYS), st.none() | st.just(b"\0\7") | st.just(b"\0\3short")),
    st.just(RecordToWrite(group_key("g"), group_value())),
    st.just(RecordToWrite(group_key("g"), b"\0\7")),
    st.just(RecordToWrite(b"\0\1\0\7x", b"")),
    st.builds(RecordToWrite, st.sampled_from(KEYS), VALUES, st.just((("h", b""),))),
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of a few records of the same few keys, some in transactions, some compressed, some malformed under a right CRC."""
    data, offset = b"", 0
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["plain"] * 6 + ["transaction", "marker", "gzip", "malformed"]))
        records = draw(st.lists(RECORD, min_size=1, max_size=4))
        if kind == "marker":
            data += write_marker(
                draw(st.booleans()), base_offset=offset, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0
            )
            offset += 1
            continue
        batch = write_batch(
            records,
            base_offset=offset,
            base_timestamp=BASE_TIMESTAMP,
            max_timestamp=BASE_TIMESTAMP + 1 + len(data),
            partition_leader_epoch=draw(st.integers(0, 9)),
            producer_id=7 if kind == "transaction" else -1,
            producer_epoch=0 if kind == "transaction" else -1,
            base_sequence=1000 + offset if kind == "transaction" else -1,
            is_transactional=kind == "transaction",
            compression_type="gzip" if kind == "gzip" else "none",
        )
        if kind == "malformed":
            at = draw(st.integers(57, len(batch) - 1))
            batch = fix_crc(batch[:at] + bytes([draw(st.integers(0, 255))]) + batch[at + 1 :])
        data += batch
        offset += len(records)
    return data


def replay(log: bytes, superseded: Superseded | None) -> GroupLog:
    with tempfile.TemporaryDirectory() as folder:
        put_consumer_offsets(Path(folder) / "b1", log)
        inputs = gather([folder], ScanOptions())
        read = replay_log(inputs, inputs.internal[0], superseded)
        read.malformed = []  # their places name the temporary folder
        return read


@given(logs())
def test_skipping_superseded_commits_does_not_change_the_replay(log: bytes) -> None:
    whole = replay(log, None)
    assert replay(log, Superseded(compiled=False)) == whole
    assert replay(log, Superseded(compiled=True)) == whole


def batches_to_read(log: bytes, *, compiled: bool) -> list[bool]:
    found: list[bool] = []
    superseded = Superseded(compiled=compiled)

    def inspect(buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> list[Damage]:
        found.extend(superseded.alive(buffer, position, columns, first, end).tolist())
        return []

    for chunk in SegmentReader(MemoryFile(log), inspect=inspect).chunks():
        assert chunk.columns[BatchColumn.CRC].size
    return found


@pytest.mark.parametrize("compiled", [False, True])
def test_a_batch_is_read_unless_later_commits_supersede_all_its_records(compiled: bool) -> None:
    key, other = commit_key("g"), commit_key("h")
    assert batches_to_read(coordinator_batches(*[(key, commit_value(number)) for number in range(5)]), compiled=compiled) == [
        False
    ] * 4 + [True]
    falling_offsets = [(key, commit_value(9)), (key, commit_value(3)), (key, commit_value(4))]
    assert batches_to_read(coordinator_batches(*falling_offsets), compiled=compiled) == [True, False, True]
    with_tombstone = [(key, commit_value(1)), (key, None), (key, commit_value(2))]
    assert batches_to_read(coordinator_batches(*with_tombstone), compiled=compiled) == [True, True, True]
    with_group_record = [(key, commit_value(1)), (group_key(), group_value()), (key, commit_value(2)), (other, commit_value(1))]
    assert batches_to_read(coordinator_batches(*with_group_record), compiled=compiled) == [False, True, True, True]
    pair = write_batch(
        [RecordToWrite(key, commit_value(5)), RecordToWrite(other, commit_value(5))], base_offset=0, base_timestamp=BASE_TIMESTAMP
    )
    assert batches_to_read(pair + coordinator_batches((key, commit_value(6)), start=2), compiled=compiled) == [True, True]
    both = coordinator_batches((key, commit_value(6)), (other, commit_value(6)), start=2)
    assert batches_to_read(pair + both, compiled=compiled) == [False, True, True]
