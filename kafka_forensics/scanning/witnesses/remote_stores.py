"""The remote stores among the inputs: which objects they hold of each partition."""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.replicas import findings_without_replicas
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.remote_log import RemoteLog, StoredLog
from kafka_forensics.storage.tiered import RemoteStore, list_store, merged_log

_LOGGER: Final = logging.getLogger(__name__)


class StoredPartition(NamedTuple):
    """The objects of a partition, and the store that has them."""

    store: RemoteStore
    log: StoredLog


class RemoteStores(Struct):
    """All remote stores that were given; empty without any."""

    stores: list[RemoteStore] = field(default_factory=list)
    partitions: dict[tuple[str, int], StoredPartition] = field(default_factory=dict)
    """By topic id and partition; of a partition in two stores, the first; none of stores that lack logs."""
    logs: dict[tuple[str, int], StoredLog] = field(default_factory=dict)
    """By topic id and partition, with the segments of all stores; none if one of these lacks logs, or if their layouts differ."""
    is_complete: bool = True
    """Whether every store could be listed."""

    def __bool__(self) -> bool:
        return bool(self.stores)

    @property
    def names(self) -> str:
        """The stores as a person would type them."""
        return ", ".join(store.name for store in self.stores)

    def log_of(self, log: RemoteLog) -> StoredLog | None:
        """The objects of a partition in all stores, none if they have none of it; None if there is nothing to judge it by."""
        key = log.topic_id, log.partition
        if key in self.partitions or not self.stores or any(store.lacks_logs for store in self.stores):
            return self.logs.get(key)
        layout = self.stores[0].layout
        return StoredLog(log.topic, *key, {}, layout.needed, layout.is_plain)

    def of_topic(self, topic: str, partition: int) -> Iterator[StoredPartition]:
        """The partitions of this name, whatever their topic ids are."""
        return (stored for stored in self.partitions.values() if (stored.log.topic, stored.log.partition) == (topic, partition))


def set_stored_logs(inputs: Inputs, stores: RemoteStores, topic_ids: Iterable[str]) -> None:
    """Set `stored_log` of all replicas whose remote log is known, unless the stores are another cluster's: they hold only unknown
    topics."""
    if not is_judged(inputs, stores, topic_ids):
        if stores.is_complete and inputs.remote_log is not None and stores:
            _LOGGER.warning("note: %s: has no topic id of these copies, so it belongs to another cluster", stores.names)
        return
    for context in (plan.context for plan in inputs.replicas):
        if context.remote_log is not None:
            context.stored_log = _stored_log(stores, context.remote_log)


def is_judged(inputs: Inputs, stores: RemoteStores, topic_ids: Iterable[str]) -> bool:
    """Whether the objects of the stores can be compared with events: all were listed, and they are of this cluster, which has these
    topic ids by the controllers' log."""
    is_listed = bool(stores) and stores.is_complete
    return is_listed and inputs.remote_log is not None and is_of_this_cluster(inputs, stores, topic_ids)


def is_of_this_cluster(inputs: Inputs, stores: RemoteStores, topic_ids: Iterable[str]) -> bool:
    """Whether the stores have a topic of the copies by its id, or no topic at all; `topic_ids` are of the controllers' log."""
    here = {*topic_ids, *(plan.context.topic_id for plan in inputs.replicas)}
    here |= set() if inputs.remote_log is None else {topic_id for topic_id, _ in inputs.remote_log.logs}
    in_stores = {topic_id for topic_id, _ in stores.partitions}
    return not in_stores or not here.isdisjoint(in_stores)


def _stored_log(stores: RemoteStores, log: RemoteLog) -> StoredLog | None:
    stored = stores.log_of(log)
    return stored if stored is None or stored.segments or not stores.partitions else replace(stored, is_elsewhere=True)


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
        for name in (store.name for store in inputs.stores if store.lacks_logs):
            _LOGGER.warning("note: %s: holds no log of its segments (are they Iceberg tables?): it is not checked", name)
    stores = RemoteStores(inputs.stores, is_complete=len(inputs.stores) == len(inputs.store_places))
    parts: dict[tuple[str, int], list[StoredPartition]] = {}
    for store in inputs.stores:
        for key, log in store.logs.items():
            parts.setdefault(key, []).append(StoredPartition(store, log))
    for key, partitions in parts.items():
        with_logs = [partition for partition in partitions if not partition.store.lacks_logs]
        if with_logs:
            stores.partitions[key] = with_logs[0]
        if len(with_logs) == len(partitions) and len({partition.store.layout.name for partition in partitions}) == 1:
            stores.logs[key] = merged_log([partition.log for partition in partitions])
    return stores


def remote_findings_elsewhere(inputs: Inputs, stores: RemoteStores, topic_ids: Iterable[str]) -> list[Finding]:
    """Findings about the objects of partitions without a replica among the inputs; none without events."""
    history = inputs.remote_log
    if history is None or not is_judged(inputs, stores, topic_ids):
        return []
    judged = {
        (context.stored_log.topic_id, context.partition)
        for context in (plan.context for plan in inputs.replicas)
        if context.stored_log is not None
    }
    is_complete = not (history.damaged or history.partitions_missing)
    findings = []
    for key in dict.fromkeys([*history.logs, *stores.partitions]):
        log = history.logs.get(key)
        stored = stores.logs.get(key) if log is None else _stored_log(stores, log)
        if key not in judged and stored is not None and (log is not None or is_complete):
            findings += findings_without_replicas(stored.topic, log, stored)
    return findings
