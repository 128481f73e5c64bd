"""`plan`: elections planned on copied directories: the scan's replicas as small values, the planner, and what is lost counted."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import combinations, pairwise, permutations
from typing import Final, NamedTuple

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import (
    BLOCK_OFFSETS,
    Differences,
    batches_held,
    brokers_epochs,
    damaged_by_headers,
    differences,
    finished_segments,
    last_leader,
    refused_at,
)
from kafka_forensics.analysis.transactions_across import completed, proven_by
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, broker_order, gather, misnamed
from kafka_forensics.evidence.ledger import NOT_READ, ExpectedReplica, Presence
from kafka_forensics.evidence.options import ScanOptions, fits, listed
from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CURRENT_MAGIC, MAX_RELATIVE_OFFSET
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.coordinators import TransactionLog
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, counted, normalised, without
from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.model.results import Read, ScanResult
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.planner import (
    NO_END,
    NO_WORD,
    UNSAID,
    Broker,
    Candidate,
    ElectionNeeds,
    Loss,
    Missing,
    Plan,
    PlanControl,
    PlanPartition,
    PlanReplica,
    StartOrder,
    Strays,
    TruncateBy,
    Witness,
    costs_of,
    election_needs,
    leader_request,
    order_of_starts,
    plan_partition,
)
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.absence import ledger_of, may_delete, partitions_without_copy, unknown_to_controller
from kafka_forensics.scanning.judging.partitions import PartitionResult, identity_groups
from kafka_forensics.scanning.judging.quorum import Quorum, quorum_of, stops_controllers, voters_end
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.controller import present_topic
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.bundles import BundleSource

# Who is who in a plan: brokers as copies, controllers and users name them, and the controller's last word on a partition.


def _copies(inputs: Inputs) -> dict[str, int | None]:
    """Names of the copies here → node ids, None where a copy does not say; a controller's log by itself is no copy."""
    nodes: dict[str, int | None] = {}
    for log_dir in inputs.log_dirs:
        partitions, meta = log_dir.found.partitions, log_dir.meta
        if not partitions or any(directory.topic != CLUSTER_METADATA_TOPIC for directory in partitions):
            nodes[str(log_dir.broker)] = nodes.get(str(log_dir.broker)) if meta is None or meta.node_id is None else meta.node_id
    return nodes


def _node(name: str) -> Broker:
    return int(name) if name.isdecimal() else name


def check_dead(dead: Collection[str], inputs: Inputs, controller: ControllerHistory | None) -> None:
    """Raise UsageError for a broker that is said not to come back, and that neither a copy nor the controller's log knows."""
    nodes = _copies(inputs)
    known = {*nodes, *(str(node) for node in nodes.values() if node is not None)}
    for control in () if controller is None else controller.partitions.values():
        known.update(str(node) for node in (*(control.replica_assignment or ()), *(control.isr or ()), *(control.elr or ())))
    for broker in sorted(set(dead) - known):
        text = f"no copy here is of broker {broker}, and no controller's log here gives it a replica"
        raise UsageError(text, hint=f"brokers known here: {listed(map(str, sorted(map(_node, known), key=broker_order)))}")


def is_of_dead(dead: Collection[Broker], name: Broker, node: Broker | None = None) -> bool:
    """Whether a copy is of a broker that will not come back: by the name that it has here, or by its node id.

    Either is enough. Where the two are different numbers `check_names` refuses the copy, so that both never name living and dead.
    """
    return not {str(broker) for broker in dead}.isdisjoint({str(name), str(name if node is None else node)})


def dead_nodes(names: Collection[str], inputs: Inputs) -> frozenset[Broker]:
    """Brokers that will not come back as the controller calls them: copies that say whose they are tell the ids of names."""
    nodes = _copies(inputs)
    return frozenset(_node(name) if (node := nodes.get(name)) is None else node for name in names)


def name_here(asked: str, inputs: Inputs) -> str:
    """What the broker that is asked for is called here: the one copy with that node id may have another name."""
    nodes = _copies(inputs)
    by_node = [name for name, node in nodes.items() if str(node) == asked]
    return by_node[0] if asked not in nodes and len(by_node) == 1 else asked


def check_names(inputs: Inputs) -> None:
    """Raise UsageError for a copy given as another broker's than its `meta.properties` says: steps would be for the wrong one."""
    for broker, node_ids, names in misnamed(inputs.log_dirs):
        text = f"{names[0]} was given as broker {broker}, and is of broker {node_ids[0]} by its meta.properties"
        raise UsageError(text, hint=f"give it as {node_ids[0]}=PATH: a plan says which broker to stop and to start")


def nodes_left(
    replicas: list[Replica], nodes: dict[Broker, int], control: PlanControl | None, dead: Collection[Broker]
) -> dict[Broker, int]:
    """The one copy that does not say whose it is, as that of the one replica of which no copy is here; nothing in other cases.
    Raises UsageError where one of several is that of a dead broker."""
    unnamed = [replica.broker for replica in replicas if replica.broker not in nodes and not isinstance(replica.broker, int)]
    assignment = () if control is None or control.assignment is None else control.assignment
    known = {nodes.get(replica.broker, replica.broker) for replica in replicas}
    left = [node for node in assignment if node not in known]
    if len(unnamed) == len(left) == 1:
        return {unnamed[0]: left[0]}
    gone = [node for node in left if is_of_dead(dead, node)]
    if unnamed and gone:
        text = f"which of the copies called {listed(map(str, unnamed))} is of broker {gone[0]} cannot be told"
        raise UsageError(text, hint=f"none has a meta.properties: say whose they are, as in {gone[0]}=PATH")
    return {}


