"""Bundles of evidence: facts of log directories, taken where these lie, to be judged anywhere."""

from kafka_forensics.questions.collect.collecting import Collected, CollectOptions, RecordsAsked, collect, estimate_of
from kafka_forensics.questions.collect.estimate import Estimate
from kafka_forensics.questions.collect.politeness import behind_all_others
from kafka_forensics.questions.collect.pseudonym_map import PseudonymMap

__all__ = [
    "CollectOptions",
    "Collected",
    "Estimate",
    "PseudonymMap",
    "RecordsAsked",
    "behind_all_others",
    "collect",
    "estimate_of",
]
