"""`plan`: elections planned on copied log directories, and the size of what each of them loses."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import combinations, pairwise, permutations
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

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
from kafka_forensics.analysis.transactions_across import completed_decisions, proof_by_marker
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, broker_order, contradicting_names, gather
from kafka_forensics.evidence.ledger import NOT_READ, Presence
from kafka_forensics.evidence.options import ScanOptions, fits, listed
from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, CURRENT_MAGIC, MAX_RELATIVE_OFFSET
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.coordinators import CommittedOffset, GroupLog, TransactionLog
from kafka_forensics.model.findings import Finding, RerunArguments, Severity, TopicPartition
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, counted, normalised, without
from kafka_forensics.model.results import ReadExtent, ScanResult
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.planner import (
    ASSIGNMENT_UNKNOWN,
    NO_CONTROLLER_LOG,
    NO_END,
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
from kafka_forensics.scanning.judging.absence import ledger_of, lost_partitions, may_delete, unknown_to_controller
from kafka_forensics.scanning.judging.partitions import PartitionResult, identity_groups
from kafka_forensics.scanning.judging.quorum import Quorum, blocks_controllers, quorum_of, voters_end
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.controller import present_topic
from kafka_forensics.scanning.witnesses.coordinators import replay_log
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.bundles import BundleSource

# Brokers: a copy, the controllers' log and the user may each use another name for the same broker.


def _node_ids_by_name(inputs: Inputs) -> dict[str, int | None]:
    """Name of each broker with a copy of data → its node id, None where the copy does not tell it."""
    nodes: dict[str, int | None] = {}
    for log_dir in inputs.log_dirs:
        partitions, meta = log_dir.found.partitions, log_dir.meta
        if not partitions or any(directory.topic != CLUSTER_METADATA_TOPIC for directory in partitions):
            nodes[str(log_dir.broker)] = nodes.get(str(log_dir.broker)) if meta is None or meta.node_id is None else meta.node_id
    return nodes


def _as_broker(name: str) -> Broker:
    return int(name) if name.isdecimal() else name


def check_dead(dead: Collection[str], inputs: Inputs, controller: ControllerHistory | None) -> None:
    """Raise UsageError for a dead broker that appears neither in a copy nor in the controllers' log."""
    nodes = _node_ids_by_name(inputs)
    names = {*nodes, *(str(node) for node in nodes.values() if node is not None)}
    for control in () if controller is None else controller.partitions.values():
        names.update(str(node) for node in (*(control.replica_assignment or ()), *(control.isr or ()), *(control.elr or ())))
    for broker in sorted(set(dead) - names):
        text = f"no copy belongs to broker {broker}, and no controller's log assigns it a replica"
        raise UsageError(text, hint=f"brokers known here: {listed(map(str, sorted(map(_as_broker, names), key=broker_order)))}")


def is_dead(dead: Collection[Broker], name: Broker, node: Broker | None = None) -> bool:
    """Whether a copy's broker is dead, by its name or its node id, which `require_matching_node_ids` compares."""
    return not {str(broker) for broker in dead}.isdisjoint({str(name), str(name if node is None else node)})


def node_ids(names: Collection[str], inputs: Inputs) -> frozenset[Broker]:
    """Brokers as the controller calls them: by the node id in the copy of that name, else by the name itself."""
    nodes = _node_ids_by_name(inputs)
    return frozenset(_as_broker(name) if (node := nodes.get(name)) is None else node for name in names)


def name_of_copy(requested: str, inputs: Inputs) -> str:
    """The name of a broker's copy: that of the only copy with this node id, where no copy has this name."""
    nodes = _node_ids_by_name(inputs)
    by_node = [name for name, node in nodes.items() if str(node) == requested]
    return by_node[0] if requested not in nodes and len(by_node) == 1 else requested


def require_matching_node_ids(inputs: Inputs) -> None:
    """Raise UsageError for a copy named after another broker than its `meta.properties`: steps would address the wrong broker."""
    for broker, nodes, names in contradicting_names(inputs.log_dirs):
        text = f"{names[0]} was given as broker {broker}, but its meta.properties has node {nodes[0]}"
        raise UsageError(text, hint=f"give it as {nodes[0]}=PATH: a plan states which broker to stop and to start")


def _guessed_node(
    replicas: list[Replica], nodes: dict[Broker, int], control: PlanControl | None, dead: Collection[Broker]
) -> dict[Broker, int]:
    """Name → node id of the only copy without a node id, where the assignment has just one replica without a copy; else nothing.

    Raises UsageError where one of several such copies belongs to a dead broker.
    """
    unnamed = [replica.broker for replica in replicas if replica.broker not in nodes and not isinstance(replica.broker, int)]
    assignment = () if control is None or control.assignment is None else control.assignment
    with_copy = {nodes.get(replica.broker, replica.broker) for replica in replicas}
    without_copy = [node for node in assignment if node not in with_copy]
    if len(unnamed) == len(without_copy) == 1:
        return {unnamed[0]: without_copy[0]}
    dead_nodes = [node for node in without_copy if is_dead(dead, node)]
    if unnamed and dead_nodes:
        text = f"cannot tell which of the copies {listed(map(str, unnamed))} belongs to broker {dead_nodes[0]}"
        raise UsageError(text, hint=f"none has a meta.properties: name their brokers, as in {dead_nodes[0]}=PATH")
    return {}


# The controllers' log.


def _plan_control(control: PartitionControl | None) -> PlanControl | None:
    if control is None:
        return None
    isr, elr, assignment = (None if ids is None else tuple(ids) for ids in (control.isr, control.elr, control.replica_assignment))
    unclean_by_topic, unclean_by_default = (
        None if (value := configs.get("unclean.leader.election.enable")) is None else value.lower() == "true"
        for configs in (control.configs, control.defaults)
    )
    leader = control.leader, last_leader(control), control.leader_epoch
    return PlanControl(*leader, isr, elr, assignment, unclean_by_topic, unclean_by_default)


