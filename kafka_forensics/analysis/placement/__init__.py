"""By which rule the keys of a topic came into its partitions."""

from kafka_forensics.analysis.placement.rules import KeyPlacementFold, PartitionKeys, Placement, judge_topic, placement_finding

__all__ = ["KeyPlacementFold", "PartitionKeys", "Placement", "judge_topic", "placement_finding"]
