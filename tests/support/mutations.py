"""Hypothesis strategies: segments that a broker could have written, and the same after something happened to them."""

from typing import Any

from hypothesis import strategies as st

from kafka_forensics.writers.batches import write_batch
from tests.support.segments import BASE_TIMESTAMP, batch, changed, flipped, legacy_entry, marker

PRODUCERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "producer_id": st.integers(2**40, 2**41),
        "producer_epoch": st.integers(100, 2**15 - 1),
        "base_sequence": st.integers(2**16, 2**31 - 1),
        "is_transactional": st.booleans(),
    }
)
"""Header fields of an idempotent producer, none of which is another's, nor fits into one that is narrower."""
_VALUES = st.one_of(st.binary(max_size=40), st.just(batch(1, 1)), st.just(bytes(80)))


@st.composite
def batch_lists(draw: st.DrawFn, *, max_size: int = 6) -> list[bytes]:
    """Whole batches whose offsets join, legacy entries before magic 2 if there are any; markers and emptied batches among them.

    No two fields of a header have one value by the way they are made: a reader that takes one for another is found out.
    """
    made: list[bytes] = []
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 2))):
        stamp = BASE_TIMESTAMP + draw(st.integers(-99, 99))
        made.append(legacy_entry(offset, draw(st.integers(0, 1)), value=draw(_VALUES), timestamp=stamp))
        offset += 1
    for _ in range(draw(st.integers(0, max_size))):
        kind, epoch, producer = draw(st.integers(0, 9)), draw(st.integers(0, 2)), draw(PRODUCERS)
        if kind < 2:
            commit, coordinator_epoch = draw(st.booleans()), draw(st.integers(0, 2**31 - 1))
            numbers = {"producer": producer["producer_id"], "producer_epoch": producer["producer_epoch"], "epoch": epoch}
            stamp = BASE_TIMESTAMP + draw(st.integers(-99, 99))
            made.append(marker(offset, commit=commit, coordinator_epoch=coordinator_epoch, timestamp=stamp, **numbers))
            offset += 1
        elif kind == 2:
            delta = draw(st.integers(0, 3))
            emptied = write_batch(
                [],
                base_offset=offset,
                base_timestamp=BASE_TIMESTAMP - 5,
                max_timestamp=BASE_TIMESTAMP + offset,
                partition_leader_epoch=epoch,
                last_offset_delta=delta,
                **producer,
            )
            made.append(emptied)
            offset += delta + 1
        else:
            count = draw(st.integers(1, 3))
            codec = draw(st.sampled_from(["none", "none", "gzip"]))
            given = producer if kind < 7 else {}
            made.append(batch(offset, count, epoch=epoch, value=draw(_VALUES), compression_type=codec, **given))
            offset += count
    return made


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Bytes of a segment, whole or after up to three accidents; sometimes any bytes at all."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.binary(max_size=300))
    data = b"".join(draw(batch_lists()))
    for _ in range(draw(st.integers(0, 3))):
        data = _accident(draw, data)
    return data


def _accident(draw: st.DrawFn, data: bytes) -> bytes:
    if not data:
        return draw(st.sampled_from([b"", bytes(30), b"\xff" * 70]))
    position = draw(st.integers(0, len(data) - 1))
    end = draw(st.integers(position, min(position + 90, len(data))))
    which = draw(st.integers(0, 7))
    if which <= 2:
        return flipped(data, position, draw(st.integers(0, 7)))
    if which == 3:
        return data[:position]
    if which == 4:
        return data[:position] + data[end:]
    if which == 5:
        return changed(data, position, bytes(end - position))
    if which == 6:
        return data + bytes(draw(st.integers(1, 100)))
    return data[:position] + draw(st.binary(max_size=80)) + data[position:]
