"""A scan from gathered inputs to its result, except folding: the same for every engine."""

import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.incidents import incidents, risky_settings
from kafka_forensics.analysis.placement import PartitionKeys
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import tiered_topics
from kafka_forensics.analysis.transactions_across import (
    CrossPartitionTransactions,
    PartitionTransactionFacts,
    partition_transactions,
)
from kafka_forensics.evidence.context import local_and_remote
from kafka_forensics.evidence.inputs import (
    Inputs,
    ReplicaPlan,
    broker_order,
    may_hide_log_directory,
    require_requested_or_warn,
    undecoded_bundles,
    with_bundle_options,
    with_replicas,
)
from kafka_forensics.evidence.options import ScanOptions, fits, may_match, shown_storage_options
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CODEC_BACK_ENDS, WITNESS_TOPICS
from kafka_forensics.model.findings import Confidence, Finding, Place, RerunArguments, Severity, TopicPartition
from kafka_forensics.model.json_objects import Json, rfc3339
from kafka_forensics.model.remote_log import RemoteLog
from kafka_forensics.model.results import BrokerSummary, Incomplete, PartitionSummary, RemoteExtent, ScanResult, Totals, worst
from kafka_forensics.parsers.kernels.compiling import have_compiled
from kafka_forensics.scanning.folding.fold_split import FoldedReplica
from kafka_forensics.scanning.judging.absence import (
    absence_findings,
    ledger_of,
    may_be_lost,
    remote_metadata_is_lost,
    take_expectations,
)
from kafka_forensics.scanning.judging.cleaners import stopped_cleaners
from kafka_forensics.scanning.judging.environment import changed_findings, environment_findings
from kafka_forensics.scanning.judging.partitions import (
    PartitionResult,
    bytes_of_logs,
    capped_if_live,
    judge_partition,
    scan_matches,
)
from kafka_forensics.scanning.judging.placement import TopicPlacements, partition_keys
from kafka_forensics.scanning.judging.quorum import quorum_findings, quorum_of
from kafka_forensics.scanning.judging.remote_logs import judge_remote_logs
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.remote_chains import take_remote_logs
from kafka_forensics.scanning.witnesses.remote_stores import list_remote_stores, remote_findings_elsewhere, set_stored_logs
from kafka_forensics.scanning.witnesses.tiered_topics import set_tiered_topics
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, set_controller_state, take_commits, take_decisions
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.open import back_end_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.scanning.folding.keys import DeferredKeys


LIMIT: Final = 100
"""Findings of one kind, severity and broker that are listed; further ones are counted, see `counted`."""
EXAMPLES: Final = 6
"""Places named of counted findings."""
_Group = tuple[str, Severity, str]


def counted(findings: Iterable[Finding], read: Collection[tuple[str, int]]) -> list[Finding]:
    """Merge sorted findings beyond `LIMIT` of one kind, severity and broker into one, except those of partitions in `read`.

    A checkpoint may name 300,000 missing partitions. The merged finding has the least confidence, the log directory and evidence
    that all have in common, their number (`counted`) and some of their places (`examples`).
    """
    partitions = frozenset(read)
    seen: Counter[_Group] = Counter()
    rest: dict[_Group, list[Finding]] = {}
    kept: list[Finding] = []
    for finding in findings:
        group = (finding.kind, finding.severity, str(finding.place.broker))
        if _can_be_counted(finding.place, partitions):
            seen[group] += 1
            if seen[group] > LIMIT:
                rest.setdefault(group, []).append(finding)
                continue
        kept.append(finding)
    if rest:
        kept += [members[0] if len(members) == 1 else _merged(members) for members in rest.values()]
        kept.sort(key=Finding.sort_key)
    return kept


def _can_be_counted(place: Place, read: frozenset[tuple[str, int]]) -> bool:
    """Whether a finding is about a log directory, or about a partition that was not read and is not of a witness topic."""
    if place.topic is None:
        return place.broker is not None or place.log_dir is not None or place.file is not None
    return place.partition is not None and place.topic not in WITNESS_TOPICS and (place.topic, place.partition) not in read


