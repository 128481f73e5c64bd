"""The result of a scan: summaries of brokers, partitions and replicas, and the findings."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Protocol

import msgspec
from msgspec import Struct

from kafka_forensics.model.bundles import NeededRecords
from kafka_forensics.model.findings import Answer, Finding, RerunArguments, Views
from kafka_forensics.model.incidents import Incident

SCHEMA_VERSION: Final = "1.0"
VERDICTS: Final = ("clean", "info", "unknown", "warning", "error", "critical")
"""From best to worst; `unknown`: not read."""


class ReadExtent(StrEnum):
    """How much of a log, or of a partition's logs, was read."""

    WHOLE = "whole"
    PART = "part"
    """Part of a log; some logs, or parts of logs, of a partition."""
    NONE = "none"
    """Nothing; only file names and information from other files are known."""


class BrokerSummary(Struct):
    """One broker; None: unknown."""

    broker: int | str
    cluster_id: str | None
    log_dirs: list[str]
    clean_shutdown: bool


class TransactionCounts(Struct):
    """Transactions whose marker, or first record if open, is in one replica's log; None: the log could not be read."""

    committed: int | None = 0
    aborted: int | None = 0
    open: int | None = 0
    hanging: int | None = 0

    @property
    def total(self) -> int:
        """The number of known transactions; hanging ones are open."""
        return (self.committed or 0) + (self.aborted or 0) + (self.open or 0)


class RecoveryOutlook(Struct, frozen=True):
    """What a broker does with a replica when it starts on this copy (docs/recovery.md); None: unknown."""

    starts: bool
    """False: the last step prevents the start."""
    log_start_offset: int | None
    log_end_offset: int | None
    checks: list[int]
    """Numbers of the checks that apply, ascending."""
    steps: list[str]
    """What it does to the files, in order; above a limit the first steps and the last."""


class ReplicaSummary(Struct):
    """One replica of a partition; end offsets are exclusive, None: unknown.

    A value is None if it needs bytes that were not read (`read`): all values of an unread log, and values of the whole log if only
    a part was read.
    """

    broker: int | str
    log_dir: str
    directory: str
    """Name of the partition directory."""
    log_start_offset: int | None
    local_log_start_offset: int | None
    """The start of the first segment on disk; differs from the log start for tiered topics."""
    log_end_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    recovery_point: int | None
    leader_epochs: list[tuple[int, int]] | None
    """(leader_epoch, start_offset) from the batches."""
    segments: int | None = 0
    batches: int | None = 0
    records: int | None = 0
    bytes: int | None = 0
    missing_offsets: int | None = 0
    transactions: TransactionCounts = msgspec.field(default_factory=TransactionCounts)
    recovery: RecoveryOutlook | None = None
    reference_broker: int | str | None = None
    """The broker of the replica that it is compared with: the leader by the controller's log if its log was read completely, else
    the one with the latest leader epoch, of several the one that ends last. None: fewer than two replicas were read, or this was
    not, or those with the latest epoch conflict."""
    agreement_with_reference: str | None = None
    """reference | identical | behind | ahead | compacted | content | missing | conflict | not_compared

    `reference`: it is the reference. `behind`, `ahead`: it ends before or after the reference, and is equal up to there.
    `compacted`: it was cleaned differently; the latest record of each key is the same. `content`: it has a damaged batch, or
    another header or value. `missing`: it lacks records that another replica, or the reference, has. `conflict`: it has other
    records. None: there is no reference, and no such difference was found.
    """
    read: ReadExtent = ReadExtent.WHOLE
    read_end_offset: int | None = None
    """End of the part that was read."""


class Agreement(Struct):
    """The agreement of the replicas of a partition."""

    kind: str
    """identical | prefix | conflict | missing | compacted | content | not_compared"""
    common_end_offset: int | None = None
    fork_epochs: dict[str, int] = msgspec.field(default_factory=dict)
    """Broker → its leader epoch at the first differing offset."""


class KeyPlacement(Struct, frozen=True):
    """The rule that assigns keyed records to partitions, inferred from sampled records; the last one of several."""

    partitioner: str | None
    """murmur2 | crc32 | murmur2_and_crc32 | no_known_hash; None: too few keys were sampled."""
    partition_count: int | None
    """The modulus of the hash."""
    agreeing_percent: int | None
    """Of the keys sampled since that rule applies; None for no known hash."""
    keyless_percent: int | None
    """Share of the topic's records without a key in this partition; None: none were seen."""


class PartitionSummary(Struct):
    """One partition with all its replicas."""

    topic: str
    partition: int
    topic_id: str | None
    cleanup_policy: str
    """delete | compact | compact,delete | unknown"""
    verdict: str
    """One of VERDICTS: the worst severity of its findings, `clean` without any; at least `unknown` if no log was read
    completely."""
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
    """None: no records were sampled, because the topic has one partition or the scan is not deep."""

    @property
    def read(self) -> ReadExtent:
        """How much of its replicas' logs was read."""
        reads = {replica.read for replica in self.replicas}
        return reads.pop() if len(reads) == 1 else ReadExtent.PART

    @property
    def not_read(self) -> list[int | str]:
        """Brokers with a replica whose log was not read completely."""
        return list(dict.fromkeys(replica.broker for replica in self.replicas if replica.read is not ReadExtent.WHOLE))

    def judge(self, findings: Iterable[Finding]) -> None:
        """Set the verdict from all its findings."""
        read_whole = any(replica.read is ReadExtent.WHOLE for replica in self.replicas)
        self.verdict = worst("clean" if read_whole else "unknown", verdict_of(findings))


