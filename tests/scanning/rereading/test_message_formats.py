"""Equal records in two message formats are no fork, in any compression and batch boundaries; different records are.

Headers and transactions, which the older format cannot hold, are reported as missing."""

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
    records_per_batch: int = COUNT,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    start: int = 0,
    **fields: object,
) -> bytes:
    """Batches of format 2, with at most `records_per_batch` records."""
    return b"".join(
        write_batch(
            [
                RecordToWrite(b"key", value, headers=headers, offset_delta=delta)
                for delta, value in enumerate(values[first : first + records_per_batch])
            ],
            base_offset=start + first,
            base_timestamp=BASE_TIMESTAMP,
            compression_type=codec,
            **fields,  # type: ignore[arg-type]
        )
        for first in range(0, len(values), records_per_batch)
    )


def older_format(
    magic: int,
    values: list[bytes] = VALUES,
    *,
    codec: str = "none",
    start: int = 0,
    timestamp: int = BASE_TIMESTAMP,
    kind: str = "CreateTime",
) -> bytes:
    """Messages of format 0 or 1: uncompressed entries, or, with a codec, one compressed wrapper."""
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


def led_from_epoch_0(log: bytes) -> Side:
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


def kinds_and_severities(result: ScanResult) -> list[tuple[str, Severity]]:
    return [(finding.kind, finding.severity) for finding in result.findings]


def only_finding(result: ScanResult) -> Finding:
    [finding] = result.findings
    return finding


def reencoded(result: ScanResult) -> Finding:
    [finding] = [finding for finding in result.findings if finding.kind == "BATCHES_REENCODED"]
    return finding


