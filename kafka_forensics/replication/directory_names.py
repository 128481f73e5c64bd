"""Which directories a broker takes for partitions when it starts (LocalLog.parseTopicPartitionName, LogManager.loadLogs)."""

import re
from typing import Final

_ASIDE: Final = re.compile(r"\S+-\S+\.\S+-(?:delete|future|stray)")
_MAX_PARTITION: Final = 2**31 - 1


def loads_as_partition(name: str) -> bool:
    """Whether a broker loads a directory of this name as a partition's; at any other, but its own few, it refuses to start.

    What stands before the last dash counts as a topic, legal or not; the partition is a number of 32 bits
    (LocalLog.parseTopicPartitionName).
    """
    if name.endswith(("-delete", "-future", "-stray")):
        if not _ASIDE.fullmatch(name):
            return False
        name = name.rpartition(".")[0]
    topic, dash, partition = name.rpartition("-")
    digits = partition.removeprefix("+")
    number = int(digits) if digits.isdecimal() and len(digits) <= 32 else None
    return bool(topic and dash) and number is not None and number <= _MAX_PARTITION
