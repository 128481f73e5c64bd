"""Faults that no case of the gallery has: broker names and times passed to a scan, unreadable files, memory and opened files."""

import json
import sys
from pathlib import Path

import pytest

from kafka_forensics.analysis.replicas import diff as differences
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.parsers.log.records import decode_batch
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.judging import whole_scan
from kafka_forensics.scanning.witnesses.controller import cleanup_policy
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from kafka_forensics.writers.batches import write_transaction_log_key
from tests.gallery.injections import make_undecodable, rewrite_record
from tests.gallery.of_bytes import HUGE, huge_value
from tests.gallery.of_controller import lost_member
from tests.gallery.of_leftovers import LINK, PIPE, all_at_once
from tests.gallery.transactions import COMMIT, HEAD, LATE, NOTHING, STATE, TIMES, cluster, decided, ended, wrong_clock
from tests.support.brokers import (
    DIRECTORY,
    TOPIC,
    TOPIC_ID,
    Brokers,
    healthy,
    put_brokers,
    put_differently_cleaned,
    put_log_dir,
    put_replicas,
)
from tests.support.controllers import CONTROLLER, ControllerLog, partition, topic, topic_with_isr, with_controller
from tests.support.faults_verdict import finding_rows, kind_counts, only_finding, scan, scan_brokers
from tests.support.logs import HEALTHY, CoordinatorLog, DataLog, Log, keyed_history, ms
from tests.support.peak_memory import peak_kib
from tests.support.segments import segment_file
from tests.support.unread import refuse

pytestmark = pytest.mark.faults


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return healthy(tmp_path / "brokers")


def paths_of(brokers: Brokers) -> list[str]:
    return [str(path) for path in brokers.log_dirs]


def test_untouched_replicas_are_read_whole(brokers: Brokers) -> None:
    totals = scan_brokers(brokers).totals
    assert totals.bytes_decoded == 3 * sum(len(batch.data) for batch in HEALTHY.batches)
    assert totals.bytes_damaged == totals.bytes_skipped == 0


def test_two_scans_give_the_same_bytes(tmp_path: Path) -> None:
    brokers = all_at_once(tmp_path)
    first, second = ("".join(json_document.document(local.scan(paths_of(brokers), ScanOptions(jobs=1)))) for _ in range(2))
    assert first == second


# Broker names and times passed to a scan.


@pytest.mark.parametrize(("copies", "found"), [
    (1, [("ISR_MEMBER_MISSING_COMMITTED", "critical", "b3"), ("REPLICA_NOT_GIVEN", "info", 2)]),
    (2, [("REPLICA_LAGS", "info", "b3"), ("REPLICA_NOT_GIVEN", "info", 2)]),
])  # fmt: skip
def test_named_brokers_are_identified_by_node_id(tmp_path: Path, copies: int, found: list[object]) -> None:
    """Two copies of one broker are not judged."""
    f33 = with_controller(lost_member(tmp_path), *topic_with_isr([1, 3]))
    if copies == 2:
        put_log_dir(f33.root / "b3-later", 3, {DIRECTORY: f33.log}, committed={DIRECTORY: 1})
    assert finding_rows(local.scan([f"{path.name}={path}" for path in f33.log_dirs], ScanOptions())) == found


def test_named_brokers_of_a_torn_transaction_are_matched_with_the_controllers_log(tmp_path: Path) -> None:
    logs = cluster(ended(30, COMMIT), ended(30, NOTHING), decided(30))
    state = partition([1, 2, 3], 1, partition_id=1, replicas=[1, 2, 3])
    control = ControllerLog().lead([CONTROLLER]).append(topic(), state).put(tmp_path / "controller")
    named = [f"{name}={path}" for name, path in zip("xyz", put_brokers(tmp_path / "b", logs).log_dirs, strict=True)]
    assert ("TXN_TORN", "critical", "x") in finding_rows(local.scan([*named, str(control)], ScanOptions()))


@pytest.mark.parametrize(("later_ms", "name"), [(0, "tombstones_expired"), (-1, "tombstones_early")])
def test_the_age_of_a_tombstone_is_counted_to_as_of(tmp_path: Path, later_ms: int, name: str) -> None:
    brokers = put_differently_cleaned(tmp_path, keyed_history(), {2: {0, 3, 4}})
    as_of_ms = 1_700_000_004_000 + 24 * 60 * 60 * 1000 + later_ms
    assert only_finding(local.scan(paths_of(brokers), ScanOptions(as_of_ms=as_of_ms)), "COMPACTION_SKEW").evidence[name] == 1