EQUAL: Final[dict[str, tuple[Side | bytes, Side | bytes, list[list[int]]]]] = {
    "2 and 1": (led_from_epoch_0(format_2()), older_format(1), [[2], [1]]),
    "2 and 0": (led_from_epoch_0(format_2()), older_format(0), [[2], [0]]),
    "1 and 0": (older_format(1), older_format(0), [[1], [0]]),
    "1 and 2": (older_format(1), led_from_epoch_0(format_2()), [[1], [2]]),
    "2 compressed and 1": (led_from_epoch_0(format_2(codec="zstd")), older_format(1), [[2], [1]]),
    "2 and 1 compressed": (led_from_epoch_0(format_2()), older_format(1, codec="gzip"), [[2], [1]]),
    "2 and 0 compressed": (led_from_epoch_0(format_2(records_per_batch=3)), older_format(0, codec="gzip"), [[2], [0]]),
    "1 and 0 compressed": (older_format(1, codec="snappy"), older_format(0, codec="gzip"), [[1], [0]]),
    "other boundaries": (
        led_from_epoch_0(format_2(records_per_batch=3)),
        older_format(1, VALUES[:8], codec="gzip") + older_format(1, VALUES[8:], codec="gzip", start=8),
        [[2], [1]],
    ),
    "an idempotent producer": (
        led_from_epoch_0(format_2(producer_id=7, producer_epoch=0, base_sequence=0)),
        older_format(1),
        [[2], [1]],
    ),
    "both in one log": (
        led_from_epoch_0(older_format(1, VALUES[:8]) + format_2(VALUES[8:], start=8)),
        older_format(0),
        [[1, 2], [0]],
    ),
    "the broker's time": (
        led_from_epoch_0(format_2(timestamp_type="LogAppendTime", max_timestamp=BASE_TIMESTAMP)),
        older_format(1, kind="LogAppendTime"),
        [[2], [1]],
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_records_in_two_formats_are_no_fork(tmp_path: Path, name: str) -> None:
    left, right, formats = EQUAL[name]
    result = scanned(tmp_path, left, right)
    finding = reencoded(result)
    assert [severity for _, severity in kinds_and_severities(result)] == [Severity.INFO] * len(result.findings)
    assert (finding.place.offset_start, finding.place.offset_end) == (0, COUNT)
    assert finding.evidence["message_formats"] == formats
    assert finding.evidence.get("not_compared") == (["timestamps"] if [0] in formats else None)
    assert result.partitions[0].agreement.kind == "identical"
    assert compare([str(tmp_path)], ScanOptions(jobs=1)).first_difference is None
    [planned] = make_plans([str(tmp_path)], ScanOptions(jobs=1), PlanOptions()).planned
    assert [candidate.losses for candidate in planned.plan.candidates] == [(), ()]


DIFFERENT: Final[dict[str, tuple[Side | bytes, Side | bytes]]] = {
    "2 and 1": (led_from_epoch_0(format_2()), older_format(1, OTHER)),
    "2 and 0": (led_from_epoch_0(format_2()), older_format(0, OTHER)),
    "1 and 0": (older_format(1), older_format(0, OTHER)),
    "compressed": (led_from_epoch_0(format_2(codec="zstd")), older_format(1, OTHER, codec="gzip")),
    "other boundaries": (
        led_from_epoch_0(format_2(OTHER, records_per_batch=3)),
        older_format(1, VALUES[:8], codec="gzip") + older_format(1, VALUES[8:], codec="gzip", start=8),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_value_is_a_fork_at_its_offset(tmp_path: Path, name: str) -> None:
    result = scanned(tmp_path, *DIFFERENT[name])
    fork = next(finding for finding in result.findings if finding.kind == "FORK_BELOW_HW")
    assert (fork.severity, fork.place.offset_start, fork.place.offset_end) == (Severity.CRITICAL, 7, 8)
    assert {kind for kind, _ in kinds_and_severities(result)} <= {"FORK_BELOW_HW", "BATCHES_REENCODED", "INCIDENT_SIGNATURE"}
    assert all((finding.place.offset_end or 0) <= 7 for finding in result.findings if finding.kind == "BATCHES_REENCODED")
    side_by_side = compare([str(tmp_path)], ScanOptions(jobs=1))
    assert side_by_side.first_difference == 7
    assert [row.offset for row in side_by_side.rows if row.differs] == [7]


@pytest.mark.parametrize(
    "right",
    [older_format(1, timestamp=BASE_TIMESTAMP + 1), older_format(1, kind="LogAppendTime")],
    ids=["timestamp", "timestamp type"],
)
def test_timestamps_count_where_both_formats_have_them(tmp_path: Path, right: bytes) -> None:
    result = scanned(tmp_path, led_from_epoch_0(format_2()), right)
    assert "FORK_BELOW_HW" in dict(kinds_and_severities(result))


def test_a_copy_in_the_older_format_belongs_to_the_version_with_equal_records(tmp_path: Path) -> None:
    """Records without a leader epoch form no separate version if another copy has equal records with one."""
    result = scanned(
        tmp_path,
        led_from_epoch_0(format_2(records_per_batch=1)),
        older_format(1),
        Side(format_2(OTHER, records_per_batch=1, partition_leader_epoch=1), ((1, 0),)),
    )
    fork = next(finding for finding in result.findings if finding.severity is Severity.CRITICAL)
    assert [(version["brokers"], version["epoch"]) for version in fork.evidence["versions"]] == [([1, 2], 0), ([3], 1)]


def test_a_record_missing_in_the_old_format_is_a_gap(tmp_path: Path) -> None:
    result = scanned(tmp_path, led_from_epoch_0(format_2()), older_format(1, VALUES[:7]) + older_format(1, VALUES[8:], start=8))
    [gap] = [finding for finding in result.findings if finding.severity is not Severity.INFO]
    assert (gap.kind, gap.severity, gap.place.offset_start, gap.evidence["held_by"]) == ("OFFSET_GAP", Severity.CRITICAL, 7, [1])


def test_a_record_missing_inside_a_wrapper_is_a_fork(tmp_path: Path) -> None:
    entries = [write_legacy_entry(b"key", value, offset=offset, magic=0) for offset, value in enumerate(VALUES) if offset != 7]
    wrapper = write_legacy_wrapper(entries, offset=COUNT - 1, magic=0, compression_type="gzip")
    result = scanned(tmp_path, led_from_epoch_0(format_2()), wrapper)
    fork = next(finding for finding in result.findings if finding.kind == "FORK_BELOW_HW")
    assert (fork.place.offset_start, fork.place.offset_end) == (7, 8)


def test_headers_missing_in_the_old_format_are_reported(tmp_path: Path) -> None:
    result = scanned(tmp_path, led_from_epoch_0(format_2(headers=HEADERS)), older_format(1))
    finding = only_finding(result)
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
    finding = only_finding(scanned(tmp_path, led_from_epoch_0(log), older_format(1)))
    assert (finding.place.offset_start, finding.place.offset_end) == (0, COUNT)
    assert finding.evidence["lacking"] == [{"offset_start": 7, "offset_end": 9, "brokers": [2]}]
    planned = make_plans([str(tmp_path)], ScanOptions(jobs=1), PlanOptions()).planned[0].plan
    lost = {candidate.broker: [(loss.start, loss.end) for loss in candidate.losses] for candidate in planned.candidates}
    assert lost == {1: [], 2: [(7, 9)]}


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_markers_missing_in_the_old_format_are_no_loss(tmp_path: Path, commit: bool) -> None:
    transaction = format_2(VALUES[:7], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = write_marker(
        commit=commit, base_offset=7, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=BASE_TIMESTAMP
    )
    result = scanned(
        tmp_path,
        led_from_epoch_0(transaction + marker + format_2(VALUES[8:], start=8)),
        older_format(1, VALUES[:7]) + older_format(1, VALUES[8:], start=8),
    )
    [gap] = [finding for finding in result.findings if finding.kind == "OFFSET_GAP"]
    assert (gap.severity, gap.evidence["control_batches_left_out"]) == (Severity.INFO, True)
    finding = reencoded(result)
    assert (finding.severity, finding.evidence["without_transactions"]) == (Severity.WARNING, [2])


def test_a_record_at_the_offset_of_a_marker_is_a_fork(tmp_path: Path) -> None:
    marker = write_marker(
        commit=True, base_offset=7, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=BASE_TIMESTAMP
    )
    result = scanned(tmp_path, led_from_epoch_0(format_2(VALUES[:7]) + marker + format_2(VALUES[8:], start=8)), older_format(1))
    fork = next(finding for finding in result.findings if finding.kind == "FORK_BELOW_HW")
    assert (fork.place.offset_start, fork.place.offset_end) == (7, 8)


def test_a_log_that_the_cleaner_converted_has_no_finding_above_info(tmp_path: Path) -> None:
    """Since Kafka 4.0 the cleaner writes the remaining records in format 2; the other replica was not cleaned."""
    converted = write_batch(
        [RecordToWrite(b"key", VALUES[-1], offset_delta=COUNT - 1)],
        base_offset=0,
        base_timestamp=BASE_TIMESTAMP,
        partition_leader_epoch=-1,
    )
    result = scanned(tmp_path, converted, older_format(1), cleaned=COUNT)
    assert {severity for _, severity in kinds_and_severities(result)} <= {Severity.INFO}


@pytest.mark.parametrize(
    "options", [CollectOptions(compacted="orders"), CollectOptions(records=(RequestedRecords("orders", 0, 0, 20),))]
)
@pytest.mark.parametrize("right", [older_format(1), older_format(1, OTHER)], ids=["equal", "another value"])
def test_bundles_with_hashes_or_records_give_the_same_findings(tmp_path: Path, options: CollectOptions, right: bytes) -> None:
    """Without hashes or records, the finding names the records that are needed."""
    result = scanned(tmp_path / "copies", led_from_epoch_0(format_2(headers=HEADERS)), right)
    bundles = [make_bundle(tmp_path / "copies" / f"broker-{broker}", tmp_path / f"{broker}.kfb", options) for broker in (1, 2)]
    bundle_result = scan([str(bundle) for bundle in bundles], ScanOptions(jobs=1))
    assert bundle_result.incomplete == []
    assert [(finding.kind, finding.severity, finding.place.offset_start) for finding in bundle_result.findings] == [
        (finding.kind, finding.severity, finding.place.offset_start) for finding in result.findings
    ]


@pytest.mark.parametrize(("headers", "reason"), [((), "follows"), (HEADERS, "differs")])
def test_verify_accepts_a_follower_in_an_older_format_unless_headers_are_missing(
    tmp_path: Path, headers: tuple[tuple[str, bytes | None], ...], reason: str
) -> None:
    scanned(tmp_path / "copies", led_from_epoch_0(format_2(headers=headers)), older_format(1))
    copies, file = str(tmp_path / "copies"), str(tmp_path / "plan.json")
    assert outcome(["plan", copies, "--output", file, "--quiet"]) == 0
    checked = verify([copies], read_promises(file), ScanOptions(jobs=1), ExecutedPlan())
    assert [promise.reason for promise in checked.promises if promise.promise == "cut"] == [reason]


@pytest.mark.parametrize("broker", [1, 2])
def test_a_damaged_batch_has_a_good_copy_in_the_other_format(tmp_path: Path, broker: int) -> None:
    logs = [format_2(), older_format(1)]
    logs[broker - 1] = flip_bit(logs[broker - 1], 80)
    result = scanned(tmp_path, led_from_epoch_0(logs[0]), logs[1])
    [differs] = [finding for finding in result.findings if finding.kind == "REPLICA_DIFFERS"]
    assert (differs.place.broker, differs.evidence["held_by"], differs.evidence.get("premises")) == (broker, [3 - broker], None)
    assert "FORK_BELOW_HW" not in dict(kinds_and_severities(result))
