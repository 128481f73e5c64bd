"""Reading the controller's log: every copy of `__cluster_metadata` once, one replay of what they agree on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kafka_forensics.analysis.internal_topics import EXCEPTIONS, AgreedLog, MetadataChecks, Replay, agree
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, broker_order
from kafka_forensics.model.constants import INTERNAL_TOPICS
from kafka_forensics.model.controller import ControllerHistory, MetadataBatch, MetadataRecord, MetadataSnapshot
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.json_objects import Json
from kafka_forensics.scanning.witnesses.controller_copies import (
    UNREADABLE,
    BatchKey,
    ControllerCopies,
    SnapshotFile,
    parse_snapshot,
    read_copies,
)
from kafka_forensics.scanning.witnesses.malformed_records import MalformedRecords, UnknownKinds


@dataclass(slots=True)
class ControllerEvidence:
    """The controller's history with the findings about its own records."""

    history: ControllerHistory
    findings: list[Finding]


def read_controller(inputs: Inputs) -> ControllerEvidence | None:
    """Replay `__cluster_metadata` from all its copies; None without any, or where copies of several clusters are mixed.

    `inputs.controller` is the history from then on.
    """
    copies = read_copies(inputs)
    metas = [copy.plan.log_dir.meta for copy in copies.copies]
    if not copies.copies or len({meta.cluster_id for meta in metas if meta is not None} - {None}) > 1:
        return None
    log = agree([copy.log for copy in copies.copies])
    if not log.base_offsets.size and not copies.snapshots:
        return None
    evidence = _replayed(copies, log)
    inputs.controller = evidence.history
    return evidence


def cleanup_policy(contexts: list[ReplicaContext]) -> str:
    """`delete`, `compact`, `compact,delete`, or `unknown` where neither the controller nor a cleaner's checkpoint tells.

    `contexts` are of one partition's replicas, at least one: whichever tells has the word. It is unknown, too, where they are told
    different ones, as of topics of one name.
    """
    policies = {context.control.cleanup_policy for context in contexts if context.control is not None} - {None}
    if contexts[0].topic in INTERNAL_TOPICS:
        return "compact"
    if policies:
        return (policies.pop() if len(policies) == 1 else None) or "unknown"
    return "compact" if any(context.compacted for context in contexts) else "unknown"


LastWord = tuple[int | None, int | None, list[int] | None, list[int] | None]


def last_word(replicas: list[Replica]) -> LastWord:
    """Leader, leader epoch, ISR and replica assignment of a partition; None for each that is not known."""
    control = next((replica.context.control for replica in replicas if replica.context.control is not None), None)
    if control is None:
        return None, None, None, None
    return control.leader, control.leader_epoch, control.isr, control.replica_assignment


def present_topic(groups: Sequence[Sequence[int]], replicas: Sequence[Replica]) -> tuple[int, bool]:
    """Of groups of replicas by topic id (`partitions.identity_groups`): which is of the present topic, and whether that is known.

    It is the one whose id is the controller's, or the only one of which the controller's log can speak; else that of most copies.
    """

    def spoken_of(group: Sequence[int]) -> int:
        contexts = [replicas[number].context for number in group]
        said = [(context.control.topic_id, context.topic_id) for context in contexts if context.control is not None]
        return 2 if any(ours == theirs for ours, theirs in said) else 1 if said else 0

    ranks = [spoken_of(group) for group in groups]
    known = max(ranks) > 0 and ranks.count(max(ranks)) == 1
    return max(range(len(groups)), key=lambda number: (ranks[number], len(groups[number]))), known


