"""Kafka log-segment forensics: which replicas part, what was lost, which copy to keep.

``scan(paths)`` gives a `ScanResult`; ``read_batches(path)`` and ``read_records(path)`` give the facts of one `.log` file as Arrow.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kafka_forensics.model.results import ScanResult

__version__ = "0.1.0"
__all__ = ["__version__", "read_batches", "read_records", "scan"]


def scan(paths: str | list[str], *, jobs: int = 1, live: bool = False, deep: bool | None = None) -> "ScanResult":
    """Scan log directories, archives or files, see `engine.local.scan`. Raises UsageError for paths that make no sense."""
    from kafka_forensics.engine import local
    from kafka_forensics.engine.options import ScanOptions

    return local.scan([paths] if isinstance(paths, str) else paths, ScanOptions(jobs=jobs, live=live, deep=deep))


def read_batches(path: str) -> "Iterator[pa.RecordBatch]":
    """Batches of a `.log` file as Arrow record batches (`model.schemas.BATCHES`)."""
    from kafka_forensics.engine import facts

    return facts.read_batches(path)


def read_records(path: str) -> "Iterator[pa.RecordBatch]":
    """Records of a `.log` file as Arrow record batches (`model.schemas.RECORDS`)."""
    from kafka_forensics.engine import facts

    return facts.read_records(path)
