"""Options of a scan, equal for every engine, and errors if nothing matches them."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, TypedDict, Unpack

from kafka_forensics.errors import UsageError, nearest
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.model.amounts import first_few
from kafka_forensics.model.findings import Place, TopicPartition
from kafka_forensics.storage.code_cache import set_cache_directory


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Options of a scan; None always means that an option is not set."""

    topic_glob: str | None = None
    """Shell pattern that topic names must match (`orders*`)."""
    partition: int | None = None
    broker: str | None = None
    """A broker's id, or the name it was given with `NAME=PATH`."""
    jobs: int = 1
    """Number of processes, at least 1; findings do not depend on it."""
    copied: CopyExtent | None = None
    """How every log directory was copied: `CopyExtent.WHOLE` or `CopyExtent.PARTIAL`; None: decided for each."""
    live: bool = False
    """The copies were made of running brokers, so their files may be of different moments."""
    deep: bool | None = None
    """Decode every record (True), only batches (False), or decide by the size of the input (None)."""
    as_of_ms: int | None = None
    """Ages are counted up to this time, in milliseconds since 1970; None: the newest time in the evidence."""
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """(name, value) for storage services (`storage.remote.options`); may contain secrets."""
    cache_dir: str | None = None
    """Directory for compiled kernels; None: the default one (`storage.code_cache`)."""


def without_secrets(paths: Sequence[str], options: ScanOptions) -> tuple[list[str], ScanOptions]:
    """The paths without credentials and options in their URIs, and the options with these
    (`storage.remote.uris.without_uri_options`).

    Raises UsageError for an invalid URI.
    """
    from kafka_forensics.storage.remote import without_uri_options  # `--help` does not need it

    bare, reached = without_uri_options(paths, options.storage_options)
    return bare, replace(options, storage_options=reached)


def shown_storage_options(storage_options: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """The options that are not secret and contain no secret, including those of URIs, unless these contradict each other."""
    if not storage_options:
        return []
    from kafka_forensics.storage.remote import NON_SECRET_OPTIONS, options_of_uris  # local files do not need it

    options = dict.fromkeys((*storage_options, *options_of_uris(storage_options)))
    secrets = ["@", *(value for name, value in options if name not in NON_SECRET_OPTIONS and value)]
    shown = [
        (name, value) for name, value in options if name in NON_SECRET_OPTIONS and not any(secret in value for secret in secrets)
    ]
    names = [name for name, _ in shown]
    return [(name, value) for name, value in shown if names.count(name) == 1]


class SharedOptions(TypedDict, total=False):
    """Options that all public functions of the package that scan have."""

    topic: str | None
    """A pattern."""
    partition: int | None
    broker: str | int | None
    """An id or a name."""
    live: bool
    whole: bool | None
    """Whether log directories were copied whole; None: decided for each."""
    storage_options: Mapping[str, str] | None
    cache_dir: str | None


def scan_options(*, jobs: int, deep: bool | None, as_of_ms: int | None, **options: Unpack[SharedOptions]) -> ScanOptions:
    """The options of a call of the package's public functions; also sets the directory for compiled kernels.

    Raises UsageError if `cache_dir` is not an absolute path, and TypeError for an unknown option.
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
        None if whole is None else CopyExtent.WHOLE if whole else CopyExtent.PARTIAL,
        options.get("live", False),
        deep,
        as_of_ms,
        tuple((options.get("storage_options") or {}).items()),
        cache_dir,
    )


def keep_code_below(cache_dir: str | None) -> None:
    """Set the directory for compiled kernels, None: the default one. Raises UsageError unless it is an absolute path."""
    if cache_dir is not None and (not os.path.isabs(cache_dir) or "\0" in cache_dir):
        raise UsageError(
            f"the cache directory {cache_dir!r} is not an absolute path", hint="give an absolute path, like /var/cache"
        )
    set_cache_directory(cache_dir)


_NAMES_LISTED: Final = 12


def require_match(present: Iterable[tuple[int | str, TopicPartition]], brokers: Iterable[int | str], options: ScanOptions) -> None:
    """Raise UsageError if the options select brokers or partitions, and none of `present`, as (broker, partition), matches."""
    requested = options.broker
    names = list(dict.fromkeys(str(broker) for broker in brokers))
    if requested is not None and requested not in names:
        near = nearest(requested, names)
        suggestion = f"did you mean --broker {near}? " if near else ""
        raise UsageError(f"no broker matches --broker {requested}", hint=f"{suggestion}brokers here: {listed(names)}")
    if options.topic_glob is None and options.partition is None:
        return
    partitions = {partition for broker, partition in present if requested is None or str(broker) == requested}
    if not any(fits(partition, options) for partition in partitions):
        raise no_match_error(partitions, options)


def fits(topic_partition: tuple[str, int | None], options: ScanOptions) -> bool:
    """Whether a topic and partition match the options."""
    topic, partition = topic_partition
    if options.partition is not None and partition != options.partition:
        return False
    return options.topic_glob is None or fnmatchcase(topic, options.topic_glob)


def may_match(place: Place, options: ScanOptions) -> bool:
    """Whether a place may be in a partition and on a broker that match the options; missing fields match."""
    if options.broker is not None and place.broker is not None and str(place.broker) != options.broker:
        return False
    if place.topic is None or place.partition is None:
        return True
    return fits((place.topic, place.partition), options)


def raise_or_warn(error: UsageError, *, hidden: bool) -> None:
    """Raise `error`, or only log it if the requested data may be `hidden` in unreadable files."""
    if not hidden:
        raise error
    hint = f"; {error.hint}" if error.hint else ""
    logging.getLogger(__name__).warning("note: in the files that could be read %s%s", error, hint)


def no_match_error(present: Iterable[TopicPartition], options: ScanOptions) -> UsageError:
    """The error if no partition matches: the most similar existing one, and others, those of internal topics last."""
    partitions = sorted(present, key=lambda partition: (partition[0].startswith("__"), partition))
    if not partitions:
        return UsageError("no partition was found", hint="give log directories of brokers, or partition directories")
    requested = "-".join(str(part) for part in (options.topic_glob, options.partition) if part is not None)
    named = (("--topic", options.topic_glob), ("--partition", options.partition), ("--broker", options.broker))
    given = " ".join(f"{option} {value}" for option, value in named if value is not None)
    names = [f"{topic}-{number}" for topic, number in partitions]
    by_name = dict(zip(names, partitions, strict=True)) | {topic: (topic, number) for topic, number in reversed(partitions)}
    near = nearest(requested, by_name, cutoff=0.5)
    suggestion = "" if near is None else "did you mean --topic {} --partition {}? ".format(*by_name[near])
    kept = "" if options.broker is None else f" on broker {options.broker}"
    noun = "topic" if options.partition is None else "partition"
    return UsageError(
        f"nothing matches {given}: there is no {noun} {requested!r}{kept}", hint=f"{suggestion}there is {listed(names)}"
    )


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    return first_few(names, _NAMES_LISTED)