def _replayed(copies: ControllerCopies, log: AgreedLog) -> ControllerEvidence:
    keys = list(zip(log.base_offsets.tolist(), log.identities.tolist(), strict=True))
    batches = [(key, copies.opened[key]) for key in keys if key in copies.opened]
    voter_set, files = copies.voters(), copies.snapshots
    voters = None if voter_set is None else sorted(voter_set.directories)
    usable = [file for file in files if file.check.problem is None and log.agrees_with(file.offset, file.leader_epoch)]
    stated_end = max((file.offset for file in usable), default=0)  # snapshots are of what is committed
    ends = [None if end is None else max(end, stated_end) for end in (log.committed_end(voters), log.possible_end(voters))]
    replay = Replay(log.start_offset, committed_end=ends[0], possible_end=ends[1])
    replay.history.voters = voters
    committed_end = 1 << 63 if replay.history.committed_end_offset is None else replay.history.committed_end_offset
    replay.history.copy_ends = log.agreed_ends
    replay.history.voters_in_log = any(copy.is_dynamic for copy in copies.copies)
    replay.history.quorum = copies.quorum(log)
    replay.history.unread = [copy.node for copy in copies.copies if not copy.was_read]
    replay.history.gaps = log.gaps
    replay.history.end_is_known = copies.end_is_known
    malformed = MalformedRecords()
    unknown = UnknownKinds()
    checks, rejected = MetadataChecks(), MalformedRecords()
    for copy in copies.copies:
        context = copy.plan.context
        replay.history.snapshots[context.broker, context.log_dir] = copy.usable_snapshots
    for file in files:
        if file.check.problem not in (None, UNREADABLE):
            _add_damaged(malformed, file)
    waiting = usable[::-1]
    replay.history.proven_end = stated_end

    def restate(known_end: int, offset: int) -> int:
        """Take the state from the newest snapshot up to `offset`, if it reaches beyond `known_end` or something before is in doubt.

        Returns up to where all is known then: the snapshot's offset, else `known_end`.
        """
        reached = []
        while waiting and waiting[-1].offset <= offset:
            reached.append(waiting.pop())
        while reached and (replay.in_doubt or not checks.is_known or reached[-1].offset > known_end):
            file = reached.pop()
            snapshot = _read_snapshot(copies.inputs, file, malformed, unknown)
            if snapshot is not None:
                if replay.in_doubt or file.offset > known_end:
                    replay.restate(snapshot)
                checks.restate(snapshot)
                return max(file.offset, known_end)
        return known_end

    gaps = [(1 << 63, 1 << 63), *reversed(log.missing_ranges(max((file.offset for file in files), default=0)))]
    for key, batch in [*batches, (None, None)]:
        offset = 1 << 62 if batch is None else batch.base_offset
        while gaps[-1][0] < offset:
            start, end = gaps.pop()
            if (start := restate(start, end)) < end:
                replay.gap(start)
                checks.gap()
        restate(offset, offset)
        if key is None or batch is None:
            break
        for record_offset, record in batch.records:
            replay.step(record_offset, batch.timestamp_ms, record)
            if (problem := checks.step(record)) is not None and record_offset < committed_end:
                rejected.add(partial(_rejected, copies, key, record_offset, record, problem))
        if key in copies.places:
            _add_malformed(malformed, copies, key, batch)
            _add_unknown(unknown, copies, key, batch)
    replay.history.last_ms = max(copies.newest_ms, replay.history.last_ms or 0) or None
    history = replay.finish(max([log.end_offset, *(file.offset for file in files)]))
    return ControllerEvidence(history, malformed.findings() + unknown.findings() + rejected.findings())


def _places(copies: ControllerCopies, key: BatchKey) -> tuple[tuple[ReplicaPlan, str, int, int], list[int | str]]:
    """Where the first of the brokers that hold a batch has it, in their order, and all that do."""
    places = sorted(copies.places[key], key=lambda place: broker_order(place[0].context.broker))
    return places[0], [plan.context.broker for plan, _, _, _ in places]


def _add_unknown(unknown: UnknownKinds, copies: ControllerCopies, key: BatchKey, batch: MetadataBatch) -> None:
    """Count the records of unknown kinds in a batch, at their place in the first copy."""
    (plan, name, position, size), holders = _places(copies, key)
    for offset, record in batch.records:
        if record.is_unknown:
            place = plan.context.place(
                name, byte_start=position, byte_end=position + size, offset_start=offset, offset_end=offset + 1
            )
            unknown.add(record, place, holders)


