"""Running `recover` in tests: answers by what is asked of them."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.recovered import RecoveredRecord
from kafka_forensics.questions.recover import RecoveredPartition, Recovery, recover


class Recovered(NamedTuple):
    answer: Recovery
    rows: list[RecoveredRecord]

    @property
    def one(self) -> RecoveredPartition:
        (partition,) = self.answer.partitions
        return partition

    @property
    def values(self) -> list[tuple[int, bytes | None]]:
        """(offset, value) of what was given, in order."""
        return [(row.record.offset, row.record.value) for row in self.rows]

    @property
    def reasons(self) -> dict[str, int]:
        """Reason → offsets, those that there are; they must be all of what the plan says is lost."""
        count = self.one.count
        assert count.all.offsets == self.one.at_most
        assert count.committed.offsets == self.one.committed
        for span in self.one.ranges:
            assert span.count.all.offsets == span.loss.end - span.loss.start
            assert span.count.committed.offsets == span.loss.committed
        return {reason: offsets for reason, offsets in asdict(count.all).items() if offsets}


def recovered(
    paths: Sequence[Path | str] | Path,
    keep: int | str | None = None,
    topic: str | None = None,
    dead: Sequence[str] = (),
    **given: Any,
) -> Recovered:
    """Recover from these copies; `dead` brokers will not come back."""
    places = [paths] if isinstance(paths, Path) else paths
    rows: list[RecoveredRecord] = []
    options = ScanOptions(topic, jobs=1, **given)
    return Recovered(recover(list(map(str, places)), options, None if keep is None else str(keep), rows.append, dead=dead), rows)
