"""Damages the replicas of the fault gallery: one function per kind of fault."""

import hashlib
import shutil
import struct
import zlib
from pathlib import Path

from kafka_forensics.parsers.spec.record_batch import encode_zigzag
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch, write_raw_batch, write_record
from tests.support.brokers import LOG_FILES, Brokers, put_replicas
from tests.support.logs import Log, WrittenBatch
from tests.support.segments import BASE_TIMESTAMP

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def change_batch(brokers: Brokers, batch: WrittenBatch, byte: int, data: bytes, *, on: tuple[int, ...] = (2,)) -> None:
    """Change bytes in a batch and correct its CRC."""
    for broker in on:
        brokers.overwrite(broker, batch, fix_crc(batch.data[:byte] + data + batch.data[byte + len(data) :]))


def rewrite_record(brokers: Brokers, broker: int, offset: int, *, byte: int = 200) -> None:
    """Change a byte of a record, differently on each broker, and correct the CRC."""
    batch = brokers.log.at(offset)
    change_batch(brokers, batch, byte, bytes([batch.data[byte] ^ broker]), on=(broker,))


def noise(size: int, seed: str = "noise") -> bytes:
    return hashlib.shake_128(seed.encode()).digest(size)


def make_undecodable(brokers: Brokers, batch: WrittenBatch, *on: int) -> None:
    """Replace the records of a batch by noise, different on each broker, and correct the CRC."""
    for broker in on:
        brokers.overwrite(broker, batch, fix_crc(batch.data[:61] + noise(len(batch.data) - 61, str(broker))))


def cut(brokers: Brokers, segment: int, size: int) -> None:
    """Truncate broker 2's segment at a byte."""
    path = brokers.file(2, segment)
    path.write_bytes(path.read_bytes()[:size])


def append(brokers: Brokers, segment: int, data: bytes) -> None:
    path = brokers.file(2, segment)
    path.write_bytes(path.read_bytes() + data)


def zero_page(brokers: Brokers, segment: int) -> None:
    path = brokers.file(2, segment)
    log = bytearray(path.read_bytes())
    log[4096:8192] = bytes(4096)
    path.write_bytes(log)


def keep_only(brokers: Brokers, broker: int = 2) -> None:
    for log_dir in set(brokers.log_dirs) - {brokers.log_dir(broker)}:
        shutil.rmtree(log_dir)


def rename_segment(brokers: Brokers, segment: int, name: int) -> None:
    for suffix in LOG_FILES:
        brokers.file(2, segment, suffix).rename(brokers.file(2, name, suffix))


def swap(brokers: Brokers, first: WrittenBatch, second: WrittenBatch) -> None:
    path = brokers.file(2, first.segment)
    log = path.read_bytes()
    path.write_bytes(log[: first.position] + second.data + first.data + log[second.end :])


def change(path: Path, position: int, mask: int = 1) -> None:
    """Flip bits of a byte in a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def remove_snapshots(brokers: Brokers, *on: int) -> None:
    for broker in on:
        for path in brokers.directory(broker).glob("*.snapshot"):
            path.unlink()


def probe(root: Path, batches: int, changed: int, byte: int, data: bytes, *, right_crc: bool = False) -> Brokers:
    """A log of small batches, one of them changed."""
    log = Log()
    written = [log.plain(1) for _ in range(batches)]
    brokers = put_replicas(root, {1: log})
    batch = written[changed]
    new = batch.data[:byte] + data + batch.data[byte + len(data) :]
    brokers.overwrite(1, batch, fix_crc(new) if right_crc else new)
    return brokers


def payload_batch(log: Log, payload: bytes, *, codec: str = "none", count: int = 1) -> WrittenBatch:
    """A batch with any payload that claims `count` records, with a correct CRC."""
    stamp = BASE_TIMESTAMP + 1000 * log.next_offset
    header = {
        "base_offset": log.next_offset,
        "partition_leader_epoch": 0,
        "attributes": CODECS.index(codec),
        "last_offset_delta": count - 1,
        "base_timestamp": stamp,
        "max_timestamp": stamp,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": count,
    }
    return log.append(write_raw_batch(header, payload), log.next_offset + count - 1, stamp)


def with_payload(root: Path, payload: bytes, *, codec: str = "none", count: int = 1) -> tuple[Brokers, WrittenBatch]:
    """Three replicas of a log whose second batch has this payload, between two sound ones."""
    log = Log()
    log.plain(1)
    bad_batch = payload_batch(log, payload, codec=codec, count=count)
    log.plain(1)
    return put_replicas(root, log), bad_batch


def record(value: bytes = b"value") -> bytes:
    return write_record(RecordToWrite(b"key", value), 0, 0)


def record_of(*parts: bytes) -> bytes:
    """A record with a correct length and any content."""
    content = b"".join(parts)
    return encode_zigzag(len(content)) + content


def legacy_message(offset: int, magic: int, attributes: int, value: bytes) -> bytes:
    """An entry of magic 0 or 1 without a key, written without the package's writers."""
    stamp = struct.pack(">q", BASE_TIMESTAMP) if magic else b""
    content = struct.pack(">bb", magic, attributes) + stamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(content) + 4, zlib.crc32(content)) + content


def legacy_log(root: Path, *entries: bytes) -> Brokers:
    """Three replicas of a log of old messages, without epochs and with empty indexes."""
    log = Log()
    for index, data in enumerate(entries):
        log.append(data, index, BASE_TIMESTAMP)
    log.epochs.clear()
    brokers = put_replicas(root, log)
    for broker in (1, 2, 3):
        for suffix in ("index", "timeindex"):
            brokers.file(broker, 0, suffix).write_bytes(b"")
    return brokers


def compressed_by(root: Path, codec: str) -> Brokers:
    """Three replicas of a log compressed with a codec."""
    log = Log()
    for _ in range(3):
        stamp = BASE_TIMESTAMP + 1000 * log.next_offset
        data = write_batch(log.records(3), base_offset=log.next_offset, base_timestamp=stamp, compression_type=codec)
        log.append(data, log.next_offset + 2, stamp)
    return put_replicas(root, log)


def cleaned(root: Path, on: tuple[int, ...]) -> Brokers:
    """A compacted topic where the cleaners of brokers `on` kept only the last of three records with the same key."""
    logs = {broker: Log() for broker in (1, 2, 3)}
    for broker, log in logs.items():
        log.plain()
        values = [write.value for write in log.records(3)]
        records = [RecordToWrite(b"key", value, offset_delta=delta) for delta, value in enumerate(values)]
        kept = records[2:] if broker in on else records
        log.append(
            write_batch(kept, base_offset=3, base_timestamp=BASE_TIMESTAMP + 3000, last_offset_delta=2), 5, BASE_TIMESTAMP + 3000
        )
        log.plain()
    brokers = put_replicas(root, logs)
    brokers.checkpoint("cleaner", 6)
    return brokers


def cut_log(brokers: Brokers, offset: int, kept: int) -> None:
    """Truncate broker 2's log, as if the broker wrote on between the copies of its log and of its indexes and checkpoints."""
    brokers.crash(2)
    cut(brokers, 55, brokers.log.at(offset).position + kept)