def _merged(members: list[Finding]) -> Finding:
    """One finding for several of one kind, severity and broker."""
    first = members[0]
    evidence: Json = {
        name: value
        for name, value in first.evidence.items()
        if all(finding.evidence.get(name, members) == value for finding in members)
    }
    evidence |= {"counted": len(members), "examples": [_short_name(finding.place) for finding in members[:EXAMPLES]]}
    log_dirs = {finding.place.log_dir for finding in members}
    place = Place(broker=first.place.broker, log_dir=first.place.log_dir if len(log_dirs) == 1 else None)
    confidence = max((finding.confidence for finding in members), key=tuple(Confidence).index)
    return replace(first, confidence=confidence, place=place, evidence=evidence)


def _short_name(place: Place) -> str:
    """A partition, else a file, else a log directory."""
    if place.topic is not None and place.partition is not None:
        return f"{place.topic}-{place.partition}"
    return str(place.file or place.log_dir or place.broker)


PATHS_SHOWN: Final = 2000
"""Most characters of all paths in a command; if there are more, commands about a partition get only the paths that they need."""


class ArgumentsByPlace:
    """Arguments of commands that read the same copies again."""

    def __init__(self, inputs: Inputs, options: ScanOptions) -> None:
        copied = () if options.copied is None else (f"--{options.copied.value}",)
        as_of_ms = options.as_of_ms
        as_of = () if as_of_ms is None else ("--as-of", rfc3339(as_of_ms) or str(as_of_ms))
        shown = shown_storage_options(inputs.reached)
        self._all = RerunArguments(
            inputs.typed_paths,
            tuple(argument for name, value in shown for argument in ("--storage-option", f"{name}={value}")),
            (*copied, *(("--live",) if options.live else ()), *as_of),
        )
        self._of_partitions: dict[tuple[str, int], RerunArguments] = {}
        if sum(len(path) + 1 for path in inputs.typed_paths) > PATHS_SHOWN:
            self._of_partitions = self._paths_of_partitions(inputs)

    def of(self, place: Place) -> RerunArguments:
        """The arguments of a command about a place."""
        if place.topic is None or place.partition is None:
            return self._all
        return self._of_partitions.get((place.topic, place.partition), self._all)

    def _paths_of_partitions(self, inputs: Inputs) -> dict[tuple[str, int], RerunArguments]:
        """For every partition, the paths as typed that hold a replica of it or a controllers' log."""
        typed = {path.partition("=")[2]: path for path in inputs.typed_paths if "=" in path} | {
            path: path for path in inputs.typed_paths
        }
        order = {path: number for number, path in enumerate(inputs.typed_paths)}
        paths: dict[tuple[str, int], set[str]] = {}
        controllers: set[str] = set()
        for plan in (*inputs.replicas, *inputs.internal):
            path = typed.get(plan.log_dir.source.name)
            if path is not None:
                paths.setdefault(plan.context.topic_partition, set()).add(path)
                controllers |= {path} if plan.context.topic == CLUSTER_METADATA_TOPIC else set()
        return {
            partition: replace(self._all, paths=tuple(sorted(of_partition | controllers, key=order.__getitem__)))
            for partition, of_partition in paths.items()
        }


DEEP_BELOW_BYTES: Final = 256 << 20
"""Largest total size of logs whose records are decoded unless the user says otherwise."""


def is_deep(requested: bool | None, bytes_in_all: int) -> bool:
    """Whether a scan decodes records; `requested` is the user's choice, None if there is none."""
    return bytes_in_all <= DEEP_BELOW_BYTES if requested is None else requested


InspectPartition = Callable[[list[Replica], LogReader, PartitionResult], None]
"""Called for each partition after it is judged: its replicas, the reader of their logs, and the result, which it may extend."""


class PartitionAnswer(Struct):
    """What a scan keeps of a judged partition; `keys` is None if no keys were sampled."""

    result: PartitionResult
    transactions: PartitionTransactionFacts
    keys: PartitionKeys | None

    @property
    def incomplete(self) -> list[Incomplete]:
        """What could not be read again."""
        return self.result.incomplete


class RemoteLogAnswer(Struct):
    """What a scan keeps of a partition of which only logs in remote stores are among the inputs."""

    findings: list[Finding]
    bytes: tuple[int, int, int]
    """(decoded, damaged, skipped) of the objects."""
    incomplete: list[Incomplete]


def digest_key() -> "NDArray[np.int64]":
    """A new random key for the identities of batches, made for every scan."""
    return np.array([[secrets.randbits(63), secrets.randbits(63)]], np.int64)


