"""What a salvaged log's own scan may find: only what was so in the copies, at the same offsets, and what its gaps explain."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.engine.local import scan, scan_inputs
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.judging.partitions import PartitionResult
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.questions.salvage import Gap, SalvagedPartition, partition_files, salvaging
from kafka_forensics.questions.salvage.carried_on import CarriedOn
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.questions.salvage.written_apart import WrittenApart
from kafka_forensics.rereading.reader import LogReader
from kafka_forensics.writers.batches import write_marker
from tests.support.salvaged import log_of, put_copy, salvaged_of
from tests.support.segments import BASE_TIMESTAMP, batch, flipped
from tests.support.transaction_histories import COMMIT, cluster, cut_before, decided, ended
from tests.support.transaction_logs import APP_ID, CoordinatorLog, DataLog, write_cluster


class Parts:
    """Of a salvaged partition what is looked at."""

    def __init__(self, *gaps: tuple[int, int]) -> None:
        self.gaps = [Gap(start, end) for start, end in gaps]
        self.left_behind: list[Any] = []


def partition(*gaps: tuple[int, int]) -> SalvagedPartition:
    return cast("SalvagedPartition", Parts(*gaps))


def found(kind: str, start: int, end: int, broker: int | None = 1, **evidence: Any) -> Finding:
    return finding(kind, Place("orders", 0, broker, "d", offset_start=start, offset_end=end), cast("Any", evidence))


@pytest.mark.parametrize("kind", ["DUPLICATE_BATCH", "PRODUCER_SEQ_GAP", "TXN_LATE_WRITE", "TXN_MARKERS_DISAGREE"])
def test_what_was_written_so_stands_at_the_same_offsets_in_a_copy(kind: str) -> None:
    carried_on = CarriedOn([found(kind, 4, 6)], live=False)
    assert carried_on.explains(found(kind, 4, 6, None), partition())
    for start, end in ((4, 7), (5, 6), (8, 10)):
        assert not carried_on.explains(found(kind, start, end), partition())
        assert not carried_on.explains(found(kind, start, end), partition((0, 20))), "no gap explains it"
    other = finding(kind, Place("orders", 1, 1, "d", offset_start=4, offset_end=6), cast("Any", {}))
    assert not carried_on.explains(other, partition())


def test_snapshots_are_made_anew_and_carry_no_fault_on() -> None:
    corrupt = found("PRODUCER_SNAPSHOT_CORRUPT", 0, 6)
    assert not CarriedOn([corrupt], live=False).explains(corrupt, partition())


def test_of_very_many_those_count_that_a_copy_does_not_show() -> None:
    """It shows the first and the last of them."""
    many = [found("DUPLICATE_BATCH", offset, offset + 2, occurrences=90) for offset in (4, 6, 150, 152)]
    carried_on = CarriedOn(many, live=False)
    assert carried_on.explains(found("DUPLICATE_BATCH", 80, 82), partition())
    assert not carried_on.explains(found("DUPLICATE_BATCH", 2, 4), partition())
    assert not carried_on.explains(found("DUPLICATE_BATCH", 160, 162), partition())
    assert not carried_on.explains(found("PRODUCER_SEQ_GAP", 80, 82), partition())


def test_a_transaction_of_which_nothing_is_left_has_no_offsets() -> None:
    def lost(coordinator_offset: int) -> Finding:
        evidence = {"producer_id": 7, "coordinator_offset": coordinator_offset}
        return finding("TXN_PARTLY_LOST", Place("orders", 0, 1, "d"), cast("Any", evidence))

    assert CarriedOn([lost(3)], live=False).explains(lost(3), partition())
    assert not CarriedOn([lost(3)], live=False).explains(lost(4), partition())


def test_an_open_transaction_may_hang_in_a_copy_that_goes_on_and_not_the_other_way_round() -> None:
    hanging, still_open = found("TXN_HANGING", 4, 6, producer_id=7), found("TXN_OPEN", 4, 6, producer_id=7)
    assert CarriedOn([hanging], live=False).explains(still_open, partition())
    assert CarriedOn([still_open], live=False).explains(still_open, partition())
    assert not CarriedOn([still_open], live=False).explains(hanging, partition())


def test_a_transaction_that_was_left_open_long_ago_is_carried_on(tmp_path: Path) -> None:
    """A warning where nobody tells whether its producer still lives: three whole copies are salvaged all the same."""
    data = DataLog()
    data.data(0.0, APP_ID)
    data.traffic(10_000)
    write_cluster(tmp_path / "in", {"t-0": data})
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert not salvaged.refused
    told = {row["kind"] for partition in salvaged.partitions for row in partition.inherited}
    assert told & {"TXN_OPEN", "TXN_HANGING"}


def test_a_transaction_that_every_copy_lost_is_carried_on(tmp_path: Path) -> None:
    """As an unclean election leaves it: there is neither a marker nor a record, and so no offset."""
    write_cluster(tmp_path / "in", cluster(ended(30, COMMIT), cut_before(), decided(30)))
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert not salvaged.refused
    told = {(one.topic, one.partition): [row["kind"] for row in one.inherited] for one in salvaged.partitions if one.inherited}
    assert told == {("t", 1): ["TXN_PARTLY_LOST"]}


@pytest.mark.parametrize("kind", ["TXN_HANGING", "TXN_TORN", "TXN_PARTLY_LOST"])
def test_a_transaction_is_the_same_by_its_producer_and_its_first_offset(kind: str) -> None:
    carried_on = CarriedOn([found(kind, 4, 6, producer_id=7)], live=False)
    assert carried_on.explains(found(kind, 4, 9, producer_id=7), partition()), "it goes on where another copy does"
    assert not carried_on.explains(found(kind, 4, 6, producer_id=8), partition())
    assert not carried_on.explains(found(kind, 2, 6, producer_id=7), partition())
    assert carried_on.explains(found(kind, 2, 6, producer_id=8), partition((6, 8))), "what ended it may be in the gap"
    assert not carried_on.explains(found(kind, 8, 9, producer_id=8), partition((6, 8)))


def test_of_running_brokers_a_transaction_that_was_open_may_seem_to_hang() -> None:
    given = [found("TXN_OPEN", 4, 6, producer_id=7)]
    hanging = found("TXN_HANGING", 4, 6, producer_id=7)
    assert CarriedOn(given, live=True).explains(hanging, partition())
    assert not CarriedOn(given, live=False).explains(hanging, partition())
    assert not CarriedOn(given, live=True).explains(found("TXN_HANGING", 9, 11, producer_id=7), partition())


@pytest.mark.parametrize("kind", ["COMMITTED_LOST_EVERYWHERE", "GROUP_OFFSET_BEYOND_LOG"])
def test_offsets_that_are_not_there_are_those_of_the_gaps_and_of_the_copies(kind: str) -> None:
    carried_on = CarriedOn([found(kind, 10, 14, None)], live=False)
    assert carried_on.explains(found(kind, 6, 10), partition((6, 10)))
    assert carried_on.explains(found(kind, 6, 14), partition((6, 10)))
    assert not carried_on.explains(found(kind, 6, 15), partition((6, 10)))
    assert carried_on.explains(found(kind, 10, 14), partition()) == (kind == "GROUP_OFFSET_BEYOND_LOG")
    assert not carried_on.explains(found(kind, 20, 22), partition((6, 10)))


def introduce(monkeypatch: pytest.MonkeyPatch, name: str, old: bytes, new: bytes) -> None:
    """Have every salvage write these bytes for others into the log of a partition."""
    whole = partition_files.write_partition

    def changed(directory: Path, *given: Any) -> Any:
        written = whole(directory, *given)
        for path in directory.glob("*.log") if directory.name == name else ():
            path.write_bytes(path.read_bytes().replace(old, new))
        for path in directory.glob("*.snapshot") if directory.name == name else ():
            path.unlink()
        return written

    monkeypatch.setattr(salvaging, "write_partition", changed)


def test_a_salvage_that_brings_a_duplicate_about_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the copies have another one."""

    def written(offset: int, sequence: int) -> bytes:
        return batch(offset, 2, producer_id=7, producer_epoch=0, base_sequence=sequence)

    log = [written(0, 0), written(2, 2), written(4, 2), written(6, 4)]
    put_copy(tmp_path / "in", 1, {0: b"".join(log)}, high_watermark=8)
    assert [row["offset_start"] for row in salvaged_of(tmp_path / "in", tmp_path / "right").partitions[0].inherited] == [4]
    introduce(monkeypatch, "orders-0", log[3], written(6, 2))
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.reason) == ("not_sound", "a scan of the salvaged log finds DUPLICATE_BATCH")