def _why_assignment_unknown(inputs: Inputs, history: ControllerHistory | None) -> str:
    """Why the controllers' log does not mention a partition, as a kind of `Missing`; reads the log again to look for damage."""
    plans = [plan for plan in inputs.internal if plan.context.topic == CLUSTER_METADATA_TOPIC and not plan.context.log_unknown]
    if not plans:
        return NO_CONTROLLER_LOG
    if history is None or history.unknown_after is not None or history.malformed_records or any(map(_has_damage, plans)):
        return "controller_log_damaged"
    return "controller_log_silent"


def _has_damage(plan: ReplicaPlan) -> bool:
    """Whether a log has damage before its tail, or cannot be read."""
    for log in plan.directory.logs():
        try:
            with plan.log_dir.source.open(log.entry.path) as file:
                chunks = SegmentReader(file, log.max_plausible_offset).chunks()
                if any(damage.kind not in kinds_with(Trait.IS_TAIL) for chunk in chunks for damage in chunk.damage):
                    return True
        except SourceError:
            return True
    return False


# Witnesses: proof, other than its high watermark, that records of a replica's log are committed.


_COMMITS_TRIED: Final = 8


def _group_offset_witness(replica: Replica, reader: LogReader, *, conflicts: bool) -> Witness | None:
    """The largest offset a group committed, since consumers read only committed records.

    The record before that offset must be in the log and no younger than the commit. Where replicas conflict the commit must also
    name that record's epoch, because it does not say which log the consumer read.
    """
    context = replica.context
    commits = [
        committed_offset
        for committed_offset in context.committed
        if 0 < committed_offset.greatest.offset <= replica.log_end_offset
        and (context.topic_id is None or committed_offset.greatest.topic_id in (None, context.topic_id))
    ]
    commits.sort(key=lambda committed_offset: (-committed_offset.greatest.offset, committed_offset.group))
    for committed_offset in commits[:_COMMITS_TRIED]:
        commit = committed_offset.greatest
        rows = reader.batches(replica, commit.offset - 1, commit.offset)
        if not rows.shape[1] or not 0 <= int(rows[BatchColumn.MAX_TIMESTAMP].max()) <= commit.commit_timestamp:
            continue
        if not conflicts or 0 <= commit.leader_epoch == int(rows[BatchColumn.PARTITION_LEADER_EPOCH, 0]):
            return Witness(commit.offset, "group_offset", replica.broker, committed_offset.group)
    return None


def _marker_witness(replica: Replica, transaction_log: TransactionLog) -> Witness | None:
    """The last transaction marker whose transaction the coordinators completed."""
    rows = replica.state.transactions.last_markers.markers.rows
    if not len(rows):
        return None
    proof = proof_by_marker(rows, replica.log_end_offset, replica.context.topic_partition, completed_decisions(transaction_log))
    return None if proof is None else Witness(proof.end_offset, "transaction_marker", replica.broker, proof.transactional_id)


ABSENT: Final = ("copy_absent", "dead_copy_absent", "not_copied")
LOSSES_COUNTED: Final = 512
"""Losses of a partition whose records and bytes are counted; of further ones only the offsets are known."""


class LossSize(Struct, frozen=True):
    """Size of a loss: records except transaction markers, and bytes of their batches; None where the log could not be read."""

    records: int | None
    bytes: int | None
    oldest_ms: int | None = None
    newest_ms: int | None = None
    """Of the records' own timestamps."""


class SalvageForecast(Struct, frozen=True):
    """What a salvage of a partition would lose, and the options it requires."""

    losses: tuple[Loss, ...]
    options: tuple[str, ...] = ()


Forecast = Callable[[Sequence[tuple[ReplicaPlan, Replica]], "Planned", PartitionResult, LogReader], SalvageForecast | None]
"""`questions.salvage.forecast`, which imports this module."""


def held_by_no_copy(findings: Iterable[Finding]) -> Ranges:
    """Offsets of committed records that no copy here holds, by findings of one partition."""
    places = [
        finding.place
        for finding in findings
        if finding.kind in kinds_with(Trait.OFFSETS_WERE_THERE)
        and finding.severity.rank >= Severity.ERROR.rank
        and finding.evidence.get("held_by") == []
    ]
    ends = [(place.offset_start, place.offset_end) for place in places]
    return normalised((start, end) for start, end in ends if start is not None and end is not None)


