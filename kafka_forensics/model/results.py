"""What a scan answers: summaries of brokers, partitions and replicas, and the findings, ready for any output."""

from dataclasses import dataclass, field
from typing import ClassVar

from kafka_forensics.model.answer import Answer, Views
from kafka_forensics.model.findings import Finding

SCHEMA_VERSION = "1.0"


@dataclass(slots=True)
class BrokerSummary:
    """One broker as its copied directories show it; None is "the files do not say"."""

    broker: int | str
    cluster_id: str | None
    log_dirs: list[str]
    clean_shutdown: bool


@dataclass(slots=True)
class TransactionCounts:
    """Transactions whose end (or whose start, if open) lies in one replica's log."""

    committed: int = 0
    aborted: int = 0
    open: int = 0
    hanging: int = 0


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
    """One replica of a partition; offsets are exclusive ends, None is "not known"."""

    broker: int | str
    log_dir: str
    directory: str
    """Name of the partition directory."""
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    last_stable_offset: int | None
    recovery_point: int | None
    leader_epochs: list[tuple[int, int]]
    """(leader_epoch, start_offset) as the batches show them."""
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    missing_offsets: int = 0
    transactions: TransactionCounts = field(default_factory=TransactionCounts)
    recovery: RecoveryOutlook | None = None


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
    """clean, or the worst severity among its findings."""
    high_watermark_at_least: int | None
    high_watermark_witness: str | None
    agreement: Agreement
    replicas: list[ReplicaSummary]
    leader: int | None = None
    leader_epoch: int | None = None
    isr: list[int] | None = None
    replica_assignment: list[int] | None = None
    key_placement: KeyPlacement | None = None
    """None where no records were looked at: of a topic of one partition, or in a scan that is not deep."""


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
    """An input that could not be read, and why; makes the exit code 3."""

    path: str
    reason: str


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
    views: Views | None = field(default=None, repr=False, compare=False)
    """Set by `kafka_forensics.scan`; None: this answer only has its rows."""

    def __repr__(self) -> str:
        totals = f"{len(self.partitions)} partitions, {len(self.replicas)} replicas, {len(self.findings)} findings"
        return f"<ScanResult {self.verdict}: {totals}{', incomplete' if self.incomplete else ''}>"

    @property
    def verdict(self) -> str:
        """`clean`, or the worst severity among the findings."""
        return verdict_of(self.findings)

    @property
    def replicas(self) -> list[ReplicaSummary]:
        """The replicas of all partitions, in their order."""
        return [replica for partition in self.partitions for replica in partition.replicas]


def verdict_of(findings: list[Finding]) -> str:
    """`clean` without findings, else the worst severity's name."""
    worst = max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)
    return "clean" if worst is None else worst.value
