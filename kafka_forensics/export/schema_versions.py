"""Answers in the shape of an earlier schema: what that has no words for is left out, and it is known that something was."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kafka_forensics.export.json_values import Json
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import SCHEMA_VERSION, verdict_of

FIRST: Final = "1.0"
VERSIONS: Final = (FIRST, SCHEMA_VERSION)
_UNKNOWN: Final = "unknown"
_NEW: Final = frozenset({"read", "read_end_offset", "not_read", "is_absent"})
_NEW_OF_GAPS: Final = frozenset({"topic", "partition", "broker"})
_NOT_READ: Final = "what could not be read"
_WITNESSES: Final = {
    "copy_not_read": _NOT_READ,
    "not_copied": "what was not copied",
    "replica_absent": "replicas that are not where they should be",
    "controller_log_older": "a controller's log that is older than the copies",
    "voters_behind": "voters that lag behind the other copies of the controller's log",
    "topic_unknown": "a topic that the controller's log does not know",
}
"""Witnesses that plans of 1.0 do not know, and what they are of."""
_REASONS: Final = {
    "force": "that the election need not be forced",
    "log_start": "that the lowest log start decides who should lead",
}
_NUMBERS: Final = (
    *("log_start_offset", "log_end_offset", "leader_epochs", "segments", "batches", "records", "bytes", "missing_offsets"),
    *("is_live", "starts"),
)
"""Of a replica, what is never null in schema 1.0."""


class Shape:
    """The version of the schemas that one answer is written in."""

    def __init__(self, version: str = SCHEMA_VERSION) -> None:
        assert version in VERSIONS
        self.version = version
        self.left_out: list[str] = []
        """What was, as the version has no words for it: noun phrases, each once."""

    @property
    def _is_first(self) -> bool:
        return self.version == FIRST

    def _leave_out(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)

    def verdict(self, verdict: str, findings: Iterable[Finding]) -> str:
        """A verdict of all; where the version does not know it, that of the findings."""
        if not self._is_first or verdict != _UNKNOWN:
            return verdict
        self._leave_out(_NOT_READ)
        return verdict_of(findings)

    def partitions(self, partitions: Iterable[Json]) -> Iterator[Json]:
        """Partitions, with their `replicas` or without; in 1.0 not those whose verdict is `unknown`."""
        for partition in partitions:
            if not self._is_first:
                yield partition
                continue
            if partition["read"] != "whole":
                self._leave_out(_NOT_READ)
            if partition["verdict"] == _UNKNOWN:
                continue
            told = {name: value for name, value in partition.items() if name not in _NEW}
            if "replicas" in told:
                told["replicas"] = list(self.replicas(told["replicas"]))
            yield told

    def replicas(self, replicas: Iterable[Json]) -> Iterator[Json]:
        """Replicas of a scan or a plan; in 1.0 not those with a log that was not read to its end."""
        for replica in replicas:
            if not self._is_first:
                yield replica
            elif any(replica[name] is None for name in _NUMBERS if name in replica):
                self._leave_out(_WITNESSES["replica_absent"] if replica.get("is_absent") else _NOT_READ)
            else:
                yield {name: value for name, value in replica.items() if name not in _NEW}

    def gaps(self, gaps: Iterable[Json]) -> Iterator[Json]:
        """What could not be read; 1.0 has the path and the reason of it."""
        for gap in gaps:
            yield {name: value for name, value in gap.items() if name not in _NEW_OF_GAPS} if self._is_first else gap

    def held(self, held: Iterable[Json]) -> Iterator[Json]:
        """What replicas hold at an offset; in 1.0 nothing of those whose log could not be read there."""
        for one in held:
            if self._is_first and one["state"] == "not_read":
                self._leave_out(_NOT_READ)
            else:
                yield one

    def missing(self, missing: Iterable[Json]) -> Iterator[Json]:
        """Witnesses that a plan lacks; in 1.0 not those of kinds that it does not know."""
        for one in missing:
            if self._is_first and one["kind"] in _WITNESSES:
                self._leave_out(_WITNESSES[one["kind"]])
            else:
                yield one

    def reasons(self, reasons: Iterable[str]) -> Iterator[str]:
        """By what a candidate is chosen; in 1.0 not what that does not know."""
        for reason in reasons:
            if self._is_first and reason in _REASONS:
                self._leave_out(_REASONS[reason])
            else:
                yield reason

    def ordinary(self, leaders: Iterable[int | str], loss: int | None) -> Json:
        """Whom an ordinary start may elect and what that loses; nothing of it in 1.0."""
        if self._is_first and loss:
            self._leave_out("whom an ordinary start may elect and what that loses")
        return {} if self._is_first else {"ordinary_leaders": list(leaders), "ordinary_loss": loss}

    def unsaid(self, kinds: Iterable[tuple[str, int]]) -> list[Json]:
        """Why controllers say nothing of partitions, and of how many; to 1.0 voters that lag behind are silent."""
        counts: Counter[str] = Counter()
        for kind, partitions in kinds:
            counts["controller_log_silent" if self._is_first and kind == "voters_behind" else kind] += partitions
        return [{"kind": kind, "partitions": count} for kind, count in sorted(counts.items())]

    def start_order(self, order: Json | None) -> Json:
        """In which order to start brokers for all partitions; nothing of it in 1.0."""
        if self._is_first and order is not None:
            self._leave_out("the order in which to start brokers")
        return {} if self._is_first else {"start_order": order}

    def not_read(self, copies: list[Json]) -> Json:
        """Of how many partitions a plan has copies that could not be read, by broker; nothing of it in 1.0."""
        if self._is_first and copies:
            self._leave_out(_NOT_READ)
        return {} if self._is_first else {"copies_not_read": copies}

    def changes(self, changes: Iterable[Json]) -> Iterator[Json]:
        """Changes between snapshots; in 1.0 not those of offsets that are not known."""
        for change in changes:
            if self._is_first and change["offset_start"] is None:
                self._leave_out(_NOT_READ)
            else:
                yield change