def control_of(control: PartitionControl | None) -> PlanControl | None:
    """The controller's last word as far as it is known."""
    if control is None:
        return None

    def ids_of(ids: list[int] | None) -> tuple[int, ...] | None:
        return None if ids is None else tuple(ids)

    def allowed(settings: Mapping[str, str]) -> bool | None:
        value = settings.get("unclean.leader.election.enable")
        return None if value is None else value.lower() == "true"

    return PlanControl(
        control.leader,
        last_leader(control),
        control.leader_epoch,
        ids_of(control.isr),
        ids_of(control.elr),
        ids_of(control.replica_assignment),
        allowed(control.configs),
        allowed(control.defaults),
    )


# Why the controller's log says nothing of a partition: it is not here, it is damaged, or it is silent.


def why_no_word(inputs: Inputs, history: ControllerHistory | None) -> str:
    """A kind of `Missing`; the copies of the log are read again, to tell damage from silence."""
    plans = [plan for plan in inputs.internal if plan.context.topic == CLUSTER_METADATA_TOPIC and not plan.context.log_unknown]
    if not plans:
        return NO_WORD
    if history is None or history.unknown_after is not None or history.malformed_records or any(map(_is_damaged, plans)):
        return "controller_log_damaged"
    return "controller_log_silent"


def _is_damaged(plan: ReplicaPlan) -> bool:
    for log in plan.directory.logs():
        try:
            with plan.log_dir.source.open(log.entry.path) as file:
                chunks = SegmentReader(file, max_plausible_offset=log.max_plausible_offset).chunks()
                if any(damage.kind not in kinds_with(Trait.IS_TAIL) for chunk in chunks for damage in chunk.damage):
                    return True
        except SourceError:
            return True
    return False


# What proves records of one replica's log committed, beside its own high watermark: groups' offsets, transactions' markers.


_COMMITS_TRIED: Final = 8


def witnesses_of(replica: Replica, reader: LogReader, log: TransactionLog | None, *, conflicts: bool) -> list[Witness]:
    """The furthest of each kind for one replica's log; `conflicts`: other replicas hold other records."""
    witnesses = [_group_offset(replica, reader, conflicts=conflicts), None if log is None or conflicts else _marker(replica, log)]
    return [witness for witness in witnesses if witness is not None]


def _group_offset(replica: Replica, reader: LogReader, *, conflicts: bool) -> Witness | None:
    """A consumer reads what is committed, and commits the offset behind it. The record before it must be there and not younger than
    the commit; where replicas conflict the commit must also name that record's epoch, for it does not tell which log was read."""
    end, own_id = replica.log_end_offset, replica.context.topic_id
    commits = [
        committed_offset
        for committed_offset in replica.context.committed
        if 0 < committed_offset.greatest.offset <= end and (own_id is None or committed_offset.greatest.topic_id in (None, own_id))
    ]
    commits.sort(key=lambda committed_offset: (-committed_offset.greatest.offset, committed_offset.group))
    for committed_offset in commits[:_COMMITS_TRIED]:
        greatest = committed_offset.greatest
        offset, moment, epoch = greatest.offset, greatest.commit_timestamp, greatest.leader_epoch
        rows = reader.batches(replica, offset - 1, offset)
        if not rows.shape[1] or not 0 <= int(rows[BatchColumn.MAX_TIMESTAMP].max()) <= moment:
            continue
        if not conflicts or (epoch >= 0 and epoch == int(rows[BatchColumn.PARTITION_LEADER_EPOCH, 0])):
            return Witness(offset, "group_offset", replica.broker, committed_offset.group)
    return None


def _marker(replica: Replica, log: TransactionLog) -> Witness | None:
    rows = replica.state.transactions.last_markers.markers.rows
    if not len(rows):
        return None
    proof = proven_by(rows, replica.log_end_offset, (replica.context.topic, replica.context.partition), completed(log))
    return None if proof is None else Witness(proof.end_offset, "transaction_marker", replica.broker, proof.transactional_id)


ABSENT: Final = ("copy_absent", "dead_copy_absent", "not_copied")
LOSSES_COUNTED: Final = 512
"""Losses of a partition whose records and bytes are counted; of more, only the offsets are known."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What a loss comes to: records without transaction markers, and bytes of the batches that hold them; None where
    the log could not be read again."""

    records: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class SalvageForecast:
    """What a salvage of a partition would lose, and the options that it needs."""

    losses: tuple[Loss, ...]
    options: tuple[str, ...] = ()


Forecast = Callable[[Sequence[tuple[ReplicaPlan, Replica]], "Planned", PartitionResult, LogReader], SalvageForecast | None]
"""`questions.salvage.forecast`, which stands on plans itself."""


