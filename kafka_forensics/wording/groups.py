"""Prose about what groups committed, and what their readers cannot see."""

from typing import Final

PROSE: Final = """
GROUP_OFFSET_BEYOND_LOG: committed group offset beyond every log
    [group {group}|a group] committed offset [{committed_offset}|unknown][ at {commit_timestamp:time}], but the longest copy ends at
    offset [{log_end_offset}|unknown]: [{offsets} were read|what was read] and can be had from no copy[, which is harmless if
    {harmless_if}]
    > Look for further copies: other replicas, other log directories, backups, files ending in .deleted. Then scan them together.
READERS_HELD_BACK: records that no consumer can read yet
    consumers see nothing[ of {offsets}], because [{brokers:brokers}|a member] of the ISR[ ({isr:list})] ends there[ since
    {since_ms:time}][{isr_below_minimum:if}; the ISR is below min.insync.replicas {min_insync_replicas}]
    > [See why that broker does not fetch, or does not leave the ISR, with {compare}|<only>]
"""
