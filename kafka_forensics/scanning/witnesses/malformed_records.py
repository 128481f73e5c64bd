"""Records of internal topics that are malformed, or of unknown kinds, as a bounded number of findings."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.model.findings import Finding, Place

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json

MAX_FINDINGS: Final = 10_000
"""Malformed records that get a finding each; further ones are counted."""


class MalformedRecords(Struct):
    """The malformed records of a log, added in its order."""

    count: int = 0
    _kept: list[Finding] = field(default_factory=list)

    def add(self, make_finding: Callable[[], Finding]) -> None:
        """Count a record, and keep its finding unless there are enough."""
        self.count += 1
        if len(self._kept) < MAX_FINDINGS:
            self._kept.append(make_finding())

    def take(self, others: "MalformedRecords") -> None:
        """Add those of another log."""
        self.count += others.count
        self._kept += others._kept[: max(0, MAX_FINDINGS - len(self._kept))]

    def findings(self) -> list[Finding]:
        """The findings in order; the last says in `records_more` how many records have none."""
        more = self.count - len(self._kept)
        return [*self._kept[:-1], self._kept[-1].with_evidence(records_more=more)] if more else self._kept


MAX_UNKNOWN_KINDS: Final = 256
"""Unknown kinds of records that get a finding each; records of further kinds are counted with the last."""
MAX_VERSIONS: Final = 16


class _UnknownKind(Struct):
    place: Place
    brokers: list[int | str]
    records: int = 0
    size_in_bytes: int = 0
    versions: set[int] = field(default_factory=set)
    other_kinds: int = 0
    """Records of kinds that have no finding."""


class UnknownKinds:
    """Records of `__cluster_metadata` of unknown kinds, added by offset; each kind gets a finding at its first record."""

    def __init__(self) -> None:
        self._kinds: dict[int, _UnknownKind] = {}

    def add(self, record: MetadataRecord, place: Place, brokers: list[int | str]) -> None:
        """Add a record; `brokers` hold copies of it, the first of them at `place`."""
        kind = self._kinds.get(record.api_key)
        if kind is None and len(self._kinds) == MAX_UNKNOWN_KINDS:
            next(reversed(self._kinds.values())).other_kinds += 1
            return
        if kind is None:
            kind = self._kinds[record.api_key] = _UnknownKind(place, brokers)
        kind.records += 1
        kind.size_in_bytes += record.size_in_bytes
        if len(kind.versions) < MAX_VERSIONS:
            kind.versions.add(record.version)
        kind.place = replace(kind.place, offset_end=max(kind.place.offset_end or 0, place.offset_end or 0))

    def findings(self) -> list[Finding]:
        """`METADATA_RECORD_UNKNOWN` for each kind, in the order of their first records."""
        findings = []
        for api_key, kind in self._kinds.items():
            evidence: Json = {
                "api_key": api_key,
                "record_versions": sorted(kind.versions),
                "records": kind.records,
                "record_bytes": kind.size_in_bytes,
                "brokers": kind.brokers,
            }
            evidence |= {"records_of_other_kinds": kind.other_kinds} if kind.other_kinds else {}
            findings.append(finding("METADATA_RECORD_UNKNOWN", kind.place, evidence))
        return findings
