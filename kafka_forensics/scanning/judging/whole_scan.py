"""A scan from what was gathered to the answer, but for the folding between: the same for every engine."""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from kafka_forensics.analysis.incidents import incidents, risky_settings
from kafka_forensics.analysis.placement import PartitionKeys
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import tiered_topics
from kafka_forensics.analysis.transactions_across import PartitionTransactionFacts, TransactionsAcross, partition_transactions
from kafka_forensics.evidence.inputs import (
    Inputs,
    as_collected,
    attributed,
    broker_order,
    may_hide_log_directory,
    not_looked_into,
    require_or_note,
)
from kafka_forensics.evidence.options import ScanOptions, concerns, shown_storage_options
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CODEC_BACK_ENDS, WITNESS_TOPICS
from kafka_forensics.model.findings import Asked, Confidence, Finding, Place, Severity
from kafka_forensics.model.results import BrokerSummary, Incomplete, PartitionSummary, ScanResult, Totals, worst
from kafka_forensics.parsers.kernels.compiling import have_compiled
from kafka_forensics.scanning.folding.fold_split import Merged
from kafka_forensics.scanning.judging.absence import absence_findings, ledger_of, may_be_told_lost, take_expectations
from kafka_forensics.scanning.judging.cleaners import stopped_cleaners
from kafka_forensics.scanning.judging.environment import changed_findings, environment_findings
from kafka_forensics.scanning.judging.partitions import PartitionResult, judge_partition, scan_matches
from kafka_forensics.scanning.judging.placement import TopicPlacements, partition_keys
from kafka_forensics.scanning.judging.quorum import quorum_findings, quorum_of
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.tiered_topics import take_tiered_topics
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, take_commits, take_control, take_decisions
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.open import storage_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.json_objects import Json
    from kafka_forensics.scanning.folding.keys import KeysApart


# Very many findings of one kind and broker: the first of them one by one, the rest counted.
#
# A checkpoint may name 300,000 partitions of which nothing is there, a log directory hold as many odd entries. What is said of a
# partition that was read is never counted away: no two partitions need be alike.


LIMIT: Final = 100
"""Findings of one kind, severity and broker told one by one, the first as they are sorted."""
EXAMPLES: Final = 6
"""Places named of those that are counted."""

_SURENESS: Final = tuple(Confidence)
_Group = tuple[str, Severity, str]


def counted(findings: Iterable[Finding], read: Collection[tuple[str, int]]) -> list[Finding]:
    """`findings`, which are sorted; those beyond `LIMIT` of one kind, severity and broker that are of none of the partitions `read`
    are one, whose evidence has how many (`counted`) and some of their places (`examples`); what of place and evidence all of them
    have alike stays, and the least confidence.
    """
    known = frozenset(read)
    seen: dict[_Group, int] = {}
    rest: dict[_Group, list[Finding]] = {}
    kept: list[Finding] = []
    for finding in findings:
        if not _is_around(finding.place, known):
            kept.append(finding)
            continue
        group = (finding.kind, finding.severity, str(finding.place.broker))
        seen[group] = seen.get(group, 0) + 1
        if seen[group] <= LIMIT:
            kept.append(finding)
        else:
            rest.setdefault(group, []).append(finding)
    if rest:
        kept += [members[0] if len(members) == 1 else _as_one(members) for members in rest.values()]
        kept.sort(key=Finding.sort_key)
    return kept


def _is_around(place: Place, read: frozenset[tuple[str, int]]) -> bool:
    """Whether a finding is of a log directory, or of a partition that was not read; witnesses' logs are read by themselves."""
    if place.topic is None:
        return place.broker is not None or place.log_dir is not None or place.file is not None
    return place.partition is not None and place.topic not in WITNESS_TOPICS and (place.topic, place.partition) not in read


def _as_one(members: list[Finding]) -> Finding:
    """One finding for several of one kind, severity and broker."""
    first = members[0]
    alike: Json = {
        name: value
        for name, value in first.evidence.items()
        if all(finding.evidence.get(name, members) == value for finding in members)
    }
    examples = [_called(finding.place) for finding in members[:EXAMPLES]]
    places = [finding.place for finding in members]
    place = Place(
        broker=first.place.broker,
        log_dir=first.place.log_dir if all(place.log_dir == first.place.log_dir for place in places) else None,
    )
    confidence = max((finding.confidence for finding in members), key=_SURENESS.index)
    return replace(first, confidence=confidence, place=place, evidence=alike | {"counted": len(members), "examples": examples})


