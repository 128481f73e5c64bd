"""What members of classic consumer groups subscribe to and are assigned (ConsumerProtocolSubscription and -Assignment)."""

from typing import Any, Final

from construct import Int16sb, Int32sb, Struct

from kafka_forensics.parsers.spec.consumer_offsets import NULLABLE_SHORT_STRING, SHORT_STRING, Array, SizedBytes

NEWEST: Final = 3
USER_DATA: Final = SizedBytes(nullable=True)
_PARTITIONS: Final = Array(Struct("topic" / SHORT_STRING, "partitions" / Array(Int32sb)))


def _subscription(version: int) -> Any:
    fields = ["version" / Int16sb, "topics" / Array(SHORT_STRING), "user_data" / USER_DATA]
    fields += ["owned_partitions" / _PARTITIONS] if version >= 1 else []
    fields += ["generation_id" / Int32sb] if version >= 2 else []
    fields += ["rack_id" / NULLABLE_SHORT_STRING] if version >= 3 else []
    return Struct(*fields)


SUBSCRIPTIONS: Final = tuple(_subscription(version) for version in range(NEWEST + 1))
"""By version, with which the bytes begin."""
ASSIGNMENT: Final = Struct("version" / Int16sb, "assigned_partitions" / _PARTITIONS, "user_data" / USER_DATA)
"""The same in all versions."""
