"""Records of a range of offsets, held against a count of what was written, one record after another."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.replicas.records_held import records_held, with_records
from kafka_forensics.model.findings import Place, Severity
from tests.support.replica_logs import Batch, Logs, batches
from tests.support.segments import marker

KINDS = frozenset({"UNCLEAN_LOSS", "FORK_BELOW_HW"})


class Marker(Batch):
    """A transaction marker: an offset, and no record."""

    def written(self) -> bytes:
        return marker(self.base_offset, commit=False)


def log_of(sizes: Sequence[int]) -> list[Batch]:
    """A batch for each number, of so many records; 0 is a marker."""
    made: list[Batch] = []
    offset = 0
    for size in sizes:
        made.append(Batch(offset, "r" * size) if size else Marker(offset, [None]))
        offset += size or 1
    return made


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 40), st.integers(0, 40))
def test_every_record_counts_once_and_no_marker(sizes: list[int], start: int, length: int) -> None:
    log = log_of(sizes)
    replica = (logs := Logs()).add(1, log)
    naive = sum(start <= offset < start + length for batch in log for offset in batch.records)
    assert records_held(replica, logs, start, start + length) == naive


@given(st.integers(0, 6), st.integers(0, 6))
def test_whole_logs_are_counted_without_reading_them_again(before: int, behind: int) -> None:
    replica = (logs := Logs()).add(1, log_of([3, 1, 4]))
    assert records_held(replica, logs, -before, 8 + behind) == 8
    assert logs.asked == []


def test_a_short_rest_is_read_in_place_of_a_long_range() -> None:
    replica = (logs := Logs()).add(1, log_of([2] * 50))
    assert records_held(replica, logs, 4, 100) == 96
    assert logs.asked == [(1, 0, 4)]


def test_of_a_cleaned_log_only_what_is_left_counts_and_no_part_of_a_batch_is_guessed() -> None:
    log = [Batch(0, ["a", None, "c"]), Batch(8, [None, "b"])]
    replica = (logs := Logs()).add(1, log, compacted=True)
    assert records_held(replica, logs, 0, 10) == 3
    assert records_held(replica, logs, 3, 10) == 1
    assert records_held(replica, logs, 1, 10) is None


@pytest.mark.parametrize("damaged", [0, 3, 5])
@pytest.mark.parametrize("compacted", [False, True])
def test_beside_damage_nothing_is_counted(damaged: int, *, compacted: bool) -> None:
    log = log_of([2] * 6)
    data = bytearray(b"".join(batch.written() for batch in log))
    data[sum(len(batch.written()) for batch in log[:damaged]) + 70] ^= 1
    replica = (logs := Logs()).add(1, log, data=bytes(data), compacted=compacted, start=0)
    assert records_held(replica, logs, 0, 12) is None
    assert records_held(replica, logs, 2 * damaged + 1, 2 * damaged + 2) is None
    assert records_held(replica, logs, 8 if damaged < 4 else 0, 10 if damaged < 4 else 2) == 2


def test_what_a_log_lacks_is_not_counted_as_held() -> None:
    gapped = (logs := Logs()).add(1, [*batches((0, "ab")), *batches((0, "xy"), start=6)])
    assert records_held(gapped, logs, 0, 8) is None
    assert records_held(gapped, logs, 6, 8) == 2


@pytest.mark.parametrize(
    ("evidence", "records"),
    [
        ({"held_by": [2]}, 2),
        ({"held_by": [9, 1]}, 3),
        ({"held_by": [2, 1]}, 3),
        ({"held_by": [9]}, None),
        ({"held_by": []}, None),
        ({}, None),
    ],
)
def test_a_finding_says_what_a_holder_has(evidence: dict[str, list[int]], records: int | None) -> None:
    logs = Logs()
    replicas = [logs.add(1, batches((0, "abc"))), logs.add(2, batches((0, "ab")))]
    told = finding("UNCLEAN_LOSS", Place("t", 0, offset_start=0, offset_end=3), evidence)
    (one,) = with_records([told], replicas, logs, KINDS)
    assert one.evidence.get("records_held") == records
    assert with_records([one], replicas, logs, KINDS) == [one]


def test_of_a_fork_the_version_with_most_counts() -> None:
    logs = Logs()
    replicas = [logs.add(1, batches((0, "a"), (2, "x"))), logs.add(2, batches((0, "abcd")))]
    versions = [{"brokers": [broker], "epoch": 0, "log_end_offset": 4, "high_watermark": 4} for broker in (1, 2)]
    place = Place("t", 0, offset_start=1, offset_end=4)
    fork = finding("FORK_BELOW_HW", place, {"versions": versions, "held_by": []})
    assert with_records([fork], replicas, logs, KINDS)[0].evidence["records_held"] == 3
    background = finding("FORK_BELOW_HW", place, {"versions": versions}, severity=Severity.INFO)
    assert with_records([background], replicas, logs, KINDS) == [background]
