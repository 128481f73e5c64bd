"""Where brokers keep the log directories that copies are of: what bundles say, and what the user does."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import Inputs, broker_order
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.storage.bundles import BundleSource

HOW: Final = "write --at BROKER=HOST:/LOG/DIR, one for each log directory"


@dataclass(slots=True)
class BrokerPlace:
    """A broker's host, and its log directories there: of each that was given its name among the inputs, and its path on the host;
    None is not known."""

    broker: int | str
    host: str | None = None
    log_dirs: list[tuple[str, str | None]] = field(default_factory=list)
    node: int | None = None
    """Its node id, where a copy says it."""
    bundles: list[str | None] = field(default_factory=list)
    """Of each of its log directories the bundle that it was read from; None: from none."""


def parse_place(text: str) -> tuple[str, str | None, str]:
    """`2=kafka-2:/var/lib/kafka` as broker, host (None: it was left out) and path. Raises UsageError."""
    broker, _, where = text.partition("=")
    host, _, path = ("", "", where) if where.startswith("/") else where.partition(":")
    if not broker or not path.startswith("/"):
        raise UsageError(f"{text!r} says of no broker where its log directory is", hint=HOW)
    return broker, host or None, path


def places_of(inputs: Inputs, told: Iterable[tuple[str, str | None, str]] = (), *, controllers: bool = False) -> list[BrokerPlace]:
    """Every broker that has replicas among the inputs, with `controllers` every node that has the controllers' log, too.

    Raises UsageError where a broker is told of that is not among them, or more of its directories than there are.
    """
    places: dict[str, BrokerPlace] = {}
    for log_dir in inputs.log_dirs:
        of_controllers = [directory.topic == CLUSTER_METADATA_TOPIC for directory in log_dir.found.partitions]
        if all(of_controllers) and not (controllers and of_controllers):
            continue
        place = places.setdefault(str(log_dir.broker), BrokerPlace(log_dir.broker))
        if log_dir.meta is not None and log_dir.meta.node_id is not None:
            place.node = log_dir.meta.node_id
        path = None
        bundle = log_dir.source if isinstance(log_dir.source, BundleSource) else None
        place.bundles.append(None if bundle is None else bundle.name)
        if bundle is not None and bundle.about.redaction is None:
            place.host = bundle.about.host
            paths = [known for known in bundle.about.paths if known.startswith("/")]
            path = "/".join(filter(None, (paths[0].rstrip("/"), log_dir.found.path))) if len(paths) == 1 else None
        place.log_dirs.append((log_dir.name, path))
    _take_told(places, told)
    return sorted(places.values(), key=lambda place: broker_order(place.broker))


def _take_told(places: dict[str, BrokerPlace], told: Iterable[tuple[str, str | None, str]]) -> None:
    numbers: dict[str, int] = {}
    for broker, host, path in told:
        if broker not in places:
            raise UsageError(f"no copy here is of broker {broker}", hint=f"brokers known here: {', '.join(sorted(places))}")
        place, number = places[broker], numbers.get(broker, 0)
        if number == len(place.log_dirs):
            raise UsageError(f"of broker {broker} more log directories are told than copies are here", hint=HOW)
        place.host = host or place.host
        place.log_dirs[number] = place.log_dirs[number][0], path
        numbers[broker] = number + 1
