"""Copies of brokers that will not come back, as a runbook has them put beside those of the others.

What only such a broker held is in no log directory that can be copied any more. Of a log directory the copy is packed again; a
bundle stands for itself, and has no records: only where those are to be put back must the log directory be found.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_forensics.cli.outputs.runbook_commands import log_dir_variables, name_of, tars
from kafka_forensics.questions.places import BrokerPlace
from kafka_forensics.replication.offset_ranges import Ranges, without
from kafka_forensics.replication.planner import Broker, Loss, PlanReplica

WITH_RECORDS: Final = "with-records"
"""Where log directories stand whose bundles stand beside the other copies: none is to be read twice."""


@dataclass(frozen=True, slots=True)
class GoneCopy:
    """One copy: the variable that says where it is, its own copy as a shell takes it, and its name among the inputs."""

    brokers: tuple[Broker, ...]
    """A bundle may hold several brokers' log directories."""
    variable: str
    copy: str
    source: str
    is_bundle: bool = False

    @property
    def named(self) -> str:
        """The copy as a command takes it, with the name of its broker where that is no number."""
        return named(self.brokers[0], self.copy) if len(self.brokers) == 1 else self.copy

    @property
    def command(self) -> str:
        """What makes it."""
        origin = f'"${{{self.variable}:?}}"'
        return f"cp {origin} {self.copy}" if self.is_bundle else f"tar -C {origin} -cf {self.copy} ."


def named(broker: Broker, copy: str) -> str:
    """A copy as a command takes it."""
    return copy if isinstance(broker, int) else f"{shlex.quote(broker)}={copy}"


class GoneCopies:
    """All of them; the `others` come back, and of whatever is theirs the logs are copied anew."""

    def __init__(self, gone: Sequence[BrokerPlace], others: Sequence[BrokerPlace]) -> None:
        self.brokers = [place.broker for place in gone]
        self._gone = gone
        of_others = {bundle for place in others for bundle in place.bundles}
        self.bundles = _bundles(gone, of_others)
        self.directories = self._directories(lambda bundle: bundle is None or bundle in of_others)

    @property
    def all(self) -> list[GoneCopy]:
        """What is put beside the other copies."""
        return [*self.directories, *self.bundles]

    def instead_of(self, bundles: Iterable[GoneCopy]) -> list[GoneCopy]:
        """The log directories that some bundles are of; their copies stand apart."""
        sources = {bundle.source for bundle in bundles}
        return self._directories(lambda bundle: bundle in sources, WITH_RECORDS + "/")

    def lacking(self, losses: Sequence[Loss], replicas: Sequence[PlanReplica]) -> list[GoneCopy]:
        """The bundles that alone have something of some losses: its records are in no other copy."""
        held = {replica.broker: _held(replica) for replica in replicas}
        bundled = {broker for bundle in self.bundles for broker in bundle.brokers}
        alone = set[Broker]()
        for loss in losses:
            left: Ranges = ((loss.start, loss.end),)
            for broker in loss.held_by:
                left = without(left, () if broker in bundled else held[broker])
            alone |= {broker for broker in loss.held_by if broker in bundled and without(left, held[broker]) != left}
        return [bundle for bundle in self.bundles if alone.intersection(bundle.brokers)]

    def _directories(self, is_wanted: Callable[[str | None], bool], folder: str = "") -> list[GoneCopy]:
        """Log directories by the bundles that they were read from, to be packed into a folder."""
        return [
            GoneCopy((place.broker,), variable, copy.replace("}/", f"}}/{folder}", 1), source)
            for place in self._gone
            for variable, (_, copy), (source, _), bundle in zip(
                log_dir_variables(place, "COPY"), tars(place), place.log_dirs, place.bundles, strict=True
            )
            if is_wanted(bundle)
        ]


def _bundles(gone: Sequence[BrokerPlace], of_others: set[str | None]) -> list[GoneCopy]:
    """Bundles in which only brokers are that will not come back; of several of one broker each has a number."""
    brokers: dict[str, list[Broker]] = {}
    for place in gone:
        for bundle in dict.fromkeys(place.bundles):
            if bundle is not None and bundle not in of_others:
                brokers.setdefault(bundle, []).append(place.broker)
    numbers: Counter[Broker] = Counter()
    bundles = []
    for source, own in brokers.items():
        numbers[own[0]] += 1
        name, number = name_of(own[0]), numbers[own[0]]
        more = "" if number == 1 else str(number)
        variable, copy = "_".join(filter(None, ("BUNDLE", name, more))), "-".join(filter(None, ("broker", name, more)))
        bundles.append(GoneCopy(tuple(own), variable, f'"${{SAFE:?}}/{copy}.kfb"', source, is_bundle=True))
    return bundles


def _held(replica: PlanReplica) -> Ranges:
    """Offsets of its good batches."""
    return ((replica.log_start_offset, replica.log_end_offset),) if replica.held is None else replica.held
