"""Facts as Arrow tables: of one `.log` file, and of everything that a scan read, replica by replica and chunk by chunk."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from kafka_forensics.analysis.replicas import OTHERS_MISSING
from kafka_forensics.evidence.inputs import Inputs, NodeIds, ReplicaPlan, with_replicas
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.answers import group_facts, metadata_facts, replica_facts, transaction_facts
from kafka_forensics.export.facts.listings import changes_since
from kafka_forensics.export.facts.log import ReplicaReader, count_nothing
from kafka_forensics.export.facts.read import READERS
from kafka_forensics.export.facts.remote_log import remote_event_facts, remote_segment_facts
from kafka_forensics.export.facts.rows import FROM_FILES, FROM_INTERNAL_TOPICS, add_keys, json_text, record_batches, rows_of
from kafka_forensics.export.facts.small_files import checkpoint_facts
from kafka_forensics.model.arrow import plain
from kafka_forensics.model.batches import has_right_crc
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.findings import Finding, worst_first
from kafka_forensics.model.json_objects import Columns, attributes
from kafka_forensics.model.offset_ranges import offset_range
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.model.schemas import FACTS, RECORDS, ReplicaKeys, batches_to_arrow, fact_named
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.parsers.log_dir import max_plausible_offset
from kafka_forensics.questions.transactions import KnownTransactions
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.rereading.record_columns import record_arrays
from kafka_forensics.scanning.rereading.record_states import LazyRecordStates, RecordStates, base_offsets
from kafka_forensics.scanning.witnesses.remote_chains import remote_logs_of, take_remote_logs
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.open import open_source, place_of_log
from kafka_forensics.storage.source import place_of
from kafka_forensics.storage.tiered import stored_object

if TYPE_CHECKING:
    from kafka_forensics.storage.remote import OptionsArgument
    from kafka_forensics.storage.source import ByteSource

FindingText = Callable[[Finding], tuple[str, str | None]]
"""Gives a finding's message and advice."""
Batches = Iterator[pa.RecordBatch]
ReplicaPlace = tuple[str, int, int | str, str]
"""(topic, partition, broker, name of its log directory)."""

_FINDING: Final[Columns] = {
    **attributes("kind severity=severity.value confidence=confidence.value topic=place.topic partition=place.partition"),
    "broker": lambda finding: _optional_text(finding.place.broker),
}
"""The columns before `node_id`."""
_PLACE: Final[Columns] = attributes("log_dir file byte_start byte_end offset_start offset_end", of="place")
"""The columns after it, before message, evidence and advice."""
_INCOMPLETE: Final[Columns] = {
    **attributes("path reason topic partition"),
    "broker": lambda incomplete: _optional_text(incomplete.broker),
}
"""The columns before `node_id`."""
LOG_FACTS: Final = ("batches", "records", "spans", "control_records", "transactions")
"""Facts for which every `.log` is read again after the scan."""
READ_AGAIN: Final = (*LOG_FACTS, *FROM_FILES, "remote_events")
"""Facts for which files are read again after the scan; the scan keeps the others."""


def read_batches(path: str, storage_options: "OptionsArgument" = None) -> Batches:
    """Batches of a `.log` file or object of a remote store, as `model.schemas.BATCHES`, including those with a wrong CRC but
    without damaged bytes.

    Raises PathMissingError and SourceError.
    """
    source = open_source(path, storage_options)
    log_source, log_path = place_of_log(source)
    with log_source.open(log_path) as file:
        limit, _ = _limits_of(source)
        for chunk in SegmentReader.with_checks(file, limit).chunks():
            yield batches_to_arrow(chunk.columns)


def _limits_of(source: "ByteSource") -> tuple[int, bool]:
    """The offset before which the batches of a `.log` file must begin, and whether the log has a later segment."""
    stored = stored_object(place_of(source))
    if stored is not None:  # the active segment is never copied
        return max(max_plausible_offset(segment.start_offset) for segment in stored.segments.values()), True
    base_offset, following = base_offsets(source)
    return INT64_MAX if base_offset is None else max_plausible_offset(base_offset, following), following is not None