def _add_malformed(malformed: MalformedRecords, copies: ControllerCopies, key: BatchKey, batch: MetadataBatch) -> None:
    """Add the records of a batch that could not be read, at their place in the first copy."""
    (plan, name, position, size), holders = _places(copies, key)

    def found(offset: int, record: MetadataRecord) -> Finding:
        place = plan.context.place(name, byte_start=position, byte_end=position + size, offset_start=offset, offset_end=offset + 1)
        return finding("METADATA_RECORD_MALFORMED", place, _told(record) | {"brokers": holders, "unknown_after_offset": offset - 1})

    for offset, record in batch.records:
        if record.problem is not None and not record.is_unknown:
            malformed.add(partial(found, offset, record))


def _rejected(copies: ControllerCopies, key: BatchKey, offset: int, record: MetadataRecord, problem: str) -> Finding:
    """`METADATA_RECORD_REJECTED`, in the first copy that has the batch."""
    holders = sorted(
        (copy for copy in copies.copies if copy.log.has(*key)), key=lambda copy: broker_order(copy.plan.context.broker)
    )
    context, directory = holders[0].plan.context, holders[0].plan.directory
    segment = max((segment.base_offset for segment in directory.segments if segment.base_offset <= key[0]), default=0)
    place = context.place(context.log_file(segment), offset_start=offset, offset_end=offset + 1)
    fields = record.fields or {}
    evidence: Json = {
        "record_type": _kind(record),
        "reason": problem,
        "exception": " or ".join(EXCEPTIONS.get(problem, ("RuntimeException",))),
        "brokers": [copy.plan.context.broker for copy in holders],
    }
    evidence |= {name: fields[name] for name in _NAMED if name in fields}
    evidence |= {"broker_id": fields["id"]} if isinstance(fields.get("id"), int) else {}
    return finding("METADATA_RECORD_REJECTED", place, evidence)


_NAMED = ("name", "topic_name", "topic_id", "partition_id", "broker_id", "controller_id")
"""Fields that say of what a record is."""


def _kind(record: MetadataRecord) -> str:
    return record.name.removesuffix("_RECORD").lower().replace("_", " ")


def _told(record: MetadataRecord) -> Json:
    named = _kind(record) if record.api_key >= 0 else "cluster metadata"
    evidence: Json = {"reason": record.problem, "record_type": named, "record_bytes": record.size_in_bytes}
    return evidence | ({"api_key": record.api_key, "record_version": record.version} if record.api_key >= 0 else {})


def _add_damaged(malformed: MalformedRecords, file: SnapshotFile) -> None:
    """Add a snapshot that cannot be used."""
    evidence = {"reason": file.check.problem, "record_type": "snapshot", "is_snapshot": True} | _of_snapshot(file)
    malformed.add(partial(finding, "METADATA_RECORD_MALFORMED", _place(file), evidence))


def _place(file: SnapshotFile) -> Place:
    return file.plan.context.place(file.entry.name, byte_start=0, byte_end=file.entry.size_in_bytes, offset_end=file.offset)


def _of_snapshot(file: SnapshotFile) -> Json:
    return {"brokers": [file.plan.context.broker], "unknown_after_offset": file.offset - 1}


def _read_snapshot(
    inputs: Inputs, file: SnapshotFile, malformed: MalformedRecords, unknown: UnknownKinds
) -> MetadataSnapshot | None:
    """A `.checkpoint` that is whole, None if it cannot be read any more. Records in it that cannot be read, and those of unknown
    kinds, are added to the others."""
    snapshot = inputs.read(file.plan.log_dir.source, file.entry, lambda opened: parse_snapshot(opened, file.offset))
    for record in () if snapshot is None else (record for batch in snapshot.batches for _, record in batch.records):
        if record.is_unknown:
            unknown.add(record, _place(file), [file.plan.context.broker])
        elif record.problem is not None:
            malformed.add(partial(finding, "METADATA_RECORD_MALFORMED", _place(file), _told(record) | _of_snapshot(file)))
    return snapshot
