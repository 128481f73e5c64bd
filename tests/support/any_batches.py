"""Strategies for logs of any batches: of every format and codec, sound, broken behind a right CRC, or no batches at all."""

from hypothesis import strategies as st

from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch, write_legacy_entry
from tests.support.segments import marker, write_legacy_wrapper

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = st.none() | st.binary(max_size=6)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "trace"]), SMALL), max_size=3)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A batch of magic 2: of records, plain or compressed, by time of client or broker, in a transaction or not; or a marker."""
    base_offset = draw(st.integers(0, 2**40))
    if draw(st.integers(0, 5)) == 0:
        commit, timestamp = draw(st.booleans()), draw(st.integers(0, 2**41))
        return marker(base_offset, commit=commit, timestamp=timestamp, producer_epoch=1, coordinator_epoch=2)
    records = draw(st.lists(st.builds(RecordToWrite, SMALL, SMALL, HEADERS, st.integers(-9, 99)), max_size=5))
    in_transaction = draw(st.booleans())
    return write_batch(
        records,
        base_offset=base_offset,
        base_timestamp=draw(st.integers(0, 2**41)),
        compression_type=draw(st.sampled_from(CODECS)),
        timestamp_type=draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
        is_transactional=in_transaction,
        producer_id=7 if in_transaction else -1,
        producer_epoch=1 if in_transaction else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if in_transaction else -1,
    )


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A batch whose CRC is right and in which bytes behind the header are not."""
    batch = bytearray(draw(written()))
    for _ in range(draw(st.integers(1, 3))):
        batch[draw(st.integers(57, len(batch) - 1))] = draw(st.integers(0, 255))
    return fix_crc(bytes(batch))


@st.composite
def of_old_format(draw: st.DrawFn) -> bytes:
    """A message of magic 0 or 1, or several in a compressed one."""
    magic, offset = draw(st.integers(0, 1)), draw(st.integers(10, 2**40))
    timestamp = draw(st.integers(0, 2**41)) if magic else -1
    if draw(st.booleans()):
        return write_legacy_entry(draw(SMALL), draw(SMALL), offset=offset, magic=magic, timestamp=timestamp)
    entries = [
        write_legacy_entry(
            draw(SMALL), draw(SMALL), offset=number if magic else offset - 2 + number, magic=magic, timestamp=timestamp
        )
        for number in range(3)
    ]
    kind = draw(st.sampled_from(["CreateTime", "LogAppendTime"])) if magic else "CreateTime"
    return write_legacy_wrapper(
        entries, offset=offset, magic=magic, compression_type="gzip", timestamp=timestamp, timestamp_type=kind
    )


LOG = st.lists(written() | broken() | of_old_format() | st.binary(max_size=40), max_size=8).map(b"".join)
