"""Kafka log-segment forensics: which replicas differ, what was lost, which copy to keep.

``scan(paths)`` gives a `ScanResult`: findings, partitions, replicas, and their facts as Arrow tables; ``scan_snapshots(root)``
scans several snapshots, and compares each replica with itself over time; ``recover(paths, take)`` gives every record that exists
only on losing copies, and the fate of every lost offset; ``read_batches(path)`` and ``read_records(path)`` give the facts of one
`.log` file a chunk at a time.
"""

from kafka_forensics.version import __version__

TYPE_CHECKING = False  # typing's own would be imported before interruptions are handled
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
    `storage_options` are for the storage services of URIs (docs/storage.md), in addition to the environment.
    Compiled kernels are kept below `cache_dir`, an absolute path, by default in the user's cache (docs/compiled.md).
    The result has findings and summaries; `facts(name)` reads more. Raises UsageError for invalid paths.
    """
    from kafka_forensics.errors import UsageError
    from kafka_forensics.evidence.inputs import gather
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.export.facts.facts import scan_for_facts
    from kafka_forensics.export.views import ScanViews, finding_text

    if engine != "local":
        raise UsageError(f"there is no engine {engine!r} here", hint="this function supports only local")
    options = scan_options(jobs=jobs, deep=deep, as_of_ms=as_of_ms, **shared)
    inputs = gather([paths] if isinstance(paths, str) else paths, options)
    reader = scan_for_facts(inputs, options, finding_text)
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

    `snapshots` is a folder of snapshots, whose names sort as text and numbers; or their paths, the oldest first; or a mapping from
    names to paths. `order` selects and orders them by name; the other options are those of `scan` (docs/changes.md). Raises
    UsageError for invalid paths, and for fewer than two snapshots.
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
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "Recovery":
    """Call `take` with each record that exists only on losing copies, in order, as the command `recover` writes them.

    `keep` is the broker whose copy stays, `dead` are brokers that will not return; the other options are those of `scan`
    (docs/recover.md). The result has the plan's bounds, and the fate of every lost offset; `undecided` has the partitions of which
    no copy could be chosen. Raises UsageError for invalid paths, and for unknown brokers.
    """
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.questions.recover import recover as recovery_of

    options = scan_options(jobs=jobs, deep=False, as_of_ms=as_of_ms, **shared)
    path_list = [paths] if isinstance(paths, str) else paths
    return recovery_of(path_list, options, None if keep is None else str(keep), take, dead=[str(name) for name in dead])


def json_document(result: "ScanResult") -> "Iterable[str]":
    """The chunks of the command line's JSON document; imports its module only when called, like the next two functions."""
    from kafka_forensics.export.json_document import document

    return document(result)


def lanes_of(reader: "FactReader", topic: str, partition: int) -> "Drawing":
    """The picture of a partition's replicas."""
    from kafka_forensics.report.notebook_lanes import lanes_of as drawn

    return drawn(reader, topic, partition)


def changes_document(result: "SnapshotsResult") -> "Iterable[str]":
    """The chunks of the JSON document of several snapshots."""
    from kafka_forensics.export.changes_document import document

    return document(result)


def read_batches(path: str, storage_options: "Mapping[str, str] | None" = None) -> "Iterator[pa.RecordBatch]":
    """Batches of a `.log` file as Arrow record batches (`model.schemas.BATCHES`)."""
    from kafka_forensics.export.facts import facts

    return facts.read_batches(path, storage_options)


def read_records(
    path: str, storage_options: "Mapping[str, str] | None" = None, *, payloads: bool = False
) -> "Iterator[pa.RecordBatch]":
    """Records of a `.log` file as Arrow record batches (`model.schemas.RECORDS`); keys, values and headers only with `payloads`."""
    from kafka_forensics.export.facts import facts

    return facts.read_records(path, storage_options, payloads=payloads)
