"""Idempotent producers: sequence numbers and epochs that do not follow."""

from kafka_forensics.analysis.producers.epoch_bumps import EpochBump, EpochBumps
from kafka_forensics.analysis.producers.producers import ProducersFold, ProducerState
from kafka_forensics.analysis.producers.runs import Extremes, OffsetRuns, offset_behind
from kafka_forensics.analysis.producers.table import ProducerTable, find_producer

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
