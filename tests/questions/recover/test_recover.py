"""Records of losing copies that are recovered, and why others are not; on real logs and on a small log for each reason."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.recovered import RecoveredRecord
from kafka_forensics.questions.collect import CollectOptions, RequestedRecords
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.questions.recover import KeptSide, Undecided, matching, recover
from kafka_forensics.scanning.rereading.log_ranges import LogRangeReader
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.questions.recover.recoveries import recovered
from tests.support.brokers import put_brokers, put_replica, write_checkpoint
from tests.support.bundles import make_bundle
from tests.support.logs import CoordinatorLog, DataLog
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, flip_bit, legacy_entry, marker, producer_batch, values

UNCLEAN = SAMPLES / "unclean-election"


def forked(root: Path, *, kept: list[bytes], lost: list[bytes], high_watermark: int = 0) -> Path:
    """Broker 1 holds `kept`, broker 2 holds `lost`, both after two shared records."""
    common = values(0, "a", "b")
    put_replica(root, 1, [common, *kept], high_watermark=2)
    put_replica(root, 2, [common, *lost], high_watermark=high_watermark)
    return root


# Which side is kept.


def test_no_side_is_kept_without_a_leader_if_copies_conflict() -> None:
    done = recovered(SAMPLES / "silent-divergence")
    side = done.only_partition.side
    assert isinstance(side, Undecided)
    assert "no given controller's log shows the leader" in side.reason
    assert "--keep N (1, 2, 3)" in side.hint
    assert not done.answer.is_complete


def test_the_recommended_side_is_kept_without_a_leader_if_copies_only_lag(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, values(0, "a", "b"), high_watermark=2)
    put_replica(tmp_path, 2, values(0, "a", "b") + values(2, "c"), high_watermark=3)
    done = recovered(tmp_path)
    assert isinstance(done.only_partition.side, KeptSide)
    assert (done.only_partition.kept, done.only_partition.side.why, done.rows) == (2, "recommended", [])
    assert recovered(tmp_path, 1).values == [(2, b"c")]


def test_a_broker_without_a_copy_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no copy belongs to broker 9") as refused:
        recovered(UNCLEAN, 9, "audit")
    assert refused.value.hint == "--keep needs a broker with a given copy: 1, 2, 3"
    root = forked(tmp_path, kept=[], lost=[values(2, "c")])
    put_replica(root, 3, values(0, "a"), partition="elsewhere-0")
    side = recovered(root, 3, "orders").only_partition.side
    assert isinstance(side, Undecided)
    assert (side.reason, side.hint) == ("broker 3 cannot lead with these copies", "brokers that can lead here: 1, 2")
    with pytest.raises(UsageError, match="was given as broker 7"):
        recovered([f"7={UNCLEAN / 'broker-1'}"])


# What the surviving side has all the same.


def test_an_aborted_copy_does_not_survive(tmp_path: Path) -> None:
    retried = producer_batch(3, "c", sequence=0, producer=9, epoch=1, is_transactional=True)
    for commit in (True, False):
        kept = [values(2, "x", epoch=1), retried, marker(4, commit=commit, producer=9, epoch=1)]
        done = recovered(forked(tmp_path / str(commit), kept=kept, lost=[values(2, "c")]), 1)
        assert done.reasons == ({"surviving_by_content": 1} if commit else {"recovered": 1})


def test_records_without_a_timestamp_match_nothing(tmp_path: Path) -> None:
    for broker, texts in ((1, ("x", "y", "c")), (2, ("c",))):
        log = b"".join(legacy_entry(number, 0, value=text.encode()) for number, text in enumerate(texts))
        put_replica(tmp_path, broker, log, high_watermark=1)
    assert recovered(tmp_path, 1).values == [(0, b"c")]


def test_memory_limits_of_the_search_do_not_change_the_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [producer_batch(2 + 3 * number, "c", "d", "e", sequence=3 * number) for number in range(5)]
    kept = [
        values(2, *"xyz", epoch=1),
        producer_batch(5, "d", "e", sequence=4, epoch=1),
        producer_batch(7, "c", sequence=12, epoch=1),
    ]
    root = forked(tmp_path, kept=kept, lost=lost, high_watermark=9)
    whole = recovered(root, 1)
    assert whole.reasons == {"recovered": 12, "surviving": 3}
    monkeypatch.setattr(matching, "ROUND_RECORDS", 2)
    in_rounds = recovered(root, 1)
    assert in_rounds.rows == whole.rows
    assert in_rounds.only_partition.ranges == whole.only_partition.ranges


def test_alternating_versions_are_read_a_few_times_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of reads does not depend on the number of ranges; a log with gaps has many."""
    common, count = values(0, "a", "b"), 60
    lost = [values(2 + number, f"v{number}") for number in range(count)]
    put_replica(tmp_path, 1, common + values(2, *"xyz", epoch=1), high_watermark=2)
    put_replica(tmp_path, 2, common + b"".join(lost), high_watermark=2)
    put_replica(tmp_path, 3, common + b"".join(lost[::2]), high_watermark=2)
    passes = []
    right = LogRangeReader.batches

    def recording_read(log: LogRangeReader, *arguments: Any) -> Any:
        passes.append(log.replica.broker)
        return right(log, *arguments)

    monkeypatch.setattr(LogRangeReader, "batches", recording_read)
    done = recovered(tmp_path, 1)
    assert done.values == [(2 + number, b"v%d" % number) for number in range(count)]
    assert [len(row.held_by) for row in done.rows] == [2, 1] * (count // 2)
    assert len(done.only_partition.ranges) == count
    assert len(passes) <= 8


# Transactions.


def in_transaction(base_offset: int, *texts: str, producer: int = 7) -> bytes:
    return producer_batch(base_offset, *texts, sequence=0, producer=producer, is_transactional=True)


def test_aborted_and_open_transactions_and_markers_are_left_out(tmp_path: Path) -> None:
    lost = [
        *(in_transaction(2, "kept", producer=7), in_transaction(3, "aborted", producer=8), in_transaction(4, "open", producer=9)),
        *(marker(5, commit=True, producer=7), marker(6, commit=False, producer=8), values(7, "plain")),
    ]
    done = recovered(forked(tmp_path, kept=[values(2, "x", epoch=1)], lost=lost), 1)
    assert done.values == [(2, b"kept"), (7, b"plain")]
    assert [row.txn_state for row in done.rows] == ["committed", "none"]
    assert done.reasons == {"recovered": 2, "aborted": 1, "open": 1, "control": 2}
    assert done.only_partition.planned.records == done.only_partition.count.all.records == 4


def test_a_marker_that_recovery_truncates_ends_no_transaction(tmp_path: Path) -> None:
    """Consumers will not see records of the surviving side whose marker recovery truncates."""
    retried = producer_batch(3, "c", sequence=0, producer=9, epoch=1, is_transactional=True)
    kept = [values(2, "x", epoch=1), retried, bytes(100), marker(4, commit=True, producer=9, epoch=1)]
    done = recovered(forked(tmp_path, kept=kept, lost=[values(2, "c")]), 1)
    assert done.values == [(2, b"c")]
    assert done.reasons == {"recovered": 1, "control": 1}


def test_a_transaction_whose_marker_may_be_damaged_is_unknown(tmp_path: Path) -> None:
    lost = [in_transaction(2, "c"), flip_bit(marker(3, commit=False), 70), values(4, "d")]
    done = recovered(forked(tmp_path, kept=[values(2, "x", epoch=1)], lost=lost), 1)
    assert [(row.record.value, row.txn_state) for row in done.rows] == [(b"c", "unknown"), (b"d", "none")]
    assert done.reasons == {"recovered": 2, "unreadable": 1}
    assert not done.answer.is_complete


@pytest.mark.parametrize("client", [0, 2])
@pytest.mark.parametrize(("commit", "state"), [(True, "committed"), (False, None)])
def test_the_coordinator_decides_transactions_without_a_marker(
    client: int, commit: bool, state: str | None, tmp_path: Path
) -> None:
    lost, kept, coordinators = DataLog(), DataLog(), CoordinatorLog()
    for log in (lost, kept):
        log.plain(2)
    lost.data(1, epoch=0)
    kept.lead(1)
    kept.traffic(2)
    coordinators.transaction(1, (0,), commit=commit, client=client)
    brokers = put_brokers(tmp_path, {"t-0": {1: kept, 2: lost}, "__transaction_state-0": coordinators}, clean=False)
    done = recovered(brokers.log_dirs, 1, "t")
    assert [row.txn_state for row in done.rows] == ([] if state is None else [state] * 2)
    assert done.reasons == ({"aborted": 2} if state is None else {"recovered": 2})


# Copies: several, damaged, deleted since, compacted, in bundles.


def test_a_record_in_several_losing_copies_is_recovered_once(tmp_path: Path) -> None:
    common = values(0, "a", "b")
    put_replica(tmp_path, 1, common, high_watermark=2)
    put_replica(tmp_path, 2, common + producer_batch(2, "c", "d", sequence=0), high_watermark=2)
    retried = producer_batch(3, "c", "d", sequence=0, epoch=1)
    put_replica(tmp_path, 3, common + values(2, "x", epoch=1) + retried, high_watermark=2)
    done = recovered(tmp_path, 1)
    recovered_rows = [(row.record.offset, row.record.value, row.held_by) for row in done.rows]
    assert recovered_rows == [(2, b"c", (2, 3)), (3, b"d", (2, 3)), (2, b"x", (3,))]
    assert done.reasons == {"recovered": 3, "merged": 2}


def test_each_offset_is_read_from_an_undamaged_copy(tmp_path: Path) -> None:
    log = [values(0, "a", "b"), values(2, "c"), values(3, "d"), values(4, "e")]
    put_replica(tmp_path, 1, log[0], high_watermark=2)
    put_replica(tmp_path, 2, [log[0], flip_bit(log[1], 70), log[2], log[3]], high_watermark=5)
    put_replica(tmp_path, 3, [log[0], log[1], flip_bit(log[2], 70), log[3]], high_watermark=5)
    done = recovered(tmp_path, 1)
    assert done.values == [(2, b"c"), (3, b"d"), (4, b"e")]
    assert [row.source_broker for row in done.rows] == [3, 2, 2]
    put_replica(tmp_path / "alone", 1, log[0], high_watermark=2)
    put_replica(tmp_path / "alone", 2, [log[0], flip_bit(log[1], 70), log[2], log[3]], high_watermark=5)
    alone = recovered(tmp_path / "alone", 1)
    assert alone.values == [(3, b"d"), (4, b"e")]
    assert (alone.reasons, alone.only_partition.unreadable) == ({"recovered": 2, "unreadable": 1}, {"damaged": 1})
    assert not alone.answer.is_complete


def test_deleted_records_are_not_lost(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, {4: values(4, "e", epoch=1)}, high_watermark=5, log_start=4)
    put_replica(tmp_path, 2, values(0, *"abcd") + values(4, "x", "y"), high_watermark=4)
    done = recovered(tmp_path, 1)
    assert (done.values, done.only_partition.below_log_start) == ([(4, b"x"), (5, b"y")], [(2, 4)])


def test_a_later_record_of_the_same_key_supersedes_in_a_compacted_topic(tmp_path: Path) -> None:
    lost = [
        *(values(2, "older", key=b"k"), values(3, "only here", key=b"l", time_ms=BASE_TIMESTAMP + 1)),
        values(4, "newer", key=b"m", time_ms=BASE_TIMESTAMP + 9),
    ]
    kept = [values(2, "later", key=b"k", epoch=1, time_ms=BASE_TIMESTAMP + 5), values(3, "earlier", key=b"m", epoch=1)]
    root = forked(tmp_path, kept=kept, lost=lost)
    assert recovered(root, 1).reasons == {"recovered": 3}
    for broker in (1, 2):
        write_checkpoint(root / f"broker-{broker}", "cleaner", 0, "orders-0")
    done = recovered(root, 1)
    assert done.values == [(3, b"only here"), (4, b"newer")]
    assert done.reasons == {"recovered": 2, "superseded": 1}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_with_headers_are_recovered_whole(codec: str, tmp_path: Path) -> None:
    headers = (("h", None), ("h", b"\xff\x00"), ("", b""))
    records = [RecordToWrite(None, None, headers), RecordToWrite(b"", b"\xfe", offset_delta=2, timestamp_delta=5)]
    lost = write_batch(records, base_offset=2, base_timestamp=BASE_TIMESTAMP, compression_type=codec)
    done = recovered(forked(tmp_path, kept=[values(2, "x", epoch=1)], lost=[lost]), 1)
    first, second = (row.record for row in done.rows)
    assert (first.key, first.value, first.headers) == (None, None, tuple((name.encode(), value) for name, value in headers))
    assert (second.offset, second.key, second.value, second.timestamp) == (4, b"", b"\xfe", BASE_TIMESTAMP + 5)
    assert done.reasons == {"recovered": 2, "no_record": 1}


def test_bundles_hold_only_collected_records(tmp_path: Path) -> None:
    root = forked(tmp_path / "copies", kept=[values(2, "x", epoch=1)], lost=[values(2, "c", "d"), values(4, "e")])
    kept = make_bundle(root / "broker-1", tmp_path / "1.kfb")
    bare = recovered([kept, make_bundle(root / "broker-2", tmp_path / "2.kfb")], 1)
    assert (bare.rows, bare.reasons) == ([], {"unreadable": 3})
    gaps = {gap.path.split("/")[-3]: gap.reason for gap in bare.answer.incomplete}
    assert [*gaps] == ["2.kfb", "1.kfb"], "what the kept side has is needed to compare"
    assert all("--with-records orders:0:2..4" in reason for reason in gaps.values())
    options = CollectOptions(records=(RequestedRecords("orders", 0, 2, 5),))
    done = recovered([kept, make_bundle(root / "broker-2", tmp_path / "3.kfb", options)], 1)
    assert done.values == [(2, b"c"), (3, b"d"), (4, b"e")]
    assert recovered([root / "broker-1", tmp_path / "2.kfb", root / "broker-2"], 1).values == done.values
    assert (bare.only_partition.unreadable, done.only_partition.unreadable) == ({"not_collected": 3}, {})


def test_records_missing_from_the_kept_sides_bundle_are_not_compared(tmp_path: Path) -> None:
    """Its records up to its log end are requested, because each may be a lost one."""
    again = values(4, "c", epoch=1)
    root = forked(tmp_path / "copies", kept=[values(2, "x", "y", epoch=1), again], lost=[values(2, "c")])
    unchecked = recovered([make_bundle(root / "broker-1", tmp_path / "1.kfb"), root / "broker-2"], 1)
    assert (unchecked.values, unchecked.only_partition.not_compared) == ([(2, b"c")], True)
    (gap,) = unchecked.answer.incomplete
    assert "--with-records orders:0:2..4" in gap.reason
    options = CollectOptions(records=(RequestedRecords("orders", 0, 2, 5),))
    checked = recovered([make_bundle(root / "broker-1", tmp_path / "2.kfb", options), root / "broker-2"], 1)
    assert (checked.reasons, checked.only_partition.not_compared) == ({"surviving_by_content": 1}, False)
    assert checked.answer.is_complete


@pytest.mark.parametrize(("keep", "ids"), [(3, [f"payment-{number}" for number in range(1, 11)]), (1, None)])
def test_records_truncated_at_the_high_watermark_are_recovered_from_an_archive(
    keep: int, ids: list[str] | None, archives: Path
) -> None:
    done = recovered([archives / "kafka-0.10.2.2-hw-truncation.tar.xz"], keep)
    ids_found = [(row.record.value or b"").decode() for row in done.rows]
    assert ids_found == (ids or [f"after-{number}" for number in range(1, 4)])
    assert done.reasons == {"recovered": len(ids_found)}
    assert (done.only_partition.committed, done.only_partition.planned.records) == (len(ids_found), len(ids_found))


# Brokers that will not come back.


@pytest.mark.parametrize("sample", ["unclean-election", "silent-divergence"])
@pytest.mark.parametrize("dead", [(), ("2",), ("1", "3")])
def test_ranges_add_up_to_the_bounds_of_the_plan_for_any_dead_brokers(sample: str, dead: tuple[str, ...]) -> None:
    root = SAMPLES / sample
    plans = make_plans([str(root)], ScanOptions(jobs=1), PlanOptions(dead=frozenset(dead)))
    for planned in plans.planned:
        plan = planned.plan
        for candidate in plan.candidates:
            done = recovered(root, candidate.broker, plan.topic, dead=dead, partition=plan.partition)
            assert (done.only_partition.committed, done.only_partition.at_least, done.only_partition.at_most) == candidate.costs()
            assert sum(done.reasons.values()) == candidate.at_most
            nobodys = [span.count.committed.offsets for span in done.only_partition.ranges if not span.loss.kept_by]
            assert sum(nobodys) == candidate.at_least
            found = (done.only_partition.at_most_is_bound, done.only_partition.missing)
            assert found == (plan.at_most_is_bound, [(missing.kind, missing.broker) for missing in plan.missing])


def test_a_dead_leader_is_not_kept(tmp_path: Path) -> None:
    done = recovered(UNCLEAN, topic="audit", dead=("1",))
    assert isinstance(done.only_partition.side, KeptSide)
    assert (done.only_partition.kept, done.only_partition.side.why) == (2, "recommended")
    assert done.only_partition.side.message.endswith(
        "no known leader comes back, and the copies of the other brokers do not conflict"
    )
    assert done.reasons == {"recovered": 45}
    third = shutil.copytree(UNCLEAN, tmp_path / "copies") / "broker-3" / "audit-0"
    shutil.rmtree(third)
    shutil.copytree(UNCLEAN / "broker-1" / "audit-0", third)
    side = recovered(tmp_path / "copies", topic="audit", dead=("1",)).only_partition.side
    assert isinstance(side, Undecided)
    assert side.reason.startswith("its leader, broker 1, will not come back, and the copies have different records")
    assert "--keep N (2, 3)" in side.hint


@pytest.mark.parametrize("name", ["rack-1", "1"])
def test_a_dead_leader_is_recognised_by_name_and_node_id(name: str, tmp_path: Path) -> None:
    copies = shutil.copytree(UNCLEAN, tmp_path / "copies")
    shutil.rmtree(copies / "broker-3" / "audit-0")
    shutil.copytree(UNCLEAN / "broker-1" / "audit-0", copies / "broker-3" / "audit-0")
    paths = [f"rack-1={copies / 'broker-1'}", str(copies / "broker-2"), str(copies / "broker-3")]
    options = ScanOptions("audit", 0)
    (partition,) = recover(paths, options, None, list[RecoveredRecord]().append, dead=(name,)).partitions
    assert isinstance(partition.side, Undecided)
    assert partition.side.reason.startswith("its leader, broker 1, will not come back")
    for keep in ("rack-1", "1"):
        with pytest.raises(UsageError, match=f"--keep {keep} and --dead {name} contradict each other"):
            recover(paths, options, keep, list[RecoveredRecord]().append, dead=(name,))
    with pytest.raises(UsageError, match="no copy belongs to broker 9, and no controller's log assigns it a replica"):
        recovered(UNCLEAN, 1, "audit", dead=("9",))
    assert isinstance(recovered(UNCLEAN, topic="audit", dead=("1", "2", "3")).only_partition.side, Undecided)


def test_the_python_function_recovers_the_same_records() -> None:
    """The broker to keep is also recognised by its node id."""
    rows: list[RecoveredRecord] = []
    recovery = kf.recover(str(UNCLEAN), rows.append, keep=2, dead=[3], topic="audit", partition=0)
    by_command = recovered(UNCLEAN, 2, "audit", dead=("3",))
    assert rows == by_command.rows
    assert rows
    assert recovery.partitions == by_command.answer.partitions
    assert kf.recover([str(SAMPLES / "silent-divergence")], rows.append, whole=True).undecided
    paths = [f"{name}={UNCLEAN / f'broker-{node}'}" for name, node in (("east", 1), ("west", 2), ("north", 3))]
    west, second = (kf.recover(paths, rows.append, keep=keep, topic="audit", partition=0).partitions for keep in ("west", 2))
    assert west == second
    assert {str(partition.side.candidate.broker) for partition in west if isinstance(partition.side, KeptSide)} == {"west"}
