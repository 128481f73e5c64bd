"""What the checkpoint of a broker whose partition directory is gone proves to be lost: it reaches beyond the copies left."""

from collections.abc import Sequence

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.engine.inputs import Inputs, LogDir
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.results import Incomplete, PartitionSummary

_Key = tuple[str | None, int | None]
_MADE_EARLIER = "the other copies were made before that checkpoint was written, while their brokers ran"


def lost_beyond_copies(
    inputs: Inputs, findings: list[Finding], partitions: list[PartitionSummary], incomplete: Sequence[Incomplete]
) -> list[Finding]:
    """`COMMITTED_LOST_EVERYWHERE` of partitions with a `REPLICA_MISSING` among `findings` whose high watermark no log reaches.

    `partitions` are of all brokers given, and are brought up to date. Nothing is said where a log could not be read to its end,
    where another directory holds the missing replica, where the controller's log gives that broker none (then the finding is
    `info`), or where the copies are of several topics or clusters.
    """
    gone: dict[_Key, list[Finding]] = {}
    for one in findings:
        if one.kind == "REPLICA_MISSING" and one.severity is not Severity.INFO:
            gone.setdefault((one.place.topic, one.place.partition), []).append(one)
    mixed = {(one.place.topic, one.place.partition) for one in findings if one.kind == "TOPIC_ID_MISMATCH"}
    lost = []
    for summary in partitions:
        key = summary.topic, summary.partition
        missing = gone.get(key, [])
        if not missing or key in mixed or any("also_in" in one.evidence for one in missing):
            continue
        best = max(missing, key=lambda one: int(one.evidence["high_watermark"]))
        committed, end = int(best.evidence["high_watermark"]), max(one.log_end_offset for one in summary.replicas)
        holders = [one for one in inputs.log_dirs if one.broker in {each.broker for each in summary.replicas}]
        if committed <= end or _unread(inputs, summary, incomplete) or not _one_cluster(inputs, best, holders):
            continue
        lost.append(_finding(missing, best, end, running=any(one.clean_shutdown is None for one in holders)))
        summary.high_watermark_at_least, summary.high_watermark_witness = committed, lost[-1].evidence["witness"]
        summary.verdict = Severity.CRITICAL.value
    return lost


def _finding(missing: list[Finding], best: Finding, end: int, *, running: bool) -> Finding:
    committed = best.evidence["high_watermark"]
    evidence = {
        "missing": committed - end,
        "high_watermark": committed,
        "witness": f"replication-offset-checkpoint of broker {best.place.broker}",
        "log_end_offset": end,
        "directories_missing_on": [one.place.broker for one in missing],
        "held_by": [],
    } | ({"harmless_if": _MADE_EARLIER} if running else {})
    place = Place(best.place.topic, best.place.partition, offset_start=end, offset_end=committed)
    confidence = Confidence.SUSPECTED if running else Confidence.INFERRED
    return finding("COMMITTED_LOST_EVERYWHERE", place, evidence, confidence=confidence)


def _unread(inputs: Inputs, summary: PartitionSummary, incomplete: Sequence[Incomplete]) -> bool:
    """Whether a copy of the partition could not be read, all of it or in part."""
    key = summary.topic, summary.partition
    if any((one.topic, one.partition) == key for log_dir in inputs.log_dirs for one in log_dir.found.unlisted):
        return True
    directories = [f"{one.log_dir}/{one.directory}/" for one in summary.replicas]
    return any(one.path.startswith(each) for one in incomplete for each in directories)


def _one_cluster(inputs: Inputs, witness: Finding, holders: list[LogDir]) -> bool:
    """Whether no two cluster ids are known of the witness's log directory and of those that hold copies."""
    bearing = inputs.log_dirs_at(witness.place)
    return len({one.meta.cluster_id for one in [*bearing, *holders] if one.meta is not None} - {None}) < 2
