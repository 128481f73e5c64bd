"""The remote stores among the inputs: which objects they hold of each partition."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_forensics.analysis.replicas import unreferenced_objects
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.remote_log import RemoteLog, StoredLog
from kafka_forensics.storage.tiered import RemoteStore, list_store

_LOGGER: Final = logging.getLogger(__name__)


class StoredPartition(NamedTuple):
    """The objects of a partition, and the store that has them."""

    store: RemoteStore
    log: StoredLog


@dataclass(slots=True)
class RemoteStores:
    """All remote stores that were given; empty without any."""

    stores: list[RemoteStore] = field(default_factory=list)
    partitions: dict[tuple[str, int], StoredPartition] = field(default_factory=dict)
    """By topic id and partition; of a partition in two stores, the first."""
    is_complete: bool = True
    """Whether every store could be listed."""

    def __bool__(self) -> bool:
        return bool(self.stores)

    @property
    def names(self) -> str:
        """The stores as a person would type them."""
        return ", ".join(store.name for store in self.stores)

    def log_of(self, log: RemoteLog) -> StoredLog | None:
        """The objects of a partition, none if the stores have none of it; None without a store."""
        stored = self.partitions.get((log.topic_id, log.partition))
        if stored is not None or not self.stores:
            return None if stored is None else stored.log
        layout = self.stores[0].layout
        return StoredLog(log.topic, log.topic_id, log.partition, "", {}, layout.needed, layout.is_plain)

    def of_topic(self, topic: str, partition: int) -> Iterator[StoredPartition]:
        """The partitions of this name, whatever their topic ids are."""
        return (stored for stored in self.partitions.values() if (stored.log.topic, stored.log.partition) == (topic, partition))


def set_stored_logs(inputs: Inputs, stores: RemoteStores) -> None:
    """Set `stored_log` of all replicas whose remote log is known, unless the stores are another cluster's: they hold segments, and
    none that `__remote_log_metadata` lists."""
    if not stores or not stores.is_complete or inputs.remote_log is None:
        return
    known = {segment.segment_id for log in inputs.remote_log.logs.values() for segment in log.segments}
    stored = {segment_id for partition in stores.partitions.values() for segment_id in partition.log.segments}
    if stored and known.isdisjoint(stored):
        if known:
            _LOGGER.warning("note: %s: holds no segment that __remote_log_metadata lists, so it is another cluster's", stores.names)
        return
    for context in (plan.context for plan in inputs.replicas):
        if context.remote_log is not None:
            context.stored_log = stores.log_of(context.remote_log)


def list_remote_stores(inputs: Inputs) -> RemoteStores:
    """The stores among the inputs, listed once: requests in proportion to objects. What cannot be listed goes to
    `inputs.incomplete`."""
    if inputs.stores is None:
        inputs.stores = []
        for source, path in inputs.store_places:
            try:
                inputs.stores.append(list_store(source, path))
            except SourceError as error:
                inputs.incomplete.append(not_read(source, error))
    stores = RemoteStores(inputs.stores, is_complete=len(inputs.stores) == len(inputs.store_places))
    for store in inputs.stores:
        for key, log in store.logs.items():
            stores.partitions.setdefault(key, StoredPartition(store, log))
    return stores


def unreferenced_elsewhere(inputs: Inputs, stores: RemoteStores) -> list[Finding]:
    """`REMOTE_OBJECT_UNREFERENCED` for partitions of the stores without a replica among the inputs; none without events."""
    if not any(plan.context.stored_log is not None for plan in inputs.replicas) or inputs.remote_log is None:
        return []
    judged = {
        (context.stored_log.topic_id, context.partition)
        for context in (plan.context for plan in inputs.replicas)
        if context.stored_log is not None
    }
    is_complete = not (inputs.remote_log.damaged or inputs.remote_log.partitions_missing)
    findings = []
    for key, stored in stores.partitions.items():
        log = inputs.remote_log.logs.get(key)
        if key not in judged and (log is not None or is_complete):
            findings += unreferenced_objects(stored.log.topic, log, stored.log)
    return findings