class Planned(Struct):
    """One partition's plan, the planner's input, and the sizes of its losses."""

    planner_input: PlanPartition
    plan: Plan
    findings: list[Finding] = field(default_factory=list)
    """Findings of the scan that affect elections."""
    not_read: list[ReplicaContext] = field(default_factory=list)
    """Replicas with a copy whose log could not be read at all; the plan leaves them out."""
    sizes: dict[tuple[int, int, str], LossSize] = field(default_factory=dict)
    salvage: SalvageForecast | None = None
    """A salvage that loses less than any election; None if there is none, or none was computed."""
    topic_id: str | None = None
    commits: list[CommittedOffset] = field(default_factory=list)
    """Of groups on this partition."""
    group_logs: dict[Broker, GroupLog] = field(default_factory=dict)
    """Broker → its copy of a partition of `__consumer_offsets` of which elections lose records; empty for other partitions."""
    salvage_options: tuple[str, ...] | None = ()
    """Options that a salvage of all partitions requires for this one; None if it is refused."""

    def amount(self, loss: Loss) -> LossSize:
        """The size of a loss of this plan."""
        return self.sizes.get(_loss_key(loss), LossSize(None, None))

    def total(self, losses: Sequence[Loss]) -> LossSize:
        """The size of all losses of an election; a batch that lies in two of them counts once."""
        sizes = [self.amount(loss) for loss in _joined(losses)]
        return LossSize(_sum_if_known(size.records for size in sizes), _sum_if_known(size.bytes for size in sizes))

    @property
    def newest_commit_ms(self) -> int | None:
        """When the newest commit on this partition, or a larger earlier one, was made; None without any."""
        times = (max(commit.last.commit_timestamp, commit.greatest.commit_timestamp) for commit in self.commits)
        return max(times, default=None)

    @property
    def recommended(self) -> Candidate | None:
        """The candidate that loses least; where `salvage` loses less, the salvage is recommended."""
        return self.candidate(self.plan.recommended)

    @property
    def recommends_one_leader(self) -> bool:
        """Whether one election is recommended: no salvage loses less, and high watermarks decide between candidates."""
        return self.salvage is None and self.plan.contested_by is None

    @property
    def held_by_no_copy(self) -> Ranges:
        """Offsets of committed records that no copy here holds, by the findings."""
        return held_by_no_copy(self.findings)

    @property
    def current_leader(self) -> Candidate | None:
        """The candidate that leads by the controllers' log; None without such a leader, or without a copy of it."""
        leader = None if self.planner_input.control is None else self.planner_input.control.leader
        return next((candidate for candidate in self.plan.candidates if self.planner_input.node(candidate.broker) == leader), None)

    @property
    def without_topic_id(self) -> dict[Broker, str | None]:
        """Live brokers that would not serve their log because it has no topic id → that id, None if no other file tells it."""
        brokers = {missing.broker for missing in self.plan.missing if missing.kind == "no_topic_id"}
        brokers -= {replica.broker for replica in self.planner_input.replicas if not replica.is_live}
        return {
            finding.place.broker: finding.evidence.get("topic_id")
            for finding in self.findings
            if finding.kind == "TOPIC_ID_MISSING" and finding.place.broker is not None and finding.place.broker in brokers
        }

    @property
    def matters(self) -> bool:
        """Whether its plan does, an ordinary start would leave a log unserved or elect no leader, or committed records are lost."""
        return self.plan.matters or bool(self.without_topic_id) or self.must_be_forced or bool(self.held_by_no_copy)

    @property
    def must_be_forced(self) -> bool:
        """Whether no leader is elected until an operator requests an unclean election."""
        return self.recommended is not None and self.recommended.election == "unclean"

    def replica(self, broker: Broker | None) -> PlanReplica | None:
        """The replica of this broker."""
        return next((replica for replica in self.planner_input.replicas if replica.broker == broker), None)

    def end_as_leader(self, candidate: Candidate) -> int | None:
        """The end of this leader's log after its own recovery; None if unknown."""
        replica = self.replica(candidate.broker)
        return replica.log_end_offset - candidate.recovery_cut if replica is not None and replica.end_is_known else None

    def forks_of(self, candidate: Candidate) -> list[int]:
        """First offsets of losses at which this leader's log holds other records."""
        replica = self.replica(candidate.broker)
        held = () if replica is None else replica.on_disk
        return [loss.start for loss in candidate.losses if clipped(held, loss.start, loss.start + 1)]

    def candidate(self, broker: int | str | None) -> Candidate | None:
        """The candidate of this name."""
        return next((candidate for candidate in self.plan.candidates if candidate.broker == broker), None)

    def chosen(self, elect: str | None) -> Candidate | None:
        """The candidate that the steps make leader: the requested one, else the recommended one."""
        requested = (candidate for candidate in self.plan.candidates if str(candidate.broker) == elect)
        return self.recommended if elect is None else next(requested, None)

    def needs(self, candidate: Candidate) -> ElectionNeeds:
        """What that election requires of brokers and their copies."""
        return election_needs(self.planner_input, self.plan, candidate)

    def recommend(self, leader: Broker, chosen_by: str) -> None:
        """Recommend another of the candidates that lose equally little."""
        plan = self.plan
        if plan.recommended is not None:
            equally_good = tuple([plan.recommended if broker == leader else broker for broker in plan.equally_good])
            self.plan = replace(plan, recommended=leader, equally_good=equally_good, chosen_by=(chosen_by,))


