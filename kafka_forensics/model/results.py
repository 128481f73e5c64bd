"""What a scan answers: summaries of brokers, partitions and replicas, and the findings, ready for any output."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Protocol

from kafka_forensics.errors import UsageError
from kafka_forensics.model.findings import Answer, Asked, Finding, Views
from kafka_forensics.model.incidents import Incident

SCHEMA_VERSION: Final = "1.0"
VERDICTS: Final = ("clean", "info", "unknown", "warning", "error", "critical")
"""From best to worst; `unknown` is that of what could not be read."""


class Read(StrEnum):
    """How much could be read of a log, or of the logs of a partition's replicas."""

    WHOLE = "whole"
    PART = "part"
    """Of a log some of it; of a partition some of its replicas whole, or parts of them."""
    NONE = "none"
    """Nothing: only the names of files, and what other files say of it, are known."""


@dataclass(slots=True)
class BrokerSummary:
    """One broker as its copied directories show it; None is "the files do not say"."""

    broker: int | str
    cluster_id: str | None
    log_dirs: list[str]
    clean_shutdown: bool


@dataclass(slots=True)
class TransactionCounts:
    """Transactions whose end (or whose start, if open) lies in one replica's log; None where nothing of that could be read."""

    committed: int | None = 0
    aborted: int | None = 0
    open: int | None = 0
    hanging: int | None = 0

    @property
    def total(self) -> int:
        """How many that are known of; the hanging ones are open."""
        return (self.committed or 0) + (self.aborted or 0) + (self.open or 0)


@dataclass(frozen=True, slots=True)
class RecoveryOutlook:
    """What a broker makes of a replica if it starts on this copy (docs/recovery.md); None is "not foretold"."""

    starts: bool
    """False: it refuses to, for the reason in the last step."""
    log_start_offset: int | None
    log_end_offset: int | None
    checks: list[int]
    """Numbers of the load-time checks that fire, ascending."""
    steps: list[str]
    """What it does to the files, in order; of very many the first, and the last."""


@dataclass(slots=True)
class ReplicaSummary:
    """One replica of a partition; offsets are exclusive ends, None is "not known".

    What was not read is None: of a log of which nothing was (`read`), whatever its bytes would tell; of one that was read in part,
    what only its whole tells.
    """

    broker: int | str
    log_dir: str
    directory: str
    """Name of the partition directory."""
    log_start_offset: int | None
    local_log_start_offset: int | None
    """Where the segments on the disk begin: the log start, but for a tiered topic."""
    log_end_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    recovery_point: int | None
    leader_epochs: list[tuple[int, int]] | None
    """(leader_epoch, start_offset) as the batches show them."""
    segments: int | None = 0
    batches: int | None = 0
    records: int | None = 0
    bytes: int | None = 0
    missing_offsets: int | None = 0
    transactions: TransactionCounts = field(default_factory=TransactionCounts)
    recovery: RecoveryOutlook | None = None
    read: Read = Read.WHOLE
    read_end_offset: int | None = None
    """End of what was read of a log that was read in part."""


@dataclass(slots=True)
class Agreement:
    """How the replicas of a partition agree."""

    kind: str
    """identical | prefix | conflict | missing | compacted | content | not_compared"""
    common_end_offset: int | None = None
    fork_epochs: dict[str, int] = field(default_factory=dict)
    """Broker → leader epoch it holds at the first differing offset."""


@dataclass(frozen=True, slots=True)
class KeyPlacement:
    """By which rule keyed records come into the partitions of a topic, as far as those looked at tell; of several, the last one."""

    partitioner: str | None
    """murmur2 | crc32 | murmur2 and crc32 | no_known_hash; None where too few keys were looked at to say."""
    partition_count: int | None
    """What the hash is taken modulo."""
    agreeing_percent: int | None
    """Of the keys looked at since that rule holds; None of no known hash."""
    keyless_percent: int | None
    """Of the topic's records without a key, how many lie in this partition; None: none were seen."""


@dataclass(slots=True)
class PartitionSummary:
    """One partition over all its replicas."""

    topic: str
    partition: int
    topic_id: str | None
    cleanup_policy: str
    """delete | compact | compact,delete | unknown"""
    verdict: str
    """One of VERDICTS: the worst severity among its findings, `clean` without any; at least `unknown` if no log was read whole."""
    high_watermark_at_least: int | None
    high_watermark_witness: str | None
    agreement: Agreement
    replicas: list[ReplicaSummary]
    leader: int | None = None
    leader_epoch: int | None = None
    isr: list[int] | None = None
    replica_assignment: list[int] | None = None
    is_tiered: bool = False
    """Whether its older segments are moved to remote storage (KIP-405)."""
    key_placement: KeyPlacement | None = None
    """None where no records were looked at: of a topic of one partition, or in a scan that is not deep."""

    @property
    def read(self) -> Read:
        """How much was read of its replicas' logs."""
        reads = {replica.read for replica in self.replicas}
        return reads.pop() if len(reads) == 1 else Read.PART

    @property
    def not_read(self) -> list[int | str]:
        """Brokers with a replica whose log was not read, or only in part."""
        return list(dict.fromkeys(replica.broker for replica in self.replicas if replica.read is not Read.WHOLE))

    def judge(self, findings: Iterable[Finding]) -> None:
        """Set the verdict, given all its findings."""
        read_whole = any(replica.read is Read.WHOLE for replica in self.replicas)
        self.verdict = worst("clean" if read_whole else "unknown", verdict_of(findings))


