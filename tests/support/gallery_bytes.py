"""The gallery's cases of bytes in a batch: its header, its records, its compression."""

import gzip
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Final

import cramjam

from kafka_forensics.parsers.spec.record_batch import encode_zigzag
from kafka_forensics.writers.batches import compress, lz4_frame
from tests.support.faults import HEALTHY, Brokers, Log, Written, write_checkpoint
from tests.support.gallery_case import Case, done, on_each, patient, segment
from tests.support.injections import (
    cleaned,
    compressed_by,
    legacy_log,
    legacy_message,
    one_replica,
    payload_batch,
    probe,
    record,
    record_of,
    undecodable,
    with_payload,
    with_right_crc,
)

TARGET_OFFSET: Final = 40
TARGET: Final = HEALTHY.at(TARGET_OFFSET)
HUGE: Final = 256 << 20
"""Bytes of a value that fits into no JVM of 256 MiB."""
FIRST: Final = segment(0)
MIDDLE: Final = segment(29)
ONE: Final = segment(0, broker=1)
DELTA, COUNT, LENGTH, MAGIC, EPOCH = 23, 57, 8, 16, 12
"""Where fields of a batch's header begin."""


def target(brokers: Brokers) -> Written:
    """The batch that most faults are put into, [39, 42), as these brokers have it."""
    return brokers.log.at(TARGET_OFFSET)


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def payload(root: Path, data: bytes, codec: str = "none") -> Brokers:
    """Three replicas of a log with this payload in its second batch."""
    return with_payload(root, data, codec=codec)[0]


def declared_gigabytes(root: Path) -> Brokers:
    log = Log()
    log.plain(1)
    payload_batch(log, gzip.compress(encode_zigzag(2**31 - 1) + b"\0" * 100, mtime=0), codec="gzip")
    log.plain(1)
    brokers = one_replica(root, log)
    for suffix in ("index", "timeindex"):
        brokers.file(1, 0, suffix).write_bytes(b"")
    return brokers


def huge_value(root: Path) -> Brokers:
    log = Log()
    log.plain(1)
    payload_batch(log, _huge_record(), codec="gzip")
    log.plain(1)
    return one_replica(root, log)


def _huge_record() -> bytes:
    content = b"\0\0\0" + encode_zigzag(3) + b"key" + encode_zigzag(HUGE)
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [stream.compress(encode_zigzag(len(content) + HUGE + 1) + content)]
    parts += [stream.compress(bytes(1 << 20)) for _ in range(HUGE >> 20)]
    return b"".join([*parts, stream.compress(b"\0"), stream.flush()])


def bomb(root: Path) -> Brokers:
    return payload(root, bytes(cramjam.zstd.compress(bytes(64 << 20))) * 512, "zstd")


def nested(root: Path, depth: int) -> Brokers:
    inner = legacy_message(0, 1, 0, b"value")
    for _ in range(depth):
        inner = legacy_message(0, 1, 1, gzip.compress(inner, 1, mtime=0))
    return legacy_log(root, inner)


def magic_0_lz4(root: Path) -> Brokers:
    return legacy_log(root, legacy_message(0, 0, 3, lz4_frame(legacy_message(0, 0, 0, b"value"), magic=0)))


def at_target(field: int, data: bytes) -> partial[Case]:
    """A case with other bytes in the header of the batch [39, 42), CRC as it was."""
    return partial(Case, make=patient(lambda brokers: brokers.overwrite(2, target(brokers), data, field)), damaged=MIDDLE)


def right_crc(field: int, data: bytes) -> partial[Case]:
    return partial(Case, make=patient(lambda brokers: with_right_crc(brokers, target(brokers), field, data)), damaged=MIDDLE)


def packed(data: bytes, codec: str) -> partial[Case]:
    """A case with this compressed payload in the second batch of three replicas."""
    return partial(Case, make=partial(payload, data=data, codec=codec), damaged=FIRST)


def probed(batches: int, field: int, data: bytes, *, crc: bool = False) -> partial[Case]:
    """A probe: some small batches on one broker, the second of them changed."""
    make = partial(probe, batches=batches, changed=1, byte=field, data=data, right_crc=crc)
    return partial(Case, make=make, damaged=ONE)