class Plans(Struct):
    """Plans of the requested partitions that matter; of a single partition always."""

    planned: list[Planned] = field(default_factory=list)
    partitions: int = 0
    agreeing: dict[TopicPartition, str | None] = field(default_factory=dict)
    """Partitions of which no election loses anything, and which are not in `planned` → their topic ids."""
    absent: Counter[int | str] = field(default_factory=Counter)
    """Broker → partitions that the controllers' log assigns to it and of which it has no copy here."""
    not_read: Counter[int | str] = field(default_factory=Counter)
    """Broker → partitions with a copy whose log could not be read at all."""
    assignment_unknown: Counter[str] = field(default_factory=Counter)
    """Why the controller does not tell the replicas (a kind of `Missing`) → partitions."""
    refused: Counter[int | str] = field(default_factory=Counter)
    """Broker that would not start on its copy → partitions with a replica on it."""
    by_raft: int = 0
    """Partitions of the controllers' log, whose leader the controllers elect among themselves."""
    quorum: Quorum | None = None
    """The controllers; None where nothing here names them."""
    result: ScanResult | None = None
    dead: frozenset[int | str] = frozenset()
    """Brokers that will not come back, as the controller calls them."""
    without_copy: list[tuple[str, int]] = field(default_factory=list)
    """Expected partitions of which there is no copy."""
    only_remote: dict[tuple[str, int], list[Broker]] = field(default_factory=dict)
    """Partitions without a copy, requested or not, whose remote segments a leader deletes that starts without the directory → their
    brokers."""
    has_store: bool = False
    """Whether a remote store is among the paths."""
    others: int = 0
    """Further partitions in the same log directories; the same brokers start for them."""
    live: bool = False
    """Whether all copies were taken from running brokers."""
    combined: frozenset[int | str] = frozenset()
    """Nodes that vote among the controllers; those that are also brokers run as both."""
    without_logs: tuple[int | str, ...] = ()
    """Brokers with a log directory that was copied without its `.log` files."""
    unformatted: tuple[int | str, ...] = ()
    """Live brokers whose only log directory is empty."""
    bytes_to_recover: Counter[int | str] = field(default_factory=Counter)
    """Broker that was not shut down cleanly → bytes of its logs."""

    @property
    def rerun_arguments(self) -> RerunArguments | None:
        """What commands that read the same copies repeat."""
        return None if self.result is None else self.result.rerun_arguments

    @property
    def controller_findings(self) -> list[Finding]:
        """Findings that keep controllers from starting."""
        return [] if self.result is None else [finding for finding in self.result.findings if blocks_controllers(finding)]

    @property
    def not_to_start(self) -> Counter[Broker]:
        """Broker that must not start, or would not, on its copy → partitions because of which."""
        return self.refused + Counter(broker for brokers in self.only_remote.values() for broker in brokers)

    @property
    def files_to_repair(self) -> list[tuple[Broker, Finding]]:
        """Small files of live brokers because of which the broker does not start, or does not serve its logs."""
        return [
            (finding.place.broker, finding)
            for finding in ([] if self.result is None else self.result.findings)
            if finding.kind == "CHECKPOINT_MALFORMED" and finding.evidence.get("starts") is False
            if finding.place.broker is not None and not is_dead(self.dead, finding.place.broker)
        ]

    def start_order(self, elect: str | None = None) -> StartOrder:
        """The order in which brokers start for all these partitions; `elect` is the broker to lead."""
        requests = {}
        for planned in self.planned:
            chosen = planned.chosen(elect)
            request = None if chosen is None else leader_request(planned.planner_input, planned.plan, planned.needs(chosen))
            if request is not None:
                requests[planned.plan.topic, planned.plan.partition] = request
        brokers = {candidate.broker for planned in self.planned for candidate in planned.plan.candidates}
        return order_of_starts(requests, sorted(brokers, key=broker_order))

    @property
    def salvage_options(self) -> list[str]:
        """Options that a salvage of all partitions requires."""
        return list(dict.fromkeys(option for planned in self.planned for option in planned.salvage_options or ()))

    def drop_partial_salvages(self) -> None:
        """Recommend no salvage if one partition refuses it or partitions prefer different brokers: a salvage covers all or none."""
        options = [planned.salvage_options for planned in self.planned]
        preferred = {words[1] for words in options if words and words[0] == "--prefer-broker"}
        if None in options or len(preferred) > 1:
            for planned in self.planned:
                planned.salvage = None

    def recommend_by_start_order(self) -> None:
        """Of several candidates that lose equally little, recommend the one that the start order makes leader."""
        leaders = self.start_order().leader_of()
        for planned in self.planned:
            leader = leaders.get((planned.plan.topic, planned.plan.partition))
            if leader is not None and leader != planned.plan.recommended:
                planned.recommend(leader, "start_order")

    def recommend_current_leaders(self) -> bool:
        """Of several candidates that lose equally little, recommend the current leader; whether it leads everywhere then."""
        for planned in self.planned:
            leader = planned.current_leader
            if leader is not None and leader.election == "leads" and leader.broker in planned.plan.equally_good:
                planned.recommend(leader.broker, "election")
        return all(planned.recommended is None or planned.recommended.election == "leads" for planned in self.planned)


class PlanOptions(Struct, frozen=True):
    """Options of a plan beside those of a scan."""

    truncate_by: TruncateBy | None = None
    dead: frozenset[str] = frozenset()
    """Brokers that will not come back."""
    counted: bool = True
    """Whether to count the records and bytes of losses, which reads logs again."""
    forecast: Forecast | None = None
    """Computes what a salvage would lose; None: only elections are considered."""


def make_plans(paths: list[str], options: ScanOptions, plan_options: PlanOptions, progress: Progress | None = None) -> Plans:
    """Plan the elections of every partition that `options` select.

    Raises UsageError for invalid paths, and for dead brokers that appear neither in the copies nor in the controllers' log.
    """
    inputs = gather(paths, options, scanned=True)
    witnesses = read_witnesses(inputs)
    require_matching_node_ids(inputs)
    check_dead(plan_options.dead, inputs, witnesses.controller)
    maker = PlanMaker(inputs, witnesses, plan_options)
    plans = maker.plans
    plans.result = scan_inputs(inputs, options, progress, maker.on_partition, witnesses)
    finish_plans(plans, inputs, witnesses, options)
    return plans


def finish_plans(plans: Plans, inputs: Inputs, witnesses: Witnesses, options: ScanOptions) -> None:
    """Decide what depends on all partitions, once each of them is planned."""
    plans.drop_partial_salvages()
    if not (plans.live and plans.recommend_current_leaders()):
        plans.recommend_by_start_order()
    ledger = ledger_of(inputs, witnesses.controller, options.copied)
    plans.quorum = quorum_of(inputs, ledger)
    lost = lost_partitions(inputs, ledger)
    plans.without_copy = [partition for partition in lost if fits(partition, options)]
    plans.only_remote = {key: [row.broker for row in rows] for key, rows in lost.items() if _may_be_remote(key, witnesses)}
    plans.has_store = bool(inputs.store_places)
    partitions = {
        (directory.topic, directory.partition)
        for log_dir in inputs.log_dirs
        for directory in log_dir.found.partitions
        if directory.is_replica and directory.topic not in (None, CLUSTER_METADATA_TOPIC)
    }
    plans.others = sum(not fits(partition, options) for partition in partitions)


def _may_be_remote(key: TopicPartition, witnesses: Witnesses) -> bool:
    """Whether a partition without a copy has remote segments, or may have some: it is tiered, and not all metadata was read."""
    history, control = witnesses.remote_log, witnesses.control(*key)
    log = None if history is None else history.log_of(*key)
    if log is not None and log.finished:
        return True
    is_whole = history is not None and not (history.damaged or history.partitions_missing)
    return control is not None and control.is_tiered and not is_whole


