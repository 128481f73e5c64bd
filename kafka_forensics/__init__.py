"""Kafka log-segment forensics: which replicas part, what was lost, which copy to keep.

``scan(paths)`` gives a `ScanResult`: findings, partitions, replicas, and every fact behind them as Arrow tables;
``scan_snapshots(root)`` scans several snapshots, and compares each replica with itself over time;
``recover(paths, take)`` gives every record that only losing copies hold, and says what became of every offset that is lost;
``read_batches(path)`` and ``read_records(path)`` give the facts of one `.log` file a chunk at a time.
"""

from kafka_forensics.version import __version__

TYPE_CHECKING = False  # typing's own would be loaded before interruptions are heard of
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Unpack

    import pyarrow as pa

    from kafka_forensics.evidence.options import SharedOptions
    from kafka_forensics.export.facts.facts import FactReader
    from kafka_forensics.model.changes import SnapshotsResult
    from kafka_forensics.model.recovered import RecoveredRecord
    from kafka_forensics.model.results import Drawing, ScanResult
    from kafka_forensics.questions.recover import Recovery

__all__ = ["__version__", "read_batches", "read_records", "recover", "scan", "scan_snapshots"]


def scan(
    paths: str | list[str],
    *,
    engine: str = "local",
    jobs: int = 1,
    deep: bool | None = None,
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "ScanResult":
    """Scan log directories, archives or files, as the command `scan` does with options of these names.

    `topic` is a pattern, `partition` a number, `broker` an id or a name; `live` and `whole` say how the directories were copied.
    `storage_options` say how storage services are reached that URIs name (docs/storage.md), beside what the environment says.
    Compiled kernels are kept below `cache_dir`, an absolute path, or where it is usual (docs/compiled.md).
    The answer holds findings and summaries; `facts(name)` reads more. Raises UsageError for paths that make no sense.
    """
    from kafka_forensics.errors import UsageError
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.export.facts.facts import scan_for_facts
    from kafka_forensics.export.views import ScanViews, words

    if engine != "local":
        raise UsageError(f"there is no engine {engine!r} here", hint="the only one of this function is local")
    options = scan_options(jobs=jobs, deep=deep, as_of_ms=as_of_ms, **shared)
    reader = scan_for_facts([paths] if isinstance(paths, str) else paths, options, words)
    reader.result.views = ScanViews(reader, json_document, lanes_of)
    return reader.result


def scan_snapshots(
    snapshots: "str | Sequence[str] | Mapping[str, str | Sequence[str]]",
    *,
    order: "Sequence[str]" = (),
    jobs: int = 1,
    deep: bool | None = None,
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "SnapshotsResult":
    """Scan several snapshots of the same brokers, and compare each replica with itself from each snapshot to the next.

    `snapshots` is a folder of snapshots, whose names sort as text and numbers; or their paths, the oldest first; or their paths by
    their names. `order` chooses among them and puts them in order; the rest is as in `scan` (docs/changes.md). Raises UsageError
    for paths that make no sense, and for fewer than two snapshots.
    """
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.export.views import with_views
    from kafka_forensics.questions.changes import changes

    options = scan_options(jobs=jobs, deep=deep, as_of_ms=as_of_ms, **shared)
    return with_views(changes(snapshots, options, chosen=order), options, json_document, changes_document)


def recover(
    paths: str | list[str],
    take: "Callable[[RecoveredRecord], object]",
    *,
    keep: str | int | None = None,
    dead: "Iterable[str | int]" = (),
    jobs: int = 1,
    **shared: "Unpack[SharedOptions]",
) -> "Recovery":
    """Give `take` each record that only losing copies hold, in order, as the command `recover` writes them; no file is written.

    `keep` is the broker whose copy stays, `dead` are those that will not come back; the rest is as in `scan` (docs/recover.md).
    The answer has the plan's bounds, and what became of every offset that is lost; partitions of which no side could be taken are
    in its `undecided`. Raises UsageError for paths that make no sense, and for brokers that are not known here.
    """
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.questions.recover import recover as recovery_of

    options = scan_options(jobs=jobs, deep=False, as_of_ms=None, **shared)
    given = [paths] if isinstance(paths, str) else paths
    return recovery_of(given, options, None if keep is None else str(keep), take, dead=[str(name) for name in dead])


def json_document(result: "ScanResult") -> "Iterable[str]":
    """The JSON document of the command line, whose module is not loaded before it is asked for."""
    from kafka_forensics.export.json_document import document

    return document(result)


def lanes_of(reader: "FactReader", topic: str, partition: int) -> "Drawing":
    """The lanes of a partition, whose module is not loaded before they are asked for."""
    from kafka_forensics.report.drawn import lanes_of as drawn

    return drawn(reader, topic, partition)


def changes_document(result: "SnapshotsResult") -> "Iterable[str]":
    """The same of several snapshots."""
    from kafka_forensics.export.changes_document import document

    return document(result)


def read_batches(path: str, storage_options: "Mapping[str, str] | None" = None) -> "Iterator[pa.RecordBatch]":
    """Batches of a `.log` file as Arrow record batches (`model.schemas.BATCHES`)."""
    from kafka_forensics.export.facts import facts

    return facts.read_batches(path, storage_options)


def read_records(path: str, storage_options: "Mapping[str, str] | None" = None) -> "Iterator[pa.RecordBatch]":
    """Records of a `.log` file as Arrow record batches (`model.schemas.RECORDS`)."""
    from kafka_forensics.export.facts import facts

    return facts.read_records(path, storage_options)
