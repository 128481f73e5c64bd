"""The files that a fact reads after a scan, compared with those that the scan listed: by path here, by a digest on Spark."""

import hashlib
from collections.abc import Collection, Iterator
from itertools import chain

from kafka_forensics.errors import IncompleteError
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.export.facts.rows import FROM_SCANS, FactQuery
from kafka_forensics.parsers.log_dir import PartitionDirectory
from kafka_forensics.replication.recovery import EPOCHS_FILE
from kafka_forensics.scanning.witnesses.remote_log import copies_of_remote_log
from kafka_forensics.storage.open import Manifest
from kafka_forensics.storage.source import Entry

_OF_LOGS = frozenset({"batches", "records", "spans", "control_records", "transactions", "remote_events"})


def files_of(fact: str, directory: PartitionDirectory) -> Iterator[Entry]:
    """The files in a partition's directory that a fact reads after a scan."""
    for segment in directory.segments:
        if fact in _OF_LOGS and segment.log is not None:
            yield segment.log
        if fact in ("spans", "index_entries"):
            yield from filter(None, (segment.index, segment.time_index, segment.transaction_index))
    if fact in ("spans", "producer_states"):
        yield from (entry for _, entry in directory.snapshots)
    if fact == "epoch_entries" and EPOCHS_FILE in directory.entries:
        yield directory.entries[EPOCHS_FILE]


def changes_since(inputs: Inputs, facts: Collection[str]) -> Iterator[tuple[str, str]]:
    """(path, reason) of files of these facts that were changed or removed since they were listed; added ones are not read.

    Objects of remote stores are not compared: nothing changes them, and a reader notices those that are missing.
    """
    manifest = Manifest()
    for fact in facts:
        plans = chain.from_iterable(copies_of_remote_log(inputs)) if fact == "remote_events" else inputs.replicas
        for plan in plans:
            manifest.record(plan.log_dir.source, *files_of(fact, plan.directory))
    yield from ((path, "changed since the scan") for path, _, _ in manifest.changes())


def listing_of(inputs: Inputs, query: FactQuery) -> str:
    """The number of files that the query reads, and a digest of their paths, sizes and modification times."""
    files = sorted((name, entry.path, entry.size_in_bytes, entry.mtime_ns) for name, entry in _files(inputs, query))
    return f"{len(files)} {hashlib.sha256(repr(files).encode('utf-8', 'backslashreplace')).hexdigest()}"


def require_listed(inputs: Inputs, query: FactQuery, listed: str) -> None:
    """Raise IncompleteError if the files that the query reads are not those of `listing_of`."""
    now = listing_of(inputs, query)
    if now != listed:
        count, before = (listing.split(" ")[0] for listing in (now, listed))
        raise IncompleteError(query.fact, f"its files have changed since the scan (from {before} to {count} files)")


def _files(inputs: Inputs, query: FactQuery) -> Iterator[tuple[str, Entry]]:
    """(name of the log directory, file); all files for a fact of a whole scan."""
    is_whole = query.fact in FROM_SCANS
    for log_dir in inputs.log_dirs:
        if is_whole:
            yield from ((log_dir.name, entry) for entry in log_dir.found.entries.values())
        for directory in log_dir.found.partitions:
            if is_whole:
                yield from ((log_dir.name, entry) for entry in directory.files())
            elif (
                directory.is_replica
                and query.includes(directory.topic, directory.partition)
                and query.includes_broker(log_dir.broker)
            ):
                yield from ((log_dir.name, entry) for entry in files_of(query.fact, directory))
