"""The same records in two message formats are no fork, whatever the format, the compression and the boundaries of batches; other
records are, and what the older format cannot hold is told."""

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.collect import CollectOptions, RequestedRecords
from kafka_forensics.questions.compare import compare
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.questions.verify import ExecutedPlan, read_promises, verify
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.wording import incident_message
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry, write_marker
from tests.support.brokers import TOPIC_ID, put_replica
from tests.support.bundles import make_bundle
from tests.support.segments import BASE_TIMESTAMP, flip_bit, write_legacy_wrapper

COUNT: Final = 20
VALUES: Final = [b"value %d" % offset for offset in range(COUNT)]
OTHER: Final = [*VALUES[:7], b"another", *VALUES[8:]]
HEADERS: Final = (("name", b"value"),)


def format_2(
    values: list[bytes] = VALUES,
    *,
    codec: str = "none",
    each: int = COUNT,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    start: int = 0,
    **given: object,
) -> bytes:
    """Batches of `each` records at most."""
    return b"".join(
        write_batch(
            [
                RecordToWrite(b"key", value, headers=headers, offset_delta=delta)
                for delta, value in enumerate(values[first : first + each])
            ],
            base_offset=start + first,
            base_timestamp=BASE_TIMESTAMP,
            compression_type=codec,
            **given,  # type: ignore[arg-type]
        )
        for first in range(0, len(values), each)
    )


def old(
    magic: int,
    values: list[bytes] = VALUES,
    *,
    codec: str = "none",
    start: int = 0,
    timestamp: int = BASE_TIMESTAMP,
    kind: str = "CreateTime",
) -> bytes:
    """Messages one by one or, with a codec, in a wrapper."""
    stamp = timestamp if magic else -1

    def entry(offset: int, value: bytes) -> bytes:
        return write_legacy_entry(b"key", value, offset=offset, magic=magic, timestamp=stamp, timestamp_type=kind)

    if codec == "none":
        return b"".join(entry(start + number, value) for number, value in enumerate(values))
    entries = [entry(number + (0 if magic else start), value) for number, value in enumerate(values)]
    last = start + len(values) - 1
    return write_legacy_wrapper(entries, offset=last, magic=magic, compression_type=codec, timestamp=stamp, timestamp_type=kind)


class Side(NamedTuple):
    log: bytes
    epochs: tuple[tuple[int, int], ...] = ()


def new(log: bytes) -> Side:
    return Side(log, ((0, 0),))


def scanned(root: Path, *logs: Side | bytes, cleaned: int | None = None) -> ScanResult:
    for broker, log in enumerate(logs, 1):
        side = log if isinstance(log, Side) else Side(log)
        put_replica(
            root,
            broker,
            side.log,
            topic_id=TOPIC_ID,
            epochs=side.epochs,
            high_watermark=COUNT,
            cleaned=cleaned,
            clean=True,
            empty_indexes=True,
        )
    return scan([str(root)], ScanOptions(jobs=1))


def told(result: ScanResult) -> list[tuple[str, Severity]]:
    return [(finding.kind, finding.severity) for finding in result.findings]


def only(result: ScanResult) -> Finding:
    [finding] = result.findings
    return finding


def reencoded(result: ScanResult) -> Finding:
    [finding] = [finding for finding in result.findings if finding.kind == "BATCHES_REENCODED"]
    return finding


