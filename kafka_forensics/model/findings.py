"""Findings: rows of evidence, from which `wording` makes text."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.errors import UsageError
from kafka_forensics.model.json_objects import JsonValue

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TopicPartition = tuple[str, int]
Broker = int | str
"""A broker's id, or the name of a copy."""


class Severity(StrEnum):
    """How bad a finding is."""

    CRITICAL = "critical"
    """Committed data is lost, or the next ordinary step would lose it."""
    ERROR = "error"
    """Damage, or data that readers get wrong."""
    WARNING = "warning"
    """Suspicious, or damage that Kafka repairs."""
    INFO = "info"
    """Explained and harmless."""

    @property
    def rank(self) -> int:
        """0 for info up to 3 for critical."""
        return _RANK[self]


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2, Severity.CRITICAL: 3}


class Confidence(StrEnum):
    """How sure a finding is."""

    PROVEN = "proven"
    """The cited bytes have no other explanation."""
    INFERRED = "inferred"
    """Follows from the bytes and Kafka's rules, given the premises."""
    SUSPECTED = "suspected"
    """Something harmless could look the same."""


class Place(Struct, frozen=True):
    """Where a finding is; a field is None if it does not apply. Ends are exclusive."""

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


class RerunArguments(Struct, frozen=True):
    """The arguments that make a command read the same copies again, not quoted."""

    paths: tuple[str, ...]
    """As the user typed them, without credentials."""
    access: tuple[str, ...] = ()
    """Options that reach the copies; every command that reads copies has them."""
    reading: tuple[str, ...] = ()
    """Options of commands that analyse logs."""


Evidence = Mapping[str, JsonValue]
"""Names and JSON values in a stable order; `analysis.kinds` declares a class for each kind."""


class Finding(Struct, frozen=True):
    """A finding: kind, severity, confidence, place, and the evidence that proves it.

    `evidence` has JSON values with stable keys, among them `held_by` (brokers with a good copy) and `premises` where they apply.
    """

    kind: str
    severity: Severity
    confidence: Confidence
    place: Place
    evidence: Evidence = field(default_factory=dict)
    is_only_copy: bool = False
    """Whether only one copy of the partition was given: it could not be compared."""
    rerun_arguments: RerunArguments | None = None
    """How to read it again; None: it was not read from copies. It makes no difference between findings."""

    def __eq__(self, other: object) -> bool:
        """Whether both report the same, wherever they were read."""
        return self._reported() == other._reported() if isinstance(other, Finding) else NotImplemented

    def _reported(self) -> tuple[object, ...]:
        return self.kind, self.severity, self.confidence, self.place, self.evidence, self.is_only_copy

    def with_evidence(self, **more: object) -> "Finding":
        """The finding with more evidence; equal keys are replaced."""
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


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by severity, then in the order of a result."""
    return sorted(findings, key=lambda finding: (-finding.severity.rank, finding.sort_key()))


# What every result can do: return its facts as tables, display itself, write itself as JSON.


class Views(Protocol):
    """Shows a result in other forms, and reads its facts again."""

    def table(self, fact: str, *, payloads: bool = False, allow_incomplete: bool = False) -> "pa.Table":
        """A fact as one table, as `Answer.facts`. Raises UsageError for an unknown fact, and IncompleteError."""

    def json(self) -> str:
        """The document that the command line prints with `--format json`."""

    def html(self) -> str:
        """A short page, always less than 100 kB."""


class Answer:
    """A result; without `views` it has only its rows."""

    __slots__ = ()
    views: Views | None
    _table_fact: ClassVar[str]
    """The fact that is the result as a table."""
    _made_by: ClassVar[str]
    """The function whose results have views."""

    def facts(self, name: str, *, payloads: bool = False, allow_incomplete: bool = False) -> "pa.Table":
        """A fact (docs/facts.md) about everything that was scanned, read again; `export` is for facts larger than memory.

        With several snapshots each row starts with its `snapshot`, and the fact `changes` names two. Without `payloads`, keys,
        values, headers and the metadata of clients and plugins are null. Raises UsageError for an unknown fact, and IncompleteError
        if a file that the scan read cannot be read again or has changed; with `allow_incomplete` it is added to `incomplete`.
        """
        return self._views().table(name, payloads=payloads, allow_incomplete=allow_incomplete)

    def to_arrow(self) -> "pa.Table":
        """The findings of a scan, worst first, or the changes between snapshots, as an Arrow table."""
        return self.facts(self._table_fact)

    def to_pandas(self, fact: str | None = None, *, payloads: bool = False, allow_incomplete: bool = False) -> "pd.DataFrame":
        """`facts`, or `to_arrow` without a `fact`, as a pandas DataFrame with nullable integers and booleans.

        Raises UsageError without pandas.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError("pandas is not installed", hint="pip install pandas, or use to_arrow()") from error
        import pyarrow as pa

        table = self.facts(fact or self._table_fact, payloads=payloads, allow_incomplete=allow_incomplete)
        nullable = {
            pa.int16(): pd.Int16Dtype(),
            pa.int32(): pd.Int32Dtype(),
            pa.int64(): pd.Int64Dtype(),
            pa.bool_(): pd.BooleanDtype(),
        }
        return pd.DataFrame(table.to_pandas(types_mapper=nullable.get))

    def to_json(self) -> str:
        """The document that the command line prints with `--format json`; its JSON Schema is in the package's folder `schema`."""
        return self._views().json()

    def _repr_html_(self) -> str | None:
        """What Jupyter shows: the verdict, totals and the worst findings."""
        return None if self.views is None else self.views.html()

    def _views(self) -> Views:
        if self.views is None:
            raise self._without_views()
        return self.views

    def _without_views(self) -> UsageError:
        return UsageError("this result has no source of facts", hint=f"use the result of {self._made_by}")


_PAYLOAD_NAMES: Final = frozenset({"key", "keys", "value", "values", "header", "headers", "payload"})
_HIDDEN: Final = "(hidden; --show-payloads shows it)"


def without_payloads(finding: Finding) -> Finding:
    """`finding` with data of records hidden in its evidence, at any depth."""
    return replace(finding, evidence={name: _hidden(name, value) for name, value in finding.evidence.items()})


def _hidden(name: str, value: object) -> object:
    if name in _PAYLOAD_NAMES and value is not None and not isinstance(value, int):  # a checkpoint's value is a number
        return _HIDDEN
    if isinstance(value, dict):
        return {inner: _hidden(inner, item) for inner, item in value.items()}
    if isinstance(value, list):
        return [_hidden("", item) for item in value]
    return value
