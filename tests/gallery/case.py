"""A case of the fault gallery: what was done to which files, as a tree to be made anew."""

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
    """One row: its fault (`F05`, `P4`, `-`), the injection in words, and how to make the tree below an empty folder."""

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
    report_open_mode: bool = False
    """Whether to report how kafka-dump-log opens the file."""
    control: bool = False
    """A negative control: nothing is wrong, or nothing that this fault does; no finding may be above `info`."""
    shown: tuple[str, ...] = ()
    """Names in the findings' evidence that are told with them; `a.b` is a name inside of another; `confidence` is the finding's."""
    also: tuple[tuple[str, str], ...] = ()
    """More files that kafka-dump-log is given, each with an option that makes it decode their records."""
    run_in_log_dir: bool = False
    """kafka-dump-log is run in the log directory, so that its output names the file's directory too."""
    no_dump_reason: str = NOT_ONE_FILE
    """Why kafka-dump-log is given nothing, where it is."""


def segment(offset: int, suffix: str = "log", broker: int = 2, directory: str = "t-0") -> str:
    """The path of a file of a partition, t-0 unless another is asked for, relative to the folder."""
    return f"b{broker}/{directory}/{segment_file(offset, suffix)}"


@dataclass(frozen=True, slots=True)
class Injected:
    """A maker: three equal replicas, to which something is done. What is done can be done to other replicas of the base too."""

    injection: Callable[[Brokers], object]

    def __call__(self, root: Path, high_watermark: int = HIGH_WATERMARK) -> Brokers:
        brokers = healthy(root, high_watermark)
        self.injection(brokers)
        return brokers


def patient(injection: Callable[[Brokers], object]) -> Injected:
    return Injected(injection)


# Variants: other places, other values, and what only looks like the fault. They stand in no table of docs/faults.md.


def done(fault: str, words: str, *injections: Callable[[Brokers], object], **given: Any) -> Case:
    """Three equal replicas, to which something is done."""
    return Case(fault, words, patient(lambda brokers: [injection(brokers) for injection in injections]), **given)


def on_each(injection: Callable[[Brokers, int], object], *brokers: int) -> Callable[[Brokers], object]:
    """What is done to each of these brokers' replicas, to all unless they are named."""

    def inject(given: Brokers) -> None:
        for broker in brokers or (1, 2, 3):
            injection(given, broker)

    return inject


Row = tuple[Any, ...]


def each(fault: str, words: str, injection: Callable[..., object], rows: Iterable[Row], **given: Any) -> list[Case]:
    """A case a row: three equal replicas, to which the injection is done with the row's values."""
    return trees(fault, words, lambda root, *row: _injected(root, injection, row), rows, **given)


def trees(
    fault: str, words: str, make: Callable[..., Brokers], rows: Iterable[Row], *, controls: Collection[Row] = (), **given: Any
) -> list[Case]:
    """A case a row: the maker is given the row's values behind the folder; some rows, or all, are negative controls."""
    control = given.pop("control", False)
    return [Case(fault, f"{words} {_worded(row)}", _maker(make, row), control=control or row in controls, **given) for row in rows]


def _maker(make: Callable[..., Brokers], row: tuple[Any, ...]) -> Callable[[Path], Brokers]:
    return lambda root: make(root, *row)


def _injected(root: Path, injection: Callable[..., object], row: tuple[Any, ...]) -> Brokers:
    brokers = healthy(root)
    injection(brokers, *row)
    return brokers


def _worded(row: tuple[Any, ...]) -> str:
    return ", ".join(f"{value!r:.60}" if isinstance(value, bytes) else str(value) for value in row)