@dataclass(slots=True)
class Totals:
    """Every byte read is decoded, damaged or skipped: `bytes_decoded + bytes_damaged + bytes_skipped == bytes_total`."""

    brokers: int = 0
    partitions: int = 0
    replicas: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes_total: int = 0
    bytes_decoded: int = 0
    bytes_damaged: int = 0
    bytes_skipped: int = 0
    records_decoded: bool = False
    """Whether every record was decoded (`--deep`), or batches were judged by framing and CRC alone."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """An input that could not be read, and why; makes the exit code 3.

    `broker` is whose log directory it lies in, `topic` and `partition` whose directory there; None is "not known, or of several".
    """

    path: str
    reason: str
    topic: str | None = None
    partition: int | None = None
    broker: int | str | None = None

    @property
    def hides_partitions(self) -> bool:
        """Whether partitions may lie in it of which nothing is known."""
        return self.topic is None and self.broker is None


class Drawing(Protocol):
    """A picture as notebooks show it."""

    def _repr_svg_(self) -> str:
        """The picture alone."""

    def _repr_html_(self) -> str:
        """The picture, and what it cannot show in words."""


class DrawingViews(Views, Protocol):
    """What shows a scan's answer, and draws partitions of it."""

    def lanes(self, topic: str, partition: int) -> Drawing:
        """The lanes of a partition. Raises UsageError if there is no such partition, or nothing that draws."""


@dataclass(slots=True, repr=False)
class ScanResult(Answer):
    """The whole answer, sorted as it is printed: partitions by (topic, partition), findings by `Finding.sort_key`."""

    _table_fact: ClassVar[str] = "findings"
    _made_by: ClassVar[str] = "kafka_forensics.scan"
    engine: str
    brokers: list[BrokerSummary]
    partitions: list[PartitionSummary]
    findings: list[Finding]
    totals: Totals
    incomplete: list[Incomplete] = field(default_factory=list)
    views: DrawingViews | None = field(default=None, repr=False, compare=False)
    """Set by `kafka_forensics.scan`; None: this answer only has its rows."""
    incidents: list[Incident] = field(default_factory=list)
    """What the findings above `info` are, the worst first."""
    asked: Asked | None = field(default=None, repr=False, compare=False)
    """How to look at the same copies again; None where they are not known."""
    is_interrupted: bool = field(default=False, repr=False, compare=False)
    """Whether the user ended the scan: then this is what was judged so far, and `incomplete` says so."""
    settled: list[tuple[int, list[int]]] = field(default_factory=list, repr=False, compare=False)
    """Partitions of which all was known before the last was judged, with findings that were: their numbers, in that order."""

    def __repr__(self) -> str:
        totals = f"{len(self.partitions)} partitions, {len(self.replicas)} replicas, {len(self.findings)} findings"
        return f"<ScanResult {self.verdict}: {totals}{', incomplete' if self.incomplete else ''}>"

    @property
    def verdict(self) -> str:
        """One of VERDICTS: the worst of the partitions' and of all findings; `unknown` at least where partitions may be hidden in
        what could not be read."""
        hidden = "unknown" if any(gap.hides_partitions for gap in self.incomplete) else "clean"
        return worst(hidden, verdict_of(self.findings), *(partition.verdict for partition in self.partitions))

    def lanes(self, topic: str, partition: int) -> Drawing:
        """The replicas of a partition over its offsets, and what each election would cut, as a picture for notebooks.

        The partition's logs are read once more for that (docs/report.md). Raises UsageError if there is no such partition.
        """
        if self.views is None:
            raise UsageError("this answer does not know where its facts are", hint=f"take the one that {self._made_by} gives")
        return self.views.lanes(topic, partition)

    @property
    def replicas(self) -> list[ReplicaSummary]:
        """The replicas of all partitions, in their order."""
        return [replica for partition in self.partitions for replica in partition.replicas]


def verdict_of(findings: Iterable[Finding]) -> str:
    """`clean` without findings, else the worst severity's name."""
    return worst("clean", *(finding.severity.value for finding in findings))


def worst(*verdicts: str) -> str:
    """The worst of some verdicts, at least one."""
    return max(verdicts, key=VERDICTS.index)
