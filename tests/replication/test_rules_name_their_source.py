"""Every rule says which class of Kafka, or which improvement proposal, it is taken from."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator

import pytest

RULES = ("acks", "elections", "epochs", "recovery", "watermarks")
NOT_KAFKAS = {"segment_file"}
"""Functions that are no rule."""
CLASSES = (
    *("AbstractFetcherThread", "DelayedProduce", "KafkaRaftLog", "LeaderEpochFileCache", "LocalLog", "LogLoader", "LogManager"),
    *("LogSegment", "PartitionChangeBuilder", "ProducerAppendInfo", "ProducerStateManager", "ReplicaManager", "ReplicaState"),
    *("ReplicationControlManager", "UnifiedLog"),
)
"""Kafka's, by themselves a source."""
WORDS = ("Partition", "Replica")
"""Classes whose names are words too: with their method only."""
SOURCE = re.compile(rf"\bKIP-\d+\b|\b(?:{'|'.join(CLASSES)})\b|\b(?:{'|'.join(WORDS)})\.[a-z]+[A-Z]\w+")


def rules() -> Iterator[Callable[..., object]]:
    for name in RULES:
        module = importlib.import_module(f"kafka_forensics.replication.{name}")
        for function in vars(module).values():
            own = inspect.isfunction(function) and function.__module__ == module.__name__
            if own and not function.__name__.startswith("_") and function.__name__ not in NOT_KAFKAS:
                yield function


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}")
def test_a_rule_names_its_source(rule: Callable[..., object]) -> None:
    assert SOURCE.search(inspect.getdoc(rule) or "")


def test_all_rules_are_looked_at() -> None:
    assert len(list(rules())) >= 29
