"""`metadata`: every change of every partition by the controller's log, and by the logs what unclean elections cost."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_forensics.evidence.inputs import gather, require_asked
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import NO_LEADER, ControllerHistory, PartitionEvent, PartitionState, TopicHistory
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.witnesses.controller import read_controller
from kafka_forensics.scanning.witnesses.witnesses import Witnesses

DAMAGE_HIDES = "damage_hides"
NO_COPY, PARTED, AGREE_AGAIN, SAME_LEADER, LOST = "no_copy", "parted", "agree_again", "same_leader", "lost"
NOT_GIVEN, NOT_COMPARED, NOT_TOLD = "old_leader_not_given", "old_leader_not_compared", "not_told"
"""What the copies show of an unclean election's cost."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One change of a partition, and how it stood afterwards; None is "not known", of a deleted one "not any more"."""

    topic: str
    partition: int
    topic_id: str
    event: PartitionEvent
    before: PartitionEvent | None
    """The change before it, None of the first that is told."""
    cost: str | None = None
    """Of an unclean election: `lost` (`cost_start_offset` to `cost_end_offset`, exclusive) · `agree_again` (the copies are equal:
    what it cost is gone from them) · `damage_hides` (a copy from before is damaged, and may have held it) · `same_leader` (the last
    leader led again) · `parted` (the copies differ for another reason) · `old_leader_not_given` and `old_leader_not_compared` (the
    leader before may hold it, and its copy is not there, or was not asked for) · `no_copy` (of this partition none was given) ·
    `not_told` (copies were given, and not looked at for this one)."""
    cost_start_offset: int | None = None
    cost_end_offset: int | None = None

    @property
    def deleted(self) -> bool:
        """Whether this is the end of the partition."""
        return self.event.kind == "deleted"

    @property
    def state(self) -> PartitionState | None:
        """How the partition stood afterwards."""
        return None if self.deleted else self.event.state

    @property
    def leader_epoch(self) -> int | None:
        """Counted; None behind a record that could not be read."""
        return None if self.deleted or self.event.unknown_after is not None else self.event.state.leader_epoch

    @property
    def previous_leader(self) -> int | None:
        """The last broker that led before."""
        return None if self.event.previous_leader == NO_LEADER else self.event.previous_leader


@dataclass(slots=True)
class ControllerEvents:
    """The answer; `history` None: no controller's log is among the copies (`copies` is 0), or empty ones, or several clusters'."""

    history: ControllerHistory | None
    rows: list[EventRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """About the controller's own records."""
    incomplete: list[Incomplete] = field(default_factory=list)
    copies: int = 0


def controller_events(paths: list[str], options: ScanOptions, progress: Progress | None = None) -> ControllerEvents:
    """Replay the controller's log among `paths`, and scan the partitions that had unclean elections for what those cost.

    Rows are in the order of topics, partitions and offsets; a topic that was deleted and made anew gives two histories in turn.
    Raises UsageError for paths that make no sense.
    """
    inputs = gather(paths, options, elsewhere=True)
    copies = sum(plan.context.topic == CLUSTER_METADATA_TOPIC for plan in inputs.internal)
    evidence = read_controller(inputs)
    problems = [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
    if evidence is None:
        return ControllerEvents(None, incomplete=[*inputs.incomplete, *problems], copies=copies)
    known = [(topic.topic, partition) for topic in evidence.history.topics.values() for partition in topic.partitions]
    require_asked(inputs, options, known)
    rows = list(event_rows(evidence.history, options))
    unclean = {(row.topic, row.partition) for row in rows if row.event.is_unclean}
    inputs.replicas = [plan for plan in inputs.replicas if (plan.context.topic, plan.context.partition) in unclean]
    if not inputs.replicas:
        rows = [_with_cost(row, None, NO_COPY) for row in rows]
        return ControllerEvents(evidence.history, rows, evidence.findings, [*inputs.incomplete, *problems], copies)
    result = scan_inputs(inputs, options, progress, witnesses=Witnesses(controller=evidence.history))
    elections = {
        (finding.place.topic, finding.place.partition, finding.evidence["election_offset"]): finding
        for finding in result.findings
        if finding.kind == "UNCLEAN_ELECTION"
    }
    given = {(plan.context.topic, plan.context.partition, plan.context.topic_id) for plan in inputs.replicas}
    rows = [
        _with_cost(
            row,
            elections.get((row.topic, row.partition, row.event.offset)),
            NOT_TOLD if given & {(row.topic, row.partition, row.topic_id), (row.topic, row.partition, None)} else NO_COPY,
        )
        for row in rows
    ]
    return ControllerEvents(evidence.history, rows, evidence.findings, result.incomplete, copies)


def event_rows(history: ControllerHistory, options: ScanOptions) -> Iterator[EventRow]:
    """Every change of the partitions that are asked for, by topic, partition and offset."""
    for topic in sorted(history.topics.values(), key=_topic_order):
        for partition, partition_history in sorted(topic.partitions.items()):
            if fits((topic.topic, partition), options):
                before = None
                for event in partition_history.events:
                    yield EventRow(topic.topic, partition, topic.topic_id, event, before)
                    before = event


def _topic_order(topic: TopicHistory) -> tuple[str, int, str]:
    return topic.topic, -1 if topic.created_offset is None else topic.created_offset, topic.topic_id


def _with_cost(row: EventRow, election: Finding | None, without: str) -> EventRow:
    """An unclean election with its cost: as its finding tells it, else `without`."""
    if not row.event.is_unclean:
        return row
    cost, start, end = without, None, None
    if election is not None:
        if "cost_finding" in election.evidence:
            cost, start, end = LOST, election.place.offset_start, election.place.offset_end
        else:
            cost = next(
                (name for name in (SAME_LEADER, NOT_GIVEN, NOT_COMPARED, AGREE_AGAIN, DAMAGE_HIDES) if name in election.evidence),
                PARTED,
            )
    elif row.event.previous_leader == row.event.state.leader:
        cost = SAME_LEADER
    return EventRow(row.topic, row.partition, row.topic_id, row.event, row.before, cost, start, end)
