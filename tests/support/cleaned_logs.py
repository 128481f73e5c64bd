"""Copies of a compacted log for salvages: a cleaned segment, and an active one from offset 20 on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.salvaged import put_copy

STAMP: Final = 1_700_000_000_000
VALUE_AT: Final = 70
"""Byte of a batch that lies in its records."""


def keyed(offset: int, *records: tuple[str, str | None], epoch: int = 0) -> bytes:
    """A batch of these keys and values. A value of None is a tombstone."""
    return write_batch(
        [RecordToWrite(key.encode(), None if value is None else value.encode() * 20) for key, value in records],
        base_offset=offset,
        base_timestamp=STAMP + offset,
        partition_leader_epoch=epoch,
    )


CLEANED: Final = [keyed(0, ("a", "0")), keyed(3, ("b", "3")), keyed(4, ("c", "4")), keyed(9, ("d", "9")), keyed(15, ("e", "15"))]
ACTIVE: Final = [keyed(20, ("f", "20")), keyed(21, ("g", "21")), keyed(22, ("h", "22")), keyed(23, ("i", "23"))]
WHOLE: Final = b"".join([*CLEANED, *ACTIVE])


def put_cleaned(
    folder: Path,
    broker: int,
    batches: Sequence[bytes],
    rest: Sequence[bytes] = (),
    *,
    dirty: int | None = 20,
    end: int = 24,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
) -> Path:
    """A copy with a cleaned segment and, of `rest`, an active one."""
    segments = {0: b"".join(batches), **({20: b"".join(rest)} if rest else {})}
    log_dir = put_copy(folder, broker, segments, high_watermark=end, epochs=epochs)
    if dirty is not None:
        (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {dirty}\n")
    return log_dir


def with_(batches: Sequence[bytes], changes: Mapping[int, bytes]) -> list[bytes]:
    """The batches with some of them replaced, by their places."""
    return [changes.get(number, data) for number, data in enumerate(batches)]


def zeroed(data: bytes) -> bytes:
    """As many zeros."""
    return bytes(len(data))
