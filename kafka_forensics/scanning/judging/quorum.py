"""The controllers' quorum: which nodes may be elected, and which records the others then truncate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from kafka_forensics.analysis.kinds import CATALOGUE, finding
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.ledger import NOT_READ, CopyExtent, Ledger
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import ControllerHistory, QuorumLog
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.incidents import Cause
from kafka_forensics.replication.quorum import possible_leaders

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import QuorumEvidence

_OTHER_DIRECTORY = "their metadata.log.dir is another directory, which was not given"
_OTHER_MOMENTS = "the copies were made at different times, while the nodes ran"


class Quorum(Struct, frozen=True):
    """The voters of the controllers' log, and the logs of the nodes that were given."""

    voters: list[int]
    logs: list[QuorumLog]
    """An absent voter has an empty log."""
    absent: list[int]
    """Voters whose log directories were given, without `__cluster_metadata-0`."""
    not_given: list[int]
    proven_end: int
    """Records before this offset are committed, by the log itself or by topics that brokers have."""
    observed_end: int
    """Before this offset observers hold records that no voter has any more. They were most likely committed; a leader may also
    send observers records shortly before they are committed."""
    end_offset: int

    @property
    def given_voters(self) -> list[int]:
        """Voters with a given log directory."""
        return [voter for voter in self.voters if voter not in self.not_given]

    @property
    def has_majority(self) -> bool:
        """Whether enough voters were given to elect a leader."""
        return 2 * len(self.given_voters) > len(self.voters)

    def harmful_leaders(self) -> list[QuorumLog]:
        """Nodes that may be elected though they lack committed records; first the node that causes the largest truncation."""
        return self._harmful(self.logs, max(self.proven_end, self.observed_end))

    def proven_leaders(self) -> list[QuorumLog]:
        """The certain ones of `harmful_leaders`: not by records that only observers hold, nor voters whose log may be elsewhere."""
        return self._harmful([log for log in self.logs if log.node not in self.absent], self.proven_end)

    def _harmful(self, logs: list[QuorumLog], end: int) -> list[QuorumLog]:
        leaders = [log for log in possible_leaders(logs) if log.agreed_end < end]
        return sorted(leaders, key=lambda log: (log.agreed_end, str(log.node)))


def quorum_of(inputs: Inputs, ledger: Ledger) -> Quorum | None:
    """The quorum by the controllers' log; None without one, or if its voters are not known."""
    controller = inputs.controller
    if controller is None or not controller.voters:
        return None
    unknown = {
        reading.directory.node_id
        for reading in ledger.readings
        if reading.extent is CopyExtent.PARTIAL or reading.directory.partitions.get((CLUSTER_METADATA_TOPIC, 0)) in NOT_READ
    }
    logs = [log for log in controller.quorum if log.end_offset or log.node not in unknown]
    with_log = {log.node for log in logs}
    missing = [voter for voter in controller.voters if voter not in with_log]
    absent = [voter for voter in missing if ledger.has_node(voter) and voter not in unknown and voter not in controller.unread]
    ids = {log_dir.node_id: log_dir.meta.directory_id for log_dir in inputs.log_dirs if log_dir.meta is not None}
    configured = next((log.voters for log in logs if log.voters is not None), None)
    empty_voters = None if controller.voters_in_log else configured
    empty = [QuorumLog(voter, ids.get(voter), -1, 0, 0, empty_voters) for voter in absent]
    topics = [controller.topics.get(plan.context.topic_id or "") for plan in inputs.replicas]
    created = [topic.created_offset + 1 for topic in topics if topic is not None and topic.created_offset is not None]
    ends = [controller.log_end_offset, *(log.end_offset for log in logs)]
    return Quorum(
        controller.voters,
        [*logs, *empty],
        absent,
        [voter for voter in missing if voter not in absent],
        proven_end=max([controller.proven_end, *created]),
        observed_end=0 if voters_end(controller) is None else _last_change(controller) + 1,
        end_offset=max(ends),
    )


def quorum_findings(quorum: Quorum | None, inputs: Inputs, *, live: bool) -> list[Finding]:
    """`QUORUM_WOULD_TRUNCATE` if voters may elect a node that lacks committed records.

    None for running nodes: they have a leader, and their copies are of different moments."""
    leaders = [] if quorum is None or live else quorum.harmful_leaders()
    if quorum is None or not leaders:
        return []
    start, end = leaders[0].agreed_end, max(quorum.proven_end, quorum.observed_end)
    proven = quorum.proven_leaders()
    evidence: QuorumEvidence = {
        "voters": quorum.voters,
        "leaders": _names([log.node for log in leaders], inputs),
        "empty": _names([log.node for log in leaders if not log.end_offset], inputs),
        "behind": _names([log.node for log in leaders if log.end_offset], inputs),
        "loses": end - start,
        "proven_end": end,
        "held_by": _names([log.node for log in quorum.logs if log.agreed_end >= end], inputs),
        "not_given": list(quorum.not_given),
    }
    severity = None if evidence["empty"] else Severity.ERROR
    confidence = None if any(not log.end_offset for log in proven) else Confidence.SUSPECTED
    if confidence is not None:
        evidence["harmless_if"] = _OTHER_DIRECTORY if quorum.absent and not proven else _OTHER_MOMENTS
    place = Place(CLUSTER_METADATA_TOPIC, 0, offset_start=start, offset_end=quorum.end_offset)
    return [finding("QUORUM_WOULD_TRUNCATE", place, evidence, severity=severity, confidence=confidence)]


def blocks_controllers(finding: Finding) -> bool:
    """Whether controllers must not start, or cannot, until the subject of a finding is repaired."""
    evidence = finding.evidence
    cannot_start = "needs_snapshot" in evidence and not evidence["held_by"]
    is_about_controllers = cannot_start or CATALOGUE[finding.kind].cause is Cause.CONTROLLERS
    return is_about_controllers and finding.severity.rank >= Severity.ERROR.rank


def _names(nodes: Sequence[int | str], inputs: Inputs) -> list[int | str]:
    """Nodes by the names of their brokers in the scan."""
    names = {log_dir.node_id: log_dir.broker for log_dir in inputs.log_dirs}
    return sorted((names.get(node, node) if isinstance(node, int) else node for node in nodes), key=str)


def voters_end(controller: ControllerHistory) -> int | None:
    """Log end offset of the longest copy of a voter, if all voters' were given and observers hold later partition records."""
    ends = {log.node: log.agreed_end for log in controller.quorum}
    voters = controller.voters
    if not voters or any(voter not in ends for voter in voters):
        return None
    end = max(ends[voter] for voter in voters)
    return end if _last_change(controller) >= end else None


def _last_change(controller: ControllerHistory) -> int:
    """Offset of the last record about a partition; -1 without any."""
    histories = (history for topic in controller.topics.values() for history in topic.partitions.values())
    return max((event.offset for history in histories for event in history.events[-1:]), default=-1)
