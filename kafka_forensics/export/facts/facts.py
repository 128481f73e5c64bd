"""Facts as Arrow: of one `.log` file for scripts, and of everything that a scan read, replica by replica, a chunk at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, gather, with_replicas
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.answers import group_facts, metadata_facts, replica_facts, transaction_facts
from kafka_forensics.export.facts.log import FactReading
from kafka_forensics.export.facts.read import READERS
from kafka_forensics.export.facts.remote_log import remote_event_facts, remote_segment_facts
from kafka_forensics.export.facts.rows import json_text, record_batches, rows_of, with_keys
from kafka_forensics.export.facts.small_files import checkpoint_facts
from kafka_forensics.model.arrow import plain
from kafka_forensics.model.batches import has_right_crc
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import Columns, attributes
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.model.schemas import FACTS, RECORDS, batches_to_arrow, fact_named
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.parsers.log_dir import max_plausible_offset
from kafka_forensics.questions.transactions import KnownTransactions
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.environment import changed_findings
from kafka_forensics.scanning.rereading.record_columns import record_arrays
from kafka_forensics.scanning.rereading.record_states import LazyRecordStates, RecordStates, base_offsets
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.open import open_source

if TYPE_CHECKING:
    from kafka_forensics.storage.remote import OptionsArgument
    from kafka_forensics.storage.source import ByteSource

Words = Callable[[Finding], tuple[str, str | None]]
"""Gives a finding's message and advice; the engine has no prose of its own."""
Batches = Iterator[pa.RecordBatch]
Replica = tuple[str, int, int | str, str]
"""A topic, a partition, a broker and the name of its log directory."""

_FINDING: Final[Columns] = {
    **attributes("kind severity=severity.value confidence=confidence.value topic=place.topic partition=place.partition"),
    "broker": lambda finding: _named(finding.place.broker),
    **attributes("log_dir file byte_start byte_end offset_start offset_end", of="place"),
}
"""What stands before the words and the evidence."""
_GAP: Final[Columns] = {**attributes("path reason topic partition"), "broker": lambda gap: _named(gap.broker)}
LOG_FACTS: Final = ("batches", "records", "spans", "control_records", "transactions")
"""Facts for which every `.log` is read once more."""


def read_batches(path: str, storage_options: "OptionsArgument" = None) -> Batches:
    """Batches of a `.log` file, as `model.schemas.BATCHES`; damaged stretches are left out, batches with a bad CRC are not.

    Raises PathMissingError and SourceError.
    """
    source = open_source(path, storage_options)
    with source.open("") as file:
        for chunk in SegmentReader.with_checks(file, _reach(source)).chunks():
            yield batches_to_arrow(chunk.columns)


def _reach(source: "ByteSource") -> int:
    """The offset before which the batches of a `.log` file must begin."""
    base_offset, following = base_offsets(source)
    return INT64_MAX if base_offset is None else max_plausible_offset(base_offset, following)


def read_records(path: str, storage_options: "OptionsArgument" = None) -> Batches:
    """Records of every good batch of a `.log` file, as `model.schemas.RECORDS`, many batches at a time.

    Raises PathMissingError and SourceError.
    """
    source = open_source(path, storage_options)
    with source.open("") as file:
        reach, goes_on = _reach(source), base_offsets(source)[1] is not None
        states = LazyRecordStates(lambda: RecordStates(file, goes_on=goes_on, max_plausible_offset=reach))
        for chunk in SegmentReader(file, reach).chunks():
            columns = chunk.columns
            good = np.flatnonzero(has_right_crc(columns))
            for arrays in record_arrays(file, columns, good, states):
                yield pa.RecordBatch.from_arrays(list(map(plain, arrays)), schema=RECORDS)


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a fact about one replica, whose keys they leave out (`Fact.own`); of facts by nobody's replica, all of them."""

    topic: str | None
    partition: int | None
    broker: str | None
    batches: Batches


def place_of_replica(plan: ReplicaPlan) -> Replica:
    """Where a replica is."""
    return plan.context.topic, plan.context.partition, plan.context.broker, plan.log_dir.name


def _named(broker: int | str | None) -> str | None:
    return None if broker is None else str(broker)


def _nothing(_: int) -> None:
    """Where nobody asks how far it is."""


