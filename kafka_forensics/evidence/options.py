"""What the user asked a scan to look at, and how; the same for every engine."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_forensics.compiled.code_cache import keep_in
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import Reading


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
    copied: Reading | None = None
    """How every log directory was copied: `Reading.WHOLE` or `Reading.PARTIAL`; None: as each looks."""
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


def scan_options(
    topic: str | None,
    partition: int | None,
    broker: str | int | None,
    *,
    live: bool,
    whole: bool | None = None,
    deep: bool | None,
    as_of_ms: int | None,
    storage_options: Mapping[str, str] | None,
    cache_dir: str | None = None,
    jobs: int = 1,
) -> ScanOptions:
    """The options as callers of the package give them; `topic` is a pattern, `broker` an id or a name, `whole` whether log
    directories were copied whole (None: as each looks).

    Compiled kernels are kept below `cache_dir` from now on. Raises UsageError unless that is an absolute path.
    """
    keep_code_below(cache_dir)
    copied = None if whole is None else Reading.WHOLE if whole else Reading.PARTIAL
    name = None if broker is None else str(broker)
    reached = tuple((storage_options or {}).items())
    return ScanOptions(
        topic,
        partition,
        name,
        jobs=jobs,
        copied=copied,
        live=live,
        deep=deep,
        as_of_ms=as_of_ms,
        storage_options=reached,
        cache_dir=cache_dir,
    )


def keep_code_below(cache_dir: str | None) -> None:
    """Keep compiled kernels there from now on, with None where it is usual. Raises UsageError unless it is an absolute path."""
    if cache_dir is not None and (not os.path.isabs(cache_dir) or "\0" in cache_dir):
        raise UsageError(f"the cache directory {cache_dir!r} is no absolute path", hint="give it from the root, like /var/cache")
    keep_in(cache_dir)