class Totals(Struct):
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
    """Whether every record was decoded (`--deep`), or only framing and CRC of batches were checked."""


class Incomplete(Struct, frozen=True):
    """An input that could not be read, and why; makes the exit code 3.

    `broker`, `topic` and `partition` are those of its directory; None: unknown, or several.
    """

    path: str
    reason: str
    topic: str | None = None
    partition: int | None = None
    broker: int | str | None = None
    needed: NeededRecords | None = None
    """The records that a bundle lacks, if that is the reason."""

    @property
    def hides_partitions(self) -> bool:
        """Whether it may contain unknown partitions."""
        return self.topic is None and self.broker is None


class Drawing(Protocol):
    """A picture for notebooks."""

    def _repr_svg_(self) -> str:
        """The picture alone."""

    def _repr_html_(self) -> str:
        """The picture, and text that it cannot show."""


class DrawingViews(Views, Protocol):
    """Shows the result of a scan, and draws its partitions."""

    def lanes(self, topic: str, partition: int) -> Drawing:
        """The lanes of a partition. Raises UsageError for an unknown partition, or if it cannot be drawn."""


class RemoteExtent(Struct):
    """What was read of the remote stores among the inputs."""

    listed: set[str] = msgspec.field(default_factory=set)
    """Tiered topics whose objects were listed."""
    read: set[str] = msgspec.field(default_factory=set)
    """Tiered topics whose logs in remote storage were read, too, or have nothing there."""
    is_read: bool = False
    """Whether the scan read the objects."""
    alone: tuple[int, int] | None = None
    """Partitions and segments in the stores if no replica was among the inputs; None if one was, and without a store."""


@dataclass(slots=True, repr=False)
class ScanResult(Answer):
    """The whole result in the order of output: partitions by (topic, partition), findings by `Finding.sort_key`."""

    _table_fact: ClassVar[str] = "findings"
    _made_by: ClassVar[str] = "kafka_forensics.scan"
    engine: str
    brokers: list[BrokerSummary]
    partitions: list[PartitionSummary]
    findings: list[Finding]
    totals: Totals
    incomplete: list[Incomplete] = field(default_factory=list)
    views: DrawingViews | None = field(default=None, repr=False, compare=False)
    """Set by `kafka_forensics.scan`; None: the result cannot be shown or read again."""
    incidents: list[Incident] = field(default_factory=list)
    """Of the findings above `info`, the worst first."""
    rerun_arguments: RerunArguments | None = field(default=None, repr=False, compare=False)
    """How to read the same copies again; None: unknown."""
    is_interrupted: bool = field(default=False, repr=False, compare=False)
    """Whether the user interrupted the scan; then the result is partial, and `incomplete` says so."""
    final_partitions: list[tuple[int, list[int]]] = field(default_factory=list, repr=False, compare=False)
    """(index of a partition, indexes of its findings) of partitions that were final before the scan ended, in that order."""
    remote: RemoteExtent = field(default_factory=RemoteExtent, repr=False, compare=False)

    def __repr__(self) -> str:
        totals = f"{len(self.partitions)} partitions, {len(self.replicas)} replicas, {len(self.findings)} findings"
        return f"<ScanResult {self.verdict}: {totals}{', incomplete' if self.incomplete else ''}>"

    @property
    def verdict(self) -> str:
        """One of VERDICTS: the worst of all partitions and findings; at least `unknown` if unread inputs may contain partitions, or
        no replica was read, but a remote store."""
        is_hidden = self.remote.alone is not None or any(unread.hides_partitions for unread in self.incomplete)
        hidden = "unknown" if is_hidden else "clean"
        return worst(hidden, verdict_of(self.findings), *(partition.verdict for partition in self.partitions))

    def lanes(self, topic: str, partition: int) -> Drawing:
        """The replicas of a partition over its offsets, and what each election would truncate, as a picture for notebooks.

        It reads the partition's logs again (docs/report.md). Raises UsageError for an unknown partition.
        """
        views: DrawingViews | None = self.views
        if views is None:
            raise self._without_views()
        return views.lanes(topic, partition)

    @property
    def replicas(self) -> list[ReplicaSummary]:
        """The replicas of all partitions in order."""
        return [replica for partition in self.partitions for replica in partition.replicas]


def verdict_of(findings: Iterable[Finding]) -> str:
    """`clean` without findings, else the name of the worst severity."""
    return worst("clean", *(finding.severity.value for finding in findings))


def worst(*verdicts: str) -> str:
    """The worst of one or more verdicts."""
    return max(verdicts, key=VERDICTS.index)
