"""What committed group offsets prove about the partitions they point into: lost records, or a high watermark.

A consumer reads only below the high watermark and commits the offset after what it read, so an offset x committed at time t proves
that [0, x) was committed to the log then. But no broker checks what a client commits: each finding names the premises, and which of
them the evidence confirms.
"""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.comparison import Comparison
from kafka_forensics.analysis.replicas.diff import BatchReader
from kafka_forensics.analysis.replicas.readers import TimestampAt, held_back_finding, readable
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.coordinators import CommittedOffset, GroupLog
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import GroupOffsetEvidence, MetadataMalformedEvidence

_GROUPS_NAMED: Final = 16
_WITNESSES_TRIED: Final = 8


class _Premises(Struct, frozen=True):
    """What the evidence says about a commit beyond every log end."""

    complete: bool
    """The copies include every replica, or a member of the ISR."""
    several: bool
    """There are several copies, though nothing says whether these are all."""
    later: bool
    """A copy has a timestamp set by a broker after the commit: the log continued below what was committed."""
    later_by_clients: bool
    """A copy has a record with a timestamp after the commit, perhaps set by its producer."""
    consumed: bool
    """The commit has the epoch of the last record read, which a manual reset does not set."""
    same_topic: bool
    """The commit has the topic id of the copies."""
    recreated: bool
    """Nothing in any copy is older than the commit."""

    def verdict(self) -> tuple[Severity, Confidence]:
        """Severity and confidence of the finding."""
        if not self.complete and not self.several:
            return Severity.INFO, Confidence.SUSPECTED
        if self.recreated and not self.same_topic:
            return Severity.WARNING, Confidence.SUSPECTED
        if self.complete and self.later and self.consumed:
            return Severity.CRITICAL, Confidence.PROVEN
        return Severity.CRITICAL, Confidence.INFERRED if self.later_by_clients else Confidence.SUSPECTED

    def lines(self) -> list[str]:
        """Premises for the evidence, one short line each."""
        return [
            "every replica, or a member of the ISR, is among the copies"
            if self.complete
            else "the copies are all existing replicas (there is no controller's log)",
            "a copy has records with timestamps that a broker wrote after the commit"
            if self.later
            else "a copy has records with producers' timestamps after the commit, and the producers' clocks were right"
            if self.later_by_clients
            else "the copies of the log are not older than the copy of __consumer_offsets (their records are)",
            "the commit names the epoch of the last record read" if self.consumed else "the offset was not set by hand",
            "the commit names the topic id of the copies"
            if self.same_topic
            else "the topic was not created again since the commit",
        ]

    def harmless_if(self) -> str | None:
        """Harmless explanations that the evidence does not exclude."""
        ahead = "a client's clock was ahead, and " if self.later_by_clients else ""
        doubts = (
            (not self.complete, "a longer replica was not given"),
            (not self.same_topic, "the topic was created again after the commit"),
            (not self.later, f"{ahead}the log was copied before the offset was committed"),
            (not self.consumed, "the offset was set by hand"),
        )
        open_doubts = [text for doubt, text in doubts if doubt]
        return ", or ".join(open_doubts) or None


def beyond_log(replicas: list[Replica], reader: BatchReader) -> list[Finding]:
    """`GROUP_OFFSET_BEYOND_LOG`, once for a partition: the largest offset that a group committed beyond every log's end.

    `replicas` are of one topic in one cluster. No finding if the end of a log is unknown.
    """
    if not replicas or not all(replica.end_is_known for replica in replicas):
        return []
    end = max(replica.log_end_offset for replica in replicas)
    beyond = [commit for commit in _commits_of_topic(replicas) if commit.greatest.offset > end]
    if not beyond:
        return []
    best = max(beyond, key=lambda commit: (commit.greatest.offset, commit.greatest.commit_timestamp, commit.group))
    groups = {commit.group for commit in beyond}
    premises = _premises(replicas, best, reader)
    severity, confidence = premises.verdict()
    newest = max(replica.state.framing.max_timestamp for replica in replicas)
    evidence: GroupOffsetEvidence = {
        "group": best.group,
        "groups": sorted(groups)[:_GROUPS_NAMED],
        "groups_count": len(groups),
        "committed_offset": best.greatest.offset,
        "commit_timestamp": best.greatest.commit_timestamp,
        "consumed_epoch": best.greatest.leader_epoch,
        "log_end_offset": end,
        "newest_timestamp": newest,
        "missing": best.greatest.offset - end,
        "commit_record": {
            "topic": "__consumer_offsets",
            "partition": best.log_partition,
            "broker": best.broker,
            "offset": best.greatest_record_offset,
        },
        "held_by": [],
        "premises": premises.lines(),
    }
    if (harmless_if := premises.harmless_if()) is not None:
        evidence["harmless_if"] = harmless_if
    if best.unknown_after is not None:
        evidence["unknown_after_offset"] = best.unknown_after
    if all(commit.last.offset <= end and commit.unknown_after is None for commit in beyond):
        evidence["set_back_to"], evidence["set_back_ms"] = best.last.offset, best.last.commit_timestamp
        severity = min(severity, Severity.WARNING, key=lambda severity: severity.rank)  # its consumers know, or an operator
    place = Place(best.topic, best.partition, offset_start=end, offset_end=best.greatest.offset)
    return [finding("GROUP_OFFSET_BEYOND_LOG", place, evidence, severity=severity, confidence=confidence)]


