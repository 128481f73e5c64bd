"""Cases and variants of the gallery for the bytes of a batch: its header, its records, its compression."""

import gzip
import struct
import zlib
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import cramjam

from kafka_forensics.parsers.spec.record_batch import encode_zigzag
from kafka_forensics.writers.batches import RecordToWrite, compress, lz4_frame, write_batch, write_record
from tests.gallery import injections
from tests.gallery.case import Case, Injected, case_per_row, cases_of_trees, injected_case, segment
from tests.support.brokers import Brokers, put_replicas
from tests.support.logs import HEALTHY, Log, WrittenBatch, write_healthy_history

TARGET_OFFSET: Final = 40
TARGET: Final = HEALTHY.at(TARGET_OFFSET)
HUGE: Final = 256 << 20
"""Size of a value that does not fit into a JVM of 256 MiB."""
FIRST: Final = segment(0)
MIDDLE: Final = segment(29)
ONE: Final = segment(0, broker=1)
DELTA, COUNT, LENGTH, MAGIC, EPOCH = 23, 57, 8, 16, 12
"""Positions of header fields in a batch."""


def target(brokers: Brokers) -> WrittenBatch:
    """The batch damaged by most faults, [39, 42), in the log of these brokers."""
    return brokers.log.at(TARGET_OFFSET)


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def payload(root: Path, data: bytes, codec: str = "none") -> Brokers:
    """Three replicas of a log with this payload in its second batch."""
    return injections.with_payload(root, data, codec=codec)[0]


def declared_gigabytes(root: Path) -> Brokers:
    log = Log()
    log.plain(1)
    injections.payload_batch(log, gzip.compress(encode_zigzag(2**31 - 1) + b"\0" * 100, mtime=0), codec="gzip")
    log.plain(1)
    brokers = put_replicas(root, {1: log})
    for suffix in ("index", "timeindex"):
        brokers.file(1, 0, suffix).write_bytes(b"")
    return brokers


def huge_value(root: Path) -> Brokers:
    log = Log()
    log.plain(1)
    injections.payload_batch(log, _huge_record(), codec="gzip")
    log.plain(1)
    return put_replicas(root, {1: log})


def _huge_record() -> bytes:
    content = b"\0\0\0" + encode_zigzag(3) + b"key" + encode_zigzag(HUGE)
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [stream.compress(encode_zigzag(len(content) + HUGE + 1) + content)]
    parts += [stream.compress(bytes(1 << 20)) for _ in range(HUGE >> 20)]
    return b"".join([*parts, stream.compress(b"\0"), stream.flush()])


def bomb(root: Path) -> Brokers:
    return payload(root, bytes(cramjam.zstd.compress(bytes(64 << 20))) * 512, "zstd")


def nested(root: Path, depth: int) -> Brokers:
    inner = injections.legacy_message(0, 1, 0, b"value")
    for _ in range(depth):
        inner = injections.legacy_message(0, 1, 1, gzip.compress(inner, 1, mtime=0))
    return injections.legacy_log(root, inner)


def magic_0_lz4(root: Path) -> Brokers:
    return injections.legacy_log(
        root, injections.legacy_message(0, 0, 3, lz4_frame(injections.legacy_message(0, 0, 0, b"value"), magic=0))
    )


def at_target(field: int, data: bytes) -> partial[Case]:
    """A case with other bytes in the header of the batch [39, 42), and an unchanged CRC."""
    return partial(Case, make=Injected(lambda brokers: brokers.overwrite(2, target(brokers), data, field)), damaged=MIDDLE)


def right_crc(field: int, data: bytes) -> partial[Case]:
    return partial(
        Case, make=Injected(lambda brokers: injections.change_batch(brokers, target(brokers), field, data)), damaged=MIDDLE
    )


def packed(data: bytes, codec: str) -> partial[Case]:
    """A case with this compressed payload in the second batch of three replicas."""
    return partial(Case, make=partial(payload, data=data, codec=codec), damaged=FIRST)


def probed(batches: int, field: int, data: bytes, *, crc: bool = False) -> partial[Case]:
    """A probe: small batches on one broker, the second of them changed."""
    make = partial(injections.probe, batches=batches, changed=1, byte=field, data=data, right_crc=crc)
    return partial(Case, make=make, damaged=ONE)