def test_as_of_counts_if_no_record_has_a_brokers_time(tmp_path: Path) -> None:
    data = DataLog()
    data.data(10)
    paths = put_brokers(tmp_path, {"t-0": data, "other-0": wrong_clock()}).log_dirs
    result = local.scan([str(path) for path in paths], ScanOptions(as_of_ms=ms(60)))
    assert {row for row in finding_rows(result) if row[0] == "TXN_OPEN"} == {("TXN_OPEN", "info", broker) for broker in (1, 2, 3)}


@pytest.mark.parametrize(("retention_ms", "severity"), [("1000", "info"), ("86400000", "warning")])
def test_a_tombstone_removed_before_delete_retention_ms(tmp_path: Path, retention_ms: str, severity: str) -> None:
    brokers = put_differently_cleaned(tmp_path, keyed_history(), {2: {0, 3, 4}})
    settings = {"delete.retention.ms": retention_ms}
    control = PartitionControl(1, 0, [1, 2, 3], [], [1, 2, 3], settings, TOPIC_ID, was_compacted=True)
    options, witnesses = ScanOptions(as_of_ms=1_700_000_010_000), Witnesses(ControllerHistory({(TOPIC, 0): control}))
    result = local.scan_inputs(gather(paths_of(brokers), ScanOptions()), options, witnesses=witnesses)
    assert finding_rows(result) == [("COMPACTION_SKEW", severity, None)]


@pytest.mark.parametrize("cleaned_by", [1, 2, 3])
def test_one_cleaner_checkpoint_makes_a_topic_compacted_and_is_a_premise(tmp_path: Path, cleaned_by: int) -> None:
    """The controller's copy is older than the change of policy; the cleaner checkpoint of one broker shows it."""
    brokers = put_differently_cleaned(tmp_path, keyed_history(), {cleaned_by: {0, 3}})
    control = PartitionControl(1, 0, [1, 2, 3], [], [1, 2, 3], {}, TOPIC_ID, cleanup_policy="delete", was_compacted=False)
    witnesses = Witnesses(ControllerHistory({(TOPIC, 0): control}))
    result = local.scan_inputs(gather(paths_of(brokers), ScanOptions()), ScanOptions(), witnesses=witnesses)
    others = sorted({1, 2, 3} - {cleaned_by})
    premise = f"compacted according to broker {cleaned_by}; nothing shows this for brokers {others[0]}, {others[1]}"
    assert premise in only_finding(result, "COMPACTION_SKEW").evidence["premises"]


def test_different_cleanup_policies_of_replicas_make_it_unknown() -> None:
    policies = ("delete", "compact", None)
    controls = [PartitionControl(1, 0, [1], [], [1], {}, TOPIC_ID, cleanup_policy=policy) for policy in policies]
    contexts = [ReplicaContext("t", 0, 1, "b1", "t-0", control=control) for control in controls]
    assert [cleanup_policy(replicas) for replicas in (contexts, contexts[1:], contexts[2:])] == ["unknown", "compact", "unknown"]


# Unreadable files, and too much to read.


