"""The description in a bundle."""

import shlex
from collections.abc import Iterable

from msgspec import Struct

from kafka_forensics.model.offset_ranges import Range, normalised, range_argument


class BundleDescription(Struct, frozen=True):
    """Where, how and of what a bundle was made."""

    broker: int | str | None
    paths: tuple[str, ...]
    """Absolute paths on the machine where it was made."""
    is_deep: bool
    """Whether every batch was decoded."""
    live: bool
    is_hashed: bool
    """Whether it has the SHA-256 of every file."""
    topics: str | None
    """The pattern of its topics; None: all."""
    partition: int | None
    """The number of its partitions; None: all."""
    transaction_partitions: int
    """A lower bound for the partitions of `__transaction_state`; stated because pseudonyms of ids no longer show it."""
    redaction: str | None
    """The name of the key of its pseudonyms; None: it has real names."""
    compacted: str | None
    """The pattern of topics that were taken as compacted, if it was given."""

    @property
    def is_selected(self) -> bool:
        """Whether it has only selected partitions."""
        return self.topics is not None or self.partition is not None

    def collect_command(self, records: Iterable[str]) -> str:
        """The command that makes the bundle again, with `records`: values of `--with-records`."""
        name, output = ("", "again.kfb") if self.broker is None else (f"{self.broker}=", f"broker-{self.broker}-again.kfb")
        paths = shlex.join(f"{name}{path}" for path in self.paths) or "LOG_DIR"
        flags = {"--live": self.live, "--deep": self.is_deep, "--hash": self.is_hashed}
        options = [flag for flag, is_set in flags.items() if is_set]
        values = {"--topic": self.topics, "--partition": self.partition, "--compacted": self.compacted}
        options += [word for option, value in values.items() if value is not None for word in (option, str(value))]
        options += [word for value in records for word in ("--with-records", value)]
        return f"kafka-forensics collect {paths} {shlex.join([*options, '--output', output])}"


class NeededRecords(Struct, frozen=True):
    """Records of offsets `[start, end)` that a bundle lacks."""

    bundle: str
    about: BundleDescription
    topic: str
    partition: int
    start: int
    end: int


class CollectRequest(Struct, frozen=True):
    """Everything that a bundle lacks; `records` are values of `--with-records`, one a range."""

    bundle: str
    about: BundleDescription
    partitions: int
    records: tuple[str, ...]


def collect_requests(needed: Iterable[NeededRecords]) -> list[CollectRequest]:
    """What to collect, by bundle."""
    by_bundle: dict[tuple[str, BundleDescription], dict[tuple[str, int], list[Range]]] = {}
    for row in needed:
        of_bundle = by_bundle.setdefault((row.bundle, row.about), {})
        of_bundle.setdefault((row.topic, row.partition), []).append((row.start, row.end))
    return [
        CollectRequest(
            *bundle,
            len(partitions),
            tuple(
                f"{topic}:{partition}:{range_argument(*offsets)}"
                for (topic, partition), ranges in sorted(partitions.items())
                for offsets in normalised(ranges)
            ),
        )
        for bundle, partitions in sorted(by_bundle.items(), key=lambda item: item[0][0])
    ]
