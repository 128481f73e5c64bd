"""What the user asked a scan to look at, and how; the same for every engine."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, TypedDict, Unpack

from kafka_forensics.errors import UsageError, nearest
from kafka_forensics.evidence.ledger import Extent
from kafka_forensics.model.amounts import first_few
from kafka_forensics.model.findings import Place, TopicPartition
from kafka_forensics.storage.code_cache import keep_in


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Options of a scan; None always means "not asked for"."""

    topic_glob: str | None = None
    """Shell pattern that topic names must match (`orders*`)."""
    partition: int | None = None
    broker: str | None = None
    """A broker's id, or the name it was given with `NAME=PATH`."""
    jobs: int = 1
    """Processes at work at once, at least 1; the findings do not depend on it."""
    copied: Extent | None = None
    """How every log directory was copied: `Extent.WHOLE` or `Extent.PARTIAL`; None: as each looks."""
    live: bool = False
    """The copy was taken from running brokers, so its files may be of different moments."""
    deep: bool | None = None
    """Decode every record (True), only batches (False), or what the size of the input makes sensible (None)."""
    as_of_ms: int | None = None
    """Milliseconds since 1970 to which ages are counted; None: the newest in the evidence, by brokers' clocks if any."""
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """How storage services are reached (`storage.options`), as (name, value); may hold secrets."""
    cache_dir: str | None = None
    """Below which directory compiled kernels are kept, None: where it is usual (`code_cache`)."""


def without_secrets(paths: Sequence[str], options: ScanOptions) -> tuple[list[str], ScanOptions]:
    """The paths without what their URIs say of how to reach them, and the options with it (`storage.reached`).

    Raises UsageError for a URI that names nothing.
    """
    from kafka_forensics.storage.remote import apart  # not while only the options are asked for: `--help`

    bare, reached = apart(paths, options.storage_options)
    return bare, replace(options, storage_options=reached)


def shown_storage_options(storage_options: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Those that may be told to anyone, none that is, or holds, a secret; with what URIs said (`without_secrets`), unless they
    contradict each other."""
    if not storage_options:
        return []
    from kafka_forensics.storage.remote import SHOWN, of_places  # not where files are local

    every = dict.fromkeys((*storage_options, *of_places(storage_options)))
    secrets = ["@", *(value for name, value in every if name not in SHOWN and value)]
    shown = [(name, value) for name, value in every if name in SHOWN and not any(secret in value for secret in secrets)]
    names = [name for name, _ in shown]
    return [(name, value) for name, value in shown if names.count(name) == 1]


class SharedOptions(TypedDict, total=False):
    """Options that every public function of the package that scans takes by these names."""

    topic: str | None
    """A pattern."""
    partition: int | None
    broker: str | int | None
    """An id or a name."""
    live: bool
    whole: bool | None
    """Whether log directories were copied whole; None: as each looks."""
    storage_options: Mapping[str, str] | None
    cache_dir: str | None


def scan_options(*, jobs: int, deep: bool | None, as_of_ms: int | None, **options: Unpack[SharedOptions]) -> ScanOptions:
    """The options as callers of the package give them.

    Compiled kernels are kept below `cache_dir` from now on. Raises UsageError unless that is an absolute path, and TypeError for an
    option that is none.
    """
    if unknown := options.keys() - SharedOptions.__annotations__.keys():
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    cache_dir, broker, whole = options.get("cache_dir"), options.get("broker"), options.get("whole")
    keep_code_below(cache_dir)
    return ScanOptions(
        options.get("topic"),
        options.get("partition"),
        None if broker is None else str(broker),
        jobs,
        None if whole is None else Extent.WHOLE if whole else Extent.PARTIAL,
        options.get("live", False),
        deep,
        as_of_ms,
        tuple((options.get("storage_options") or {}).items()),
        cache_dir,
    )


def keep_code_below(cache_dir: str | None) -> None:
    """Keep compiled kernels there from now on, with None where it is usual. Raises UsageError unless it is an absolute path."""
    if cache_dir is not None and (not os.path.isabs(cache_dir) or "\0" in cache_dir):
        raise UsageError(f"the cache directory {cache_dir!r} is no absolute path", hint="give it from the root, like /var/cache")
    keep_in(cache_dir)


# What to say when nothing is what was asked for: the option, and the nearest name that is there.


_NAMES_LISTED: Final = 12


def require_match(there: Iterable[tuple[int | str, TopicPartition]], brokers: Iterable[int | str], options: ScanOptions) -> None:
    """Raise UsageError if no partition that is `there` (on which broker) is asked for, though some are asked for."""
    broker_given = options.broker
    names = list(dict.fromkeys(str(broker) for broker in brokers))
    if broker_given is not None and broker_given not in names:
        near = nearest(broker_given, names)
        meant = f"did you mean --broker {near}? " if near else ""
        raise UsageError(
            f"nothing fits --broker {broker_given}: there is no such broker", hint=f"{meant}brokers here: {listed(names)}"
        )
    if options.topic_glob is None and options.partition is None:
        return
    partitions = {partition for broker, partition in there if broker_given is None or str(broker) == broker_given}
    if not any(fits(partition, options) for partition in partitions):
        raise nothing_there(partitions, options)


def fits(topic_partition: tuple[str, int | None], options: ScanOptions) -> bool:
    """Whether topic and partition are asked for."""
    topic, partition = topic_partition
    if options.partition is not None and partition != options.partition:
        return False
    return options.topic_glob is None or fnmatchcase(topic, options.topic_glob)


def concerns(place: Place, options: ScanOptions) -> bool:
    """Whether a place may be of a partition and of a broker that are asked for: all that names no other."""
    if options.broker is not None and place.broker is not None and str(place.broker) != options.broker:
        return False
    if place.topic is None or place.partition is None:
        return True
    return fits((place.topic, place.partition), options)


def raise_unless_hidden(error: UsageError, *, hidden: bool) -> None:
    """Raise `error`; only a note of it where what was asked for may be `hidden` in what could not be read."""
    if not hidden:
        raise error
    hint = f"; {error.hint}" if error.hint else ""
    logging.getLogger(__name__).warning("note: in what could be read %s%s", error, hint)


def nothing_there(there: Iterable[TopicPartition], options: ScanOptions) -> UsageError:
    """What to say when no partition fits: the nearest that is there, and the others, those of internal topics last."""
    every = sorted(there, key=lambda partition: (partition[0].startswith("__"), partition))
    if not every:
        return UsageError("no partition was found", hint="give log directories of brokers, or partition directories")
    wanted = "-".join(str(part) for part in (options.topic_glob, options.partition) if part is not None)
    named = (("--topic", options.topic_glob), ("--partition", options.partition), ("--broker", options.broker))
    given = " ".join(f"{option} {value}" for option, value in named if value is not None)
    names = [f"{topic}-{number}" for topic, number in every]
    by_name = dict(zip(names, every, strict=True)) | {topic: (topic, number) for topic, number in reversed(every)}
    near = nearest(wanted, by_name, cutoff=0.5)
    meant = "" if near is None else "did you mean --topic {} --partition {}? ".format(*by_name[near])
    kept = "" if options.broker is None else f" on broker {options.broker}"
    noun = "topic" if options.partition is None else "partition"
    return UsageError(f"nothing fits {given}: there is no {noun} {wanted!r}{kept}", hint=f"{meant}there is {listed(names)}")


def listed(names: Iterable[str]) -> str:
    """The first of many names, and how many more there are."""
    return first_few(names, _NAMES_LISTED)