def _called(place: Place) -> str:
    """A short name of a place: its partition, else its file, else its log directory."""
    if place.topic is not None and place.partition is not None:
        return f"{place.topic}-{place.partition}"
    return str(place.file or place.log_dir or place.broker)


# What a command must be given to look at the same copies again.


PATHS_SHOWN: Final = 2000
"""Characters of paths in a command; where all of them are longer, a command about a partition is given those that it needs."""


class AskedAgain:
    """The words of command lines that look at the same copies again."""

    def __init__(self, inputs: Inputs, options: ScanOptions) -> None:
        copied = () if options.copied is None else (f"--{options.copied.value}",)
        shown = shown_storage_options(inputs.reached)
        self._all = Asked(
            inputs.given,
            tuple(word for name, value in shown for word in ("--storage-option", f"{name}={value}")),
            (*copied, *(("--live",) if options.live else ())),
        )
        self._few: dict[tuple[str, int], Asked] = {}
        if sum(len(path) + 1 for path in inputs.given) > PATHS_SHOWN:
            self._few = self._paths_of_partitions(inputs)

    def of(self, place: Place) -> Asked:
        """What to give a command about a place; about all of it, if it is of no partition."""
        if place.topic is None or place.partition is None:
            return self._all
        return self._few.get((place.topic, place.partition), self._all)

    def _paths_of_partitions(self, inputs: Inputs) -> dict[tuple[str, int], Asked]:
        """Of every partition the paths that hold a replica of it, and those with a controllers' log; names that were given stay."""
        given = {path.partition("=")[2]: path for path in inputs.given if "=" in path} | {path: path for path in inputs.given}
        order = {path: number for number, path in enumerate(inputs.given)}
        paths: dict[tuple[str, int], set[str]] = {}
        controllers: set[str] = set()
        for plan in (*inputs.replicas, *inputs.internal):
            path = given.get(plan.log_dir.source.name)
            if path is not None:
                paths.setdefault((plan.context.topic, plan.context.partition), set()).add(path)
                controllers |= {path} if plan.context.topic == CLUSTER_METADATA_TOPIC else set()
        return {
            partition: replace(self._all, paths=tuple(sorted(own | controllers, key=order.__getitem__)))
            for partition, own in paths.items()
        }


DEEP_BELOW_BYTES: Final = 256 << 20
"""Logs of at most this many bytes in all are decoded to records unless the user says otherwise."""


def is_deep(asked: bool | None, bytes_in_all: int) -> bool:
    """Whether logs of so many bytes are decoded to records, if that is what the user asked for or (None) left open."""
    return bytes_in_all <= DEEP_BELOW_BYTES if asked is None else asked


Look = Callable[[list[Replica], LogReader, PartitionResult], None]
"""Shown each partition once it is judged: its replicas, whose logs can be read again, and the result, which it may add to."""


@dataclass(slots=True)
class PartitionAnswer:
    """All that is kept of a partition once it is judged."""

    result: PartitionResult
    transactions: PartitionTransactionFacts
    keys: PartitionKeys | None
    """None where no keys were looked at."""


def digest_key() -> "NDArray[np.int64]":
    """A key for the identities of batches, new for every scan."""
    return np.array([[secrets.randbits(63), secrets.randbits(63)]], np.int64)


def judged(
    merged: Sequence[Merged],
    key: "NDArray[np.int64]",
    options: ScanOptions,
    look: Look | None = None,
    apart: "KeysApart | None" = None,
) -> PartitionAnswer:
    """The answer about one partition from all its replicas; none yet where `apart` was asked something."""
    plans = [plan for plan, _, _ in merged]
    replicas = [replica for _, replica, _ in merged]
    reader = LogReader(plans, key, options.as_of_ms)
    reader.apart = apart
    snapshots = [snapshot for _, _, snapshot in merged]
    result = judge_partition(plans, replicas, snapshots, reader, snapshots[0].inputs)
    if look is not None:
        look(replicas, reader, result)
    return PartitionAnswer(result, partition_transactions(replicas), partition_keys(replicas))


class ScanInterruptedError(KeyboardInterrupt):
    """The user ended a scan; `result` is what was judged so far."""

    def __init__(self, result: ScanResult) -> None:
        super().__init__()
        self.result = result


class Listener(Protocol):
    """Hears of a scan while it runs."""

    def begun(self, brokers: list[BrokerSummary]) -> None:
        """Before anything is judged."""

    def settled(self, partition: PartitionSummary, findings: list[Finding]) -> None:
        """Nothing of this will be said otherwise; what all partitions show together may add findings about it."""