FLIPPED: Final = patient(lambda brokers: brokers.flip(2, target(brokers), 100))
BATCHES: Final = (
    Case("F01", "one bit under the CRC", FLIPPED, MIDDLE),
    done("F02", "a bit of partitionLeaderEpoch", lambda brokers: brokers.flip(2, target(brokers), 15, 3), damaged=MIDDLE),
    probed(3, EPOCH, int32(77))("P2", "partitionLeaderEpoch 0 → 77, one small log by itself"),
    done("F03", "a bit of baseOffset", lambda brokers: brokers.flip(2, target(brokers), 6), damaged=MIDDLE),
    done(
        "F03",
        "the same, nothing of it committed",
        on_each(lambda it, broker: write_checkpoint(it.log_dir(broker), "replication", 39)),
        lambda it: it.flip(2, target(it), 6),
        damaged=MIDDLE,
    ),
    probed(3, 0, struct.pack(">q", 2**40))("P3", "baseOffset 1 → 2^40, one small log by itself"),
    at_target(LENGTH, int32(len(TARGET.data) - 7))("F04", "batchLength 5 bytes too large"),
    at_target(LENGTH, int32(len(TARGET.data) - 17))("F04", "batchLength 5 bytes too small"),
    at_target(LENGTH, int32(2**31 - 1))("F05", "batchLength = 2147483647"),
    probed(5, LENGTH, int32(2**31 - 1))("P4", "batchLength = 2147483647 in the second of five small batches"),
    at_target(LENGTH, int32(13))("F06", "batchLength = 13"),
    at_target(LENGTH, int32(-1))("F06", "batchLength = -1"),
    at_target(MAGIC, b"\3")("F07", "magic 2 → 3"),
    probed(3, MAGIC, b"\3")("P1", "magic 2 → 3, one small log by itself"),
    at_target(MAGIC, b"\1")("F08", "magic 2 → 1"),
    right_crc(COUNT, int32(2**31 - 1))("F09", "recordsCount = 2147483647, CRC right", note="the three records are read"),
    right_crc(COUNT, int32(-1))("F09", "recordsCount = -1, CRC right"),
    probed(3, COUNT, int32(2**31 - 1), crc=True)("P5", "recordsCount = 2147483647, one small log by itself"),
    right_crc(DELTA, int32(1))("F10", "lastOffsetDelta smaller than records - 1, CRC right"),
    right_crc(DELTA, int32(1000))("F10", "lastOffsetDelta far larger than records - 1, CRC right"),
    Case("F10", "the same left by the cleaner on one replica", partial(cleaned, on=(2,)), FIRST, control=True),
    Case("F10", "the same left by the cleaner on all", partial(cleaned, on=(1, 2, 3)), FIRST, control=True),
    packed(b"\x80\x80\x80\x80\x80\x01" + record(), "none")("F11", "an integer of six bytes, CRC right"),
    packed(record_of(b"\0" + b"\x80" * 10 + b"\1" + b"\0" * 20), "none")("F11", "a long of eleven bytes, CRC right"),
    packed(record_of(b"\0\0\0", encode_zigzag(1000), b"key\1\0"), "none")("F12", "length of a key past its record, CRC right"),
    packed(record_of(b"\0\0\0\1\1", encode_zigzag(2**31 - 1), b"ab"), "none")("F12", "2147483647 headers, CRC right"),
    packed(compress("zstd", encode_zigzag(100) + b"\0" * 50), "zstd")("F12", "length of a record past its batch, in zstd"),
    Case("P6", "a record that says it holds 2 GiB, in 233 bytes of gzip", declared_gigabytes, ONE),
    Case("P7", "a sound record of 256 MiB in 261 KB of gzip", huge_value, ONE, note="the value is measured and not held"),
    done("-", "records of noise under a right CRC", lambda brokers: undecodable(brokers, target(brokers), 2), damaged=MIDDLE),
)
LZ4: Final = lz4_frame(record())
SNAPPY: Final = compress("snappy", record())
LYING_BLOCK: Final = b"\xff\xff\xff\xff\x07\0abc"
GZIP: Final = gzip.compress(record(), mtime=0)
COMPRESSION: Final = (
    Case("F21", "zstd, 1 MiB for 32 GiB", bomb, FIRST, note="the next batch is read"),
    packed(SNAPPY[:16] + b"\x7f\xff\xff\xff" + SNAPPY[20:], "snappy")("F22", "xerial snappy with a chunk of 2147483647 bytes"),
    packed(SNAPPY[:16] + len(LYING_BLOCK).to_bytes(4, "big") + LYING_BLOCK, "snappy")(
        "F22", "a snappy block that says it holds 2147483647 bytes"
    ),
    packed(lz4_frame(record(), magic=0), "lz4")("F23", "LZ4 with a wrong header checksum"),
    packed(LZ4[:7] + struct.pack("<I", 1 << 20) + LZ4[11:], "lz4")("F23", "an LZ4 block larger than its frame allows"),
    packed(LZ4[:-4], "lz4")("F23", "LZ4 without its end"),
    packed(GZIP + GZIP, "gzip")("F23", "gzip with a second member"),
    packed(GZIP + b"junk", "gzip")("F23", "gzip with bytes behind it"),
    packed(GZIP[:-4], "gzip")("F23", "gzip cut short"),
    packed(b"\x28\xb5\x2f\xfd" + b"\xff" * 30, "zstd")("F23", "zstd that is none"),
    *(
        Case("F23", f"{codec} as Kafka writes it", partial(compressed_by, codec=codec), FIRST, control=True)
        for codec in ("lz4", "snappy")
    ),
    Case("F23", "the LZ4 header checksum of magic 0", magic_0_lz4, FIRST, control=True),
    Case("F24", "wrapper inside wrapper, 2 deep", partial(nested, depth=2), FIRST),
    Case("F24", "wrapper inside wrapper, 1000 deep", partial(nested, depth=1000), FIRST),
)