@dataclass(slots=True)
class Planned:
    """One partition's plan, what it was made from, and what its losses come to."""

    given: PlanPartition
    plan: Plan
    amounts: dict[tuple[int, int, str], Amount] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    """What the scan found that bears on elections."""
    not_read: list[ReplicaContext] = field(default_factory=list)
    """Replicas whose copy is here and of whose log nothing could be read: nothing is planned for them."""
    salvage: SalvageForecast | None = None
    """A salvage that loses less than any election; None: there is none, or none was sought."""
    salvage_options: tuple[str, ...] | None = ()
    """What a salvage of all partitions needs for this one; None: it is refused."""

    def amount(self, loss: Loss) -> Amount:
        """What a loss of this plan comes to."""
        return self.amounts.get(_key(loss), Amount(None, None))

    def total(self, losses: Sequence[Loss]) -> Amount:
        """What all losses of an election come to; a batch that lies in two of them counts once."""
        records: int | None = 0
        size: int | None = 0
        for loss in _runs(losses):
            amount = self.amount(loss)
            records = None if records is None or amount.records is None else records + amount.records
            size = None if size is None or amount.bytes is None else size + amount.bytes
        return Amount(records, size)

    @property
    def recommended(self) -> Candidate | None:
        """The candidate that loses least; where `salvage` loses less, that is what is recommended."""
        return self.candidate(self.plan.recommended)

    @property
    def names_leader(self) -> bool:
        """Whether one election is recommended: no salvage loses less, and high watermarks decide between candidates."""
        return self.salvage is None and self.plan.contested_by is None

    @property
    def on_no_copy(self) -> Ranges:
        """Offsets that were committed and that no copy here holds, by what the scan found."""
        findings = [
            finding
            for finding in self.findings
            if finding.kind in kinds_with(Trait.OFFSETS_WERE_THERE) and finding.severity.rank >= Severity.ERROR.rank
        ]
        nowhere = [finding.place for finding in findings if finding.evidence.get("held_by") == []]
        spans = [(place.offset_start, place.offset_end) for place in nowhere]
        return normalised((start, end) for start, end in spans if start is not None and end is not None and start < end)

    @property
    def leading(self) -> Candidate | None:
        """The candidate that leads, by the controller's last word; None where nobody does, or no copy of it is here."""
        leader = None if self.given.control is None else self.given.control.leader
        return next((candidate for candidate in self.plan.candidates if self.given.node(candidate.broker) == leader), None)

    @property
    def without_topic_id(self) -> dict[Broker, str | None]:
        """Brokers to come back whose log has no topic id and would not be served → the id that it should have, as far as others
        tell."""
        lacking = {missing.broker for missing in self.plan.missing if missing.kind == "no_topic_id"}
        lacking -= {replica.broker for replica in self.given.replicas if not replica.is_live}
        found = [(finding, finding.place) for finding in self.findings if finding.kind == "TOPIC_ID_MISSING"]
        known = {place.broker: finding.evidence.get("topic_id") for finding, place in found if place.broker is not None}
        return {broker: topic_id for broker, topic_id in known.items() if broker in lacking}

    @property
    def matters(self) -> bool:
        """Whether its plan does, or an ordinary start would not serve a log, or elect nobody."""
        return self.plan.matters or bool(self.without_topic_id) or self.must_be_forced

    @property
    def must_be_forced(self) -> bool:
        """Whether nobody is elected until an unclean election is asked for."""
        return self.recommended is not None and self.recommended.election == "unclean"

    def replica(self, broker: Broker | None) -> PlanReplica | None:
        """The replica of this broker."""
        return next((replica for replica in self.given.replicas if replica.broker == broker), None)

    def candidate(self, broker: int | str | None) -> Candidate | None:
        """The candidate of this name."""
        return next((candidate for candidate in self.plan.candidates if candidate.broker == broker), None)

    def chosen(self, elect: str | None) -> Candidate | None:
        """The candidate whose election the steps bring about: the one asked for, else the recommended one."""
        asked = (candidate for candidate in self.plan.candidates if str(candidate.broker) == elect)
        return self.recommended if elect is None else next(asked, None)

    def needs(self, candidate: Candidate) -> ElectionNeeds:
        """What that election asks of brokers and their copies."""
        return election_needs(self.given, self.plan, candidate)


@dataclass
class Plans:
    """Plans of all partitions asked for that matter; of a single partition always."""

    planned: list[Planned] = field(default_factory=list)
    partitions: int = 0
    absent: Counter[int | str] = field(default_factory=Counter)
    """Broker → partitions whose replicas it holds, by the controller's log, and no copy of it is here."""
    not_read: Counter[int | str] = field(default_factory=Counter)
    """Broker → partitions of which its copy is here and nothing of its log could be read."""
    unsaid: Counter[str] = field(default_factory=Counter)
    """Why the controller does not say what replicas there are, see `Missing` → partitions."""
    refused: Counter[int | str] = field(default_factory=Counter)
    """Broker that would not start on its copy → partitions of which that has replicas."""
    by_raft: int = 0
    """Partitions of the controllers' log, which elect among themselves."""
    quorum: Quorum | None = None
    """The controllers; None where nothing here names them."""
    result: ScanResult | None = None
    dead: frozenset[int | str] = frozenset()
    """Brokers that will not come back, as the controller calls them."""
    without_copy: list[tuple[str, int]] = field(default_factory=list)
    """Partitions that should be here, and of which there is no copy."""
    others: int = 0
    """Further partitions in the log directories that were given, for which the same brokers start."""
    live: bool = False
    """Whether all copies were taken from running brokers."""
    combined: frozenset[int | str] = frozenset()
    """Nodes that vote among the controllers; those that are brokers, too, run as both."""
    without_logs: tuple[int | str, ...] = ()
    """Brokers of which a log directory was copied without its `.log` files."""
    unformatted: tuple[int | str, ...] = ()
    """Brokers to come back whose only log directory is empty."""
    bytes_to_recover: Counter[int | str] = field(default_factory=Counter)
    """Broker that was not stopped cleanly → bytes of its logs."""

    @property
    def of_controllers(self) -> list[Finding]:
        """What must be mended before controllers start."""
        return [] if self.result is None else [finding for finding in self.result.findings if stops_controllers(finding)]

    @property
    def to_mend(self) -> list[tuple[Broker, Finding]]:
        """Of each broker that comes back the small files over which it does not start, or does not serve its logs."""
        findings = [] if self.result is None else self.result.findings
        stopping = [one for one in findings if one.kind == "CHECKPOINT_MALFORMED" and one.evidence.get("starts") is False]
        found = [(one.place.broker, one) for one in stopping if one.place.broker is not None]
        return [(broker, finding) for broker, finding in found if not is_of_dead(self.dead, broker)]

    def start_order(self, elect: str | None = None) -> StartOrder:
        """The order in which brokers start for all these partitions; with `elect`, to have that broker lead."""
        requests = {}
        for planned in self.planned:
            chosen = planned.chosen(elect)
            request = None if chosen is None else leader_request(planned.given, planned.plan, planned.needs(chosen))
            if request is not None:
                requests[planned.plan.topic, planned.plan.partition] = request
        brokers = {candidate.broker for planned in self.planned for candidate in planned.plan.candidates}
        return order_of_starts(requests, sorted(brokers, key=broker_order))

    @property
    def salvage_options(self) -> list[str]:
        """What a salvage of all partitions needs."""
        return list(dict.fromkeys(word for planned in self.planned for word in planned.salvage_options or ()))

    def drop_salvages(self) -> None:
        """Recommend none where one partition is refused, or wants another broker preferred: nobody starts on part of a salvage."""
        options = [planned.salvage_options for planned in self.planned]
        preferred = {words[1] for words in options if words and words[0] == "--prefer-broker"}
        if None in options or len(preferred) > 1:
            for planned in self.planned:
                planned.salvage = None

    def recommend_by_start_order(self) -> None:
        """Recommend, of several leaders under whom a partition loses as little, the one that the order of starts makes leader."""
        leaders = self.start_order().leader_of()
        for planned in self.planned:
            plan = planned.plan
            leader = leaders.get((plan.topic, plan.partition), plan.recommended)
            if leader is not None and plan.recommended not in (leader, None):
                planned.plan = _recommending(plan, leader, "start_order")

    def recommend_those_who_lead(self) -> bool:
        """Recommend, of several leaders under whom a partition loses as little, the one that leads now; whether all that are
        recommended do."""
        for planned in self.planned:
            leading = planned.leading
            if leading is not None and leading.election == "leads" and leading.broker in planned.plan.alike:
                planned.plan = _recommending(planned.plan, leading.broker, "election")
        return all(planned.recommended is None or planned.recommended.election == "leads" for planned in self.planned)