@dataclass(slots=True)
class FactReader:
    """Every fact about what a scan read, read while it is asked for; `incomplete` takes what could not be read for them.

    Without `payloads`, keys, values, headers and what clients keep with their offsets are left out. `passed` is told how many
    bytes of logs were read.
    """

    inputs: Inputs
    options: ScanOptions
    result: ScanResult
    witnesses: Witnesses
    words: Words
    payloads: bool = True
    incomplete: list[Incomplete] = field(default_factory=list)
    passed: Callable[[int], None] = _nothing

    def parts(self, name: str) -> Iterator[Part]:
        """The fact in parts, by topic, partition and broker. Raises UsageError if there is no such fact."""
        if not fact_named(name).by_replica:
            yield Part(None, None, None, self._whole(name))
        elif name == "replicas":
            for partition in self.result.partitions:
                for replica in partition.replicas:
                    yield Part(partition.topic, partition.partition, str(replica.broker), replica_facts(partition, replica))
        else:
            reads = self._transactions() if name == "transactions" else READERS[name]
            for plan in self.inputs.replicas:
                yield Part(plan.context.topic, plan.context.partition, str(plan.context.broker), reads(self._reading(plan)))

    def _transactions(self) -> Callable[[FactReading], Batches]:
        """What reads the transactions of a replica, with all that the scan knows of them."""
        known = KnownTransactions(self.witnesses.transaction_log, self.result.findings)
        stable = self.stable_offsets()
        return lambda reading: transaction_facts(reading, stable.get(place_of_replica(reading.plan)), known)

    def stable_offsets(self) -> dict[Replica, int | None]:
        """The last stable offset of each replica, as the scan has it."""
        return {
            (partition.topic, partition.partition, replica.broker, replica.log_dir): replica.last_stable_offset
            for partition in self.result.partitions
            for replica in partition.replicas
        }

    def batches(self, name: str) -> Batches:
        """The fact as record batches with its declared schema. Raises UsageError if there is no such fact."""
        fact = fact_named(name)
        for part in self.parts(name):
            for batch in part.batches:
                keys = (part.topic or "", part.partition, part.broker or "")
                yield with_keys(batch, fact, *keys) if fact.by_replica else batch

    def table(self, name: str) -> pa.Table:
        """The whole fact as one table in memory. Raises UsageError if there is no such fact."""
        return pa.Table.from_batches(self.batches(name), fact_named(name).schema)

    def changed(self) -> list[Incomplete]:
        """Files that are no longer what they were when the scan ended."""
        known = {
            (finding.place.log_dir, finding.place.file) for finding in self.result.findings if finding.kind == "EVIDENCE_CHANGED"
        }
        places = [finding.place for finding in changed_findings(self.inputs)]
        return [
            Incomplete("/".join(filter(None, (place.log_dir, place.file))), "changed while facts were read from it")
            for place in places
            if (place.log_dir, place.file) not in known
        ]

    def _reading(self, plan: ReplicaPlan) -> FactReading:
        return FactReading(
            plan,
            self.incomplete.append,
            lambda count: self.passed(count),
            payloads=self.payloads,
            deep=self.result.totals.records_decoded,
        )

    def _whole(self, name: str) -> Batches:
        """A fact whose rows name their own partitions."""
        if name == "checkpoints":
            return checkpoint_facts(self.inputs, self.options)
        if name == "metadata_history":
            return metadata_facts(self.witnesses, self.options)
        if name == "group_offsets":
            return group_facts(self.witnesses, self.options, payloads=self.payloads)
        if name == "remote_segments":
            return remote_segment_facts(self.witnesses, self.options, payloads=self.payloads)
        if name == "remote_events":
            return remote_event_facts(self.inputs, self.witnesses, self.options, self.incomplete, payloads=self.payloads)
        if name == "incomplete":
            return record_batches(FACTS[name].schema, rows_of(_GAP, self.gaps()))
        assert name == "findings"
        return record_batches(FACTS[name].schema, map(self.finding_row, self.result.findings))

    def gaps(self) -> list[Incomplete]:
        """What could not be read, when the scan was made and since."""
        every = [*self.result.incomplete, *with_replicas(self.incomplete, self.inputs.log_dirs)]
        seen = {(incomplete.path, incomplete.reason): incomplete for incomplete in every}
        return [seen[key] for key in sorted(seen)]

    def finding_row(self, finding: Finding) -> tuple[object, ...]:
        """The row of `findings` about a finding."""
        [placed] = rows_of(_FINDING, [finding])
        message, advice = self.words(finding)
        return *placed, message, json_text(finding.evidence), advice


def scan_for_facts(paths: list[str], options: ScanOptions, words: Words, progress: Progress | None = None) -> FactReader:
    """Scan the paths, and keep what is needed to read any fact afterwards. Raises UsageError for paths that make no sense."""
    inputs = gather(paths, options)
    read = sum(plan.bytes for plan in inputs.replicas)
    compile_as_needed(max(read, sum(plan.bytes for plan in inputs.internal)))
    witnesses = read_witnesses(inputs)
    result = scan_inputs(inputs, options, progress, witnesses=witnesses)
    return FactReader(inputs, options, result, witnesses, words)
