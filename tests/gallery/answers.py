"""The results of scans of every case of the gallery and its variants, as rows stored in `tests/faults/answers.json`.

After a change of a rule run `python -m tests.gallery.answers`, and read the difference before you commit it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import PartitionSummary, ReplicaSummary, ScanResult
from lab.fault_gallery import scanned
from tests.gallery.case import Case
from tests.gallery.cases import SECTIONS, VARIANTS
from tests.support.brokers import TOPIC_ID
from tests.support.kept_answers import write_answers
from tests.support.logs import HEALTHY, HIGH_WATERMARK, LOG_END

ANSWERS: Final = Path(__file__).parents[1] / "faults" / "answers.json"
CASES: Final[dict[str, Case]] = {
    f"{heading}: {case.fault} {case.injected}": case
    for heading, cases in {**SECTIONS, "Variants": VARIANTS}.items()
    for case in cases
}
HARMLESS: Final = {
    "P7 a valid record of 256 MiB in 261 KB of gzip",
    "F13 last batch cut short, after a crash",
    "P9 `.timeindex` without `.index`",
    "P10 `.txnindex`, nothing wrong",
    "F28 no `.snapshot` at all, after a clean shutdown",
    "F30 high watermark beyond the log end, with `--live`",
    "F33 the same as the first, with `--live`",
    "F39 F03 upwards on b2 where the cleaner left a gap on all",
    "F39 the same cleaned, with `--live`",
    "- the same with `--live`",
    "- a member of the ISR ends 60 records before the leader",
    "F46 `--live`: log older than checkpoints and indexes",
    "F46 `--live`: last batch cut short, clean shutdown marked",
    "F46 `--live`: an epoch newer than its checkpoint",
    "P8 ESC, OSC, BEL, C1 and bidi characters in records",
    "F47 links to itself and out of the log directory; one has the name of a segment",
    "F47 pipes; one has the name of a segment",
    "F47 a partition's directory that ends in `-delete`",
    "F47 a partition's directory that ends in `-future`",
    "F47 a partition's directory that ends in `-stray`",
    "F47 `.swap` and `.cleaned` leftovers",
    "F47 a `.log` of 8 TiB, all hole after the batches",
    "F47 the first segment exists as `.deleted`, which retention deleted",
    "F47 a truncated tail exists as `.deleted`",
    "F47 `.cleaned` files beside a `.swap`: half of a split",
    "F47 b2's directory is renamed to `-delete`",
    "F47 b2's directory is renamed to `-stray`",
}
"""Faults without findings above `info`, as for negative controls: they lose nothing, or `--live` makes them doubtful."""
CHANGING: Final = ("before", "after")
"""Evidence with times and inode numbers of this machine."""
REPEATED: Final = (
    *("stored_crc", "computed_crc", "key_hash", "places"),
    *("election_time", "first_timestamp", "last_timestamp", "transaction_start_timestamp"),
    *("transactional_id", "transaction_timeout_ms"),
)
"""Evidence that repeats bytes, times and names of the tree; no rule depends on it."""
USUAL: Final[dict[str, object]] = {
    "agreement": ["identical", LOG_END, {}],
    "reference": [1, {"reference": [1], "identical": [2, 3]}],
    "high_watermark": [HIGH_WATERMARK, "replication-offset-checkpoint of broker 1"],
    "control": [TOPIC_ID, "unknown", None, None, None],
}
"""Values that most partitions have; they are not stored."""
_ENDS: Final = [0, LOG_END, HIGH_WATERMARK, HIGH_WATERMARK]
_EPOCHS: Final = [[entry.leader_epoch, entry.start_offset] for entry in HEALTHY.epochs]
UNTOUCHED: Final = [_ENDS, _EPOCHS, len(HEALTHY.batches), LOG_END, 0, [3, 3, 0, 0]]
"""The row of an unchanged replica."""


def is_silent(case: Case) -> bool:
    """Whether no finding above `info` is expected."""
    return case.control or f"{case.fault} {case.injected}" in HARMLESS


def answer(result: ScanResult, root: Path) -> dict[str, Any]:
    """Findings, incidents and partitions of a scan, without values that depend on the machine."""
    rows = {
        "findings": _merge_brokers([finding_row(finding) for finding in result.findings], 4),
        "incidents": [
            [incident.cause.value, incident.severity.value, incident.lost_at_least, incident.lost_at_most, incident.held_by]
            for incident in result.incidents
        ],
        "incomplete": [[gap.path, gap.reason] for gap in result.incomplete],
        "partitions": {f"{summary.topic}-{summary.partition}": partition_row(summary) for summary in result.partitions},
    }
    text = json.dumps({name: value for name, value in rows.items() if value}, ensure_ascii=True)
    document: dict[str, Any] = json.loads(text.replace(json.dumps(str(root))[1:-1], ""))
    return document


def finding_row(finding: Finding) -> list[object]:
    """Kind, severity, confidence, partition, broker, file, bytes, offsets, evidence; of INCIDENT_SIGNATURE only incident and
    issue."""
    place = finding.place
    where = None if place.topic is None else f"{place.topic}-{place.partition}"
    evidence = without(dict(finding.evidence), *CHANGING, *REPEATED)
    if finding.kind == "INCIDENT_SIGNATURE":
        evidence = {name: finding.evidence[name] for name in ("incident", "issue")}
    spans = [place.byte_start, place.byte_end], [place.offset_start, place.offset_end]
    return [finding.kind, finding.severity.value, finding.confidence.value, where, place.broker, place.file, *spans, evidence]


def without(value: Any, *names: str) -> Any:
    """Evidence without these keys, at any depth."""
    if isinstance(value, dict):
        return {name: without(item, *names) for name, item in value.items() if name not in names}
    return [without(item, *names) for item in value] if isinstance(value, list | tuple) else value


def _merge_brokers(rows: list[list[Any]], broker: int) -> list[list[Any]]:
    """Merge rows that differ only in the broker into one row with a list of brokers, at the position of the first."""
    grouped: list[list[Any]] = []
    for row in rows:
        others = row[:broker] + row[broker + 1 :]
        same = next((merged for merged in grouped if merged[:broker] + merged[broker + 1 :] == others), None)
        if same is None:
            grouped.append([*row[:broker], [row[broker]], *row[broker + 1 :]])
        else:
            same[broker].append(row[broker])
    return grouped


def partition_row(summary: PartitionSummary) -> dict[str, object]:
    """Agreement, the reference, how brokers agree with it, high watermark, the controllers' state, and the replicas, where they
    differ from `USUAL`."""
    agreement = summary.agreement
    replicas = _merge_brokers(json.loads(json.dumps([replica_row(replica) for replica in summary.replicas])), 0)
    reference = next((replica.reference_broker for replica in summary.replicas if replica.reference_broker is not None), None)
    brokers: dict[str, list[int | str]] = {}
    for replica in summary.replicas:
        brokers.setdefault(str(replica.agreement_with_reference), []).append(replica.broker)
    row: dict[str, object] = {
        "agreement": [agreement.kind, agreement.common_end_offset, agreement.fork_epochs],
        "reference": [reference, brokers],
        "high_watermark": [summary.high_watermark_at_least, summary.high_watermark_witness],
        "control": [summary.topic_id, summary.cleanup_policy, summary.leader, summary.leader_epoch, summary.isr],
        "replicas": [[row[0], "untouched"] if row[1:] == UNTOUCHED else row for row in replicas],
    }
    return {name: value for name, value in row.items() if json.loads(json.dumps(value)) != USUAL.get(name)}


def replica_row(replica: ReplicaSummary) -> list[object]:
    """Broker, offsets, epochs, batches, records, missing offsets, transactions; and the outlook of a start if it changes
    anything."""
    counts, outlook = replica.transactions, replica.recovery
    ends = [replica.log_start_offset, replica.log_end_offset, replica.high_watermark, replica.last_stable_offset]
    row: list[object] = [replica.broker, ends, replica.leader_epochs, replica.batches, replica.records, replica.missing_offsets]
    row.append([counts.committed, counts.aborted, counts.open, counts.hanging])
    if outlook is not None and (outlook.steps or outlook.checks or outlook.log_end_offset != replica.log_end_offset):
        row.append([outlook.starts, outlook.log_start_offset, outlook.log_end_offset, outlook.checks, outlook.steps])
    return row


def main() -> None:
    """Write `answers.json`."""
    answers = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "brokers"
            answers[name] = answer(scanned(case, case.make(root)), root)
    write_answers(ANSWERS, answers, depth=3)


if __name__ == "__main__":
    main()
