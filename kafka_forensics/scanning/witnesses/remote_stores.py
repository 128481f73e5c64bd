"""The remote stores among the inputs: which objects they hold of each partition."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.remote_log import StoredLog
from kafka_forensics.storage.tiered import RemoteStore, list_store


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

    def of_topic(self, topic: str, partition: int) -> Iterator[StoredPartition]:
        """The partitions of this name, whatever their topic ids are."""
        return (stored for stored in self.partitions.values() if (stored.log.topic, stored.log.partition) == (topic, partition))


def list_remote_stores(inputs: Inputs) -> RemoteStores:
    """List the stores among the inputs: requests in proportion to objects. What cannot be listed goes to `inputs.incomplete`."""
    stores = RemoteStores()
    for source, path in inputs.store_places:
        try:
            store = list_store(source, path)
        except SourceError as error:
            inputs.incomplete.append(not_read(source, error))
            stores.is_complete = False
            continue
        stores.stores.append(store)
        for key, log in store.logs.items():
            stores.partitions.setdefault(key, StoredPartition(store, log))
    return stores
