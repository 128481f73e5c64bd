"""How the table of versions judges a scan: by what clients and brokers say, and by that alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.version_histories import State, batch_positions, delete_segment, scanned, segments
from lab.version_table import Cell, summary, table
from lab.version_workload import lost, spans
from lab.versions import VERSIONS

EVENTS = ("events", 0)


def loss(topic: str = "events") -> Finding:
    return finding("UNCLEAN_LOSS", Place(topic, 0, 1, offset_start=3, offset_end=5), severity=Severity.CRITICAL)


def lag(severity: Severity = Severity.INFO, **evidence: int) -> Finding:
    return finding("REPLICA_LAGS", Place("events", 0, 1, offset_start=3, offset_end=5), evidence, severity=severity)


def cell(tmp_path: Path, state: State, *findings: Finding) -> Cell:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=lab\nnode.id=1\n")
    (tmp_path / "events-0").mkdir(exist_ok=True)
    log = tmp_path / "events-0" / f"{0:020}.log"
    log.write_bytes(write_batch([RecordToWrite(b"k", b"v")], base_offset=0, base_timestamp=1_700_000_000_000))
    result = local.scan([str(tmp_path)], ScanOptions(jobs=1))
    return Cell("9.9.9", state, replace(result, findings=list(findings)))


@pytest.mark.parametrize(
    ("state", "said", "wrong"),
    [
        (State("healthy", ()), [lag()], []),
        (State("healthy", ()), [lag(Severity.WARNING)], ["false alarm: warning REPLICA_LAGS events-0 on 1 [3, 5)"]),
        (State("live", (), live=True), [lag()], []),
        (State("live", (), live=True), [loss()], ["false alarm: critical UNCLEAN_LOSS events-0 on 1 [3, 5)"]),
        (State("lossy", (), touched=frozenset({EVENTS}), lost={EVENTS: [3, 4]}), [loss()], []),
        (State("lossy", (), touched=frozenset({EVENTS}), lost={EVENTS: [3, 4]}), [lag()], ["missed: events-0 lost [(3, 5)]"]),
        (State("lossy", (), touched=frozenset({EVENTS}), lost={EVENTS: [3, 4]}, healed=True), [], []),
        (State("older", (), touched=frozenset({EVENTS}), lost={EVENTS: [3]}, only_suspect=True), [lag(committed=2)], []),
        (State("older", (), touched=frozenset({EVENTS}), lost={EVENTS: [3]}, only_suspect=True), [loss()], []),
        (
            State("older", (), touched=None, lost={EVENTS: [3]}, only_suspect=True),
            [lag(), finding("RISKY_CONFIG", Place())],
            ["missed: events-0 lost [(3, 4)]"],
        ),
        (
            State("lossy", (), touched=frozenset({EVENTS}), lost={EVENTS: [3, 4]}),
            [loss(), loss("orders")],
            ["false alarm: critical UNCLEAN_LOSS orders-0 on 1 [3, 5)"],
        ),
        (State("damaged", (), touched=frozenset({EVENTS}), started=True), [], ["missed: nothing said of events-0"]),
        (State("damaged", (), touched=frozenset({EVENTS}), started=True), [lag()], []),
        (State("all", (), touched=None, lost={EVENTS: [0]}), [loss("orders")], ["missed: events-0 lost [(0, 1)]"]),
    ],
)
def test_a_scan_is_right_or_wrong(tmp_path: Path, state: State, said: list[Finding], wrong: list[str]) -> None:
    assert cell(tmp_path, state, *said).wrong == wrong


def test_the_table_has_a_row_for_each_version_and_state(tmp_path: Path) -> None:
    live = State("copied live", (), live=True)
    judged = [cell(tmp_path, live), cell(tmp_path, live, loss()), cell(tmp_path, State("stopped one by one", ()), lag())]
    rows = table(judged).splitlines()
    assert rows[2] == (
        "| 9.9.9 | copied live | 2 | healthy | clean / critical: UNCLEAN_LOSS | "
        "false alarm: critical UNCLEAN_LOSS events-0 on 1 [3, 5) |"
    )
    assert rows[3] == "| 9.9.9 | stopped one by one | 1 | healthy | info | yes |"
    assert summary(judged).splitlines() == [
        "healthy copies: 1, judged wrongly: 0",
        "live copies: 2, judged wrongly: 1",
        "copies with a history: 0, judged wrongly: 0",
    ]


@pytest.mark.parametrize(
    ("after", "gone"),
    [
        ({EVENTS: {0: b"a", 1: b"b", 2: b"c"}}, {}),
        ({EVENTS: {0: b"a", 1: b"x"}}, {EVENTS: [1, 2]}),
        ({EVENTS: {0: b"a", 1: b"b", 2: b"c", 3: b"d"}}, {}),
        ({}, {EVENTS: [0, 1, 2]}),
    ],
)
def test_lost_is_what_readers_do_not_get_any_more(
    after: Mapping[tuple[str, int], Mapping[int, bytes]], gone: Mapping[tuple[str, int], list[int]]
) -> None:
    assert lost({EVENTS: {0: b"a", 1: b"b", 2: b"c"}}, after) == gone


def test_offsets_are_told_as_ranges() -> None:
    assert spans([]) == []
    assert spans([5, 1, 2, 3, 9]) == [(1, 4), (5, 6), (9, 10)]


def test_a_segment_goes_with_its_indexes_and_no_other(tmp_path: Path) -> None:
    for base in (0, 10, 20):
        for suffix in ("log", "index", "timeindex", "snapshot"):
            (tmp_path / f"{base:020}.{suffix}").touch()
    delete_segment(tmp_path, 1)
    assert [path.stem for path in segments(tmp_path)] == [f"{0:020}", f"{20:020}"]
    assert [path.suffix for path in tmp_path.glob(f"{10:020}.*")] == [".snapshot"]


def test_batches_are_found_where_they_begin(tmp_path: Path) -> None:
    batches = [write_batch([RecordToWrite(b"k", b"v" * n)], base_offset=n, base_timestamp=1) for n in range(3)]
    log = tmp_path / "log"
    log.write_bytes(b"".join(batches))
    assert batch_positions(log) == [0, len(batches[0]), len(batches[0]) + len(batches[1])]


def test_zookeepers_data_are_not_scanned(tmp_path: Path) -> None:
    for name in ("broker-1", "broker-1-b", "controller-100", "zookeeper-100"):
        (tmp_path / name).mkdir()
    assert [path.name for path in scanned(tmp_path)] == ["broker-1", "broker-1-b", "controller-100"]


def test_seven_versions_are_played() -> None:
    assert list(VERSIONS) == ["1.1.1", "2.8.2", "3.3.2", "3.6.2", "3.9.1", "4.1.1", "4.3.0"]
    assert all(version.pom.is_file() for version in VERSIONS.values())
