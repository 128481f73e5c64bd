"""Writes records of `__remote_log_metadata`, and objects of remote stores, as a leader's copy task does."""

import json
import struct
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_forensics.parsers.flexible_fields import uuid_text
from tests.support.brokers import DIRECTORY, OFFSETS_ID_TEXT, TOPIC_ID, put_partition, put_replica, put_topic_id
from tests.support.groups import TOPIC_ID_TEXT, coordinator_batches
from tests.support.layouts.remote_log_metadata import write_remote_log_record
from tests.support.segments import BASE_TIMESTAMP, log, segment_file

COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)


def segment_id(number: int) -> str:
    return uuid_text(number.to_bytes(16, "big"))


def partition_of(topic: str = "t", partition: int = 0, topic_id: str = TOPIC_ID_TEXT) -> dict[str, Any]:
    return {"name": topic, "id": topic_id, "partition": partition}


def copy_started(number: int, first: int, last: int, *, epochs: tuple[tuple[int, int], ...] | None = None, **given: Any) -> bytes:
    """The first event of a segment (COPY_SEGMENT_STARTED by default); epochs are (epoch, start offset)."""
    names = {name: given.pop(name) for name in ("topic", "partition", "topic_id") if name in given}
    fields = {
        "remote_log_segment_id": {"topic_id_partition": partition_of(**names), "id": segment_id(number)},
        "start_offset": first,
        "end_offset": last,
        "broker_id": 1,
        "max_timestamp_ms": BASE_TIMESTAMP,
        "event_timestamp_ms": BASE_TIMESTAMP + 1000 + number,
        "segment_leader_epochs": [{"leader_epoch": epoch, "offset": offset} for epoch, offset in epochs or ((0, first),)],
        "segment_size_in_bytes": 4096,
        "custom_metadata": None,
        "remote_log_segment_state": COPY_STARTED,
        "txn_index_empty": True,
    }
    return write_remote_log_record(0, fields | given)


def segment_update(number: int, state: int, **given: Any) -> bytes:
    """A later event of a segment, which changes its state."""
    names = {name: given.pop(name) for name in ("topic", "partition", "topic_id") if name in given}
    fields = {
        "remote_log_segment_id": {"topic_id_partition": partition_of(**names), "id": segment_id(number)},
        "broker_id": 1,
        "event_timestamp_ms": BASE_TIMESTAMP + 2000 + number,
        "custom_metadata": None,
        "remote_log_segment_state": state,
    }
    return write_remote_log_record(1, fields | given)


def deleted_partition(state: int = 1) -> bytes:
    fields = {"broker_id": 1, "event_timestamp_ms": BASE_TIMESTAMP, "remote_partition_delete_state": state}
    return write_remote_log_record(2, {"topic_id_partition": partition_of()} | fields)


def put_remote_log(log_dir: Path, *values: bytes | None, partition: int = 0) -> Path:
    """Write `__remote_log_metadata-N` with one batch per event; return its `.log` file."""
    log = coordinator_batches(*((None, value) for value in values))
    return put_partition(log_dir / f"__remote_log_metadata-{partition}", log, empty_indexes=True) / segment_file(0)


LAYOUTS = ("plain", "chunks")
"""LocalTieredStorage; Aiven's layout with compressed chunks."""
_CHUNK_BYTES = 256


def put_object(
    store: Path,
    number: int,
    start: int,
    batches: Iterable[bytes],
    *,
    topic_id: str = TOPIC_ID_TEXT,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
    partition: str = "t-0",
    layout: str = "plain",
) -> Path:
    """Write the objects of a segment into a remote store, with empty indexes; return the one with the log."""
    topic, _, partition_number = partition.rpartition("-")
    directory = store / f"{partition}-{topic_id}" if layout == "plain" else store / f"{topic}-{topic_id}" / partition_number
    directory.mkdir(parents=True, exist_ok=True)
    stem, log = directory / f"{start:020d}-{segment_id(number)}", b"".join(batches)
    lines = "".join(f"{epoch} {offset}\n" for epoch, offset in epochs)
    checkpoint = f"0\n{len(epochs)}\n{lines}".encode()
    if layout == "plain":
        Path(f"{stem}.leader_epoch_checkpoint").write_bytes(checkpoint)
        Path(f"{stem}.log").write_bytes(log)
        for suffix in ("index", "timeindex", "snapshot"):
            Path(f"{stem}.{suffix}").write_bytes(b"")
    else:
        _put_chunks(stem, log, checkpoint)
    return Path(f"{stem}.log")


def _put_chunks(stem: Path, log: bytes, checkpoint: bytes) -> None:
    """Write the three objects of a segment in Aiven's layout; of its indexes only the leader epochs have bytes."""
    chunks = [pa.compress(log[at : at + _CHUNK_BYTES], "zstd", asbytes=True) for at in range(0, len(log), _CHUNK_BYTES)]
    sizes = [len(chunk) for chunk in chunks]
    encoded = struct.pack(">i", len(sizes))
    if len(sizes) == 1:
        encoded += struct.pack(">i", sizes[0])
    elif sizes:
        base = min(sizes[:-1])
        encoded += struct.pack(">ib", base, 2) + b"".join(struct.pack(">H", size - base) for size in sizes[:-1])
        encoded += struct.pack(">i", sizes[-1])
    empty = {"position": 0, "size": 0}
    manifest = {
        "version": "1",
        "chunkIndex": {
            "type": "variable",
            "originalChunkSize": _CHUNK_BYTES,
            "originalFileSize": len(log),
            "transformedChunks": b64encode(encoded).decode(),
        },
        "segmentIndexes": {
            **dict.fromkeys(("offset", "timestamp", "producerSnapshot"), empty),
            "leaderEpoch": {"position": 0, "size": len(checkpoint)},
        },
        "compression": True,
    }
    Path(f"{stem}.log").write_bytes(b"".join(chunks))
    Path(f"{stem}.indexes").write_bytes(checkpoint)
    Path(f"{stem}.rsm-manifest").write_text(json.dumps(manifest))


def put_cluster(folder: Path, *, local_start: int = 20, events: bool = True, layout: str = "plain") -> tuple[str, str]:
    """Write one broker and a store with [0, 10) and [10, 20); the local log ends at 30. Returns the paths of both."""
    store, batches = folder / "store", log(15)
    options: dict[str, Any] = {"log_start": 0, "topic_id": TOPIC_ID, "epochs": ((0, 0),), "clean": True}
    local = {local_start: batches[local_start // 2 :]}
    broker = put_replica(folder, 1, local, partition=DIRECTORY, high_watermark=30, **options)
    written: list[bytes] = []
    for number, start in enumerate((0, 10)):
        of_segment = batches[start // 2 : start // 2 + 5]
        put_object(store, number, start, of_segment, topic_id=TOPIC_ID, partition=DIRECTORY, layout=layout)
        fields: dict[str, Any] = {
            "segment_size_in_bytes": len(b"".join(of_segment)),
            "max_timestamp_ms": BASE_TIMESTAMP + start + 14,
        }
        written.append(copy_started(number, start, start + 9, topic_id=TOPIC_ID, **fields))
        written.append(segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID))
    if events:
        put_topic_id(put_remote_log(broker, *written).parent, OFFSETS_ID_TEXT)
    return str(broker), str(store)