def group_findings(
    replicas: list[Replica], reader: BatchReader, comparison: Comparison, all_replicas: list[Replica] | None = None
) -> list[Finding]:
    """Findings from groups and the ISR about a partition whose replicas, all of one topic in one cluster, were compared.

    A commit may raise `comparison`'s high watermark, see `raise_high_watermark`. `all_replicas`: these replicas and the unreadable
    ones.
    """
    raise_high_watermark(replicas, reader, comparison)
    findings = beyond_log(all_replicas or replicas, reader)
    if not comparison.conflicts and all(replica.end_is_known for replica in all_replicas or replicas):
        answer = readable(replicas, replicas[0].context.control, timestamps_of(reader), comparison.high_watermark)
        findings += held_back_finding(replicas, answer)
    return findings


def timestamps_of(reader: BatchReader) -> TimestampAt:
    """A function that returns the timestamp of the batch at an offset of a replica, for `readable`."""

    def timestamp_at(replica: Replica, offset: int) -> int | None:
        timestamp = _timestamp(replica, offset, reader)
        return timestamp if timestamp >= 0 else None

    return timestamp_at


def _timestamp(replica: Replica, offset: int, reader: BatchReader) -> int:
    rows = reader.batches(replica, offset, offset + 1)
    return int(rows[BatchColumn.BASE_TIMESTAMP, 0]) if rows.shape[1] else -1


def _commits_of_topic(replicas: list[Replica]) -> list[CommittedOffset]:
    """Commits without another topic id than that of the copies."""
    ids = {replica.context.topic_id for replica in replicas} - {None}
    commits = {id(commit): commit for replica in replicas for commit in replica.context.committed}
    return [commit for commit in commits.values() if not ids or commit.greatest.topic_id is None or commit.greatest.topic_id in ids]


def _premises(replicas: list[Replica], commit: CommittedOffset, reader: BatchReader) -> _Premises:
    brokers = {replica.context.node for replica in replicas}
    control = next((replica.context.control for replica in replicas if replica.context.control is not None), None)
    assigned, isr = ((), ()) if control is None else (control.replica_assignment or (), control.isr or ())
    moment = commit.greatest.commit_timestamp
    first = [_timestamp(replica, replica.first_batch_offset, reader) for replica in replicas]
    oldest = [timestamp for timestamp in first if timestamp >= 0]
    return _Premises(
        complete=(bool(assigned) and brokers.issuperset(assigned)) or not brokers.isdisjoint(isr),
        several=len(brokers) > 1 and not assigned,
        later=any(replica.state.framing.broker_timestamp >= moment > 0 for replica in replicas),
        later_by_clients=any(replica.state.framing.max_timestamp >= moment > 0 for replica in replicas),
        consumed=commit.greatest.leader_epoch >= 0,
        same_topic=commit.greatest.topic_id is not None
        and commit.greatest.topic_id in {replica.context.topic_id for replica in replicas},
        recreated=not oldest or min(oldest) > moment,
    )


def raise_high_watermark(replicas: list[Replica], reader: BatchReader, comparison: Comparison) -> None:
    """Raise the high watermark to a committed group offset that is larger than every checkpointed one.

    Only if all replicas agree as far as they go, because a commit does not name the log that was read; and only if the record
    before it exists and is not newer than the commit, because otherwise it may be of an earlier log.
    """
    if comparison.conflicts or not replicas or any(finding.kind == "UNCLEAN_LOSS" for finding in comparison.findings):
        return
    floor = comparison.high_watermark or 0
    end = max(replica.log_end_offset for replica in replicas)
    commits = [commit for commit in _commits_of_topic(replicas) if floor < commit.greatest.offset <= end]
    commits.sort(key=lambda commit: (-commit.greatest.offset, commit.group))
    for commit in commits[:_WITNESSES_TRIED]:
        if any(_may_have_been_read(commit, replica, reader) for replica in replicas):
            comparison.high_watermark = commit.greatest.offset
            comparison.witness = f"offset {commit.greatest.offset} committed by group {commit.group}"
            return


def _may_have_been_read(commit: CommittedOffset, replica: Replica, reader: BatchReader) -> bool:
    """Whether the replica has the record before the committed offset, not newer than the commit."""
    offset, moment = commit.greatest.offset, commit.greatest.commit_timestamp
    if replica.log_end_offset < offset or moment <= 0:
        return False
    batches = reader.batches(replica, offset - 1, offset)
    return bool(batches.shape[1]) and 0 <= int(batches[BatchColumn.MAX_TIMESTAMP].max()) <= moment


def malformed_findings(log: GroupLog) -> list[Finding]:
    """`METADATA_RECORD_MALFORMED` for each unreadable record that was kept; the last finding has the number of the others."""
    findings = []
    for number, record in enumerate(log.malformed, 1):
        log_place = record.topic, record.partition, record.broker, record.log_dir, record.file
        place = Place(*log_place, record.byte_start, record.byte_end, record.offset, record.offset + 1)
        evidence: MetadataMalformedEvidence = {"reason": record.reason, "unknown_after_offset": record.offset - 1}
        if record.record_type is not None:
            evidence["record_type"] = record.record_type
        if number == len(log.malformed) < log.malformed_count:
            evidence["records_more"] = log.malformed_count - number
        findings.append(finding("METADATA_RECORD_MALFORMED", place, evidence))
    return findings