def _recommending(plan: Plan, leader: Broker, chosen_by: str) -> Plan:
    """The plan with another of those recommended who lose alike."""
    alike = tuple([plan.recommended if broker == leader else broker for broker in plan.alike if plan.recommended is not None])
    return replace(plan, recommended=leader, alike=alike, chosen_by=(chosen_by,))


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan is asked for beyond what a scan is."""

    truncate_by: TruncateBy | None = None
    dead: frozenset[str] = frozenset()
    """Brokers that will not come back."""
    counted: bool = True
    """Whether the records and bytes of losses are counted, for which logs are read again."""
    forecast: Forecast | None = None
    """Tells what a salvage would lose; None: elections alone are weighed."""


def make_plans(paths: list[str], options: ScanOptions, plan_options: PlanOptions, progress: Progress | None = None) -> Plans:
    """Plan the elections of every partition that `options` leave. Raises UsageError for paths that make no sense, and for dead
    brokers that neither the copies nor the controller's log know."""
    inputs = gather(paths, options, scanned=True)
    witnesses = read_witnesses(inputs)
    check_names(inputs)
    check_dead(plan_options.dead, inputs, witnesses.controller)
    maker = PlanMaker(inputs, witnesses, plan_options)
    maker.plans.result = scan_inputs(inputs, options, progress, maker.look, witnesses)
    maker.plans.drop_salvages()
    if not (maker.plans.live and maker.plans.recommend_those_who_lead()):
        maker.plans.recommend_by_start_order()
    ledger = ledger_of(inputs, witnesses.controller, options.copied)
    maker.plans.quorum = quorum_of(inputs, ledger)
    absent = partitions_without_copy(inputs, ledger)
    maker.plans.without_copy = [partition for partition in absent if fits(partition, options)]
    maker.plans.others = sum(not fits(partition, options) for partition in _partitions_there(inputs))
    return maker.plans


def _partitions_there(inputs: Inputs) -> set[tuple[str, int | None]]:
    """Partitions of which a log directory that was given holds a replica, the controllers' own left out."""
    return {
        (directory.topic, directory.partition)
        for log_dir in inputs.log_dirs
        for directory in log_dir.found.partitions
        if directory.legal and not directory.suffix and directory.topic not in (None, CLUSTER_METADATA_TOPIC)
    }


