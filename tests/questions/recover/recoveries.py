"""Running `recover` in tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import asdict

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.recovered import RecoveredRecord
from kafka_forensics.questions.recover import RecoveredPartition, Recovery, recover


class Recovered(NamedTuple):
    answer: Recovery
    rows: list[RecoveredRecord]

    @property
    def only_partition(self) -> RecoveredPartition:
        (partition,) = self.answer.partitions
        return partition

    @property
    def values(self) -> list[tuple[int, bytes | None]]:
        """(offset, value) of the recovered records, in order."""
        return [(row.record.offset, row.record.value) for row in self.rows]

    @property
    def reasons(self) -> dict[str, int]:
        """Reason → number of offsets, if any; together they must be all offsets that the plan loses."""
        count = self.only_partition.count
        assert count.all.offsets == self.only_partition.at_most
        assert count.committed.offsets == self.only_partition.committed
        for span in self.only_partition.ranges:
            assert span.count.all.offsets == span.loss.end - span.loss.start
            assert span.count.committed.offsets == span.loss.committed
        return {reason: offsets for reason, offsets in asdict(count.all).items() if offsets}


def recovered(
    paths: Sequence[Path | str] | Path,
    keep: int | str | None = None,
    topic: str | None = None,
    dead: Sequence[str] = (),
    **arguments: Any,
) -> Recovered:
    """Recover from these copies; `dead` brokers will not come back."""
    places = [paths] if isinstance(paths, Path) else paths
    rows: list[RecoveredRecord] = []
    options = ScanOptions(topic, jobs=1, **arguments)
    return Recovered(recover(list(map(str, places)), options, None if keep is None else str(keep), rows.append, dead=dead), rows)
