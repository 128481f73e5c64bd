"""What a scan answers to every case of the gallery and to its variants, as rows that are kept in `tests/faults/answers.json`.

After a change of a rule: `python -m tests.support.fault_answers`, and read the difference before it is committed.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import PartitionSummary, ReplicaSummary, ScanResult
from lab.fault_gallery import scanned
from tests.support.gallery import SECTIONS, VARIANTS
from tests.support.gallery_case import Case

ANSWERS: Final = Path(__file__).parents[1] / "faults" / "answers.json"
CASES: Final[dict[str, Case]] = {
    f"{heading}: {case.fault} {case.injected}": case
    for heading, cases in {**SECTIONS, "Variants": VARIANTS}.items()
    for case in cases
}
CHANGING: Final = ("before", "after")
"""Evidence with times and file numbers of the machine."""


def answer(result: ScanResult, root: Path) -> dict[str, Any]:
    """Findings, incidents and partitions of a scan, without what depends on the machine."""
    rows = {
        "findings": [finding_row(finding) for finding in result.findings],
        "incidents": [
            [incident.cause.value, incident.severity.value, incident.lost_at_least, incident.lost_at_most, incident.held_by]
            for incident in result.incidents
        ],
        "incomplete": [[gap.path, gap.reason] for gap in result.incomplete],
        "partitions": {f"{summary.topic}-{summary.partition}": partition_row(summary) for summary in result.partitions},
    }
    text = json.dumps({name: value for name, value in rows.items() if value}, ensure_ascii=True)
    answered: dict[str, Any] = json.loads(text.replace(json.dumps(str(root))[1:-1], ""))
    return answered


def finding_row(finding: Finding) -> list[object]:
    """Kind, severity, confidence, partition, broker, file, bytes, offsets, evidence; of a likeness to an incident only whose."""
    place = finding.place
    where = None if place.topic is None else f"{place.topic}-{place.partition}"
    evidence: dict[str, object] = {name: value for name, value in finding.evidence.items() if name not in CHANGING}
    if finding.kind == "INCIDENT_SIGNATURE":
        evidence = {name: finding.evidence[name] for name in ("incident", "issue")}
    spans = [place.byte_start, place.byte_end], [place.offset_start, place.offset_end]
    return [finding.kind, finding.severity.value, finding.confidence.value, where, place.broker, place.file, *spans, evidence]


def partition_row(summary: PartitionSummary) -> dict[str, object]:
    """Agreement, high watermark, what the controllers say, and the replicas."""
    agreement = summary.agreement
    row: dict[str, object] = {
        "agreement": [agreement.kind, agreement.common_end_offset, agreement.fork_epochs],
        "high_watermark": [summary.high_watermark_at_least, summary.high_watermark_witness],
        "control": [summary.topic_id, summary.cleanup_policy, summary.leader, summary.leader_epoch, summary.isr],
        "replicas": [replica_row(replica) for replica in summary.replicas],
    }
    return row


def replica_row(replica: ReplicaSummary) -> list[object]:
    """Broker, offsets, epochs, batches, records, missing offsets, transactions; how a start goes, if it changes anything."""
    counts, outlook = replica.transactions, replica.recovery
    ends = [replica.log_start_offset, replica.log_end_offset, replica.high_watermark, replica.last_stable_offset]
    row: list[object] = [replica.broker, ends, replica.leader_epochs, replica.batches, replica.records, replica.missing_offsets]
    row.append([counts.committed, counts.aborted, counts.open, counts.hanging])
    if outlook is not None and (outlook.steps or outlook.checks or outlook.log_end_offset != replica.log_end_offset):
        row.append([outlook.starts, outlook.log_start_offset, outlook.log_end_offset, outlook.checks, outlook.steps])
    return row


def main() -> None:
    """Write `answers.json`, a line a case."""
    lines = []
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "brokers"
            lines.append(f"{json.dumps(name)}: {json.dumps(answer(scanned(case, case.make(root)), root))}")
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
