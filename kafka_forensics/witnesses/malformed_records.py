"""Malformed records of an internal topic: the first ones get a finding each, the last of these says how many more there are."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from kafka_forensics.model.findings import Finding

MAX_FINDINGS: Final = 10_000
"""Records that get a finding of their own; the log is read on behind them all the same."""


@dataclass(slots=True)
class MalformedRecords:
    """Records go in as they are met; `count` is of all of them."""

    count: int = 0
    _kept: list[Finding] = field(default_factory=list)

    def add(self, found: Callable[[], Finding]) -> None:
        """Count a record; `found` makes its finding, if it is to have one."""
        self.count += 1
        if len(self._kept) < MAX_FINDINGS:
            self._kept.append(found())

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
        return [*self._kept[:-1], replace(last, evidence=last.evidence | {"records_more": more})]
