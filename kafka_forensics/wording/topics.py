"""Prose about how clients use a topic as a whole."""

from typing import Final

PROSE: Final = """
KEY_PLACEMENT: placement of keys
    keys[ of topic {topic}] [went by {partitioner_before} over {partition_count_before:partition} until
    {changed_timestamp:time}, and since then by {partitioner} over {partition_count:partition}|are placed by {partitioner} over
    {partition_count:partition}|stand in partitions that tell no rule][, {elsewhere_percent} percent of them elsewhere][;
    {keys_in_several_partitions:key} of {keys_looked_at} looked at lie in several partitions, so that nothing keeps the order of
    their records]
"""
