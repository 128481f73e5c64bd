"""What a scenario is: a name, a sentence, and a function that plays it on a small cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_forensics.simulation.cluster import Truncating
from kafka_forensics.simulation.history import History

FROM_KIP_101: Final[tuple[Truncating, ...]] = ("kip-101", "kip-279", "kip-320")
"""Protocols with leader epochs."""
NEWEST: Final[tuple[Truncating, ...]] = ("kip-320",)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A history that can be played; `protocols` are those it makes sense under, the first unless another is asked for."""

    name: str
    sentence: str
    play: Callable[[History], None]
    protocols: tuple[Truncating, ...] = NEWEST
    brokers: tuple[int, ...] = (1, 2, 3)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the cluster."""
    coordinator: Mapping[str, Any] | None = None
    """Fields of the transaction coordinator; None: there is none."""
