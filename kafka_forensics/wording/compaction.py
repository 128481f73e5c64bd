"""Prose about replicas of compacted partitions."""

from typing import Final

PROSE: Final = """
COMPACTION_SKEW: replicas cleaned at different times
    [{brokers:brokers}|the replicas] were cleaned at different times and show the same latest value of [all keys but
    {keys_that_differ}|every key][; of {keys:key},
    {keys_cleaned_differently} with other older records][; {tombstones_expired:tombstone} gone from one side past the delete
    horizon][; {tombstones_early:tombstone} gone from one side before the delete horizon][; {out_of_reach:key} may have been deleted
    beyond the end of the shorter log][; {same_value:key} with the same value at another offset][; damage may hide what explains
    {unreadable:key}]
COMPACTED_VALUE_DIFFERS: keys with different latest values
    the replicas of this compacted partition disagree on the latest value of [{keys:key}|a key][ at {offsets}][ ({versions})][; one
    side has an older value of {stale:key}][; one side has an older value of {tombstones:key} that the other deleted][; one side
    has nothing of {vanished:key} and was cleaned there][; one side has nothing of {missing:key}, where no cleaner has been][; one
    side lacks the transaction marker for {markers:key}][; {contents:key} with two values at one offset][; the latest records are
    on {held_by:brokers}]
"""
