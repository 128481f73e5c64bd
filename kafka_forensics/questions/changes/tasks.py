"""The task that judges one partition over several snapshots: bytes in, bytes out, as those of `engine.tasks`."""

from collections.abc import Iterator
from functools import lru_cache

from kafka_forensics.compiled import use_compiled
from kafka_forensics.engine.serializable import make_serializable
from kafka_forensics.engine.serialization import pack, unpack
from kafka_forensics.engine.slices import inputs_of
from kafka_forensics.engine.task_values import SliceAnswer, StretchRow
from kafka_forensics.engine.tasks import SliceRows, answered, keep_code_as, keys_apart, opener
from kafka_forensics.errors import SourceError
from kafka_forensics.questions.changes import partition, slices
from kafka_forensics.questions.changes.partition import At, PartitionChanges, partition_changes
from kafka_forensics.questions.changes.slices import REPLICAS_A_SNAPSHOT, ChangeAnswer, ChangesCommon, ChangeSlice

make_serializable(partition, slices)


@lru_cache(maxsize=2)
def _common(packed: bytes) -> ChangesCommon:
    """The common part, unpacked once in a process."""
    common: ChangesCommon = unpack(packed)
    for known in common.scans:
        keep_code_as(known)
    return common


def judge_changes(common: bytes, rows: Iterator[StretchRow], *, strict: bool = False) -> bytes:
    """Judge one partition in every snapshot, and compare it over time: its rows into a packed `ChangeAnswer`.

    The first row is the packed `ChangeSlice`; stretches follow by replica, segment and start, each snapshot's replicas numbered
    from a multiple of `REPLICAS_A_SNAPSHOT` on. With `strict`, raises SourceError where something cannot be read that could be
    before. Where the answer asks something, the slice is to be judged again with what is told.
    """
    known = _common(common)
    use_compiled(known.scans[0].compiled)
    change_slice: ChangeSlice = unpack(next(rows).packed, opener(known.scans[0]))
    stretches = SliceRows(rows)
    apart = keys_apart(known.scans[0], change_slice.replicas, change_slice.keys)
    answers: list[SliceAnswer | None] = []
    times = []
    for part, scan, disks, word in zip(change_slice.parts, known.scans, known.disks, change_slice.words, strict=True):
        if not (part.replicas or part.aside):
            answers.append(None)
            times.append(At(disks, word))
            continue
        answer, merged = answered(part, scan, stretches, apart, len(times) * REPLICAS_A_SNAPSHOT, strict=strict)
        answers.append(answer)
        summary = None if answer.answer is None else answer.answer.result.summary
        times.append(At(disks, word, merged, summary, inputs_of(part, scan.around).evidence))
    compared = partition_changes(times, known.scans[0].key, apart)
    if apart is not None and apart.is_waiting:
        return pack(ChangeAnswer([], PartitionChanges(), apart.asked))
    seen = {gap for answer in answers if answer is not None for gap in (*answer.incomplete, *answer.noticed.incomplete)}
    seen.update(() if apart is None else apart.gaps())
    for gap in compared.incomplete if strict else ():
        if gap not in seen:
            raise SourceError(gap.path, gap.reason)
    return pack(ChangeAnswer(answers, compared))
