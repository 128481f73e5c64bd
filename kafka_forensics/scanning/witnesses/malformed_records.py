"""Malformed records of an internal topic: the first ones get a finding each, the last of these says how many more there are."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.model.findings import Finding, Place

MAX_FINDINGS: Final = 10_000
"""Records that get a finding of their own; the log is read on behind them all the same."""


@dataclass(slots=True)
class MalformedRecords:
    """Records go in as they are met; `count` is of all of them."""

    count: int = 0
    _kept: list[Finding] = field(default_factory=list)

    def add(self, make: Callable[[], Finding]) -> None:
        """Count a record; `make` makes its finding, if it is to have one."""
        self.count += 1
        if len(self._kept) < MAX_FINDINGS:
            self._kept.append(make())

    def take(self, others: "MalformedRecords") -> None:
        """Add those of another log."""
        self.count += others.count
        self._kept += others._kept[: max(0, MAX_FINDINGS - len(self._kept))]

    def findings(self) -> list[Finding]:
        """In the order in which they came; evidence `records_more` of the last says how many have none."""
        more = self.count - len(self._kept)
        if not more:
            return self._kept
        last = self._kept[-1]
        return [*self._kept[:-1], last.with_evidence(records_more=more)]


# Records of `__cluster_metadata` of kinds that are not known here: counted and measured, one finding a kind.


KINDS_TOLD: Final = 256
"""Kinds that get a finding of their own; records of further ones are counted with the last."""
VERSIONS_TOLD: Final = 16


@dataclass(slots=True)
class _Kind:
    place: Place
    brokers: list[int | str]
    records: int = 0
    size_in_bytes: int = 0
    versions: set[int] = field(default_factory=set)
    others: int = 0
    """Records of kinds beyond the last that is told."""


class UnknownKinds:
    """Records go in by offset; `findings` gives one for each kind, at the bytes of its first record."""

    def __init__(self) -> None:
        self._kinds: dict[int, _Kind] = {}

    def add(self, record: MetadataRecord, place: Place, brokers: list[int | str]) -> None:
        """Count a record that lies at `place` in the first of the copies that `brokers` hold."""
        kind = self._kinds.get(record.api_key)
        if kind is None and len(self._kinds) == KINDS_TOLD:
            next(reversed(self._kinds.values())).others += 1
            return
        if kind is None:
            kind = self._kinds[record.api_key] = _Kind(place, brokers)
        kind.records += 1
        kind.size_in_bytes += record.size_in_bytes
        if len(kind.versions) < VERSIONS_TOLD:
            kind.versions.add(record.version)
        end = max(kind.place.offset_end or 0, place.offset_end or 0)
        kind.place = replace(kind.place, offset_end=end)

    def findings(self) -> list[Finding]:
        """`METADATA_RECORD_UNKNOWN` for each kind, in the order of their first records."""
        return [
            finding(
                "METADATA_RECORD_UNKNOWN",
                kind.place,
                {
                    "api_key": api_key,
                    "record_versions": sorted(kind.versions),
                    "records": kind.records,
                    "record_bytes": kind.size_in_bytes,
                    "brokers": kind.brokers,
                }
                | ({"records_of_other_kinds": kind.others} if kind.others else {}),
            )
            for api_key, kind in self._kinds.items()
        ]