def numbered(offset: int, sequence: int, *, epoch: int = 0) -> bytes:
    return batch(offset, 2, epoch=epoch, producer_id=7, producer_epoch=0, base_sequence=sequence)


TWICE = [numbered(0, 0), numbered(2, 2), numbered(4, 2), numbered(6, 4)]


def put_apart(folder: Path, damaged: Callable[[bytes], bytes], *, log: Sequence[bytes] = TWICE) -> None:
    """Broker 1 lost the second of what was written twice, and broker 2 the first."""
    for broker, lost in ((1, 2), (2, 1)):
        data = b"".join(damaged(one) if number == lost else one for number, one in enumerate(log))
        put_copy(folder, broker, {0: data}, high_watermark=8)


@pytest.mark.parametrize("damaged", [lambda data: flipped(data, 70), lambda data: bytes(len(data))], ids=["flipped", "zeroed"])
def test_a_duplicate_of_which_each_copy_lost_another_half_is_carried_on(damaged: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """No copy has it whole, so that no scan of the copies names it; taken together they do."""
    put_apart(tmp_path / "in", damaged)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert not salvaged.refused
    assert log_of(tmp_path / "out") == b"".join(TWICE)
    assert [(row["kind"], row["offset_start"]) for row in salvaged.partitions[0].inherited] == [("DUPLICATE_BATCH", 4)]


def test_a_duplicate_brought_about_beside_one_that_is_in_the_copies_together_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_apart(tmp_path / "in", lambda data: flipped(data, 70))
    introduce(monkeypatch, "orders-0", TWICE[3], numbered(6, 2))
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.reason) == ("not_sound", "a scan of the salvaged log finds DUPLICATE_BATCH")


