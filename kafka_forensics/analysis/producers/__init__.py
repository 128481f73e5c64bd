"""Sequence numbers and epochs of idempotent producers."""

from kafka_forensics.analysis.producers.producers import EpochBump, EpochBumps, ProducersFold, ProducerState
from kafka_forensics.analysis.producers.rules import ProducerTable, find_producer
from kafka_forensics.analysis.producers.runs import FirstAndLastRows, OffsetRuns, offset_after
