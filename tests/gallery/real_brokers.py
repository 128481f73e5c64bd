"""Which faults are shown on log directories that real brokers wrote, and how such a scan differs from the scan of the written
base.

The brokers' base (`lab/fault_base.py`) has the batches of the written one at the same offsets and bytes, so the same injections
apply to both; but its brokers also have logs of a controller and of a coordinator, which give more findings.
"""

from collections import Counter
from typing import Final

from kafka_forensics.model.results import ScanResult
from tests.gallery.case import Case, Injected
from tests.gallery.cases import SECTIONS

Row = tuple[
    str | None, str, str, int | str | None, str | None, int | None, int | None, int | None, int | None, tuple[int, ...] | None
]
"""Topic, kind, severity, broker, file, bytes, offsets, holders of a finding."""

UNTOUCHED_FINDINGS: Final = ((None, "RISKY_CONFIG", "info"),)
"""All findings of the untouched base: the laboratory's topics have `min.insync.replicas` 1."""
INDEXES: Final = (".index", ".timeindex")
STOPPED_IN_TURN: Final = ("__cluster_metadata", "REPLICA_LAGS")
"""The controller keeps writing while brokers stop, so the ends of their copies of its log are random."""
HAND_MADE: Final = ("Committed offsets",)
"""Sections whose injections write an internal topic's log from nothing."""
LOST_WITH_ITS_TRANSACTION: Final = ("t", "TXN_PARTLY_LOST", "critical", 1, None, None, None, 29, 55, ())
DIFFERENCES: Final[dict[str, tuple[list[Row], list[Row]]]] = {
    "middle segment deleted on all three": ([], [LOST_WITH_ITS_TRANSACTION]),
    "the middle segment is missing on all, and on b3 it exists as `.deleted`": ([], [LOST_WITH_ITS_TRANSACTION]),
    "no `.snapshot` at all, after a clean shutdown": (
        [("t", "PRODUCER_SNAPSHOT_MISSING", "info", 2, None, None, None, None, None, None)],
        [("t", "PRODUCER_SNAPSHOT_MISSING", "warning", 2, None, None, None, None, None, None)],
    ),
    "only the `.log` of the first segment is missing on b1": (
        [("t", "SEGMENT_MISSING", "error", 1, None, None, None, 0, 29, (2, 3))],
        [("t", "SEGMENT_MISSING", "critical", 1, None, None, None, 0, 29, (2, 3))],
    ),
    "another cluster id on b2": ([(None, "RISKY_CONFIG", "info", None, None, None, None, None, None, None)], []),
    "the same where another partition has one": (
        [],
        [("u", "TOPIC_UNKNOWN_TO_CONTROLLER", "error", None, None, None, None, None, None, None)],
    ),
    "two copies under one node id": ([], [(None, "REPLICA_NOT_GIVEN", "info", 2, None, None, None, None, None, None)]),
}
"""Injection → findings only on the written base, findings only on the brokers' base.

In order: the coordinator's log shows that a lost transaction was committed; snapshots of `__transaction_state` prove a Kafka that
writes them; the controllers may elect b1; logs of two clusters' controllers give no settings; the controllers know no topic `u`;
they name a replica without a copy.
"""

NOT_ON_REAL_LOGS: Final = {
    "Bytes of a batch": "The rest are small logs with one wrong field each; a broker accepts none of them from a client.",
    "Compression": "A broker does not append batches that it cannot decompress; batches that it compresses are below (F23).",
    "Indexes, snapshots, checkpoints": "The others inject nothing, or concern directories that these brokers do not have.",
    "Replicas and producers": "The rest are whole histories. Those that these brokers can produce are below (F33, F35 to "
    "F37, F45); the others need versions before KIP-101 or a special controller's log.",
    "Compacted topics": "These cases choose the keys that the cleaner reads; a cleaner of a real broker is below (F39).",
    "Transactions": "These cases choose the ends of transactions, with up to hours between them; transactions of a minute are "
    "below (F41 to F44).",
    "The controllers' log, its snapshots and small files": "These brokers have one controller; real controllers cause the same "
    "states in `test_quorum_elections.py`, `test_rejected_records.py` and `test_starts.py` of `tests/broker`.",
    "Internal topics": "No coordinator and no controller writes such values.",
    "Committed offsets": "These cases choose the commits and their times; a group whose records are lost is below.",
    "Tiered topics": "These brokers have no remote store; the brokers of `tests/broker/test_tiered.py` cause the same states.",
    "Environment": "These cases use links outside of the log directories, change files during the scan (brokers do this, too: F46 "
    "below), or choose records.",
}
"""Section of the gallery → why not all its cases are injected into the brokers' base."""


def injections() -> list[tuple[str, Case]]:
    """(heading, case) of every case that can be injected into other replicas of the base."""
    return [
        (heading, case)
        for heading, cases in SECTIONS.items()
        for case in cases
        if isinstance(case.make, Injected) and heading not in HAND_MADE
    ]


def answer(result: ScanResult) -> Counter[Row]:
    """Every finding except INCIDENT_SIGNATURE and `STOPPED_IN_TURN`, with sorted holders and without bytes of indexes.

    An index has fewer entries if a broker was restarted, and a time index if markers have earlier timestamps than their neighbours.
    """
    rows: Counter[Row] = Counter()
    for finding in result.findings:
        place = finding.place
        if finding.kind == "INCIDENT_SIGNATURE" or (place.topic, finding.kind) == STOPPED_IN_TURN:
            continue
        in_index = place.file is not None and place.file.endswith(INDEXES)
        span = (None, None) if in_index else (place.byte_start, place.byte_end)
        holders = tuple(sorted(finding.evidence["held_by"])) if "held_by" in finding.evidence else None
        offsets = (place.offset_start, place.offset_end)
        rows[(place.topic, finding.kind, finding.severity.value, place.broker, place.file, *span, *offsets, holders)] += 1
    return rows


def expected(case: Case, written: Counter[Row], untouched: Counter[Row]) -> Counter[Row]:
    """The findings on the brokers' base, from those on the written base and those of the untouched brokers."""
    only_written, only_brokers = DIFFERENCES.get(case.injected, ([], []))
    all_findings = written + untouched
    assert not Counter(only_written) - all_findings
    return all_findings - Counter(only_written) + Counter(only_brokers)
