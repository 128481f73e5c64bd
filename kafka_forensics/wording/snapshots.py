"""Prose about what went between two snapshots."""

from typing import Final

PROSE: Final = """
COMMITTED_TRUNCATED_SINCE: committed records cut off between snapshots
    [{scattered} of ][{offsets}|some offsets] were committed in [snapshot {from_snapshot}|an older snapshot][ ({witness})] and are
    gone[ on {brokers:brokers}] in [snapshot {to_snapshot}|a newer one][; they are still on {held_by:brokers}|; no copy of the newer
    one has them, those of {held_before:brokers} in the older one do][, and {not_given:brokers}, not given there, may]
    > Keep [snapshot {from_snapshot}|the older snapshot] as it is, since it has these records. See who led meanwhile: a
    controller's log tells it (`kafka-forensics metadata PATH...`), where ZooKeeper is used controller.log does.
KEYS_LOST_SINCE: latest records of keys gone between snapshots
    [snapshot {to_snapshot}|a newer snapshot] lacks the latest record of [{keys:key}|some keys][ at {offsets}] that [snapshot
    {from_snapshot}|an older one] has, and no rule of compaction explains it[; an older value of {stale:key} is there][; an older
    value of {tombstones:key} is there that was deleted][; nothing is there of {vanished:key}][; nothing is there of {missing:key},
    where no cleaner has been][; the transaction marker for {markers:key} is not there][; {contents:key} has another value at the
    same offset]
    > Keep [snapshot {from_snapshot}|the older snapshot] as it is, since it has these records, and look for them on the other
    replicas of the newer one with {compare}
"""