@pytest.mark.parametrize(
    ("epoch", "is_lost", "explained"), [(1, True, True), (2, True, False), (2, False, False), (1, False, False)]
)
def test_what_a_producer_sent_again_to_the_next_leader_is_no_duplicate_of_the_copies(
    epoch: int, is_lost: bool, explained: bool, tmp_path: Path
) -> None:
    """Broker 1 led epoch 1 and took a batch; broker 2 has it again behind other bytes, damaged or not: of the same leader, so that
    both were written, or of its own in epoch 2, and it never had the first.

    A salvage that has both joins two logs then, though each stands in a copy at its offsets with its bytes.
    """
    common, ours, again = numbered(0, 0), numbered(2, 2, epoch=1), numbered(4, 2, epoch=epoch)
    other = batch(2, 2, epoch=epoch)
    put_copy(tmp_path / "in", 1, {0: common + ours}, high_watermark=2)
    put_copy(tmp_path / "in", 2, {0: common + (flipped(other, 70) if is_lost else other) + again}, high_watermark=6)
    put_copy(tmp_path / "joined", 1, {0: common + ours + again})
    (written,) = gather([str(tmp_path / "joined")], ScanOptions()).replicas
    apart = WrittenApart(sources_in(tmp_path / "in"), {})
    assert apart.explains(found("DUPLICATE_BATCH", 4, 6, first_offset=2), written) == explained
    assert not apart.explains(found("DUPLICATE_BATCH", 4, 6, first_offset=4), written), "which was the first is not known"
    assert not apart.explains(found("PRODUCER_SEQ_GAP", 4, 6, first_offset=2), written)
    assert apart.explains(found("PRODUCER_SEQ_GAP", 4, 6, previous_offset=3), written) == explained
    many = found("DUPLICATE_BATCH", 4, 6, first_offset=2, occurrences=60)
    assert not apart.explains(many, written), "it stands for others that nobody can look at"
    seen_to_differ = WrittenApart(sources_in(tmp_path / "in"), {(0, 1): ((0, 2),)})
    assert not seen_to_differ.explains(found("DUPLICATE_BATCH", 4, 6, first_offset=2), written)


