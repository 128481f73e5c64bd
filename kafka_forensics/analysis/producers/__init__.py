"""Idempotent producers: sequence numbers and epochs that do not follow."""

from kafka_forensics.analysis.producers.producers import EpochBump, EpochBumps, ProducersFold, ProducerState
from kafka_forensics.analysis.producers.rules import ProducerTable, find_producer
from kafka_forensics.analysis.producers.runs import Extremes, OffsetRuns, offset_behind

__all__ = [
    "EpochBump",
    "EpochBumps",
    "Extremes",
    "OffsetRuns",
    "ProducerState",
    "ProducerTable",
    "ProducersFold",
    "find_producer",
    "offset_behind",
]