SAME: Final[dict[str, tuple[Side | bytes, Side | bytes, list[list[int]]]]] = {
    "2 and 1": (new(format_2()), old(1), [[2], [1]]),
    "2 and 0": (new(format_2()), old(0), [[2], [0]]),
    "1 and 0": (old(1), old(0), [[1], [0]]),
    "1 and 2": (old(1), new(format_2()), [[1], [2]]),
    "2 compressed and 1": (new(format_2(codec="zstd")), old(1), [[2], [1]]),
    "2 and 1 compressed": (new(format_2()), old(1, codec="gzip"), [[2], [1]]),
    "2 and 0 compressed": (new(format_2(each=3)), old(0, codec="gzip"), [[2], [0]]),
    "1 and 0 compressed": (old(1, codec="snappy"), old(0, codec="gzip"), [[1], [0]]),
    "other boundaries": (
        new(format_2(each=3)),
        old(1, VALUES[:8], codec="gzip") + old(1, VALUES[8:], codec="gzip", start=8),
        [[2], [1]],
    ),
    "an idempotent producer": (new(format_2(producer_id=7, producer_epoch=0, base_sequence=0)), old(1), [[2], [1]]),
    "both in one log": (new(old(1, VALUES[:8]) + format_2(VALUES[8:], start=8)), old(0), [[1, 2], [0]]),
    "the broker's time": (
        new(format_2(timestamp_type="LogAppendTime", max_timestamp=BASE_TIMESTAMP)),
        old(1, kind="LogAppendTime"),
        [[2], [1]],
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_records_in_two_formats_are_no_fork(tmp_path: Path, name: str) -> None:
    left, right, formats = SAME[name]
    result = scanned(tmp_path, left, right)
    finding = reencoded(result)
    assert [severity for _, severity in told(result)] == [Severity.INFO] * len(result.findings)
    assert (finding.place.offset_start, finding.place.offset_end) == (0, COUNT)
    assert finding.evidence["message_formats"] == formats
    assert finding.evidence.get("not_compared") == (["timestamps"] if [0] in formats else None)
    assert result.partitions[0].agreement.kind == "identical"
    assert compare([str(tmp_path)], ScanOptions(jobs=1)).first_difference is None
    [planned] = make_plans([str(tmp_path)], ScanOptions(jobs=1), PlanOptions()).planned
    assert [candidate.losses for candidate in planned.plan.candidates] == [(), ()]


DIFFERENT: Final[dict[str, tuple[Side | bytes, Side | bytes]]] = {
    "2 and 1": (new(format_2()), old(1, OTHER)),
    "2 and 0": (new(format_2()), old(0, OTHER)),
    "1 and 0": (old(1), old(0, OTHER)),
    "compressed": (new(format_2(codec="zstd")), old(1, OTHER, codec="gzip")),
    "other boundaries": (
        new(format_2(OTHER, each=3)),
        old(1, VALUES[:8], codec="gzip") + old(1, VALUES[8:], codec="gzip", start=8),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_value_is_a_fork_at_its_offset(tmp_path: Path, name: str) -> None:
    result = scanned(tmp_path, *DIFFERENT[name])
    fork = next(finding for finding in result.findings if finding.kind == "FORK_BELOW_HW")
    assert (fork.severity, fork.place.offset_start, fork.place.offset_end) == (Severity.CRITICAL, 7, 8)
    assert {kind for kind, _ in told(result)} <= {"FORK_BELOW_HW", "BATCHES_REENCODED", "INCIDENT_SIGNATURE"}
    assert all((finding.place.offset_end or 0) <= 7 for finding in result.findings if finding.kind == "BATCHES_REENCODED")
    side_by_side = compare([str(tmp_path)], ScanOptions(jobs=1))
    assert side_by_side.first_difference == 7
    assert [row.offset for row in side_by_side.rows if row.differs] == [7]


@pytest.mark.parametrize(
    "right", [old(1, timestamp=BASE_TIMESTAMP + 1), old(1, kind="LogAppendTime")], ids=["timestamp", "timestamp type"]
)
def test_timestamps_count_where_both_formats_have_them(tmp_path: Path, right: bytes) -> None:
    result = scanned(tmp_path, new(format_2()), right)
    assert "FORK_BELOW_HW" in dict(told(result))


def test_the_older_copy_joins_the_version_that_it_equals(tmp_path: Path) -> None:
    """A format without leader epochs is no version of its own beside equal records of an epoch."""
    result = scanned(tmp_path, new(format_2(each=1)), old(1), Side(format_2(OTHER, each=1, partition_leader_epoch=1), ((1, 0),)))
    fork = next(finding for finding in result.findings if finding.severity is Severity.CRITICAL)
    assert [(version["brokers"], version["epoch"]) for version in fork.evidence["versions"]] == [([1, 2], 0), ([3], 1)]


def test_a_missing_record_is_still_missing(tmp_path: Path) -> None:
    result = scanned(tmp_path, new(format_2()), old(1, VALUES[:7]) + old(1, VALUES[8:], start=8))
    [gap] = [finding for finding in result.findings if finding.severity is not Severity.INFO]
    assert (gap.kind, gap.severity, gap.place.offset_start, gap.evidence["held_by"]) == ("OFFSET_GAP", Severity.CRITICAL, 7, [1])


def test_a_record_missing_inside_a_wrapper_is_a_fork(tmp_path: Path) -> None:
    entries = [write_legacy_entry(b"key", value, offset=offset, magic=0) for offset, value in enumerate(VALUES) if offset != 7]
    wrapper = write_legacy_wrapper(entries, offset=COUNT - 1, magic=0, compression_type="gzip")
    result = scanned(tmp_path, new(format_2()), wrapper)
    fork = next(finding for finding in result.findings if finding.kind == "FORK_BELOW_HW")
    assert (fork.place.offset_start, fork.place.offset_end) == (7, 8)


def test_headers_that_the_old_format_lacks_are_reported(tmp_path: Path) -> None:
    result = scanned(tmp_path, new(format_2(headers=HEADERS)), old(1))
    finding = only(result)
    assert (finding.kind, finding.severity) == ("BATCHES_REENCODED", Severity.WARNING)
    assert (finding.evidence["without_headers"], finding.evidence["held_by"]) == ([2], [1])
    [incident] = result.incidents
    assert incident_message(incident) == (
        "A replica of orders-0 has records in an older message format, without their headers or transactions. Good copies are on"
        " broker 1 alone."
    )
    planned = make_plans([str(tmp_path)], ScanOptions(jobs=1), PlanOptions()).planned[0].plan
    lost = {
        candidate.broker: [(loss.start, loss.end, loss.held_by) for loss in candidate.losses] for candidate in planned.candidates
    }
    assert (planned.recommended, lost) == (1, {1: [], 2: [(0, COUNT, (1,))]})


def test_only_records_that_have_headers_are_lost_without_them(tmp_path: Path) -> None:
    log = format_2(VALUES[:7]) + format_2(VALUES[7:9], start=7, headers=HEADERS) + format_2(VALUES[9:], start=9)
    finding = only(scanned(tmp_path, new(log), old(1)))
    assert (finding.place.offset_start, finding.place.offset_end) == (0, COUNT)
    assert finding.evidence["lacking"] == [{"offset_start": 7, "offset_end": 9, "brokers": [2]}]
    planned = make_plans([str(tmp_path)], ScanOptions(jobs=1), PlanOptions()).planned[0].plan
    lost = {candidate.broker: [(loss.start, loss.end) for loss in candidate.losses] for candidate in planned.candidates}
    assert lost == {1: [], 2: [(7, 9)]}


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_markers_that_the_old_format_lacks_are_no_loss(tmp_path: Path, commit: bool) -> None:
    transaction = format_2(VALUES[:7], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = write_marker(
        commit=commit, base_offset=7, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=BASE_TIMESTAMP
    )
    result = scanned(
        tmp_path, new(transaction + marker + format_2(VALUES[8:], start=8)), old(1, VALUES[:7]) + old(1, VALUES[8:], start=8)
    )
    [gap] = [finding for finding in result.findings if finding.kind == "OFFSET_GAP"]
    assert (gap.severity, gap.evidence["control_batches_left_out"]) == (Severity.INFO, True)
    finding = reencoded(result)
    assert (finding.severity, finding.evidence["without_transactions"]) == (Severity.WARNING, [2])


def test_a_record_in_the_place_of_a_marker_is_a_fork(tmp_path: Path) -> None:
    marker = write_marker(
        commit=True, base_offset=7, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=BASE_TIMESTAMP
    )
    result = scanned(tmp_path, new(format_2(VALUES[:7]) + marker + format_2(VALUES[8:], start=8)), old(1))
    fork = next(finding for finding in result.findings if finding.kind == "FORK_BELOW_HW")
    assert (fork.place.offset_start, fork.place.offset_end) == (7, 8)


def test_what_was_cleaned_in_another_format_is_silent(tmp_path: Path) -> None:
    """From 4.0 on the cleaner writes kept records in format 2; the other replica was not cleaned."""
    lifted = write_batch(
        [RecordToWrite(b"key", VALUES[-1], offset_delta=COUNT - 1)],
        base_offset=0,
        base_timestamp=BASE_TIMESTAMP,
        partition_leader_epoch=-1,
    )
    result = scanned(tmp_path, lifted, old(1), cleaned=COUNT)
    assert {severity for _, severity in told(result)} <= {Severity.INFO}


@pytest.mark.parametrize(
    "options", [CollectOptions(compacted="orders"), CollectOptions(records=(RequestedRecords("orders", 0, 0, 20),))]
)
@pytest.mark.parametrize("right", [old(1), old(1, OTHER)], ids=["equal", "another value"])
def test_bundles_give_the_same_by_hashes_or_by_records(tmp_path: Path, options: CollectOptions, right: bytes) -> None:
    """Without either, it is reported which records are needed."""
    result = scanned(tmp_path / "copies", new(format_2(headers=HEADERS)), right)
    bundles = [make_bundle(tmp_path / "copies" / f"broker-{broker}", tmp_path / f"{broker}.kfb", options) for broker in (1, 2)]
    of_bundles = scan([str(bundle) for bundle in bundles], ScanOptions(jobs=1))
    assert of_bundles.incomplete == []
    assert [(it.kind, it.severity, it.place.offset_start) for it in of_bundles.findings] == [
        (it.kind, it.severity, it.place.offset_start) for it in result.findings
    ]


@pytest.mark.parametrize(("headers", "reason"), [((), "follows"), (HEADERS, "differs")])
def test_a_follower_in_an_older_format_holds_what_its_format_can(
    tmp_path: Path, headers: tuple[tuple[str, bytes | None], ...], reason: str
) -> None:
    scanned(tmp_path / "copies", new(format_2(headers=headers)), old(1))
    copies, file = str(tmp_path / "copies"), str(tmp_path / "plan.json")
    assert outcome(["plan", copies, "--output", file, "--quiet"]) == 0
    checked = verify([copies], read_promises(file), ScanOptions(jobs=1), ExecutedPlan())
    assert [promise.reason for promise in checked.promises if promise.promise == "cut"] == [reason]


@pytest.mark.parametrize("broker", [1, 2])
def test_damage_beside_an_older_format_has_its_good_copy_there(tmp_path: Path, broker: int) -> None:
    logs = [format_2(), old(1)]
    logs[broker - 1] = flip_bit(logs[broker - 1], 80)
    result = scanned(tmp_path, new(logs[0]), logs[1])
    [differs] = [finding for finding in result.findings if finding.kind == "REPLICA_DIFFERS"]
    assert (differs.place.broker, differs.evidence["held_by"], differs.evidence.get("premises")) == (broker, [3 - broker], None)
    assert "FORK_BELOW_HW" not in dict(told(result))