class PlanMaker:
    """Plans each partition once the scan has judged it."""

    def __init__(self, inputs: Inputs, witnesses: Witnesses, plan_options: PlanOptions) -> None:
        controller = witnesses.controller
        voters = () if controller is None else controller.voters or ()
        self.plans = plans = Plans(dead=node_ids(plan_options.dead, inputs), combined=frozenset(voters))
        plans.live = all(replica_plan.context.live for replica_plan in inputs.replicas)
        without_logs = {log_dir.broker for log_dir in inputs.log_dirs if log_dir.logs_left_out}
        plans.without_logs = tuple(sorted(without_logs, key=broker_order))
        empty = {log_dir.broker for log_dir in inputs.log_dirs if log_dir.is_empty}
        empty -= {log_dir.broker for log_dir in inputs.log_dirs if not log_dir.is_empty}
        plans.unformatted = tuple(sorted((broker for broker in empty if not is_dead(plans.dead, broker)), key=broker_order))
        for replica_plan in inputs.replicas:
            if not (replica_plan.context.clean_shutdown or replica_plan.context.live):
                plans.bytes_to_recover[replica_plan.context.broker] += replica_plan.bytes
        if any(isinstance(source, BundleSource) for source in inputs.sources):
            plan_options = replace(plan_options, forecast=None)  # a bundle holds no records
        self._inputs, self._options, self._transaction_log = inputs, plan_options, witnesses.transaction_log
        self._plan_of = {id(replica_plan.context): replica_plan for replica_plan in inputs.replicas}
        self._why_assignment_unknown = cache(partial(_why_assignment_unknown, inputs, controller))
        self._unknown_to_controller = unknown_to_controller(inputs)
        self._voters_end = None if controller is None else voters_end(controller)
        self._strays: Strays = "deleted" if controller is not None and may_delete(controller) else "set_aside"

    def on_partition(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Plan a judged partition, count what it lacks, and keep its plan if it matters or is the only one."""
        plans = self.plans
        if replicas[0].context.topic == CLUSTER_METADATA_TOPIC:
            plans.by_raft += 1
            return
        planned = self.plan_of(replicas, reader, result)
        plans.partitions += 1
        plans.not_read.update(context.broker for context in planned.not_read)
        for missing in planned.plan.missing:
            if missing.kind in ASSIGNMENT_UNKNOWN:
                plans.assignment_unknown[missing.kind] += 1
            elif missing.broker is not None and missing.kind in ABSENT:
                plans.absent[missing.broker] += 1
            elif missing.broker is not None and missing.kind == "does_not_start":
                plans.refused[missing.broker] += 1
        if len(plans.planned) == 1 and not plans.planned[0].matters:
            plans.planned.clear()
        if planned.matters or plans.partitions == 1:
            plans.planned.append(planned)
        else:
            plans.agreeing[planned.plan.topic, planned.plan.partition] = planned.topic_id

    def plan_of(
        self, replicas: list[Replica], reader: LogReader, result: PartitionResult, truncate_by: TruncateBy | None = None
    ) -> Planned:
        """The plan of a judged partition of data; without `truncate_by` followers truncate as the options say, or as detected."""
        current, others, topic_is_known = self.present(replicas)
        context = current[0].context
        is_stray = (context.topic, context.partition, context.topic_id) in self._unknown_to_controller
        builder = _PartitionBuilder(current, reader, result, self.plans.dead, self._strays if is_stray else None)
        planned = self._plan_elections(builder, reader, result, truncate_by or self._options.truncate_by)
        planned.topic_id = context.topic_id
        planned.commits = [
            commit for commit in context.committed if context.topic_id is None or commit.last.topic_id in (None, context.topic_id)
        ]
        if context.topic == CONSUMER_OFFSETS_TOPIC and any(candidate.losses for candidate in planned.plan.candidates):
            copies = {replica.broker: self._plan_of[id(replica.context)] for replica in builder.read}
            planned.group_logs = {broker: replay_log(self._inputs, plan) for broker, plan in copies.items()}
        last_change = None if context.control is None else context.control.last_offset
        is_newer = self._voters_end is not None and last_change is not None and last_change >= self._voters_end
        brokers, not_read = {replica.broker for replica in current}, [context.node for context in planned.not_read]
        missing = []
        for lack in planned.plan.missing:
            if lack.kind == NO_CONTROLLER_LOG:
                missing.append(replace(lack, kind="voters_behind" if is_newer else self._why_assignment_unknown()))
            elif lack.kind != "copy_absent" or lack.broker not in not_read:
                missing.append(lack)
        if others and not topic_is_known:
            missing.append(Missing("topic_undecided"))
        missing += [Missing("other_topic", replica.broker) for replica in others]
        missing += [
            Missing("no_topic_id", finding.place.broker)
            for finding in result.findings
            if finding.kind == "TOPIC_ID_MISSING" and finding.severity is not Severity.INFO and finding.place.broker in brokers
        ]
        missing += [Missing("copy_not_read", node) for node in not_read]
        planned.plan = replace(planned.plan, missing=tuple(missing))
        planned.salvage = self._better_salvage(current, planned, reader, result)
        return planned

    def _plan_elections(
        self, builder: "_PartitionBuilder", reader: LogReader, result: PartitionResult, truncate_by: TruncateBy | None
    ) -> Planned:
        """Plan without witnesses first, and read those only where something would be lost."""
        partition = builder.build()
        kinds = kinds_with(Trait.CONTRADICTS_WITNESS, Trait.AFFECTS_ELECTIONS)
        findings = [finding for finding in result.findings if finding.kind in kinds]
        planned = Planned(partition, plan_partition(partition, truncate_by), findings, builder.not_read)
        if planned.plan.at_stake or any(candidate.losses for candidate in planned.plan.candidates):
            planned.planner_input = builder.build(partial(builder.witnesses, self._transaction_log))
            planned.plan = plan_partition(planned.planner_input, truncate_by)
            by_broker = {replica.broker: replica for replica in builder.read}
            if self._options.counted:
                _count_losses(planned, by_broker, reader)
            if _loses_records_after_controller_log(builder.context.control, planned.plan, by_broker, reader):
                planned.plan = replace(planned.plan, missing=(*planned.plan.missing, Missing("controller_log_older")))
        return planned

    def _better_salvage(
        self, replicas: list[Replica], planned: Planned, reader: LogReader, result: PartitionResult
    ) -> SalvageForecast | None:
        """The salvage of a partition if it loses less than every election, or than having no leader."""
        best = planned.recommended
        costs = costs_of(planned.plan.at_stake) if best is None else best.costs()
        some_will_start = planned.plan.strays is None and any(replica.is_live for replica in planned.planner_input.replicas)
        if self._options.forecast is None or not any(costs) or not some_will_start:
            return None
        copies = [(self._plan_of[id(replica.context)], replica) for replica in replicas]
        salvage = self._options.forecast(copies, planned, result, reader)
        planned.salvage_options = None if salvage is None else salvage.options
        return salvage if salvage is not None and costs_of(salvage.losses) < costs else None

    def present(self, replicas: list[Replica]) -> tuple[list[Replica], list[Replica], bool]:
        """(replicas of the current topic of a partition's name, replicas of other topics, whether that distinction is certain)."""
        groups, _ = identity_groups([self._plan_of[id(replica.context)] for replica in replicas])
        current, topic_is_known = present_topic(groups, replicas)
        others = [replicas[number] for at, group in enumerate(groups) if at != current for number in group]
        return [replicas[number] for number in groups[current]], others, topic_is_known


class _PartitionBuilder:
    """Makes the planner's input from the copies of one partition."""

    def __init__(
        self, replicas: list[Replica], reader: LogReader, result: PartitionResult, dead: frozenset[Broker], strays: Strays | None
    ) -> None:
        self.context = replicas[0].context
        self.not_read = [replica.context for replica in replicas if replica.read is ReadExtent.NONE]
        self.read = [replica for replica in replicas if replica.read is not ReadExtent.NONE]
        self._reader, self._strays = reader, strays
        self._conflict = result.summary.agreement.kind == "conflict"
        self._differing = _differing_ranges(self.read, reader) if self._conflict else {}
        for pair, ranges in unproven_ranges(self.read, reader).items():
            self._differing[pair] = normalised((*self._differing.get(pair, ()), *ranges))
        self._control = _plan_control(self.context.control)
        nodes = {replica.broker: replica.context.node_id for replica in self.read if isinstance(replica.context.node_id, int)}
        self._guessed = _guessed_node(self.read, nodes, self._control, dead)
        without_copy = {row.broker: row.node for row in self.context.without_copy if row.node is not None}
        self._nodes: dict[Broker, int] = {**nodes, **self._guessed, **without_copy}
        self._dead = frozenset(self._nodes.get(broker, broker) for broker in dead)
        self._missing_starts = {
            (finding.place.broker, finding.place.log_dir, finding.place.offset_end): (finding.place.offset_start, finding.severity)
            for finding in result.findings
            if finding.kind in kinds_with(Trait.LACKS_LOG_START) and finding.severity.rank >= Severity.WARNING.rank
        }
        self._converted = _converted_ranges(result.findings)

    def witnesses(self, transaction_log: TransactionLog | None, replica: Replica) -> Sequence[Witness]:
        """The furthest witness of each kind for one replica's log, beside its high watermark."""
        conflicts = self._conflict or bool(self._differing)
        marker = None if transaction_log is None or conflicts else _marker_witness(replica, transaction_log)
        witnesses = (_group_offset_witness(replica, self._reader, conflicts=conflicts), marker)
        return [witness for witness in witnesses if witness is not None]

    def build(self, witnesses_of: Callable[[Replica], Sequence[Witness]] = lambda _: ()) -> PlanPartition:
        context = self.context
        values = [self._plan_replica(replica, witnesses_of(replica)) for replica in self.read]
        for row in context.without_copy:  # a broker that finds no directory of the replica starts with an empty log
            if row.presence is Presence.ABSENT and row.is_assigned is not False:
                is_live, crashed = not is_dead(self._dead, row.broker, row.node), not row.stopped_cleanly
                empty = PlanReplica(row.broker, 0, 0, 0, is_live=is_live, checkpoint=(), crashed=crashed, is_absent=True)
                values.append(empty)
        here = {replica.broker for replica in self.read} | {context.broker for context in self.not_read}
        not_seen = [row.broker for row in context.without_copy if row.presence in NOT_READ or row.presence is Presence.NOT_COPIED]
        # segments that running brokers uploaded after their logs were copied are no evidence for the copies
        remote_end = max((replica.log_end_offset for replica in self.read), default=0) if context.live else NO_END
        return PlanPartition(
            context.topic,
            context.partition,
            values,
            self._differing,
            self._control,
            any(replica.context.compacted for replica in self.read),
            self._nodes,
            frozenset(self._guessed),
            self._dead,
            tuple(broker for broker in not_seen if broker not in here),
            self._strays,
            [segment for segment in finished_segments(self.read) if segment.end_offset < remote_end],
        )

    def _plan_replica(self, replica: Replica, witnesses: Sequence[Witness]) -> PlanReplica:
        """A replica as its broker would load it once small files are repaired: after recovery, unless its broker is running."""
        context, outlook = replica.context, None if replica.context.live else replica.recovery_once_repaired
        end = replica.log_end_offset if outlook is None or outlook.log_end_offset is None else outlook.log_end_offset
        if replica.misplaced:
            end = min(end, replica.log_end_offset)  # a broker may take a wrong base offset for its log's end; no record is there
        epochs, has_checkpoint = brokers_epochs(replica), context.epoch_checkpoint is not None
        missing_start, severity = self._missing_starts.get(
            (replica.broker, context.log_dir, replica.log_start_offset), (None, Severity.INFO)
        )
        return PlanReplica(
            context.broker,
            replica.log_start_offset,
            end,
            context.high_watermark,
            tuple(replica.epochs),
            epochs if has_checkpoint else None,
            _held_ranges(replica),
            tuple(witnesses),
            not is_dead(self._dead, replica.broker, self._nodes.get(replica.broker)),
            outlook is None or outlook.starts,
            None if outlook is None else refused_at(outlook),
            replica.end_is_known,
            not (context.clean_shutdown or context.live),
            damaged_ranges(replica),
            has_unknown_bytes(replica),
            unread_ranges(replica),
            missing_start,
            severity is Severity.WARNING,
            local_log_start_offset=replica.local_log_start_offset if replica.is_tiered else None,
            epochs_without_checkpoint=() if has_checkpoint else epochs,
            converted=self._converted.get(replica.broker, ()),
        )


def _held_ranges(replica: Replica) -> Ranges:
    """Offsets of good batches and remote segments; what the cleaner removed before the first batch counts as held."""
    held = normalised([*replica.remote, *replica.good_ranges])
    if held and replica.context.compacted:
        return normalised(((min(replica.log_start_offset, held[0][0]), held[0][1]), *held[1:]))
    return held


def _converted_ranges(findings: Sequence[Finding]) -> dict[Broker, Ranges]:
    """Broker → offsets of its records that lack headers or transactions which another replica's records have."""
    ranges: dict[Broker, list[Range]] = {}
    for finding in findings:
        if finding.kind == "BATCHES_REENCODED":
            brokers = [*finding.evidence.get("without_headers", ()), *finding.evidence.get("without_transactions", ())]
            start, end = finding.place.offset_start or 0, finding.place.offset_end or 0
            for row in finding.evidence.get("lacking", [{"offset_start": start, "offset_end": end, "brokers": brokers}]):
                for broker in row["brokers"]:
                    ranges.setdefault(broker, []).append((row["offset_start"], row["offset_end"]))
    return {broker: normalised(spans) for broker, spans in ranges.items()}


def _differing_ranges(replicas: list[Replica], reader: LogReader) -> dict[tuple[int, int], Ranges]:
    """Numbers of two replicas, ascending → offsets at which they hold different records.

    The comparison names the batches that differ, except in blocks that it skips: offsets between differences of two blocks count
    as differing. Logs may agree again after a fork if the follower truncated above it (before KIP-279), or not at all.
    """
    by_pair = {}
    for i, j in combinations(range(len(replicas)), 2):
        end = min(replicas[i].log_end_offset, replicas[j].log_end_offset)
        found: Differences = differences(replicas[i], replicas[j], reader)
        contents = [difference for difference in found if difference.kind == "content"]
        ranges = [(difference.offset, difference.end_offset) for difference in contents]
        if contents and found.full:
            ranges = [(contents[0].offset, end)]
        else:
            for before, difference in pairwise(contents):
                if before.offset // BLOCK_OFFSETS != difference.offset // BLOCK_OFFSETS:
                    ranges.append((before.offset, difference.offset))
        if below_end := clipped(normalised(ranges), 0, end):
            by_pair[i, j] = below_end
    return by_pair


# The size of losses.


def _sum_if_known(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _loss_key(loss: Loss) -> tuple[int, int, str]:
    return loss.start, loss.end, str(loss.held_by[:1])


def _joined(losses: Sequence[Loss]) -> list[Loss]:
    """Losses with those joined that follow each other in one log."""
    joined: list[Loss] = []
    for loss in sorted(losses, key=lambda loss: (str(loss.held_by[:1]), loss.start)):
        if joined and joined[-1].held_by[:1] == loss.held_by[:1] and joined[-1].end == loss.start:
            holders = tuple(broker for broker in joined[-1].held_by if broker in loss.held_by)
            joined[-1] = joined[-1]._replace(end=loss.end, held_by=holders)
        else:
            joined.append(loss)
    return joined


def _count_losses(planned: Planned, by_broker: Mapping[Broker, Replica], reader: LogReader) -> None:
    """Measure the losses of a plan in the log of the holder with the fewest damaged offsets, at most `LOSSES_COUNTED` of them."""
    damaged = {replica.broker: replica.damaged for replica in planned.planner_input.replicas}
    for losses in [planned.plan.at_stake, *(candidate.losses for candidate in planned.plan.candidates)]:
        for loss in (*losses, *_joined(losses)):
            if loss.held_by and _loss_key(loss) not in planned.sizes and len(planned.sizes) < LOSSES_COUNTED:
                damage = {broker: counted(clipped(damaged[broker], loss.start, loss.end)) for broker in loss.held_by}
                planned.sizes[_loss_key(loss)] = _loss_size(by_broker[min(damage, key=damage.__getitem__)], reader, loss)


def _loss_size(replica: Replica, reader: LogReader, loss: Loss) -> LossSize:
    if clipped(replica.remote, loss.start, loss.end):
        return LossSize(None, None)
    problems = len(reader.incomplete)
    good = replica.good_ranges
    damaged = without(clipped(damaged_ranges(replica), loss.start, loss.end), good)
    records = size = 0
    times: list[int] = []
    for ranges, is_damaged in ((clipped(good, loss.start, loss.end), False), *(((part,), True) for part in damaged)):
        offsets = 0
        for batch in batches_held(replica, reader, ranges):
            records, size, offsets = records + batch.records, size + batch.size_in_bytes, offsets + batch.offsets
            known = [time for time in (batch.base_timestamp, batch.max_timestamp, *times) if time >= 0]
            times = [min(known), max(known)] if known else []
        if is_damaged and offsets != counted(ranges):
            return LossSize(None, None)  # headers are damaged as well
    return LossSize(None, None) if len(reader.incomplete) > problems else LossSize(records, size, *times)


def _loses_records_after_controller_log(
    control: PartitionControl | None, plan: Plan, by_broker: dict[Broker, Replica], reader: LogReader
) -> bool:
    """Whether an ordinary start loses committed records newer than the controllers' log, which does not tell the ISR of then."""
    if control is None or control.as_of_ms is None:
        return False
    ordinary = [candidate for candidate in plan.candidates if candidate.broker in plan.ordinary]
    for loss in (loss for candidate in ordinary for loss in candidate.losses if loss.committed and loss.held_by):
        rows = reader.batches(by_broker[loss.held_by[0]], loss.committed_end - 1, loss.committed_end)
        if rows.shape[1] and int(rows[BatchColumn.MAX_TIMESTAMP, -1]) > control.as_of_ms:
            return True
    return False


# Damage: the offsets of damaged batches, whether another replica has intact copies of them, and what could not be read.


OFFSETS_COMPARED: Final = 1 << 20
"""A damaged range of more offsets is not compared batch by batch."""


def damaged_ranges(replica: Replica) -> Ranges:
    """Offsets of bytes that are no good batches: between good batches by their offsets, after the last by the damaged headers.

    In compacted logs, where offsets are missing anyway, only the headers count. Bytes that are all zero hold nothing.
    """
    framing, tail = replica.state.framing, replica.state.continuity.bad_tail
    holes = {(segment, damage.position): damage for segment, damage in framing.damage.get("SEG_HOLE", ())}
    unread = unread_ranges(replica)
    between = [
        offsets
        for place, offsets in replica.offset_sequence.lost_to_damage.items()
        if not _is_all_zero(holes.get(place)) and offsets[1] - offsets[0] <= MAX_RELATIVE_OFFSET and offsets not in unread
    ]
    after = [
        (damage.base_offset, damage.last_offset + 1)
        for _, damage in framing.damage.get("FRAMING_LOST", ())
        if damage.detail.get("reason") == "wrong_length" and damage.base_offset == replica.offset_sequence.end_offset
    ]
    if tail is not None and 0 <= tail.start_offset < tail.end_offset:
        after += without([(tail.start_offset, tail.end_offset)], replica.good_ranges)
    return normalised([*between, *damaged_by_headers(replica), *after])


def unread_ranges(replica: Replica) -> Ranges:
    """Offsets before the log's end that could only lie in segments that could not be read, or not to their ends."""
    unread, lost_to_damage = replica.state.unread, replica.offset_sequence.lost_to_damage
    return tuple(
        lost_to_damage[run.after_damage]
        for run in (replica.state.continuity.runs if unread else ())
        if run.after_damage in lost_to_damage and any(run.after_damage[0] <= segment < run.segment for segment in unread)
    )


def _is_all_zero(damage: Damage | None) -> bool:
    return damage is not None and damage.detail.get("zero_bytes") == damage.size_in_bytes


def has_unknown_bytes(replica: Replica) -> bool:
    """Whether bytes after the last good batch may hold records at unknown offsets."""
    continuity = replica.state.continuity
    if continuity.damage_at_end is None:
        return False
    if continuity.bad_tail is not None and continuity.bad_tail.closed:
        return True
    return any(
        (segment, damage.position) >= continuity.damage_at_end and damage.base_offset < 0 and not _is_all_zero(damage)
        for kind in kinds_with(Trait.HIDES_OFFSETS)
        for segment, damage in replica.state.framing.damage.get(kind, ())
    )


def unproven_ranges(replicas: Sequence[Replica], reader: LogReader) -> dict[tuple[int, int], Ranges]:
    """Numbers of two replicas, ascending → offsets that are damaged in one of them, and that nothing proves equal in the other."""
    by_pair: dict[tuple[int, int], Ranges] = {}
    damaged = [damaged_ranges(replica) for replica in replicas]
    for i, j in permutations(range(len(replicas)), 2):
        in_both = normalised([*replicas[j].good_ranges, *damaged[j]]) if damaged[i] else ()
        parts = [part for start, end in damaged[i] for part in clipped(in_both, start, end)]
        unproven = [span for part in parts for span in without((part,), _proven_equal(replicas[i], replicas[j], reader, part))]
        if unproven:
            pair = (min(i, j), max(i, j))
            by_pair[pair] = normalised((*by_pair.get(pair, ()), *unproven))
    return by_pair


def _proven_equal(left: Replica, right: Replica, reader: LogReader, part: Range) -> Ranges:
    """Offsets of `part` at which both logs held equal batches: they lie in one leader epoch, or their headers have the same CRC."""
    start, end = part
    epoch, *other_epochs = {
        epoch for replica in (left, right) for epoch in (_epoch_before(replica, start), epoch_at(replica.epochs, end))
    }
    is_inside = end < min(left.offset_sequence.end_offset, right.log_end_offset)
    if is_inside and not other_epochs and epoch is not None and epoch >= 0:
        return (part,)
    if end - start > OFFSETS_COMPARED:
        return ()
    headers, others = _headers(left, reader, part), _headers(right, reader, part)
    return normalised(
        (min(header.base_offset, other.base_offset), last + 1)
        for last, header in headers.items()
        if (other := others.get(last)) is not None
        and (header.base_offset == other.base_offset or header.magic < CURRENT_MAGIC)
        and (header.crc == other.crc or 0 <= header.leader_epoch == other.leader_epoch)
    )


def _epoch_before(replica: Replica, start: int) -> int | None:
    """The leader epoch in which a range begins: of the good batch before or at its start, else by the leader-epoch-checkpoint."""
    checkpoint = replica.context.epoch_checkpoint or ()
    epochs = (epoch_at(replica.epochs, start - 1), epoch_at(replica.epochs, start), epoch_at(checkpoint, start))
    return next((epoch for epoch in epochs if epoch is not None), None)


class _Header(NamedTuple):
    """Header fields of a batch; a damaged compressed message of magic 0 or 1 shows only its last offset."""

    base_offset: int
    magic: int
    crc: int
    leader_epoch: int


def _headers(replica: Replica, reader: LogReader, part: Range) -> dict[int, _Header]:
    rows = reader.batches(replica, *part)
    columns = (BatchColumn.BASE_OFFSET, BatchColumn.MAGIC, BatchColumn.CRC, BatchColumn.PARTITION_LEADER_EPOCH)
    headers = map(_Header, *(rows[column].tolist() for column in columns))
    return dict(zip(rows[BatchColumn.LAST_OFFSET].tolist(), headers, strict=True))