FLIPPED: Final = Injected(lambda brokers: brokers.flip(2, target(brokers), 100))
BATCHES: Final = (
    Case("F01", "one bit that the CRC covers", FLIPPED, MIDDLE),
    injected_case("F02", "a bit of partitionLeaderEpoch", lambda brokers: brokers.flip(2, target(brokers), 15, 3), damaged=MIDDLE),
    probed(3, EPOCH, int32(77))("P2", "partitionLeaderEpoch 0 → 77, one small log by itself"),
    injected_case("F03", "a bit of baseOffset", lambda brokers: brokers.flip(2, target(brokers), 6), damaged=MIDDLE),
    injected_case(
        "F03",
        "the same, none of it committed",
        lambda it: it.checkpoint("replication", 39),
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
    Case("F10", "the same left by the cleaner on one replica", partial(injections.cleaned, on=(2,)), FIRST, control=True),
    Case("F10", "the same left by the cleaner on all", partial(injections.cleaned, on=(1, 2, 3)), FIRST, control=True),
    packed(b"\x80\x80\x80\x80\x80\x01" + injections.record(), "none")("F11", "an integer of six bytes, CRC right"),
    packed(injections.record_of(b"\0" + b"\x80" * 10 + b"\1" + b"\0" * 20), "none")("F11", "a long of eleven bytes, CRC right"),
    packed(injections.record_of(b"\0\0\0", encode_zigzag(1000), b"key\1\0"), "none")(
        "F12", "length of a key past its record, CRC right"
    ),
    packed(injections.record_of(b"\0\0\0\1\1", encode_zigzag(2**31 - 1), b"ab"), "none")("F12", "2147483647 headers, CRC right"),
    packed(compress("zstd", encode_zigzag(100) + b"\0" * 50), "zstd")("F12", "length of a record past its batch, in zstd"),
    Case("P6", "a record that says it holds 2 GiB, in 233 bytes of gzip", declared_gigabytes, ONE),
    Case("P7", "a valid record of 256 MiB in 261 KB of gzip", huge_value, ONE, note="the value is measured and not held"),
    injected_case(
        "-",
        "records of noise with a correct CRC",
        lambda brokers: injections.make_undecodable(brokers, target(brokers), 2),
        damaged=MIDDLE,
    ),
)
LZ4: Final = lz4_frame(injections.record())
SNAPPY: Final = compress("snappy", injections.record())
LYING_BLOCK: Final = b"\xff\xff\xff\xff\x07\0abc"
GZIP: Final = gzip.compress(injections.record(), mtime=0)
COMPRESSION: Final = (
    Case("F21", "zstd, 1 MiB for 32 GiB", bomb, FIRST, note="the next batch is read"),
    packed(SNAPPY[:16] + b"\x7f\xff\xff\xff" + SNAPPY[20:], "snappy")("F22", "xerial snappy with a chunk of 2147483647 bytes"),
    packed(SNAPPY[:16] + len(LYING_BLOCK).to_bytes(4, "big") + LYING_BLOCK, "snappy")(
        "F22", "a snappy block that says it holds 2147483647 bytes"
    ),
    packed(lz4_frame(injections.record(), magic=0), "lz4")("F23", "LZ4 with a wrong header checksum"),
    packed(LZ4[:7] + struct.pack("<I", 1 << 20) + LZ4[11:], "lz4")("F23", "an LZ4 block larger than its frame allows"),
    packed(LZ4[:-4], "lz4")("F23", "LZ4 without its end"),
    packed(GZIP + GZIP, "gzip")("F23", "gzip with a second member"),
    packed(GZIP + b"junk", "gzip")("F23", "gzip with bytes after it"),
    packed(GZIP[:-4], "gzip")("F23", "gzip cut short"),
    packed(b"\x28\xb5\x2f\xfd" + b"\xff" * 30, "zstd")("F23", "bytes that are not zstd"),
    *(
        Case("F23", f"{codec} as Kafka writes it", partial(injections.compressed_by, codec=codec), FIRST, control=True)
        for codec in ("lz4", "snappy")
    ),
    Case("F23", "the LZ4 header checksum of magic 0", magic_0_lz4, FIRST, control=True),
    Case("F24", "wrapper inside wrapper, 2 deep", partial(nested, depth=2), FIRST),
    Case("F24", "wrapper inside wrapper, 1000 deep", partial(nested, depth=1000), FIRST),
)

# Variants: other places, other values, and states that only look like the fault. They are not in docs/faults.md.

FIRST_BATCH, LAST = HEALTHY.batches[0], HEALTHY.batches[-1]


def put(brokers: Brokers, byte: int, data: bytes) -> None:
    brokers.overwrite(2, target(brokers), data, byte)


def put_with_crc(brokers: Brokers, byte: int, data: bytes, *on: int) -> None:
    injections.change_batch(brokers, target(brokers), byte, data, on=on or (2,))


def several(brokers: Brokers) -> None:
    brokers.flip(2, HEALTHY.at(33), 100)
    brokers.flip(2, HEALTHY.at(43), MAGIC, 0)
    brokers.overwrite(2, HEALTHY.at(49), int32(13), LENGTH)


def epoch_and_records(brokers: Brokers) -> None:
    """Damage the epoch field and the records: the checkpoint and neighbouring batches show the right epoch of these offsets."""
    hit = bytearray(TARGET.data)
    for byte, mask in ((15, 0x40), (17, 1), (100, 1)):
        hit[byte] ^= mask
    brokers.overwrite(2, TARGET, bytes(hit))


BATCH_VARIANTS: Final = (
    *case_per_row("F01", "a bit flipped under the CRC, at byte", lambda it, at: it.flip(2, TARGET, at), [(21,), (1545,)]),
    *case_per_row(
        "F01",
        "a bit flipped in a field that says where the batch ends",
        lambda it, at: it.flip(2, TARGET, at, 6),
        [(17,), (23,), (57,)],
    ),
    *case_per_row("F02", "a bit of the leader epoch, byte and bit", lambda it, at, bit: it.flip(2, TARGET, at, bit), [(12, 7)]),
    injected_case("F02", "the epoch field and the records are hit", epoch_and_records),
    injected_case("F09", "recordsCount = -1 in a scan that is not deep", lambda it: put_with_crc(it, COUNT, int32(-1)), deep=False),
    *case_per_row("F09", "recordsCount = -1 on", lambda it, *on: put_with_crc(it, COUNT, int32(-1), *on), [(1, 2), (1, 2, 3)]),
    *case_per_row("F10", "lastOffsetDelta =", lambda it, delta: put_with_crc(it, DELTA, int32(delta)), [(0,), (2**31 - 12,)]),
    *case_per_row("F10", "lastOffsetDelta on each =", lambda it, delta: put_with_crc(it, DELTA, int32(delta), 1, 2, 3), [(5,)]),
    injected_case("-", "several faults in one segment", several),
    injected_case(
        "-",
        "a copy with another fault in the batch is no good one",
        lambda it: put_with_crc(it, COUNT, int32(-1), 1),
        lambda it: it.flip(2, TARGET, 100),
    ),
    injected_case(
        "-",
        "a copy with a fault in one batch still holds a lost segment",
        lambda it: put_with_crc(it, COUNT, int32(-1), 1),
        lambda it: it.remove(2, 29),
    ),
    injected_case(
        "-", "records of noise in a scan that is not deep", lambda it: injections.make_undecodable(it, TARGET, 2), deep=False
    ),
    injected_case("-", "records of noise on two replicas", lambda it: injections.make_undecodable(it, TARGET, 1, 2)),
)

# Base offsets, and states that look like a wrong base offset.


def retried(root: Path, more: int) -> Brokers:
    """A producer retries a batch at the next leader after an unclean election: equal bytes at two offsets."""
    old, new = Log(), Log()
    write_healthy_history(old)
    write_healthy_history(new)
    old.produce()
    _append_retry(old)
    new.lead(3)
    _append_retry(new)
    for _ in range(more):
        _ = old.produce(), new.produce()
    return put_replicas(root, {1: old, 2: new, 3: new}, 75)


def _append_retry(log: Log) -> WrittenBatch:
    data = write_batch(
        Log(tag="retried").records(3),
        base_offset=log.next_offset,
        base_timestamp=1_700_000_500_000,
        partition_leader_epoch=log.leader_epoch,
        producer_id=4000,
        producer_epoch=0,
        base_sequence=0,
    )
    return log.append(data, log.next_offset + 2, 1_700_000_500_000)


def deleted_up_to_40(brokers: Brokers) -> None:
    """Retention deleted the first segment everywhere, and records were deleted up to 40."""
    for broker in (1, 2, 3):
        brokers.remove(broker, 0)
        brokers.checkpoint("log-start", 40, broker)


def older_batch_one_bit_away(root: Path) -> Brokers:
    """A copy of an older batch at the end, whose offset differs in one bit from the expected offset."""
    log = Log()
    write_healthy_history(log)
    older: WrittenBatch | None = None
    while older is None:
        log.plain()
        older = next((batch for batch in log.batches if (batch.base_offset ^ log.next_offset).bit_count() == 1), None)
    brokers = put_replicas(root, log, 75)
    injections.append(brokers, 55, older.data)
    return brokers


def watermark_beyond(root: Path) -> Brokers:
    """A gap of a lost batch before the last batch: high watermark and recovery point show that the last batch's offset is right."""
    log = Log()
    write_healthy_history(log)
    log.append(b"", log.next_offset + 255, 0)
    log.produce()
    return put_replicas(root, log)


BASE_OFFSETS: Final = (
    *case_per_row(
        "F03",
        "the batch of an offset, byte and bit",
        lambda it, offset, at, bit: it.flip(2, HEALTHY.at(offset), at, bit),
        [(0, 0, 7), (29, 7, 0), (32, 7, 0), (40, 4, 7), (54, 0, 7)],
    ),
    *case_per_row("F03", "the last batch, byte and bit", lambda it, at, bit: it.flip(2, LAST, at, bit), [(6, 3), (7, 3), (0, 7)]),
    injected_case("F03", "the last batch of a lone copy", lambda it: it.flip(2, LAST, 5), injections.keep_only),
    *cases_of_trees(
        "F03", "a retry across an unclean election has two offsets; batches behind it:", retried, [(0,), (2,)], controls=[(0,)]
    ),
    injected_case(
        "F03",
        "a last segment of one batch behind a missing one",
        lambda it: it.file(2, 55).write_bytes(HEALTHY.batches_of_segment(55)[0].data),
        lambda it: it.remove(2, 55, "index", "timeindex", "txnindex"),
        lambda it: it.remove(2, 29),
    ),
    injected_case("F03", "a log that begins after retention and deletion", deleted_up_to_40, control=True),
    Case("F18", "an older batch at the end, one bit from the right offset", older_batch_one_bit_away),
    Case("F03", "a high watermark beyond speaks for the batch", watermark_beyond),
)

# Records and what is compressed.


def members(root: Path, data: bytes, count: int) -> Brokers:
    return injections.with_payload(root, data, codec="gzip", count=count)[0]


PAST_ITS_BATCH: Final = {
    "value": injections.record_of(b"\0\0\0" + encode_zigzag(3) + b"key" + encode_zigzag(2**31 - 1) + b"v" + b"\0"),
    "headers": injections.record_of(b"\0\0\0" + encode_zigzag(-1) + encode_zigzag(-1) + encode_zigzag(2**31 - 1) + b"ab"),
    "record": encode_zigzag(2**31 - 1) + b"\0" * 50,
}
MORE: Final = gzip.compress(write_record(RecordToWrite(b"key", b"more", offset_delta=1), 0, 1), mtime=0)
RECORDS: Final = (
    *cases_of_trees(
        "F12",
        "a length past what holds it, in",
        lambda root, what, codec: payload(root, compress(codec, PAST_ITS_BATCH[what]), codec),
        [("headers", "none"), ("record", "gzip"), ("value", "zstd")],
    ),
    *cases_of_trees("F23", "sound batches of", injections.compressed_by, product(injections.CODECS), control=True),
    Case("F23", "a gzip member with a record beyond the count", lambda root: members(root, GZIP + MORE, 1)),
    Case("F23", "a gzip member in which the records go on", lambda root: members(root, GZIP + MORE, 2), control=True),
    Case("F23", "an empty gzip member", lambda root: members(root, GZIP + gzip.compress(b"", mtime=0), 1), control=True),
)

# Batches that occur twice in a log.


def append_copies(brokers: Brokers, first: int, last: int, behind: int = 74) -> None:
    """Insert the batches of offsets `first` to `last` again on broker 2, after the batch of offset `behind`."""
    data = b"".join(batch.data for batch in HEALTHY.batches if first <= batch.base_offset <= last)
    place = HEALTHY.at(behind)
    path = brokers.file(2, place.segment)
    log = path.read_bytes()
    path.write_bytes(log[: place.end] + data + log[place.end :])
    for base_offset in HEALTHY.segments:
        for suffix in ("index", "timeindex"):
            brokers.file(2, base_offset, suffix).write_bytes(b"")


def lie_within_a_copy(brokers: Brokers) -> None:
    size = brokers.file(2, 55).stat().st_size
    append_copies(brokers, 39, 54)
    injections.change(brokers.file(2, 55), size + HEALTHY.at(46).position - HEALTHY.at(39).position + EPOCH + 3, 8)


COPIES: Final = ((0, 3, 74), (26, 34, 74), (29, 31, 48), (29, 34, 54), (43, 46, 68))
TWICE: Final = (
    *case_per_row(
        "F18", "a copy at the end of the batch of", lambda it, at: injections.append(it, 55, HEALTHY.at(at).data), [(0,), (70,)]
    ),
    *case_per_row("F18", "batches copied: first, last, behind", append_copies, COPIES),
    injected_case(
        "F18",
        "an epoch field that lies beside copied batches",
        lambda it: it.flip(2, TARGET, 15, 3),
        lambda it: append_copies(it, 0, 3),
    ),
    injected_case("F18", "an epoch field that lies within copied batches", lie_within_a_copy),
)
VARIANTS: Final[tuple[Case, ...]] = (*BATCH_VARIANTS, *BASE_OFFSETS, *RECORDS, *TWICE)