def judge_logs(
    merged: Sequence[FoldedReplica],
    key: "NDArray[np.int64]",
    options: ScanOptions,
    on_partition: InspectPartition | None = None,
    deferred: "DeferredKeys | None" = None,
) -> PartitionAnswer | RemoteLogAnswer:
    """Judge one partition from all its folded logs: as `judge_replicas`, or without any replica."""
    local, in_stores = local_and_remote(merged, lambda folded: folded[0].context)
    remote = [(plan, log) for plan, log, _ in in_stores]
    if local:
        return judge_replicas(local, key, options, on_partition, deferred, remote)
    reader = LogReader([plan for plan, _ in remote], key, options.as_of_ms)
    findings = judge_remote_logs(remote, [], [], reader)
    findings = list(map(capped_if_live, findings)) if options.live else findings
    return RemoteLogAnswer(findings, bytes_of_logs([log for _, log in remote]), reader.incomplete)


def judge_replicas(
    local: Sequence[FoldedReplica],
    key: "NDArray[np.int64]",
    options: ScanOptions,
    on_partition: InspectPartition | None = None,
    deferred: "DeferredKeys | None" = None,
    remote: Sequence[tuple[ReplicaPlan, Replica]] = (),
) -> PartitionAnswer:
    """Judge one partition from its folded replicas, and its logs in remote stores, if these were read; the answer is void while key
    questions wait for theirs."""
    plans = [plan for plan, _, _ in local]
    replicas = [replica for _, replica, _ in local]
    reader = LogReader(plans, key, options.as_of_ms)
    reader.deferred = deferred
    snapshots = [snapshot for _, _, snapshot in local]
    result = judge_partition(plans, replicas, snapshots, reader, snapshots[0].inputs, remote)
    if on_partition is not None:
        on_partition(replicas, reader, result)
    return PartitionAnswer(result, partition_transactions(replicas), partition_keys(replicas))


