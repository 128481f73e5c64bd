"""Hypothesis strategies: segments that a broker could have written, and the same after something happened to them."""

from hypothesis import strategies as st

from kafka_forensics.writers.batches import write_marker
from tests.support.segments import BASE_TIMESTAMP, batch, changed, flipped, legacy_entry

_VALUES = st.one_of(st.binary(max_size=40), st.just(batch(1, 1)), st.just(bytes(80)))


@st.composite
def batch_lists(draw: st.DrawFn, *, max_size: int = 6) -> list[bytes]:
    """Whole batches whose offsets join, legacy entries before magic 2 if there are any; markers among them."""
    made: list[bytes] = []
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 2))):
        made.append(legacy_entry(offset, draw(st.integers(0, 1)), value=draw(_VALUES)))
        offset += 1
    for _ in range(draw(st.integers(0, max_size))):
        if draw(st.integers(0, 4)) == 0:
            made.append(
                write_marker(
                    draw(st.booleans()),
                    base_offset=offset,
                    producer_id=5,
                    producer_epoch=0,
                    coordinator_epoch=draw(st.integers(0, 2**31 - 1)),
                    timestamp=BASE_TIMESTAMP,
                )
            )
            offset += 1
        else:
            count = draw(st.integers(1, 3))
            codec = draw(st.sampled_from(["none", "none", "gzip"]))
            epoch = draw(st.integers(0, 2))
            made.append(batch(offset, count, epoch=epoch, value=draw(_VALUES), compression_type=codec))
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
