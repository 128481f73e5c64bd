"""LocalTieredStorage, the plugin of Kafka's own tests: one directory a partition, each part of a segment a file with its bytes."""

import re
from typing import Final

from kafka_forensics.storage.tiered.layout import PARTITION, TOPIC, UUID, RemoteLayout, RemotePart, object_pattern

_DIRECTORY: Final = f"{TOPIC}-{PARTITION}-(?P<topic_id>{UUID})"

LOCAL_TIERED_STORAGE: Final = RemoteLayout(
    name="LocalTieredStorage",
    objects=object_pattern(_DIRECTORY, RemotePart),
    directories=re.compile(_DIRECTORY),
    partitions=None,
    needed=tuple(part.value for part in RemotePart if part is not RemotePart.TRANSACTION_INDEX),
)
"""Source: LocalTieredStorage, RemoteLogSegmentFileset and RemoteTopicPartitionDirectory of Kafka's storage module (test)."""