def sent(offset: int, sequence: int, *, producer_epoch: int = 0, transactional: bool = False) -> bytes:
    return batch(offset, 2, is_transactional=transactional, producer_id=7, producer_epoch=producer_epoch, base_sequence=sequence)


def ended_by(offset: int, *, producer_epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    epochs = {"partition_leader_epoch": 0, "producer_epoch": producer_epoch, "coordinator_epoch": coordinator_epoch}
    return write_marker(commit=True, base_offset=offset, timestamp=BASE_TIMESTAMP + offset, producer_id=7, **epochs)


OF_TWO_BATCHES = {
    "PRODUCER_SEQ_GAP": [sent(0, 0), sent(2, 2), batch(4, 2), sent(6, 9), batch(8)],
    "PRODUCER_SEQ_REGRESSION": [sent(0, 100), sent(2, 102), batch(4, 2), sent(6, 50), batch(8)],
    "PRODUCER_EPOCH_REGRESSION": [batch(0, 2), sent(2, 0, producer_epoch=1), batch(4, 2), sent(6, 2), batch(8)],
    "TXN_LATE_WRITE": [batch(0, 2), ended_by(2, producer_epoch=1), batch(3, 2), sent(5, 2, transactional=True), ended_by(7)],
    "TXN_COORDINATOR_EPOCH_REGRESSION": [
        batch(0, 2),
        ended_by(2, producer_epoch=1, coordinator_epoch=4),
        batch(3, 2),
        ended_by(5, producer_epoch=1, coordinator_epoch=3),
        batch(6, 2),
    ],
}
"""By what a log shows whose batches 1 and 3 are not where they should be."""


@pytest.mark.parametrize("damaged", [lambda data: flipped(data, 70), lambda data: bytes(len(data))], ids=["flipped", "zeroed"])
@pytest.mark.parametrize("kind", OF_TWO_BATCHES)
def test_what_two_batches_say_of_which_each_copy_lost_another_is_carried_on(
    kind: str, damaged: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    log = OF_TWO_BATCHES[kind]
    for broker, lost in ((1, 3), (2, 1)):
        data = b"".join(damaged(one) if number == lost else one for number, one in enumerate(log))
        put_copy(tmp_path / "in", broker, {0: data}, high_watermark=8)
    given = {finding.kind for finding in scan([str(tmp_path / "in")], ScanOptions()).findings}
    assert kind not in given
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert not salvaged.refused
    assert log_of(tmp_path / "out") == b"".join(log)
    assert kind in {row["kind"] for row in salvaged.partitions[0].inherited}


@pytest.mark.parametrize(("epoch", "explained"), [(0, True), (1, False)])
def test_a_gap_between_two_batches_is_one_if_all_between_them_is_of_one_log(epoch: int, explained: bool, tmp_path: Path) -> None:
    """Both batches stand in copies of epoch 0; between them another leader may have put something for what is missing."""
    log = [numbered(0, 0), numbered(2, 2), batch(4, 2, epoch=epoch), numbered(6, 9), batch(8, 2)]
    lost = [flipped(one, 70) for one in log]
    put_copy(tmp_path / "in", 1, {0: log[0] + log[1] + lost[2] + lost[3] + log[4]})
    put_copy(tmp_path / "in", 2, {0: log[0] + lost[1] + lost[2] + log[3] + log[4]})
    put_copy(tmp_path / "in", 3, {0: log[0] + lost[1] + log[2]})
    put_copy(tmp_path / "joined", 1, {0: b"".join(log)})
    (written,) = gather([str(tmp_path / "joined")], ScanOptions()).replicas
    apart = WrittenApart(sources_in(tmp_path / "in"), {})
    for kind in ("PRODUCER_SEQ_GAP", "PRODUCER_SEQ_REGRESSION"):
        assert apart.explains(found(kind, 6, 8, previous_offset=3), written) == explained
    assert apart.explains(found("PRODUCER_EPOCH_REGRESSION", 6, 8, previous_offset=3), written), "it matters to none of these"


def test_all_markers_of_a_replaced_coordinator_are_carried_on(tmp_path: Path) -> None:
    fallen = [ended_by(offset, producer_epoch=1, coordinator_epoch=3) for offset in (5, 6)]
    log = [*OF_TWO_BATCHES["TXN_COORDINATOR_EPOCH_REGRESSION"][:3], *fallen, batch(7, 2)]
    for broker, lost in ((1, {3, 4}), (2, {1})):
        data = b"".join(flipped(data, 70) if number in lost else data for number, data in enumerate(log))
        put_copy(tmp_path / "in", broker, {0: data}, high_watermark=9)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert [row["offset_start"] for row in partition.inherited] == [5, 6]


def test_a_gap_where_another_leader_went_on_in_between_is_none_of_the_copies(tmp_path: Path) -> None:
    """Copy 3 shares epoch 0 with both, and has something else between them than the leader of the second wrote."""
    log = [numbered(0, 0), numbered(2, 2), batch(4, 2, epoch=1), numbered(6, 9, epoch=2)]
    put_copy(tmp_path / "in", 1, {0: log[0] + log[1], 6: log[3]})
    put_copy(tmp_path / "in", 3, {0: log[0] + log[1] + log[2]})
    put_copy(tmp_path / "joined", 1, {0: b"".join(log)})
    (written,) = gather([str(tmp_path / "joined")], ScanOptions()).replicas
    apart = WrittenApart(sources_in(tmp_path / "in"), {})
    assert not apart.explains(found("PRODUCER_SEQ_GAP", 6, 8, previous_offset=3), written)
    assert apart.explains(found("PRODUCER_EPOCH_REGRESSION", 6, 8, previous_offset=3), written)


def test_a_batch_in_a_records_value_bears_nothing_out(tmp_path: Path) -> None:
    """Behind damage it is read as one, and no copy has other good ones there; what ends where another copy's begins is one."""
    log = [*TWICE[:2], numbered(4, 2), numbered(6, 4)]
    for name, behind in (("believed", b""), ("planted", b"\0")):
        put_copy(tmp_path / name, 1, {0: log[0] + log[1] + bytes(len(log[2])) + log[3]})
        put_copy(tmp_path / name, 2, {0: log[0] + bytes(len(log[1])) + log[2] + behind + log[3]})
        put_copy(tmp_path / f"{name} joined", 1, {0: b"".join(log)})
        (written,) = gather([str(tmp_path / f"{name} joined")], ScanOptions()).replicas
        apart = WrittenApart(sources_in(tmp_path / name), {})
        assert apart.explains(found("DUPLICATE_BATCH", 4, 6, first_offset=2), written) == (name == "believed")


def sources_in(folder: Path) -> list[Source]:
    """The copies of a partition as a salvage has them."""
    inputs, sources = gather([str(folder)], ScanOptions()), list[Source]()
    plans = {id(plan.context): plan for plan in inputs.replicas}

    def look(replicas: list[Replica], _: LogReader, result: PartitionResult) -> None:
        sources.extend(Source.of(plans[id(replica.context)], replica, result.findings, deep=False) for replica in replicas)

    scan_inputs(inputs, ScanOptions(), None, look)
    return sources


def test_a_salvage_that_loses_a_marker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though another transaction hangs in the copies."""
    data, coordinators, other = DataLog(), CoordinatorLog(), 3000
    data.data(0.0, APP_ID)
    data.data(1.0, other)
    marker = data.marker(1.1, commit=True, producer_id=other)
    coordinators.transaction(10_000, (0,), commit=True, name="later")
    data.traffic(10_000)
    write_cluster(tmp_path / "in", {"t-0": data, "__transaction_state-0": coordinators})
    right = salvaged_of(tmp_path / "in", tmp_path / "right")
    assert not right.refused
    told = {partition.topic: [(row["kind"], row["offset_start"]) for row in partition.inherited] for partition in right.partitions}
    assert told["t"] == [("TXN_HANGING", 0)]
    assert marker.data in log_of(tmp_path / "right", "t-0")
    introduce(monkeypatch, "t-0", marker.data, batch(marker.base_offset, 1))
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.topic, refused.kind, refused.reason) == ("t", "not_sound", "a scan of the salvaged log finds TXN_HANGING")
