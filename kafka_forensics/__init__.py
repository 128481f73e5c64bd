"""Kafka log-segment forensics: which replicas part, what was lost, which copy to keep."""

__version__ = "0.1.0"