def _whole_topics(tiered: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> set[str]:
    """The topics of which all `tiered` partitions are among `partitions`."""
    return {topic for topic, _ in tiered} - {topic for topic, partition in tiered if (topic, partition) not in partitions}


class ScanInterruptedError(KeyboardInterrupt):
    """The user interrupted a scan; `result` covers the partitions judged before."""

    def __init__(self, result: ScanResult) -> None:
        super().__init__()
        self.result = result


class Listener(Protocol):
    """Receives results of a scan while it runs."""

    def on_start(self, brokers: list[BrokerSummary]) -> None:
        """Called before any partition is judged."""

    def on_final(self, partition: PartitionSummary, findings: list[Finding]) -> None:
        """Called for each partition when this is final, except that findings may be added after all partitions are judged."""


class Scan:
    """A running scan: what is known before the logs are read, and the partitions judged so far."""

    def __init__(
        self,
        engine: str,
        inputs: Inputs,
        options: ScanOptions,
        witnesses: Witnesses,
        listener: Listener | None = None,
        *,
        reads_stores: bool = True,
    ) -> None:
        """`reads_stores`: whether a deep scan reads the objects of remote stores."""
        assert not inputs.without_ids, "topic ids are read before anything is checked"
        options = with_bundle_options(inputs.sources, options)
        self.engine, self.inputs, self.options, self.witnesses = engine, inputs, options, witnesses
        if options.deep and reads_stores:
            take_remote_logs(inputs, options, witnesses.remote_log)
            inputs.folds_remote = True
        self.bytes_total = sum(plan.bytes for plan in inputs.folded)
        self.deep = is_deep(options.deep, self.bytes_total)
        self.findings: list[Finding] = []
        self.partitions: list[PartitionSummary] = []
        self.incomplete: list[Incomplete] = []
        self._totals = Totals(records_decoded=self.deep and not undecoded_bundles(inputs.sources))
        controller = witnesses.controller
        inputs.features = {} if controller is None else controller.features
        for plan in inputs.replicas:
            set_controller_state(plan, witnesses)
            take_commits(plan, witnesses)
        take_decisions(inputs.replicas, witnesses)
        set_tiered_topics(inputs, witnesses.remote_log)
        self._stores = list_remote_stores(inputs)
        set_stored_logs(inputs, self._stores, () if controller is None else controller.topics)
        self.ledger = ledger_of(inputs, controller, options.copied)
        if inputs.is_unchecked and not inputs.replicas:
            require_requested_or_warn(inputs, options, self.ledger.keys())
        take_expectations(inputs, self.ledger)
        self._quorum = quorum_of(inputs, self.ledger)
        elections = quorum_findings(self._quorum, inputs, live=options.live)
        self._witness_findings = [*(finding for finding in elections if may_match(finding.place, options)), *witnesses.findings]
        self._verdicts: dict[tuple[str | None, int | None], str] = {}
        for finding in self._witness_findings:
            key = finding.place.topic, finding.place.partition
            self._verdicts[key] = worst(self._verdicts.get(key, "clean"), finding.severity.value)
        self._across = CrossPartitionTransactions(
            witnesses.transaction_log, options.as_of_ms, None if controller is None else controller.last_ms, witnesses.groups
        )
        self._placements = TopicPlacements(inputs, witnesses)
        self._arguments = ArgumentsByPlace(inputs, options)
        self._final = _FinalPartitions(may_be_lost(inputs, self.ledger))
        self._listener = listener
        if listener is not None:
            listener.on_start(_brokers(inputs))
        log = logging.getLogger(__name__)
        log.info("engine %s; storage: %s", engine, ", ".join(back_end_counts(inputs.sources)) or "none")
        if any(isinstance(source, BundleSource) for source in inputs.sources):
            log.info("bundles have no keys: only log directories show their placement (KEY_PLACEMENT)")
        log.info("codecs: %s", ", ".join(f"{codec} by {back_end}" for codec, back_end in CODEC_BACK_ENDS.items()))

    def take(self, answer: PartitionAnswer | RemoteLogAnswer) -> None:
        """Add a partition; call it in the order of topics and partitions."""
        if isinstance(answer, RemoteLogAnswer):
            self.findings += answer.findings
            self.incomplete += answer.incomplete
            self._count_bytes(answer.bytes)
            return
        result = answer.result
        summary = result.summary
        key = summary.topic, summary.partition
        summary.verdict = worst(summary.verdict, self._verdicts.get(key, "clean"))
        self.partitions.append(summary)
        has_copies = self.ledger.copies(key) > 1  # though --broker may leave one of them
        findings = [replace(finding, is_only_copy=False) for finding in result.findings] if has_copies else result.findings
        self.findings += findings
        self.incomplete += result.incomplete
        self._across.take(answer.transactions)
        self._placements.take(*key, answer.keys)
        self._count(result)
        self._final.take(len(self.partitions) - 1, summary, findings, has_transactions=answer.transactions.facts is not None)
        waits = self.deep and self._placements.is_pending(summary.topic)
        for number, final_findings in self._final.advance(summary.topic if waits else None):
            partition = self.partitions[number]
            self._placements.set_key_placement([partition])
            if self._listener is not None:
                self._listener.on_final(partition, self._with_arguments(final_findings))

    def finish(self) -> ScanResult:
        """The result; call it after every partition was taken."""
        inputs, witnesses = self.inputs, self.witnesses
        findings = self._across.finish(self._with_surroundings(self.findings), self.partitions)
        findings = findings + self._placements.finish()
        self._placements.set_key_placement(self.partitions)
        topics = {plan.context.topic for plan in inputs.replicas}
        findings += risky_settings(witnesses.controller, topics, findings, self.options.as_of_ms)
        remote = self._remote_extent()
        has_tiered = any(partition.is_tiered for partition in self.partitions)
        are_events_lost = has_tiered and witnesses.remote_log is None and remote_metadata_is_lost(inputs, self.ledger)
        findings += tiered_topics(self.partitions, witnesses.remote_log, remote.listed, are_events_lost=are_events_lost)
        topic_ids = () if witnesses.controller is None else witnesses.controller.topics
        elsewhere = remote_findings_elsewhere(inputs, self._stores, topic_ids)
        elsewhere = list(map(capped_if_live, elsewhere)) if self.options.live else elsewhere
        findings += [finding for finding in elsewhere if may_match(finding.place, self.options)]
        findings += changed_findings(inputs)
        findings += scan_matches(findings, inputs)
        findings = self._counted(findings)
        final = self._final.numbers(findings)
        findings, brokers = self._with_arguments(findings), _brokers(inputs)
        logging.getLogger(__name__).info("kernels here: %s", "compiled" if have_compiled() else "interpreted")
        self._totals.brokers = sum(self.options.broker in (None, str(broker_summary.broker)) for broker_summary in brokers)
        broken = [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
        gaps = {(unread.path, unread.reason): unread for unread in [*inputs.incomplete, *self.incomplete, *broken]}
        not_read = {read.path for read in inputs.not_read}
        ordered = sorted(gaps, key=lambda key: (key[0] not in not_read, key))
        incomplete = with_replicas([gaps[key] for key in ordered], inputs.log_dirs)
        result = ScanResult(self.engine, brokers, self.partitions, findings, self._totals, incomplete)
        result.incidents, result.rerun_arguments, result.final_partitions = incidents(findings), self._arguments.of(Place()), final
        result.remote = remote
        return result

    def _has_nothing(self, log: RemoteLog | None) -> bool:
        """Whether a partition has no segment in remote storage, by complete events."""
        history = self.witnesses.remote_log
        if log is None:
            return history is not None and not (history.damaged or history.partitions_missing)
        return log.is_complete and not log.finished

    def _remote_extent(self) -> RemoteExtent:
        """What the scan, or its question, reads of the remote stores."""
        inputs, options = self.inputs, self.options
        tiered = {(partition.topic, partition.partition) for partition in self.partitions if partition.is_tiered}
        contexts = [plan.context for plan in inputs.replicas if plan.context.topic_partition in tiered]
        listed = {context.topic_partition for context in contexts if context.stored_log is not None}
        if inputs.remote_log is None:
            listed |= {plan.topic_partition for plan in contexts if (plan.topic_id, plan.partition) in self._stores.partitions}
        read = {plan.context.topic_partition for plan in inputs.remote}
        read |= {context.topic_partition for context in contexts if read and self._has_nothing(context.remote_log)}
        extent = RemoteExtent(_whole_topics(tiered, listed), _whole_topics(tiered, read), inputs.folds_remote)
        if self._stores and not inputs.replicas:
            stored = [stored.log for stored in self._stores.partitions.values()]
            logs = [log for log in stored if fits((log.topic, log.partition), options)]
            extent.alone = len(logs), sum(len(log.segments) for log in logs)
        return extent

    def partial_result(self) -> ScanResult:
        """The result of an interrupted scan: the partitions taken, without findings that need all of them."""
        partitions = self.partitions[: self._totals.partitions]  # the last may have been taken only in part
        taken = {(partition.topic, partition.partition) for partition in partitions}
        of_partitions = [finding for finding in self.findings if (finding.place.topic, finding.place.partition) in taken]
        of_partitions = self._counted(of_partitions)
        findings, brokers = self._with_arguments(of_partitions), _brokers(self.inputs)
        self._totals.brokers = len(brokers)
        unread = _interrupted(self.engine, self.inputs, len(taken))
        result = ScanResult(self.engine, brokers, partitions, findings, self._totals, [unread])
        result.incidents, result.rerun_arguments = incidents(findings), self._arguments.of(Place())
        result.final_partitions, result.is_interrupted = self._final.numbers(of_partitions), True
        return result

    def _with_surroundings(self, findings: list[Finding]) -> list[Finding]:
        """Add findings about log directories, replicas without a copy, and witnesses' logs."""
        inputs = self.inputs
        around = [*environment_findings(inputs), *stopped_cleaners(inputs, self.witnesses.controller)]
        around = [finding for finding in around if may_match(finding.place, self.options)]
        gaps = [*inputs.incomplete, *self.incomplete]
        hidden = may_hide_log_directory(inputs)
        absent = absence_findings(inputs, self.ledger, self.partitions, self.options, gaps, quorum=self._quorum, hidden=hidden)
        findings = [*around, *absent, *map(self._with_copies, self._witness_findings), *findings]
        return [_as_suspected(finding) for finding in findings] if hidden else findings

    def _with_copies(self, finding: Finding) -> Finding:
        """A finding about a witness's log, marked if that is the only copy."""
        place = finding.place
        if place.topic is None or place.partition is None:
            return finding
        return replace(finding, is_only_copy=self.ledger.copies((place.topic, place.partition)) < 2)

    def _counted(self, findings: list[Finding]) -> list[Finding]:
        read = {(partition.topic, partition.partition) for partition in self.partitions}
        return counted(sorted(findings, key=Finding.sort_key), read)

    def _with_arguments(self, findings: list[Finding]) -> list[Finding]:
        """The findings with the arguments of commands about them."""
        return [replace(finding, rerun_arguments=self._arguments.of(finding.place)) for finding in findings]

    def _count(self, result: PartitionResult) -> None:
        totals = self._totals
        totals.partitions += 1
        for replica in result.summary.replicas:
            totals.replicas += 1
            totals.segments += replica.segments or 0
            totals.batches += replica.batches or 0
            totals.records += replica.records or 0
        self._count_bytes(result.bytes)

    def _count_bytes(self, bytes_of_logs: tuple[int, int, int]) -> None:
        totals, (decoded, damaged, skipped) = self._totals, bytes_of_logs
        totals.bytes_decoded += decoded
        totals.bytes_damaged += damaged
        totals.bytes_skipped += skipped
        totals.bytes_total += decoded + damaged + skipped


def interrupted_result(inputs: Inputs, options: ScanOptions) -> ScanResult:
    """The result of a scan on Spark that was interrupted before any partition was judged."""
    brokers, unread = _brokers(inputs), _interrupted("spark", inputs, 0)
    result = ScanResult(
        "spark",
        brokers,
        [],
        [],
        Totals(brokers=len(brokers)),
        [unread],
        rerun_arguments=ArgumentsByPlace(inputs, options).of(Place()),
    )
    result.is_interrupted = True
    return result


def _interrupted(engine: str, inputs: Inputs, taken: int) -> Incomplete:
    planned = {plan.context.topic_partition for plan in inputs.replicas}
    path = inputs.typed_paths[0] if len(inputs.typed_paths) == 1 else f"{len(inputs.typed_paths)} paths"
    why = ": Spark returns all results when its job ends" if engine == "spark" and not taken else ""
    return Incomplete(path, f"interrupted after {taken} of {len(planned)} partitions{why}")


class _FinalPartition(NamedTuple):
    number: int
    topic: str
    findings: list[Finding]


class _FinalPartitions:
    """The partitions whose summaries and findings do not change any more while the scan runs.

    Later results may change findings about transactions, and partitions in `may_be_lost`; key placement is known after a topic's
    last partition. Everything else only adds findings.
    """

    def __init__(self, may_be_lost: frozenset[tuple[str, int]]) -> None:
        self._may_be_lost = may_be_lost
        self._waiting: deque[_FinalPartition] = deque()
        self._final: list[_FinalPartition] = []

    def take(self, number: int, summary: PartitionSummary, findings: list[Finding], *, has_transactions: bool) -> None:
        """Add a judged partition."""
        key = (summary.topic, summary.partition)
        if has_transactions or key in self._may_be_lost or any(map(_may_change, findings)):
            return
        of_partition = [finding for finding in findings if (finding.place.topic, finding.place.partition) == key]
        self._waiting.append(_FinalPartition(number, summary.topic, of_partition))

    def advance(self, open_topic: str | None) -> Iterable[tuple[int, list[Finding]]]:
        """(number, findings) of partitions that have become final; none of `open_topic`, whose partitions are still judged."""
        while self._waiting and self._waiting[0].topic != open_topic:
            self._final.append(self._waiting.popleft())
            yield self._final[-1].number, self._final[-1].findings

    def numbers(self, findings: list[Finding]) -> list[tuple[int, list[int]]]:
        """`ScanResult.final_partitions`: (number of a final partition, the indexes of its findings in `findings`)."""
        places = {id(finding): place for place, finding in enumerate(findings)}
        return [(partition.number, [places[id(finding)] for finding in partition.findings]) for partition in self._final]


def _may_change(finding: Finding) -> bool:
    """Whether `Scan.finish` may change the finding."""
    return finding.kind.startswith("TXN_") or finding.kind == "COMMITTED_LOST_EVERYWHERE"


def _as_suspected(finding: Finding) -> Finding:
    """`COMMITTED_LOST_EVERYWHERE` as suspected, because something that was not read may hold a copy."""
    if finding.kind != "COMMITTED_LOST_EVERYWHERE":
        return finding
    evidence = {**finding.evidence, "harmless_if": "a copy that could not be read has them"}
    return replace(finding, confidence=Confidence.SUSPECTED, evidence=evidence)


def _brokers(inputs: Inputs) -> list[BrokerSummary]:
    by_broker: dict[int | str, BrokerSummary] = {}
    for log_dir in inputs.log_dirs:
        cluster = None if log_dir.meta is None else log_dir.meta.cluster_id
        summary = by_broker.setdefault(log_dir.broker, BrokerSummary(log_dir.broker, cluster, [], clean_shutdown=True))
        summary.log_dirs.append(log_dir.name)
        summary.clean_shutdown &= log_dir.clean_shutdown is not None
    return [by_broker[broker] for broker in sorted(by_broker, key=broker_order)]