class PlanMaker:
    """Plans a partition whenever the scan has judged one."""

    def __init__(self, inputs: Inputs, witnesses: Witnesses, plan_options: PlanOptions) -> None:
        controller = witnesses.controller
        voters = () if controller is None else controller.voters or ()
        self.plans = Plans(dead=dead_nodes(plan_options.dead, inputs), combined=frozenset(voters))
        self.plans.live = all(replica_plan.context.live for replica_plan in inputs.replicas)
        lacking = {log_dir.broker for log_dir in inputs.log_dirs if log_dir.logs_left_out}
        self.plans.without_logs = tuple(sorted(lacking, key=broker_order))
        filled = {log_dir.broker for log_dir in inputs.log_dirs if not log_dir.is_empty}
        empty = {log_dir.broker for log_dir in inputs.log_dirs if log_dir.is_empty} - filled
        self.plans.unformatted = tuple(sorted((one for one in empty if not is_of_dead(self.plans.dead, one)), key=broker_order))
        for replica_plan in inputs.replicas:
            if not (replica_plan.context.clean_shutdown or replica_plan.context.live):
                self.plans.bytes_to_recover[replica_plan.context.broker] += replica_plan.bytes
        if any(isinstance(source, BundleSource) for source in inputs.sources):
            plan_options = replace(plan_options, forecast=None)  # a bundle holds no records
        self._asked, self._log = plan_options, witnesses.transaction_log
        self._plan_of = {id(replica_plan.context): replica_plan for replica_plan in inputs.replicas}
        self._no_word = cache(partial(why_no_word, inputs, controller))
        self._unknown = unknown_to_controller(inputs)
        self._voters_end = None if controller is None else voters_end(controller)
        self._strays: Strays = "deleted" if controller is not None and may_delete(controller) else "set_aside"

    def look(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Take the replicas of one partition, which were judged."""
        if replicas[0].context.topic == CLUSTER_METADATA_TOPIC:
            self.plans.by_raft += 1
            return
        planned = self.plan_of(replicas, reader, result)
        self._count(planned)
        self._keep(planned)

    def plan_of(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> Planned:
        """The plan of one partition, which was judged, and is not the controllers'."""
        chosen, others, topic_known = self.present(replicas)
        context = chosen[0].context
        is_stray = (context.topic, context.partition, context.topic_id) in self._unknown
        copies = _Copies(chosen, reader, result, self.plans.dead, self._strays if is_stray else None)
        planned = _planned(copies, reader, result, self._asked, self._log)
        missing = [self._explained(absent, context.control) for absent in planned.plan.missing]
        if others and not topic_known:
            missing.append(Missing("topic_undecided"))
        missing += [Missing("other_topic", replica.broker) for replica in others]
        missing += _without_topic_id(chosen, result.findings)
        planned.plan = _with_not_read(replace(planned.plan, missing=tuple(missing)), planned.not_read)
        planned.salvage = self._less_by_salvage(chosen, planned, reader, result)
        return planned

    def _less_by_salvage(
        self, replicas: list[Replica], planned: Planned, reader: LogReader, result: PartitionResult
    ) -> SalvageForecast | None:
        """The salvage of a partition if that loses less than any election, or than nobody leading."""
        best = planned.recommended
        costs = costs_of(planned.plan.at_stake) if best is None else best.costs()
        some_will_start = planned.plan.strays is None and any(replica.is_live for replica in planned.given.replicas)
        if self._asked.forecast is None or not any(costs) or not some_will_start:
            return None
        copies = [(self._plan_of[id(replica.context)], replica) for replica in replicas]
        salvaged = self._asked.forecast(copies, planned, result, reader)
        planned.salvage_options = None if salvaged is None else salvaged.options
        return salvaged if salvaged is not None and costs_of(salvaged.losses) < costs else None

    def present(self, replicas: list[Replica]) -> tuple[list[Replica], list[Replica], bool]:
        """The replicas of the present topic of a partition's name, which are planned for; the others; and whether that is known."""
        groups, _ = identity_groups([self._plan_of[id(replica.context)] for replica in replicas])
        present, topic_known = present_topic(groups, replicas)
        others = [replicas[number] for at, group in enumerate(groups) if at != present for number in group]
        return [replicas[number] for number in groups[present]], others, topic_known

    def _explained(self, missing: Missing, control: PartitionControl | None) -> Missing:
        """What is missing; where no controller says what replicas there are, with the reason."""
        if missing.kind != NO_WORD:
            return missing
        behind = self._voters_end is not None and _changed_since(control, self._voters_end)
        return replace(missing, kind="voters_behind" if behind else self._no_word())

    def _count(self, planned: Planned) -> None:
        plans, missing = self.plans, planned.plan.missing
        plans.partitions += 1
        plans.not_read.update(context.broker for context in planned.not_read)
        plans.absent.update(absent.broker for absent in missing if absent.kind in ABSENT and absent.broker is not None)
        plans.refused.update(absent.broker for absent in missing if absent.kind == "does_not_start" and absent.broker is not None)
        plans.unsaid.update(absent.kind for absent in missing if absent.kind in UNSAID)

    def _keep(self, planned: Planned) -> None:
        """Keep a plan that matters; the first of all until there is another."""
        kept = self.plans.planned
        if len(kept) == 1 and not kept[0].matters:
            kept.clear()
        if planned.matters or self.plans.partitions == 1:
            kept.append(planned)


def _without_topic_id(replicas: list[Replica], findings: list[Finding]) -> list[Missing]:
    """The replicas of whose logs the scan says that their brokers do not serve them; of copies of running ones it is not sure."""
    brokers = {replica.broker for replica in replicas}
    return [
        Missing("no_topic_id", finding.place.broker)
        for finding in findings
        if finding.kind == "TOPIC_ID_MISSING" and finding.severity is not Severity.INFO and finding.place.broker in brokers
    ]


def _changed_since(control: PartitionControl | None, offset: int) -> bool:
    """Whether what is known of a partition is from the controllers' log at or behind an offset."""
    return control is not None and control.last_offset is not None and control.last_offset >= offset


def _with_not_read(plan: Plan, not_read: list[ReplicaContext]) -> Plan:
    """The plan with a word of each copy that is here and could not be read, which is not absent."""
    here = {context.node for context in not_read}
    missing = tuple(absent for absent in plan.missing if not (absent.kind == "copy_absent" and absent.broker in here))
    return replace(plan, missing=(*missing, *(Missing("copy_not_read", context.node) for context in not_read)))


def _planned(
    copies: "_Copies", reader: LogReader, result: PartitionResult, plan_options: PlanOptions, log: TransactionLog | None
) -> Planned:
    """The plan of one partition; further witnesses are sought only where something would be lost."""
    partition = copies.partition()
    bearing = [
        finding for finding in result.findings if finding.kind in kinds_with(Trait.CONTRADICTS_WITNESS, Trait.BEARS_ON_ELECTIONS)
    ]
    planned = Planned(partition, plan_partition(partition, plan_options.truncate_by), findings=bearing, not_read=copies.not_read)
    if planned.plan.at_stake or any(candidate.losses for candidate in planned.plan.candidates):
        planned.given = copies.partition(partial(copies.witnesses, log))
        planned.plan = plan_partition(planned.given, plan_options.truncate_by)
        by_broker = {replica.broker: replica for replica in copies.read}
        if plan_options.counted:
            _count_losses(planned, by_broker, reader)
        if _is_older(copies.context.control, planned.plan, by_broker, reader):
            planned.plan = replace(planned.plan, missing=(*planned.plan.missing, Missing("controller_log_older")))
    return planned


class _Copies:
    """The copies of a partition that are here, as the planner takes them."""

    def __init__(
        self,
        replicas: list[Replica],
        reader: LogReader,
        result: PartitionResult,
        dead: frozenset[Broker],
        strays: Strays | None,
    ) -> None:
        self.context = replicas[0].context
        self.not_read = [replica.context for replica in replicas if replica.read is Read.NONE]
        self.read = [replica for replica in replicas if replica.read is not Read.NONE]
        self._reader, self._strays = reader, strays
        self._conflict = result.summary.agreement.kind == "conflict"
        self._apart = _apart(self.read, reader) if self._conflict else {}
        for pair, ranges in unproven(self.read, reader).items():
            self._apart[pair] = normalised((*self._apart.get(pair, ()), *ranges))
        self._control = control_of(self.context.control)
        own = {replica.broker: replica.context.node_id for replica in self.read if isinstance(replica.context.node_id, int)}
        self._guessed = nodes_left(self.read, own, self._control, dead)
        without_copy = {row.broker: row.node for row in self.context.without_copy if row.node is not None}
        self._nodes: dict[Broker, int] = {**own, **self._guessed, **without_copy}
        self._dead = frozenset(self._nodes.get(broker, broker) for broker in dead)
        self._heads = {
            (finding.place.broker, finding.place.log_dir, finding.place.offset_end): (finding.place.offset_start, finding.severity)
            for finding in result.findings
            if finding.kind in kinds_with(Trait.LACKS_LOG_START) and finding.severity.rank >= Severity.WARNING.rank
        }
        self._converted = _converted(result.findings)

    def witnesses(self, log: TransactionLog | None, replica: Replica) -> Sequence[Witness]:
        """What in its own files, and in the coordinators' log, proves offsets of a replica committed."""
        return witnesses_of(replica, self._reader, log, conflicts=self._conflict or bool(self._apart))

    def partition(self, sought: Callable[[Replica], Sequence[Witness]] | None = None) -> PlanPartition:
        """The partition, with the witnesses of each replica where they are sought."""
        context = self.context
        values = [self._value(replica, () if sought is None else sought(replica)) for replica in self.read]
        absent = [row for row in context.without_copy if row.case is Presence.ABSENT and row.is_assigned is not False]
        return PlanPartition(
            context.topic,
            context.partition,
            [*values, *(_absent(row, self._dead) for row in absent)],
            self._apart,
            self._control,
            any(replica.context.compacted for replica in self.read),
            self._nodes,
            frozenset(self._guessed),
            self._dead,
            self._left_out(),
            self._strays,
            self._remote_segments(),
        )

    def _remote_segments(self) -> list[RemoteSegment]:
        """Of running brokers none that was copied after their logs were."""
        end = max((replica.log_end_offset for replica in self.read), default=0) if self.context.live else NO_END
        return [segment for segment in finished_segments(self.read) if segment.end_offset < end]

    def _value(self, replica: Replica, witnesses: Sequence[Witness]) -> PlanReplica:
        is_live = not is_of_dead(self._dead, replica.broker, self._nodes.get(replica.broker))
        value = replace(_value(replica, is_live, witnesses), converted=self._converted.get(replica.broker, ()))
        head = self._heads.get((replica.broker, replica.context.log_dir, replica.log_start_offset))
        return value if head is None else replace(value, head_start=head[0], head_may_be_expired=head[1] is Severity.WARNING)

    def _left_out(self) -> tuple[Broker, ...]:
        """Brokers whose copy was not read, or not copied, and who have no other here."""
        here = {replica.broker for replica in self.read} | {context.broker for context in self.not_read}
        unseen = [row.broker for row in self.context.without_copy if row.case in NOT_READ or row.case is Presence.NOT_COPIED]
        return tuple(broker for broker in unseen if broker not in here)


def _count_losses(planned: Planned, by_broker: Mapping[Broker, Replica], reader: LogReader) -> None:
    """Count what the plan's losses come to, as far as they are counted."""
    for losses in [planned.plan.at_stake, *(candidate.losses for candidate in planned.plan.candidates)]:
        for loss in (*losses, *_runs(losses)):
            if loss.held_by and _key(loss) not in planned.amounts and len(planned.amounts) < LOSSES_COUNTED:
                planned.amounts[_key(loss)] = _amount(by_broker[_soundest(planned.given, loss)], reader, loss)


def _is_older(control: PartitionControl | None, plan: Plan, by_broker: dict[Broker, Replica], reader: LogReader) -> bool:
    """Whether committed records that an ordinary start would lose are newer than the controllers' log: who was in sync when they
    were committed, it does not say."""
    if control is None or control.as_of_ms is None:
        return False
    ordinary = [candidate for candidate in plan.candidates if candidate.broker in plan.ordinary]
    for loss in (loss for candidate in ordinary for loss in candidate.losses if loss.committed and loss.held_by):
        rows = reader.batches(by_broker[loss.held_by[0]], loss.committed_end - 1, loss.committed_end)
        if rows.shape[1] and int(rows[BatchColumn.MAX_TIMESTAMP, -1]) > control.as_of_ms:
            return True
    return False


def _runs(losses: Sequence[Loss]) -> list[Loss]:
    """Losses of one log that follow each other as one."""
    joined_losses: list[Loss] = []
    for loss in sorted(losses, key=lambda loss: (str(loss.held_by[:1]), loss.start)):
        if joined_losses and joined_losses[-1].held_by[:1] == loss.held_by[:1] and joined_losses[-1].end == loss.start:
            holders = tuple(broker for broker in joined_losses[-1].held_by if broker in loss.held_by)
            joined_losses[-1] = joined_losses[-1]._replace(end=loss.end, held_by=holders)
        else:
            joined_losses.append(loss)
    return joined_losses


def _soundest(given: PlanPartition, loss: Loss) -> Broker:
    """Who of those that hold it has the least of it in damaged batches."""
    damaged = {replica.broker: replica.damaged for replica in given.replicas}
    return min(loss.held_by, key=lambda broker: counted(clipped(damaged[broker], loss.start, loss.end)))


def _key(loss: Loss) -> tuple[int, int, str]:
    return loss.start, loss.end, str(loss.held_by[:1])


def _absent(row: ExpectedReplica, dead: Collection[Broker]) -> PlanReplica:
    """A replica whose broker finds no directory of it: it starts with an empty log."""
    is_live = not is_of_dead(dead, row.broker, row.node)
    return PlanReplica(row.broker, 0, 0, 0, is_live=is_live, checkpoint=(), crashed=not row.stopped_cleanly, is_absent=True)


def _value(replica: Replica, is_live: bool, witnesses: Sequence[Witness]) -> PlanReplica:
    """A replica as its broker would load it once small files are mended: of a copy that was not taken from a running one, after
    recovery."""
    context, outlook = replica.context, None if replica.context.live else replica.recovery_once_mended
    end = replica.log_end_offset if outlook is None or outlook.log_end_offset is None else outlook.log_end_offset
    if replica.misplaced:
        end = min(end, replica.log_end_offset)  # a broker may take a wrong base offset for its log's end; no record stands there
    checkpoint = context.epoch_checkpoint
    epochs = brokers_epochs(replica)
    return PlanReplica(
        context.broker,
        replica.log_start_offset,
        end,
        context.high_watermark,
        tuple(replica.epochs),
        None if checkpoint is None else epochs,
        _held(replica),
        tuple(witnesses),
        is_live,
        outlook is None or outlook.starts,
        None if outlook is None else refused_at(outlook),
        replica.end_is_known,
        not (context.clean_shutdown or context.live),
        damaged_offsets(replica),
        has_unknown_bytes(replica),
        unread_offsets(replica),
        local_log_start_offset=replica.local_log_start_offset if replica.is_tiered else None,
        epochs_without_checkpoint=epochs if checkpoint is None else (),
    )


def _held(replica: Replica) -> Ranges:
    """Offsets of its good batches and of what it has in remote storage; what the cleaner took before the first batch is not
    missing."""
    held = normalised([*replica.remote, *((run.start_offset, run.end_offset) for run in replica.state.continuity.runs)])
    if held and replica.context.compacted:
        return normalised(((min(replica.log_start_offset, held[0][0]), held[0][1]), *held[1:]))
    return held


def _apart(replicas: list[Replica], reader: LogReader) -> dict[tuple[int, int], Ranges]:
    """Where pairs of replicas hold different records."""
    by_pair = {}
    for i, j in combinations(range(len(replicas)), 2):
        end = min(replicas[i].log_end_offset, replicas[j].log_end_offset)
        ranges = _contents(differences(replicas[i], replicas[j], reader), end)
        if ranges:
            by_pair[i, j] = ranges
    return by_pair


def _converted(findings: Sequence[Finding]) -> dict[Broker, Ranges]:
    """By broker the offsets of records without headers or transactions that another replica's have."""
    ranges: dict[Broker, list[Range]] = {}
    for finding in findings:
        if finding.kind == "BATCHES_REENCODED":
            brokers = [*finding.evidence.get("without_headers", ()), *finding.evidence.get("without_transactions", ())]
            whole = {
                "offset_start": finding.place.offset_start or 0,
                "offset_end": finding.place.offset_end or 0,
                "brokers": brokers,
            }
            for row in finding.evidence.get("lacking", [whole]):
                for broker in row["brokers"]:
                    ranges.setdefault(broker, []).append((row["offset_start"], row["offset_end"]))
    return {broker: normalised(spans) for broker, spans in ranges.items()}


def _contents(differing: Differences, end: int) -> Ranges:
    """Offsets below `end` at which two logs hold different records.

    The comparison names the batches, but for blocks it passed over: differences of two blocks count as one. Logs that parted may
    agree again behind the fork, where the follower cut above it (before KIP-279), or never cut at all.
    """
    contents = [difference for difference in differing if difference.kind == "content"]
    if not contents:
        return ()
    if differing.full:
        return clipped(((contents[0].offset, end),), 0, end)
    ranges = [(difference.offset, difference.end_offset) for difference in contents]
    for before, difference in pairwise(contents):
        if before.offset // BLOCK_OFFSETS != difference.offset // BLOCK_OFFSETS:
            ranges.append((before.offset, difference.offset))
    return clipped(normalised(ranges), 0, end)


def _amount(replica: Replica, reader: LogReader, loss: Loss) -> Amount:
    """Records and bytes of a loss, from the log of one who holds it."""
    if clipped(replica.remote, loss.start, loss.end):
        return Amount(None, None)
    records = size = 0
    problems = len(reader.incomplete)
    good = normalised((run.start_offset, run.end_offset) for run in replica.state.continuity.runs)
    for batch in batches_held(replica, reader, clipped(good, loss.start, loss.end)):
        records += batch.records
        size += batch.size_in_bytes
    for part in without(clipped(damaged_offsets(replica), loss.start, loss.end), good):
        batches = list(batches_held(replica, reader, (part,)))
        if sum(batch.offsets for batch in batches) != part[1] - part[0]:
            return Amount(None, None)  # headers are damaged as well
        records, size = records + sum(batch.records for batch in batches), size + sum(batch.size_in_bytes for batch in batches)
    return Amount(None, None) if len(reader.incomplete) > problems else Amount(records, size)


# Damaged batches of replicas as a plan counts them: their offsets, and whether they are rotten copies of what another holds; and
# what of a log could not be read, which is no damage.


OFFSETS_COMPARED: Final = 1 << 20
"""A damaged range of more offsets is not compared batch by batch."""


def damaged_offsets(replica: Replica) -> Ranges:
    """Offsets of bytes that are there and are not good batches: between good batches by these, behind the last by the headers.

    In cleaned logs offsets are missing anyway, so there only the headers tell. Bytes that are all zero hold nothing.
    """
    spans = normalised([*_between(replica), *damaged_by_headers(replica)])
    tail = replica.state.continuity.bad_tail
    if tail is not None and 0 <= tail.start_offset < tail.end_offset:
        spans = normalised([*spans, *without([(tail.start_offset, tail.end_offset)], _covered(replica))])
    lost = [damage for _, damage in replica.state.framing.damage.get("FRAMING_LOST", ())]
    lies = [damage for damage in lost if damage.detail.get("reason") == "length_lies"]
    last = [(lie.base_offset, lie.last_offset + 1) for lie in lies if lie.base_offset == replica.course.end_offset]
    return normalised([*spans, *last])


def _between(replica: Replica) -> Iterator[Range]:
    """What damage between good batches has eaten, unless it is nothing but zeros, or was never read."""
    holes = {(segment, damage.position): damage for segment, damage in replica.state.framing.damage.get("SEG_HOLE", ())}
    unread = unread_offsets(replica)
    for place, offsets in replica.course.eaten.items():
        if not _is_empty(holes.get(place)) and offsets[1] - offsets[0] <= MAX_RELATIVE_OFFSET and offsets not in unread:
            yield offsets


def unread_offsets(replica: Replica) -> Ranges:
    """Offsets before the log's end that stood, if anywhere, in segments that could not be read, or not to their ends."""
    eaten = []
    for run in replica.state.continuity.runs if replica.state.unread else ():
        place = run.after_damage
        if place in replica.course.eaten and any(place[0] <= segment < run.segment for segment in replica.state.unread):
            eaten.append(replica.course.eaten[place])
    return tuple(eaten)


def _is_empty(damage: Damage | None) -> bool:
    return damage is not None and damage.detail.get("zero_bytes") == damage.size_in_bytes


def _covered(replica: Replica) -> Ranges:
    return normalised((run.start_offset, run.end_offset) for run in replica.state.continuity.runs)


def has_unknown_bytes(replica: Replica) -> bool:
    """Whether bytes behind the last good batch may hold records, and nothing tells their offsets."""
    continuity = replica.state.continuity
    if continuity.damage_at_end is None:
        return False
    if continuity.bad_tail is not None and continuity.bad_tail.closed:
        return True
    for kind in kinds_with(Trait.HIDES_OFFSETS):
        for segment, damage in replica.state.framing.damage.get(kind, ()):
            behind = (segment, damage.position) >= continuity.damage_at_end
            if behind and damage.base_offset < 0 and not _is_empty(damage):
                return True
    return False


def unproven(replicas: Sequence[Replica], reader: LogReader) -> dict[tuple[int, int], Ranges]:
    """Damaged offsets that another replica has as well, and nothing proves that it was given the same records; by the numbers of
    the two in ascending order."""
    by_pair: dict[tuple[int, int], Ranges] = {}
    damaged = [damaged_offsets(replica) for replica in replicas]
    for i, j in permutations(range(len(replicas)), 2):
        both = normalised([*_covered(replicas[j]), *damaged[j]]) if damaged[i] else ()
        open_ones = [
            span
            for low, high in damaged[i]
            for part in clipped(both, low, high)
            for span in without([part], tuple(_same(replicas[i], replicas[j], reader, part)))
        ]
        if open_ones:
            pair = (min(i, j), max(i, j))
            by_pair[pair] = normalised((*by_pair.get(pair, ()), *open_ones))
    return by_pair


def _same(left: Replica, right: Replica, reader: LogReader, part: Range) -> list[Range]:
    """What of `part` surely held the same batches in both: they stand in one leader epoch, or their headers keep one CRC."""
    start, end = part
    epochs = {epoch for replica in (left, right) for epoch in (_epoch_before(replica, start), epoch_at(replica.epochs, end))}
    inside = end < min(left.course.end_offset, right.log_end_offset)
    if inside and len(epochs) == 1 and min((epoch or 0) if epoch is not None else -1 for epoch in epochs) >= 0:
        return [part]
    if end - start > OFFSETS_COMPARED:
        return []
    ours, theirs = _headers(left, reader, part), _headers(right, reader, part)
    return list(
        normalised(
            (min(base, theirs[last].base_offset), last + 1)
            for last, (base, magic, crc, epoch) in ours.items()
            if last in theirs
            and (base == theirs[last].base_offset or magic < CURRENT_MAGIC)
            and (crc == theirs[last].crc or (0 <= epoch == theirs[last].leader_epoch))
        )
    )


def _epoch_before(replica: Replica, start: int) -> int | None:
    """Leader epoch in which a range begins: that of the good batch before it, or at its start; where the log begins damaged, by its
    leader-epoch-checkpoint."""
    batches, file = replica.epochs, replica.context.epoch_checkpoint or ()
    tried = (epoch_at(batches, start - 1), epoch_at(batches, start), epoch_at(file, start))
    return next((epoch for epoch in tried if epoch is not None), None)


class _Header(NamedTuple):
    """What a batch says of itself; of a compressed one of the old formats that is damaged only the last offset is known."""

    base_offset: int
    magic: int
    crc: int
    leader_epoch: int


def _headers(replica: Replica, reader: LogReader, part: Range) -> dict[int, _Header]:
    """Last offsets of the batches of a range → what their headers say."""
    rows = reader.batches(replica, *part)
    columns = (BatchColumn.BASE_OFFSET, BatchColumn.MAGIC, BatchColumn.CRC, BatchColumn.PARTITION_LEADER_EPOCH)
    facts = zip(*(rows[column].tolist() for column in columns), strict=True)
    return {last: _Header(*header) for last, header in zip(rows[BatchColumn.LAST_OFFSET].tolist(), facts, strict=True)}
