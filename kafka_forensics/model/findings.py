"""Findings: rows of evidence. Words are made from them at the very end (`wording`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from kafka_forensics.errors import UsageError
from kafka_forensics.model.json_objects import JsonValue

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TopicPartition = tuple[str, int]
Broker = int | str
"""A broker's id, or the name that a copy was given."""


class Severity(StrEnum):
    """How bad, in the contract's four steps."""

    CRITICAL = "critical"
    """Committed data is lost, or the next ordinary step would lose it."""
    ERROR = "error"
    """Damage, or data that readers would get wrong."""
    WARNING = "warning"
    """Suspicious, or damage that Kafka rebuilds by itself."""
    INFO = "info"
    """Explained and harmless."""

    @property
    def rank(self) -> int:
        """0 for info up to 3 for critical."""
        return _RANK[self]


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2, Severity.CRITICAL: 3}


class Confidence(StrEnum):
    """How sure."""

    PROVEN = "proven"
    """The bytes cited leave no other reading."""
    INFERRED = "inferred"
    """Follows from the bytes and Kafka's rules, given the premises."""
    SUSPECTED = "suspected"
    """Fits, but something harmless would look the same."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where: any field is None where it does not apply. Ends are exclusive."""

    topic: str | None = None
    partition: int | None = None
    broker: int | str | None = None
    log_dir: str | None = None
    file: str | None = None
    """Relative to `log_dir`, with `/`."""
    byte_start: int | None = None
    byte_end: int | None = None
    offset_start: int | None = None
    offset_end: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command must be given to look at the same copies again, as words of a command line, not quoted."""

    paths: tuple[str, ...]
    """As the user typed them, without credentials."""
    access: tuple[str, ...] = ()
    """Options by which they are reached: every command that reads copies has them."""
    reading: tuple[str, ...] = ()
    """Options by which they are judged: those commands have them that judge logs."""


Evidence = Mapping[str, JsonValue]
"""Names and JSON values, in a stable order; `analysis.kinds` declares a class for each kind."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: kind, how bad, how sure, where, and the numbers that prove it.

    `evidence` holds only JSON values with stable keys; `held_by` (brokers with a good copy) and `premises` among them where they
    apply.
    """

    kind: str
    severity: Severity
    confidence: Confidence
    place: Place
    evidence: Evidence = field(default_factory=dict)
    alone: bool = False
    """Whether one copy of the partition was given, so that there is nothing to compare it with."""
    asked: Asked | None = field(default=None, repr=False, compare=False)
    """How to look at it again; None where it was not read from copies."""

    def with_evidence(self, **more: object) -> "Finding":
        """The finding with more evidence, behind its own or in its place."""
        return replace(self, evidence={**self.evidence, **more})

    def sort_key(self) -> tuple[object, ...]:
        """Order in a result: topic, partition, worst first, kind, broker, file, bytes, offsets."""
        place = self.place
        return (
            place.topic or "",
            -1 if place.partition is None else place.partition,
            -self.severity.rank,
            self.kind,
            str(place.broker or ""),
            place.log_dir or "",
            place.file or "",
            -1 if place.byte_start is None else place.byte_start,
            -1 if place.offset_start is None else place.offset_start,
        )


# What every whole answer can do with the facts behind it: give them as tables, show itself, write itself as JSON.


class Views(Protocol):
    """What shows an answer in other forms, and reads the facts behind it again."""

    def table(self, fact: str) -> "pa.Table":
        """A fact as one table. Raises UsageError if there is no such fact."""

    def json(self) -> str:
        """The document that the command line prints with `--format json`."""

    def html(self) -> str:
        """A short page, less than 100 kB whatever was found."""


class Answer:
    """An answer that has `views`, or only its rows without them."""

    __slots__ = ()
    views: Views | None
    _table_fact: ClassVar[str]
    """The fact that is the answer as a table."""
    _made_by: ClassVar[str]
    """The function whose answers have views."""

    def facts(self, name: str) -> "pa.Table":
        """A fact (docs/facts.md) about everything that was scanned, read anew, whole; `export` is for what memory cannot hold.

        Of several snapshots each row begins with the `snapshot` it is of; `changes`, a fact of theirs alone, names two. Raises
        UsageError if there is no such fact. What cannot be read is added to `incomplete`.
        """
        return self._views().table(name)

    def to_arrow(self) -> "pa.Table":
        """The findings of a scan, or the changes between snapshots, as an Arrow table."""
        return self.facts(self._table_fact)

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas DataFrame. Raises UsageError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError("pandas is not installed", hint="pip install pandas, or use to_arrow()") from error
        return pd.DataFrame(self.to_arrow().to_pandas())

    def to_json(self) -> str:
        """The document that the command line prints with `--format json`; JSON Schemas are in the package's folder `schema`."""
        return self._views().json()

    def _repr_html_(self) -> str | None:
        """What Jupyter shows: the verdict, sums, and the worst of it."""
        return None if self.views is None else self.views.html()

    def _views(self) -> Views:
        if self.views is None:
            raise UsageError("this answer does not know where its facts are", hint=f"take the one that {self._made_by} gives")
        return self.views


_PAYLOAD_NAMES: Final = frozenset({"key", "keys", "value", "values", "header", "headers", "payload"})
_HIDDEN: Final = "(hidden; --show-payloads shows it)"


def without_payloads(finding: Finding) -> Finding:
    """`finding` with what came out of records hidden in its evidence, at any depth."""
    return replace(finding, evidence={name: _hidden(name, value) for name, value in finding.evidence.items()})


def _hidden(name: str, value: object) -> object:
    if name in _PAYLOAD_NAMES and value is not None and not isinstance(value, int):  # a checkpoint's value is a number
        return _HIDDEN
    if isinstance(value, dict):
        return {inner: _hidden(inner, item) for inner, item in value.items()}
    if isinstance(value, list):
        return [_hidden("", item) for item in value]
    return value