class Scan:
    """A scan under way: what is known before the logs are read, and what comes together of its partitions."""

    def __init__(
        self, engine: str, inputs: Inputs, options: ScanOptions, witnesses: Witnesses, listener: Listener | None = None
    ) -> None:
        assert not inputs.without_ids, "topic ids are read before anything is judged"
        options = as_collected(inputs.sources, options)
        self.engine, self.inputs, self.options, self.witnesses = engine, inputs, options, witnesses
        self.bytes_total = sum(plan.bytes for plan in inputs.replicas)
        self.deep = is_deep(options.deep, self.bytes_total)
        self.findings: list[Finding] = []
        self.partitions: list[PartitionSummary] = []
        self.incomplete: list[Incomplete] = []
        self._totals = Totals(records_decoded=self.deep and not not_looked_into(inputs.sources))
        controller = witnesses.controller
        inputs.features = {} if controller is None else controller.features
        for plan in inputs.replicas:
            take_control(plan, witnesses)
            take_commits(plan, witnesses)
        take_decisions(inputs.replicas, witnesses)
        take_tiered_topics(inputs, witnesses.remote_log)
        self.ledger = ledger_of(inputs, controller, options.copied)
        if inputs.is_unchecked and not inputs.replicas:
            require_or_note(inputs, options, self.ledger.keys())
        take_expectations(inputs, self.ledger)
        self._quorum = quorum_of(inputs, self.ledger)
        elections = quorum_findings(self._quorum, inputs, live=options.live)
        self._of_witnesses = [*(finding for finding in elections if concerns(finding.place, options)), *witnesses.findings]
        self._verdicts: dict[tuple[str | None, int | None], str] = {}
        for finding in self._of_witnesses:
            key = finding.place.topic, finding.place.partition
            self._verdicts[key] = worst(self._verdicts.get(key, "clean"), finding.severity.value)
        self._across = TransactionsAcross(
            witnesses.transaction_log, options.as_of_ms, None if controller is None else controller.last_ms, witnesses.groups
        )
        self._placements = TopicPlacements(inputs, witnesses)
        self._asked = AskedAgain(inputs, options)
        self._settling = _Settling(may_be_told_lost(inputs, self.ledger))
        self._listener = listener
        if listener is not None:
            listener.begun(_brokers(inputs))
        log = logging.getLogger(__name__)
        log.info("engine %s; storage: %s", engine, ", ".join(storage_words(inputs.sources)) or "none")
        if any(isinstance(source, BundleSource) for source in inputs.sources):
            log.info("bundles have no keys: how these are placed (KEY_PLACEMENT) is told of log directories only")
        log.info("codecs: %s", ", ".join(f"{codec} by {back_end}" for codec, back_end in CODEC_BACK_ENDS.items()))

    def take(self, answer: PartitionAnswer) -> None:
        """Add a partition; they come by topic and partition."""
        result = answer.result
        summary = result.summary
        summary.verdict = worst(summary.verdict, self._verdicts.get((summary.topic, summary.partition), "clean"))
        self.partitions.append(summary)
        several = self.ledger.copies((result.summary.topic, result.summary.partition)) > 1  # though --broker leaves one of them
        findings = [replace(finding, alone=False) for finding in result.findings] if several else result.findings
        self.findings += findings
        self.incomplete += result.incomplete
        self._across.take(answer.transactions)
        self._placements.take(result.summary.topic, result.summary.partition, answer.keys)
        self._count(result)
        self._settling.take(
            len(self.partitions) - 1, result.summary, findings, has_transactions=answer.transactions.facts is not None
        )
        self._settle()

    def finish(self) -> ScanResult:
        """The answer, once every partition has been taken."""
        findings = self.findings
        for stage in (
            self._with_surroundings,
            self._across_partitions,
            self._with_placements,
            self._with_settings,
            self._with_changed_files,
            self._with_incidents,
            self._counted,
        ):
            findings = stage(findings)
        settled = self._settling.numbers(findings)
        findings = self._with_what_was_asked(findings)
        inputs, brokers = self.inputs, _brokers(self.inputs)
        logging.getLogger(__name__).info("kernels here: %s", "compiled" if have_compiled() else "interpreted")
        self._totals.brokers = sum(self.options.broker in (None, str(broker_summary.broker)) for broker_summary in brokers)
        broken = [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
        seen = {(gap.path, gap.reason): gap for gap in [*inputs.incomplete, *self.incomplete, *broken]}
        not_read = {read.path for read in inputs.not_read}
        ordered = sorted(seen, key=lambda key: (key[0] not in not_read, key))
        incomplete = attributed([seen[key] for key in ordered], inputs.log_dirs)
        return ScanResult(
            self.engine,
            brokers,
            self.partitions,
            findings,
            self._totals,
            incomplete,
            incidents=incidents(findings),
            asked=self._asked.of(Place()),
            settled=settled,
        )

    def so_far(self) -> ScanResult:
        """What is said of the partitions that have been taken, and nothing of what only all of them together tell: incomplete."""
        partitions = self.partitions[: self._totals.partitions]  # the last may have been half taken
        taken = {(partition.topic, partition.partition) for partition in partitions}
        own = [finding for finding in self.findings if (finding.place.topic, finding.place.partition) in taken]
        own = self._counted(own)
        settled = self._settling.numbers(own)
        findings = self._with_what_was_asked(own)
        gap = _interrupted(self.engine, self.inputs, len(taken))
        brokers, folded = _brokers(self.inputs), incidents(findings)
        self._totals.brokers = len(brokers)
        asked = self._asked.of(Place())
        result = ScanResult(self.engine, brokers, partitions, findings, self._totals, [gap], incidents=folded, asked=asked)
        result.settled, result.is_interrupted = settled, True
        return result

    def _settle(self) -> None:
        """Tell of the partitions of which nothing will be said otherwise, in their order."""
        waits = self.deep and bool(self.partitions) and self._placements.awaits(self.partitions[-1].topic)
        for number, findings in self._settling.settled(self.partitions[-1].topic if waits else None):
            partition = self.partitions[number]
            self._placements.tell([partition])
            if self._listener is not None:
                self._listener.settled(partition, self._with_what_was_asked(findings))

    # The stages from the findings of partitions to those of the scan, in the order in which `finish` names them.

    def _with_surroundings(self, findings: list[Finding]) -> list[Finding]:
        """With what is said of log directories, of replicas that should be there, and of witnesses' logs."""
        inputs = self.inputs
        around = [*environment_findings(inputs), *stopped_cleaners(inputs, self.witnesses.controller)]
        around = [finding for finding in around if concerns(finding.place, self.options)]
        gaps = [*inputs.incomplete, *self.incomplete]
        hidden = may_hide_log_directory(inputs)
        absent = absence_findings(inputs, self.ledger, self.partitions, self.options, gaps, quorum=self._quorum, hidden=hidden)
        findings = [*around, *absent, *map(self._with_copies, self._of_witnesses), *findings]
        return [_unless_hidden(finding) for finding in findings] if hidden else findings

    def _with_copies(self, finding: Finding) -> Finding:
        """What is said of a witness's log, which may be the only copy of it."""
        place = finding.place
        if place.topic is None or place.partition is None:
            return finding
        return replace(finding, alone=self.ledger.copies((place.topic, place.partition)) < 2)

    def _across_partitions(self, findings: list[Finding]) -> list[Finding]:
        """Transactions as all their partitions and the coordinators' log show them together."""
        return self._across.finish(findings, self.partitions)

    def _with_placements(self, findings: list[Finding]) -> list[Finding]:
        """With how topics place their keys, of which the partitions are told, too."""
        findings = findings + self._placements.finish()
        self._placements.tell(self.partitions)
        return findings

    def _with_settings(self, findings: list[Finding]) -> list[Finding]:
        """With the settings that explain losses, or allow them, and the tiered topics."""
        topics = {plan.context.topic for plan in self.inputs.replicas}
        risky = risky_settings(self.witnesses.controller, topics, findings, self.options.as_of_ms)
        return findings + risky + tiered_topics(self.partitions, self.witnesses.remote_log)

    def _with_changed_files(self, findings: list[Finding]) -> list[Finding]:
        """With the files that changed meanwhile."""
        return findings + changed_findings(self.inputs)

    def _with_incidents(self, findings: list[Finding]) -> list[Finding]:
        """With the known incidents that only a whole scan shows."""
        return findings + scan_matches(findings, self.inputs)

    def _counted(self, findings: list[Finding]) -> list[Finding]:
        """Sorted, and very many of one kind as one."""
        read = {(partition.topic, partition.partition) for partition in self.partitions}
        return counted(sorted(findings, key=Finding.sort_key), read)

    def _with_what_was_asked(self, findings: list[Finding]) -> list[Finding]:
        """Each with what a command must be given to look at it again."""
        return [replace(finding, asked=self._asked.of(finding.place)) for finding in findings]

    def _count(self, result: PartitionResult) -> None:
        totals = self._totals
        totals.partitions += 1
        for replica in result.summary.replicas:
            totals.replicas += 1
            totals.segments += replica.segments or 0
            totals.batches += replica.batches or 0
            totals.records += replica.records or 0
        decoded, damaged, skipped = result.bytes
        totals.bytes_decoded += decoded
        totals.bytes_damaged += damaged
        totals.bytes_skipped += skipped
        totals.bytes_total += decoded + damaged + skipped


def nothing_judged(engine: str, inputs: Inputs, options: ScanOptions) -> ScanResult:
    """What is said of a scan that was interrupted before it began to judge: incomplete."""
    brokers, gap = _brokers(inputs), _interrupted(engine, inputs, 0)
    result = ScanResult(engine, brokers, [], [], Totals(brokers=len(brokers)), [gap], asked=AskedAgain(inputs, options).of(Place()))
    result.is_interrupted = True
    return result


def _interrupted(engine: str, inputs: Inputs, taken: int) -> Incomplete:
    """That a scan was ended before all partitions were judged."""
    planned = {(plan.context.topic, plan.context.partition) for plan in inputs.replicas}
    path = inputs.given[0] if len(inputs.given) == 1 else f"{len(inputs.given)} paths"
    why = ": Spark gives all answers together, when its job ends" if engine == "spark" and not taken else ""
    return Incomplete(path, f"interrupted after {taken} of {len(planned)} partitions{why}")


@dataclass(frozen=True, slots=True)
class _Settled:
    """A partition by its number, with its own findings."""

    number: int
    topic: str
    findings: list[Finding]


class _Settling:
    """Which partitions, and which of their findings, nothing may change any more before the scan is whole.

    What all partitions show together changes what is said of transactions; replicas without a copy may show that records are in no
    copy; and how keys are placed is known with a topic's last partition. Whatever else comes later only adds findings.
    """

    def __init__(self, may_be_told_lost: frozenset[tuple[str, int]]) -> None:
        self._may_be_told_lost = may_be_told_lost
        self._waiting: deque[_Settled] = deque()
        self._settled: list[_Settled] = []

    def take(self, number: int, summary: PartitionSummary, findings: list[Finding], *, has_transactions: bool) -> None:
        """Add a partition that was judged."""
        key = (summary.topic, summary.partition)
        if has_transactions or key in self._may_be_told_lost or any(map(_may_change, findings)):
            return
        own = [finding for finding in findings if (finding.place.topic, finding.place.partition) == key]
        self._waiting.append(_Settled(number, summary.topic, own))

    def settled(self, open_topic: str | None) -> Iterable[tuple[int, list[Finding]]]:
        """Those that are settled since this was asked last, by their numbers, with their findings; none of a topic that goes on."""
        while self._waiting and self._waiting[0].topic != open_topic:
            self._settled.append(self._waiting.popleft())
            yield self._settled[-1].number, self._settled[-1].findings

    def numbers(self, findings: list[Finding]) -> list[tuple[int, list[int]]]:
        """All that are settled as `ScanResult.settled` has them, by the places of their findings among all of them."""
        places = {id(finding): place for place, finding in enumerate(findings)}
        return [(partition.number, [places[id(finding)] for finding in partition.findings]) for partition in self._settled]


def _may_change(finding: Finding) -> bool:
    """Whether it may be said otherwise once all partitions are judged (`_across_partitions`, `_unless_hidden`)."""
    return finding.kind.startswith("TXN_") or finding.kind == "COMMITTED_LOST_EVERYWHERE"


def _unless_hidden(finding: Finding) -> Finding:
    """What no copy holds, as suspected where something that may hold a copy was not read."""
    if finding.kind != "COMMITTED_LOST_EVERYWHERE":
        return finding
    evidence = {**finding.evidence, "harmless_if": "a copy in what could not be read holds them"}
    return replace(finding, confidence=Confidence.SUSPECTED, evidence=evidence)


def _brokers(inputs: Inputs) -> list[BrokerSummary]:
    by_broker: dict[int | str, BrokerSummary] = {}
    for log_dir in inputs.log_dirs:
        cluster = None if log_dir.meta is None else log_dir.meta.cluster_id
        summary = by_broker.setdefault(log_dir.broker, BrokerSummary(log_dir.broker, cluster, [], clean_shutdown=True))
        summary.log_dirs.append(log_dir.name)
        summary.clean_shutdown &= log_dir.clean_shutdown is not None
    return [by_broker[broker] for broker in sorted(by_broker, key=broker_order)]