def read_records(path: str, storage_options: "OptionsArgument" = None, *, payloads: bool = False) -> Batches:
    """Records of every good batch of a `.log` file or object of a remote store, as `model.schemas.RECORDS`, many batches at a time.

    Without `payloads`, keys, values and headers are null. Raises PathMissingError and SourceError.
    """
    source = open_source(path, storage_options)
    log_source, log_path = place_of_log(source)
    with log_source.open(log_path) as file:
        limit, log_continues = _limits_of(source)
        states = LazyRecordStates(lambda: RecordStates(file, log_continues=log_continues, max_plausible_offset=limit))
        for chunk in SegmentReader(file, max_plausible_offset=limit).chunks():
            columns = chunk.columns
            rows = np.flatnonzero(has_right_crc(columns))
            for arrays in record_arrays(file, columns, rows, states, payloads=payloads):
                yield pa.RecordBatch.from_arrays(list(map(plain, arrays)), schema=RECORDS)


def place_of_replica(plan: ReplicaPlan) -> ReplicaPlace:
    """The place of a replica."""
    return plan.context.topic, plan.context.partition, plan.context.broker, plan.log_dir.name


def _optional_text(broker: int | str | None) -> str | None:
    return None if broker is None else str(broker)


@dataclass(slots=True)
class FactReader:
    """Reads any fact about what a scan read, when its rows are requested; `incomplete` collects what cannot be read for them.

    Without `payloads`, keys, values, headers and the metadata of clients and plugins are null. `passed` takes numbers of bytes of
    logs that were read.
    """

    inputs: Inputs
    options: ScanOptions
    result: ScanResult
    witnesses: Witnesses
    finding_text: FindingText
    payloads: bool = False
    incomplete: list[Incomplete] = field(default_factory=list)
    passed: Callable[[int], None] = count_nothing
    node_ids: NodeIds = field(init=False)
    """Of the brokers in `inputs`."""

    def __post_init__(self) -> None:
        """Find the node ids once for all facts."""
        self.node_ids = NodeIds.of(self.inputs.log_dirs)

    def parts(self, name: str) -> Iterator[tuple[ReplicaKeys, Batches]]:
        """A fact about replicas in parts, by topic, partition and broker: the keys of a replica, and its rows without these."""
        read = self._transaction_reader() if name == "transactions" else READERS[name]
        for plan in self.logs_of(name):
            deep = self.result.totals.records_decoded
            reader = ReplicaReader(plan, self.incomplete.append, lambda count: self.passed(count), self.payloads, deep)
            if name == "transactions" and not plan.context.is_remote:
                reader.remote = remote_logs_of(self.inputs, plan.context)
            yield self.keys_of(plan), read(reader)

    def keys_of(self, plan: ReplicaPlan) -> ReplicaKeys:
        """The keys of a replica."""
        return self.node_ids.replica(*plan.context.topic_partition, plan.context.broker)

    def logs_of(self, name: str) -> list[ReplicaPlan]:
        """The logs that a fact is read from; for `transactions`, a log in a remote store is the beginning of each replica's log."""
        if name != "transactions":
            return self.inputs.logs
        replicas = {plan.context.topic_partition for plan in self.inputs.replicas}
        return [plan for plan in self.inputs.logs if not plan.context.is_remote or plan.context.topic_partition not in replicas]

    def _transaction_reader(self) -> Callable[[ReplicaReader], Batches]:
        known = KnownTransactions(self.witnesses.transaction_log, self.result.findings)
        stable = self.stable_offsets()
        return lambda replica: transaction_facts(replica, stable.get(place_of_replica(replica.plan)), known)

    def stable_offsets(self) -> dict[ReplicaPlace, int | None]:
        """The last stable offset of each replica, by the scan."""
        return {
            (partition.topic, partition.partition, replica.broker, replica.log_dir): replica.last_stable_offset
            for partition in self.result.partitions
            for replica in partition.replicas
        }

    def batches(self, name: str) -> Batches:
        """The fact as record batches with its declared schema. Raises UsageError for an unknown fact."""
        fact = fact_named(name)
        if not fact.by_replica:
            yield from self._whole(name)
            return
        for keys, batches in self.parts(name):
            for batch in batches:
                yield add_keys(batch, fact, keys)

    def table(self, name: str) -> pa.Table:
        """The whole fact as one table in memory. Raises UsageError for an unknown fact."""
        return pa.Table.from_batches(self.batches(name), fact_named(name).schema)

    def changed_files(self, facts: Sequence[str] = READ_AGAIN) -> list[Incomplete]:
        """Files of these facts that were changed or removed since the scan, without those that the scan saw changing, and those in
        `incomplete`."""
        places = [finding.place for finding in self.result.findings if finding.kind == "EVIDENCE_CHANGED"]
        listed = {"/".join(filter(None, (place.log_dir, place.file))) for place in places}
        listed |= {unread.path for unread in self.incomplete}
        changes = changes_since(self.inputs, [fact for fact in facts if fact in READ_AGAIN])
        return [Incomplete(path, reason) for path, reason in changes if path not in listed]

    def _whole(self, name: str) -> Batches:
        """A fact that is not about replicas."""
        if name in FROM_INTERNAL_TOPICS:
            return internal_topic_facts(name, self.inputs, self.witnesses, self.options, self.incomplete, payloads=self.payloads)
        if name == "checkpoints":
            return checkpoint_facts(self.inputs, self.options)
        if name == "replicas":
            return replica_facts(self.result.partitions, self.node_ids)
        if name == "incomplete":
            columns = {**_INCOMPLETE, "node_id": lambda unread: self.node_ids[unread.broker]}
            return record_batches(FACTS[name].schema, rows_of(columns, self.unread_inputs()))
        assert name == "findings"
        return record_batches(FACTS[name].schema, map(self.finding_row, worst_first(self.result.findings)))

    def unread_inputs(self) -> list[Incomplete]:
        """What could not be read by the scan, and for facts after it."""
        unread = [*self.result.incomplete, *with_replicas(self.incomplete, self.inputs.log_dirs), *self._missing_remote_logs()]
        by_key = {(incomplete.path, incomplete.reason): incomplete for incomplete in unread}
        return [by_key[key] for key in sorted(by_key)]

    def _missing_remote_logs(self) -> Iterator[Incomplete]:
        """The offsets whose records are missing because the store lacks the log of their remote segment, or it is cut."""
        for finding in self.result.findings:
            place, evidence = finding.place, finding.evidence
            if finding.kind == "REMOTE_SEGMENT_UNREADABLE" and evidence["is_read"] and evidence["reason"] != OTHERS_MISSING:
                offsets = offset_range(place.offset_start, place.offset_end, "offset")
                reason = f"{offsets} are in remote segments whose log is missing or cut"
                yield Incomplete(f"{place.topic}-{place.partition}", reason, place.topic, place.partition, REMOTE)

    def finding_row(self, finding: Finding) -> tuple[object, ...]:
        """The row of `findings` about a finding."""
        [values] = rows_of({**_FINDING, "node_id": lambda finding: self.node_ids[finding.place.broker], **_PLACE}, [finding])
        message, advice = self.finding_text(finding)
        return *values, message, json_text(finding.evidence), advice


def internal_topic_facts(
    name: str, inputs: Inputs, witnesses: Witnesses, options: ScanOptions, incomplete: list[Incomplete], *, payloads: bool
) -> Batches:
    """A fact of internal topics, with its declared schema; `incomplete` takes what cannot be read while it is made."""
    if name == "metadata_history":
        return metadata_facts(witnesses, options)
    if name == "group_offsets":
        return group_facts(inputs, witnesses, options, payloads=payloads)
    if name == "remote_segments":
        return remote_segment_facts(witnesses, options, payloads=payloads)
    assert name == "remote_events"
    return remote_event_facts(inputs, witnesses, options, incomplete, payloads=payloads)


def scan_for_facts(inputs: Inputs, options: ScanOptions, finding_text: FindingText, progress: Progress | None = None) -> FactReader:
    """Scan the inputs for a reader of any fact."""
    compile_as_needed(max(sum(plan.bytes for plan in plans) for plans in (inputs.replicas, inputs.internal)))
    witnesses = read_witnesses(inputs)
    take_remote_logs(inputs, options, witnesses.remote_log)
    result = scan_inputs(inputs, options, progress, witnesses=witnesses)
    return FactReader(inputs, options, result, witnesses, finding_text)
