"""What a scan listed, as a short text: later reads of its facts compare it with what is there."""

import hashlib
import json
from collections.abc import Iterator

from kafka_forensics.errors import IncompleteError
from kafka_forensics.evidence.inputs import Inputs, LogDir
from kafka_forensics.model.amounts import size
from kafka_forensics.storage.source import Entry

_Listing = tuple[int, int, str]
"""Files, their bytes, and a digest of their paths, sizes and modification times."""


def listing_of(inputs: Inputs) -> str:
    """The listings of all log directories, by name."""
    return json.dumps(_listings(inputs))


def require_listed(inputs: Inputs, listed: str) -> None:
    """Raise IncompleteError with the first log directory whose files are not those of `listing_of`."""
    now, before = _listings(inputs), json.loads(listed)
    changed = [name for name in sorted({*now, *before}) if now.get(name) != tuple(before.get(name, ()))]
    if changed:
        then, current = (_described(listings.get(changed[0])) for listings in (before, now))
        raise IncompleteError(changed[0], f"changed since the scan ({then} then, {current} now)", len(changed) - 1)


def _described(listing: _Listing | None) -> str:
    return "nothing" if listing is None else f"{listing[0]} {'file' if listing[0] == 1 else 'files'} of {size(listing[1])}"


def _listings(inputs: Inputs) -> dict[str, _Listing]:
    return {log_dir.name: _listing(log_dir) for log_dir in inputs.log_dirs}


def _listing(log_dir: LogDir) -> _Listing:
    entries = sorted((entry.path, entry.size_in_bytes, entry.mtime_ns) for entry in _files(log_dir))
    digest = hashlib.sha256(repr(entries).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    return len(entries), sum(entry_size for _, entry_size, _ in entries), digest


def _files(log_dir: LogDir) -> Iterator[Entry]:
    """The files that Kafka knows."""
    yield from log_dir.found.entries.values()
    for directory in log_dir.found.partitions:
        yield from directory.entries.values()
        yield from (entry for _, entry in directory.snapshots)
        for segment in directory.segments:
            files = (segment.log, segment.index, segment.time_index, segment.transaction_index)
            yield from (entry for entry in files if entry is not None)
