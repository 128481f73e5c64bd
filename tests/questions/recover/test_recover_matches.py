"""Which lost records survive, compared with a naive count over lists."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import given, strategies as st

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.questions.recover.recoveries import recovered
from tests.support.brokers import put_replica
from tests.support.segments import BASE_TIMESTAMP


class Sent(NamedTuple):
    """A record: value, time, and (producer id, sequence), (-1, -1) without a producer."""

    value: str
    time: int
    producer: tuple[int, int] = (-1, -1)


SENT = st.builds(
    Sent, st.sampled_from("vw"), st.integers(0, 3), st.one_of(st.just((-1, -1)), st.tuples(st.integers(7, 8), st.integers(0, 2)))
)
LOGS = st.lists(st.lists(SENT, min_size=1, max_size=3), min_size=1, max_size=5)
"""Batches; each record of a producer is written as a separate batch."""


def written(records: Sequence[Sequence[Sent]], start: int, epoch: int, codec: str) -> bytes:
    data = b""
    for batch in records:
        for run in [batch] if all(sent.producer[0] < 0 for sent in batch) else [[sent] for sent in batch]:
            producer_id, sequence = run[0].producer
            rows = [RecordToWrite(b"k", sent.value.encode(), timestamp_delta=sent.time) for sent in run]
            data += write_batch(
                rows,
                base_offset=start,
                base_timestamp=BASE_TIMESTAMP,
                partition_leader_epoch=epoch,
                compression_type=codec,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
            )
            start += len(run)
    return data


def naive(lost: Sequence[Sent], kept: Sequence[Sent]) -> list[int]:
    """Indices of lost records that do not survive: each surviving record matches the first possible lost record."""
    strong, weak = set[int](), set[int]()
    for sent in kept:
        is_idempotent = sent.producer[0] >= 0
        same = [at for at, other in enumerate(lost) if is_idempotent and other[2:] == sent[2:] and other.value == sent.value]
        free = [at for at in same if at not in strong]
        if free:
            strong.add(free[0])
            weak.discard(free[0])
            continue
        equal = [at for at, other in enumerate(lost) if other[:2] == sent[:2] and at not in strong | weak]
        equal = [at for at in equal if not is_idempotent or lost[at].producer[0] != sent.producer[0]]
        weak.update(equal[:1])
    return [at for at in range(len(lost)) if at not in strong | weak]


COUNTED: Counter[str] = Counter()


@given(lost=LOGS, kept=LOGS, codec=st.sampled_from(["none", "lz4"]))
def test_surviving_records_equal_a_naive_count(lost: list[list[Sent]], kept: list[list[Sent]], codec: str) -> None:
    """The surviving log continues with a record that equals no lost one, so that the logs differ immediately."""
    ours = [Sent("of the survivor", 9), *(sent for batch in kept for sent in batch)]
    theirs = [Sent("of the lost log", 8), *(sent for batch in lost for sent in batch)]
    with TemporaryDirectory() as folder:
        for broker, log, epoch in ((1, [ours[:1], *kept], 1), (2, [theirs[:1], *lost], 0)):
            put_replica(Path(folder), broker, written([[Sent("common", 0)]], 0, 0, codec) + written(log, 1, epoch, codec))
        done = recovered(Path(folder), 1)
    assert done.reasons.get("recovered", 0) == len(done.rows)
    if any(mine[:2] == other[:2] for mine, other in zip(ours, theirs, strict=False)):
        return  # records equal at an offset are common to both logs
    assert [row.record.offset for row in done.rows] == [1 + at for at in naive(theirs, ours)]
    COUNTED.update(done.reasons)


def test_the_examples_have_matches_of_each_kind() -> None:
    assert min(COUNTED[reason] for reason in ("recovered", "surviving", "surviving_by_content")) > 0, COUNTED
