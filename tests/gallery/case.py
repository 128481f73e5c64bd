"""A case of the fault gallery: the damage done to a tree of log directories, which can be made again."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.brokers import Brokers, healthy
from tests.support.logs import HIGH_WATERMARK
from tests.support.segments import segment_file

NOT_ONE_FILE = "not a matter of one file"


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the gallery: its fault (`F05`, `P4`, `-`), the injection as text, and the function that makes the tree in an empty
    folder."""

    fault: str
    injected: str
    make: Callable[[Path], Brokers]
    damaged: str | None = None
    """The file that kafka-dump-log dumps, relative to the folder; None if there is no single file."""
    live: bool = False
    deep: bool | None = True
    during: Callable[[Brokers], object] | None = None
    """Called once while a scan reads."""
    note: str = ""
    """Additional text about the scan's result."""
    peer_options: tuple[str, ...] = ()
    report_open_mode: bool = False
    """Whether to report the flags with which kafka-dump-log opens the file."""
    control: bool = False
    """A negative control: nothing is wrong, or nothing that this fault causes; no finding may be above `info`."""
    shown: tuple[str, ...] = ()
    """Evidence fields that are shown with the findings; `a.b` is a nested field; `confidence` is the finding's."""
    also: tuple[tuple[str, str], ...] = ()
    """More files for kafka-dump-log, each with an option that makes it decode their records."""
    run_in_log_dir: bool = False
    """Run kafka-dump-log in the log directory, so that its output names the file's directory too."""
    no_dump_reason: str = NOT_ONE_FILE
    """Why kafka-dump-log is not run."""


def segment(offset: int, suffix: str = "log", broker: int = 2, directory: str = "t-0") -> str:
    """The path of a file of a partition (default: t-0), relative to the folder."""
    return f"b{broker}/{directory}/{segment_file(offset, suffix)}"


@dataclass(frozen=True, slots=True)
class Injected:
    """Makes three equal replicas and damages them; `injection` can damage other replicas of the base log too."""

    injection: Callable[[Brokers], object]

    def __call__(self, root: Path, high_watermark: int = HIGH_WATERMARK) -> Brokers:
        brokers = healthy(root, high_watermark)
        self.injection(brokers)
        return brokers


# Variants: other places, other values, and states that only look like the fault. They are not in docs/faults.md.


def injected_case(fault: str, words: str, *injections: Callable[[Brokers], object], **given: Any) -> Case:
    """A case of three equal replicas damaged by all injections."""
    return Case(fault, words, Injected(lambda brokers: [injection(brokers) for injection in injections]), **given)


def on_brokers(injection: Callable[[Brokers, int], object], *brokers: int) -> Callable[[Brokers], object]:
    """Apply an injection to the replica of each of these brokers (default: all)."""

    def inject(given: Brokers) -> None:
        for broker in brokers or (1, 2, 3):
            injection(given, broker)

    return inject


Row = tuple[Any, ...]


def case_per_row(fault: str, words: str, injection: Callable[..., object], rows: Iterable[Row], **given: Any) -> list[Case]:
    """A case per row: three equal replicas, damaged with the row's values."""
    return cases_of_trees(fault, words, lambda root, *row: _injected(root, injection, row), rows, **given)


def cases_of_trees(
    fault: str, words: str, make: Callable[..., Brokers], rows: Iterable[Row], *, controls: Collection[Row] = (), **given: Any
) -> list[Case]:
    """A case per row: `make` gets the folder and the row's values; `controls` are rows that are negative controls."""
    control = given.pop("control", False)
    return [
        Case(fault, f"{words} {_row_text(row)}", _maker(make, row), control=control or row in controls, **given) for row in rows
    ]


def _maker(make: Callable[..., Brokers], row: tuple[Any, ...]) -> Callable[[Path], Brokers]:
    return lambda root: make(root, *row)


def _injected(root: Path, injection: Callable[..., object], row: tuple[Any, ...]) -> Brokers:
    brokers = healthy(root)
    injection(brokers, *row)
    return brokers


def _row_text(row: tuple[Any, ...]) -> str:
    return ", ".join(f"{value!r:.60}" if isinstance(value, bytes) else str(value) for value in row)