def test_records_of_large_logs_are_decoded_only_on_request(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy: replicas that differ are decoded where they do."""
    make_undecodable(brokers, HEALTHY.batches[5], 1)

    def malformed(*, deep: bool | None) -> bool:
        return any(kind.startswith("RECORD_") for kind, _ in kind_counts(scan([brokers.log_dir(1)], deep=deep)))

    assert whole_scan.DEEP_BELOW_BYTES == 256 << 20
    assert malformed(deep=None)
    monkeypatch.setattr(whole_scan, "DEEP_BELOW_BYTES", 1000)
    assert (malformed(deep=None), malformed(deep=True)) == (False, True)


def test_replicas_with_an_unreadable_segment_are_not_compared(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    for refused, segment in enumerate((29, 55), 1):
        refuse(monkeypatch, brokers.file(2, segment).__eq__)
        result = local.scan(paths_of(brokers), ScanOptions(jobs=1))
        assert (finding_rows(result), len(result.incomplete)) == ([], refused)
        agreement = result.partitions[0].agreement
        assert (agreement.kind, agreement.common_end_offset) == ("not_compared", None)


def test_a_conflict_is_reported_despite_an_unreadable_segment(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite_record(brokers, 3, 40)
    refuse(monkeypatch, brokers.file(2, 29).__eq__)
    result = local.scan(paths_of(brokers), ScanOptions(jobs=1))
    assert finding_rows(result) == [("SAME_EPOCH_DIVERGENCE", "critical", None)]
    assert result.partitions[0].agreement.kind == "conflict"


def test_ranges_that_were_not_compared_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "RUNS_READ", 1)
    left, right = Log(tag="a"), Log(tag="a")
    for number in range(9):
        for log, tag in ((left, "a"), (right, "a" if number % 2 else "b")):
            log.next_offset = number << 16
            log.tag = tag
            log.plain()
    brokers = put_replicas(tmp_path, {1: left, 2: right}, 0)
    assert only_finding(scan_brokers(brokers), "SAME_EPOCH_DIVERGENCE").evidence["ranges_not_compared"] == 3
    monkeypatch.undo()
    assert "ranges_not_compared" not in only_finding(scan_brokers(brokers), "SAME_EPOCH_DIVERGENCE").evidence


def test_no_malformed_value_of_the_coordinators_log_breaks_the_scan(tmp_path: Path) -> None:
    """Every byte of a sound value set to four other values, and every prefix of it."""
    sound = HEAD + b"\x02\x02t\x02\0\0\0\0\0" + TIMES + b"\x01\0\x08" + bytes(8)
    values = [sound[:at] + bytes([new]) + sound[at + 1 :] for at in range(len(sound)) for new in (0, 1, 0x7F, 0xFF)]
    values += [sound[:size] for size in range(len(sound))]
    state = CoordinatorLog()
    for number, value in enumerate(values):
        state.value(number, write_transaction_log_key(f"id-{number % 7}"), value)
    found = kind_counts(scan(put_brokers(tmp_path, {"t-0": ended(30, NOTHING, traffic=LATE), STATE: state}).log_dirs))
    assert found["METADATA_RECORD_MALFORMED", "error"] > len(sound)
    assert {kind for kind, _ in found} == {"METADATA_RECORD_MALFORMED", "TXN_OPEN"}


OPENED: list[str] | None = None
"""Names of files opened by this process, while a test records them."""


def _opened(event: str, arguments: tuple[object, ...]) -> None:
    if OPENED is not None and event == "open":
        OPENED.append(Path(str(arguments[0])).name)


def test_all_leftovers_of_f47_and_no_file_outside_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = all_at_once(tmp_path)
    sys.addaudithook(_opened)
    names: list[str] = []
    monkeypatch.setattr(sys.modules[__name__], "OPENED", names)
    result = local.scan(paths_of(brokers), ScanOptions(jobs=1))
    monkeypatch.undo()
    assert segment_file(55) in names
    not_read = [segment_file(PIPE), segment_file(LINK - 1, "index"), segment_file(LINK), "u-0", "v-0"]
    assert not {*names} & {"secret", "loop", *not_read}
    assert [Path(gap.path).name for gap in result.incomplete] == not_read
    assert kind_counts(result) == {
        ("DIR_NAME_ILLEGAL", "warning"): 6,
        ("FILE_UNKNOWN", "info"): 7,
        ("LEFTOVER_HOLDS_DATA", "info"): 3,
        ("NON_REGULAR_SKIPPED", "info"): 5,
        ("SEG_ZERO_TAIL", "info"): 1,
        ("SPARSE_FILE", "info"): 1,
    }
    replica = result.partitions[0].replicas[1]
    assert (replica.log_end_offset, replica.read.value, replica.recovery) == (None, "part", None)


def test_p7_a_value_of_256_mib_is_measured_but_not_in_memory(tmp_path: Path) -> None:
    """A separate process, because its peak memory is tested."""
    brokers = huge_value(tmp_path)
    log = brokers.file(1, 0)
    assert log.stat().st_size < 300_000
    peak, out = peak_kib("scan", brokers.log_dir(1), "--deep", "--format", "json")
    answer = json.loads(out)
    assert (answer["findings"], answer["summary"]["verdict"]) == ([], "clean")
    assert peak < 400 << 10
    batch = brokers.log.batches[1]
    decoded = decode_batch(log.read_bytes()[batch.position : batch.end], position=batch.position)
    (decoded_record,) = decoded.iter_records()
    assert (
        decoded_record.offset,
        decoded_record.key_length,
        decoded_record.value_length,
        decoded_record.value,
        decoded.problems,
    ) == (1, 3, HUGE, None, [])
