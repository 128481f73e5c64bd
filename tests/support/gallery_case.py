"""A case of the fault gallery: what was done to which files, as a tree to be made anew."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.faults import Brokers, healthy


@dataclass(frozen=True, slots=True)
class Case:
    """One row: its faults (`F05, P4`), the injection in words, and how to make the tree below an empty folder."""

    fault: str
    injected: str
    make: Callable[[Path], Brokers]
    damaged: str | None = None
    """The file that kafka-dump-log is given, relative to the folder; None: there is no one file to give."""
    live: bool = False
    deep: bool | None = True
    during: Callable[[Brokers], object] | None = None
    """Done once while a scan reads."""
    note: str = ""
    """What a scan says beside its findings, in words."""
    peer_options: tuple[str, ...] = ()
    traced: bool = False
    """How kafka-dump-log opens the file is to be told."""


def segment(offset: int, suffix: str = "log", broker: int = 2) -> str:
    """The path of a file of partition t-0, relative to the folder."""
    return f"b{broker}/t-0/{offset:020d}.{suffix}"


def patient(injection: Callable[[Brokers], object]) -> Callable[[Path], Brokers]:
    """A maker: three equal replicas, to which something is done."""

    def make(root: Path) -> Brokers:
        brokers = healthy(root)
        injection(brokers)
        return brokers

    return make
