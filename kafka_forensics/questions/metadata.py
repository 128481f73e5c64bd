"""`metadata`: every change of every partition by the controllers' log, and what unclean elections cost by the copies."""

from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.evidence.inputs import gather, require_requested
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import NO_LEADER, ControllerHistory, PartitionEvent, PartitionState, TopicHistory
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.witnesses.controller import read_controller
from kafka_forensics.scanning.witnesses.witnesses import Witnesses

_NO_LOSSES = ("same_leader", "old_leader_not_given", "old_leader_not_compared", "agree_again", "damage_hides")
"""Evidence of an unclean election that did not lose records by the copies, or not visibly."""


class EventRow(Struct, frozen=True):
    """One change of a partition, and the state after it; None is unknown, or not applicable after a deletion."""

    topic: str
    partition: int
    topic_id: str
    event: PartitionEvent
    before: PartitionEvent | None
    """The change before it, None for the first one in the log."""
    loss: str | None = None
    """Of an unclean election: `lost` (`lost_start_offset` to `lost_end_offset`, exclusive) · `agree_again` (the copies are equal:
    what it cost no longer shows) · `damage_hides` (an older copy is damaged, and may have held lost records) · `same_leader` (the
    last leader led again) · `copies_differ` (for another reason) · `old_leader_not_given` and `old_leader_not_compared` (the leader
    before may hold lost records, and its copy is missing, or was not requested) · `no_copy` (no copy of this partition is here) ·
    `not_compared` (copies are here, and were not compared for this election)."""
    lost_start_offset: int | None = None
    lost_end_offset: int | None = None

    @property
    def deleted(self) -> bool:
        """Whether the partition was deleted."""
        return self.event.kind == "deleted"

    @property
    def state(self) -> PartitionState | None:
        """The state of the partition after the change."""
        return None if self.deleted else self.event.state

    @property
    def leader_epoch(self) -> int | None:
        """The epoch after the change; None after a record that could not be read."""
        return None if self.deleted or self.event.unknown_after is not None else self.event.state.leader_epoch

    @property
    def previous_leader(self) -> int | None:
        """The last leader before the change."""
        return None if self.event.previous_leader == NO_LEADER else self.event.previous_leader


class ControllerEvents(Struct):
    """The changes; `history` is None without a controllers' log (`copies` is 0), or if all are empty or of several clusters."""

    history: ControllerHistory | None
    rows: list[EventRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """About the records of the controllers' log."""
    incomplete: list[Incomplete] = field(default_factory=list)
    copies: int = 0


def controller_events(paths: list[str], options: ScanOptions, progress: Progress | None = None) -> ControllerEvents:
    """Replay the controllers' log among `paths`, and scan the partitions that had unclean elections for their cost.

    Rows are ordered by topic, partition and offset; a topic that was deleted and created again has two histories in turn. Raises
    UsageError for invalid paths.
    """
    inputs = gather(paths, options, elsewhere=True)
    copies = sum(plan.context.topic == CLUSTER_METADATA_TOPIC for plan in inputs.internal)
    evidence = read_controller(inputs)
    problems = [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
    if evidence is None:
        return ControllerEvents(None, incomplete=[*inputs.incomplete, *problems], copies=copies)
    history = evidence.history
    require_requested(inputs, options, [(topic.topic, number) for topic in history.topics.values() for number in topic.partitions])
    rows = list(event_rows(history, options))
    unclean = {(row.topic, row.partition) for row in rows if row.event.is_unclean}
    inputs.replicas = [plan for plan in inputs.replicas if plan.context.topic_partition in unclean]
    elections: dict[tuple[str | None, int | None, int], Finding] = {}
    incomplete = [*inputs.incomplete, *problems]
    if inputs.replicas:
        result = scan_inputs(inputs, options, progress, witnesses=Witnesses(controller=history))
        incomplete = result.incomplete
        for finding in result.findings:
            if finding.kind == "UNCLEAN_ELECTION":
                elections[finding.place.topic, finding.place.partition, finding.evidence["election_offset"]] = finding
    copied = {(plan.context.topic, plan.context.partition, plan.context.topic_id) for plan in inputs.replicas}
    for number, row in enumerate(rows):
        if row.event.is_unclean:
            has_copy = bool(copied & {(row.topic, row.partition, row.topic_id), (row.topic, row.partition, None)})
            cost = _cost(row, elections.get((row.topic, row.partition, row.event.offset)), has_copy=has_copy)
            rows[number] = replace(row, loss=cost[0], lost_start_offset=cost[1], lost_end_offset=cost[2])
    return ControllerEvents(history, rows, evidence.findings, incomplete, copies)


def event_rows(history: ControllerHistory, options: ScanOptions) -> Iterator[EventRow]:
    """Every change of the selected partitions, by topic, partition and offset."""

    def order(topic: TopicHistory) -> tuple[str, int, str]:
        return topic.topic, -1 if topic.created_offset is None else topic.created_offset, topic.topic_id

    for topic in sorted(history.topics.values(), key=order):
        for partition, partition_history in sorted(topic.partitions.items()):
            if fits((topic.topic, partition), options):
                before = None
                for event in partition_history.events:
                    yield EventRow(topic.topic, partition, topic.topic_id, event, before)
                    before = event


def _cost(row: EventRow, election: Finding | None, *, has_copy: bool) -> tuple[str, int | None, int | None]:
    """(cost, start and end of the lost offsets) of an unclean election, by its finding if there is one."""
    if election is None:
        is_same_leader = row.event.previous_leader == row.event.state.leader
        return "same_leader" if is_same_leader else "not_compared" if has_copy else "no_copy", None, None
    if "cost_finding" in election.evidence:
        return "lost", election.place.offset_start, election.place.offset_end
    return next((cost for cost in _NO_LOSSES if cost in election.evidence), "copies_differ"), None, None
