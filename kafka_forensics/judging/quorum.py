"""The controllers' quorum: whom a start of the nodes given may elect, and what of the log that cuts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.ledger import Extent, Ledger
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import ControllerHistory, QuorumLog
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.replication.quorum import possible_leaders

if TYPE_CHECKING:
    from kafka_forensics.analysis.evidence_classes import QuorumEvidence

_OTHER_DIRECTORY = "their metadata.log.dir is another directory, which was not given"
_OTHER_MOMENTS = "the copies were made at different moments, while the nodes ran"


@dataclass(frozen=True, slots=True)
class Quorum:
    """The voters of the controllers' log, by what was given of them."""

    voters: list[int]
    logs: list[QuorumLog]
    """Of nodes that were given; a voter of whose log nothing is there has an empty one."""
    absent: list[int]
    """Voters whose log directories were given, without `__cluster_metadata-0`."""
    not_given: list[int]
    proven_end: int
    """Records before this offset are known to be committed: by the log itself, by topics that brokers have, or as a node without a
    vote has fetched them and no voter has them any more."""
    end_offset: int

    @property
    def given(self) -> list[int]:
        """Voters of which a log directory was given."""
        return [voter for voter in self.voters if voter not in self.not_given]

    @property
    def has_majority(self) -> bool:
        """Whether enough voters were given to elect a leader."""
        return 2 * len(self.given) > len(self.voters)

    def harmful_leaders(self) -> list[QuorumLog]:
        """Nodes that may be elected though they lack committed records; the one that cuts most first."""
        leaders = [log for log in possible_leaders(self.logs) if log.agreed_end < self.proven_end]
        return sorted(leaders, key=lambda log: (log.agreed_end, str(log.node)))


def quorum_of(inputs: Inputs, ledger: Ledger) -> Quorum | None:
    """The quorum by the controllers' log; None without one, or where nothing names its voters."""
    controller = inputs.controller
    if controller is None or not controller.voters:
        return None
    partial = {reading.directory.node_id for reading in ledger.readings if reading.reading is Extent.PARTIAL}
    held = {log.node for log in controller.quorum}
    missing = [voter for voter in controller.voters if voter not in held]
    absent = [voter for voter in missing if ledger.has_node(voter) and voter not in partial]
    ids = {log_dir.node_id: log_dir.meta.directory_id for log_dir in inputs.log_dirs if log_dir.meta is not None}
    configured = next((log.voters for log in controller.quorum if log.voters is not None), None)
    stands = None if controller.voters_in_log else configured
    empty = [QuorumLog(voter, ids.get(voter), -1, 0, 0, stands) for voter in absent]
    known = [controller.topics.get(plan.context.topic_id or "") for plan in inputs.replicas]
    made = [topic.created_offset + 1 for topic in known if topic is not None and topic.created_offset is not None]
    made += [] if voters_end(controller) is None else [_last_change(controller) + 1]
    ends = [controller.log_end_offset, *(log.end_offset for log in controller.quorum)]
    not_given = [voter for voter in missing if voter not in absent]
    proven_end = max([controller.proven_end, *made])
    return Quorum(controller.voters, [*controller.quorum, *empty], absent, not_given, proven_end, max(ends))


def quorum_findings(inputs: Inputs, ledger: Ledger, *, live: bool) -> list[Finding]:
    """`QUORUM_WOULD_TRUNCATE` where voters may elect a node that lacks committed records.

    Nothing is said of running nodes: they have elected a leader, and their copies are of different moments."""
    quorum = quorum_of(inputs, ledger)
    leaders = [] if quorum is None or live else quorum.harmful_leaders()
    if quorum is None or not leaders:
        return []
    start = leaders[0].agreed_end
    evidence: QuorumEvidence = {
        "voters": quorum.voters,
        "leaders": _names([log.node for log in leaders], inputs),
        "empty": _names([log.node for log in leaders if not log.end_offset], inputs),
        "behind": _names([log.node for log in leaders if log.end_offset], inputs),
        "loses": quorum.proven_end - start,
        "proven_end": quorum.proven_end,
        "held_by": _names([log.node for log in quorum.logs if log.agreed_end >= quorum.proven_end], inputs),
        "not_given": list(quorum.not_given),
    }
    severity, confidence = None, None
    if leaders[0].end_offset:
        severity, confidence, evidence["harmless_if"] = Severity.ERROR, Confidence.SUSPECTED, _OTHER_MOMENTS
    elif all(log.node in quorum.absent for log in leaders):
        confidence, evidence["harmless_if"] = Confidence.SUSPECTED, _OTHER_DIRECTORY
    place = Place(CLUSTER_METADATA_TOPIC, 0, offset_start=start, offset_end=quorum.end_offset)
    return [finding("QUORUM_WOULD_TRUNCATE", place, evidence, severity=severity, confidence=confidence)]


def stops_controllers(finding: Finding) -> bool:
    """Whether controllers must not start, or do not start, before what a finding says is mended."""
    evidence = finding.evidence
    no_start = "needs_snapshot" in evidence and not evidence["held_by"]
    is_about_them = no_start or finding.kind in ("QUORUM_WOULD_TRUNCATE", "METADATA_RECORD_REJECTED")
    return is_about_them and finding.severity.rank >= Severity.ERROR.rank


def _names(nodes: Sequence[int | str], inputs: Inputs) -> list[int | str]:
    """Nodes as the scan calls them."""
    names = {log_dir.node_id: log_dir.broker for log_dir in inputs.log_dirs}
    return sorted((names.get(node, node) if isinstance(node, int) else node for node in nodes), key=str)


def voters_end(controller: ControllerHistory) -> int | None:
    """Where the longest copy of a voter ends, if all voters' are here and observers hold changes of partitions beyond it."""
    voters = controller.voters or []
    if not voters or any(voter not in controller.copy_ends for voter in voters):
        return None
    end = max(controller.copy_ends[voter] for voter in voters)
    return end if _last_change(controller) >= end else None


def _last_change(controller: ControllerHistory) -> int:
    """Offset of the last record about a partition; -1 without any."""
    histories = (history for topic in controller.topics.values() for history in topic.partitions.values())
    return max((event.offset for history in histories for event in history.events[-1:]), default=-1)
