"""Whatever bytes stand in logs: every offset that a plan calls lost is counted once, and what is given stands there."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_forensics.questions.recover import Undecided
from tests.oracles.decoder import batches
from tests.support.recoveries import recovered
from tests.support.replicas import put_replica
from tests.support.strategies import any_segments, batch_lists


@given(
    common=batch_lists(max_size=3),
    kept=any_segments(),
    lost=any_segments(),
    keep=st.sampled_from([1, 2]),
    watermark=st.integers(0, 12),
)
def test_any_bytes_add_up(common: list[bytes], kept: bytes, lost: bytes, keep: int, watermark: int) -> None:
    with TemporaryDirectory() as folder:
        for broker, log in ((1, kept), (2, lost)):
            put_replica(Path(folder), broker, b"".join(common) + log, high_watermark=watermark)
        done = recovered(Path(folder), keep)
    if isinstance(done.one.side, Undecided):
        assert done.rows == []
        return
    assert done.reasons.get("recovered", 0) == len(done.rows)
    assert min(value for value in done.reasons.values()) > 0 if done.reasons else done.one.at_most == 0


@settings(max_examples=40)
@given(common=batch_lists(max_size=2), lost=batch_lists(max_size=5))
def test_whole_batches_are_given_as_another_decoder_reads_them(common: list[bytes], lost: list[bytes]) -> None:
    """The surviving log ends where the other goes on: nothing survives, and only what transactions left out is not given."""
    both, alone = b"".join(common), b"".join(common + shifted(common, lost))
    with TemporaryDirectory() as folder:
        put_replica(Path(folder), 1, both)
        put_replica(Path(folder), 2, alone)
        done = recovered(Path(folder), 1)
    stands = {record.offset: record for batch in batches(alone) if not batch.attributes & 0x20 for record in batch.records}
    end = max((batch.last_offset + 1 for batch in batches(both)), default=0)
    for row in done.rows:
        record = stands[row.record.offset]
        assert (row.record.key, row.record.value, row.record.headers) == (record.key, record.value, record.headers)
        assert row.record.timestamp == (-1 if record.timestamp is None else record.timestamp)
        assert row.record.offset >= end
    plain = [batch for batch in batches(alone) if batch.base_offset >= end and not batch.attributes & 0x30 and batch.magic == 2]
    assert {record.offset for batch in plain for record in batch.records} <= {row.record.offset for row in done.rows}


def shifted(common: list[bytes], later: list[bytes]) -> list[bytes]:
    """Batches of the newest format with offsets behind those of others; base offsets are outside of the CRC."""
    end = max((batch.last_offset + 1 for data in common for batch in batches(data)), default=0)
    moved = []
    for data in later:
        (batch,) = batches(data)
        if batch.magic == 2:
            moved.append(end.to_bytes(8, "big") + data[8:])
            end += batch.last_offset_delta + 1
    return moved
