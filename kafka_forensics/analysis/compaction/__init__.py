"""Compacted partitions, compared by the latest record of each key."""
