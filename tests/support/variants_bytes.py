"""Variants of faults in the bytes of batches: F01 to F12 and F21 to F24, and the look-alikes of F03."""

import gzip
import shutil
from itertools import product
from pathlib import Path
from typing import Final

from kafka_forensics.parsers.spec.record_batch import encode_zigzag
from kafka_forensics.writers.batches import RecordToWrite, compress, write_batch, write_record
from tests.support.faults import HEALTHY, Brokers, Log, Written, histories, write_base, write_checkpoint
from tests.support.gallery_bytes import COUNT, DELTA, EPOCH, LENGTH, MAGIC, TARGET, int32, payload, target
from tests.support.gallery_case import Case, done, each, trees
from tests.support.gallery_leftovers import remove
from tests.support.injections import (
    CODECS,
    append,
    change,
    compressed_by,
    delete_segment,
    record,
    record_of,
    three_replicas,
    undecodable,
    with_payload,
    with_right_crc,
)

FIRST, LAST = HEALTHY.batches[0], HEALTHY.batches[-1]


def put(brokers: Brokers, byte: int, data: bytes) -> None:
    brokers.overwrite(2, target(brokers), data, byte)


def put_with_crc(brokers: Brokers, byte: int, data: bytes, *on: int) -> None:
    with_right_crc(brokers, target(brokers), byte, data, on=on or (2,))


def alone(brokers: Brokers, broker: int = 2) -> None:
    for log_dir in set(brokers.log_dirs) - {brokers.log_dir(broker)}:
        shutil.rmtree(log_dir)


def several(brokers: Brokers) -> None:
    brokers.flip(2, HEALTHY.at(33), 100)
    brokers.flip(2, HEALTHY.at(43), MAGIC, 0)
    brokers.overwrite(2, HEALTHY.at(49), int32(13), LENGTH)


def epoch_and_records(brokers: Brokers) -> None:
    """The epoch field and the records are hit: the checkpoint and the neighbours give these offsets the others' epoch."""
    hit = bytearray(TARGET.data)
    for byte, mask in ((15, 0x40), (17, 1), (100, 1)):
        hit[byte] ^= mask
    brokers.overwrite(2, TARGET, bytes(hit))


BATCHES: Final = (
    *each("F01", "a bit flipped under the CRC, at byte", lambda it, at: it.flip(2, TARGET, at), [(21,), (1545,)]),
    *each(
        "F01",
        "a bit flipped in a field that says where the batch ends",
        lambda it, at: it.flip(2, TARGET, at, 6),
        [(17,), (23,), (57,)],
    ),
    *each("F02", "a bit of the leader epoch, byte and bit", lambda it, at, bit: it.flip(2, TARGET, at, bit), [(12, 7)]),
    done("F02", "the epoch field and the records are hit", epoch_and_records),
    done("F09", "recordsCount = -1 in a scan that is not deep", lambda it: put_with_crc(it, COUNT, int32(-1)), deep=False),
    *each("F09", "recordsCount = -1 on", lambda it, *on: put_with_crc(it, COUNT, int32(-1), *on), [(1, 2), (1, 2, 3)]),
    *each("F10", "lastOffsetDelta =", lambda it, delta: put_with_crc(it, DELTA, int32(delta)), [(0,), (2**31 - 12,)]),
    *each("F10", "lastOffsetDelta on each =", lambda it, delta: put_with_crc(it, DELTA, int32(delta), 1, 2, 3), [(5,)]),
    done("-", "several faults in one segment", several),
    done(
        "-",
        "a copy with another fault in the batch is no good one",
        lambda it: put_with_crc(it, COUNT, int32(-1), 1),
        lambda it: it.flip(2, TARGET, 100),
    ),
    done(
        "-",
        "a copy with a fault in one batch still holds a lost segment",
        lambda it: put_with_crc(it, COUNT, int32(-1), 1),
        lambda it: delete_segment(it, 2),
    ),
    done("-", "records of noise in a scan that is not deep", lambda it: undecodable(it, TARGET, 2), deep=False),
    done("-", "records of noise on two replicas", lambda it: undecodable(it, TARGET, 1, 2)),
)

# Base offsets, and what looks like a wrong one.


def retried(root: Path, more: int) -> Brokers:
    """A producer sent a batch once more to the later leader of an unclean election: equal bytes at two offsets."""
    old, new = Log(), Log()
    write_base(old)
    write_base(new)
    old.produce()
    _sent(old)
    new.lead(3)
    _sent(new)
    for _ in range(more):
        _ = old.produce(), new.produce()
    return histories(root, {1: old, 2: new, 3: new}, {1: 75, 2: 75, 3: 75})


def _sent(log: Log) -> Written:
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
    """Retention took the first segment everywhere, and records were deleted up to 40."""
    for broker in (1, 2, 3):
        delete_segment(brokers, broker, 0)
        write_checkpoint(brokers.log_dir(broker), "log-start", 40)


def older_batch_one_bit_away(root: Path) -> Brokers:
    """A copy of an older batch at the end, where one bit of the right offset would put it."""
    log = Log()
    write_base(log)
    older: Written | None = None
    while older is None:
        log.plain()
        older = next((batch for batch in log.batches if (batch.base_offset ^ log.next_offset).bit_count() == 1), None)
    brokers = histories(root, {1: log, 2: log, 3: log}, dict.fromkeys((1, 2, 3), 75))
    append(brokers, 55, older.data)
    return brokers


def watermark_beyond(root: Path) -> Brokers:
    """A batch that was lost before the last one leaves a gap: watermark and recovery point name the end as it is written."""
    log = Log()
    write_base(log)
    log.append(b"", log.next_offset + 255, 0)
    log.produce()
    return three_replicas(root, log)


BASE_OFFSETS: Final = (
    *each(
        "F03",
        "the batch of an offset, byte and bit",
        lambda it, offset, at, bit: it.flip(2, HEALTHY.at(offset), at, bit),
        [(0, 0, 7), (29, 7, 0), (32, 7, 0), (40, 4, 7), (54, 0, 7)],
    ),
    *each("F03", "the last batch, byte and bit", lambda it, at, bit: it.flip(2, LAST, at, bit), [(6, 3), (7, 3), (0, 7)]),
    done("F03", "the last batch of a lone copy", lambda it: it.flip(2, LAST, 5), alone),
    *trees("F03", "a retry across an unclean election has two offsets; batches behind it:", retried, [(0,), (2,)], controls=[(0,)]),
    done(
        "F03",
        "a last segment of one batch behind a missing one",
        lambda it: it.file(2, 55).write_bytes(HEALTHY.of_segment(55)[0].data),
        lambda it: remove(it, 2, 55, "index", "timeindex", "txnindex"),
        lambda it: delete_segment(it, 2),
    ),
    done("F03", "a log that begins after retention and deletion", deleted_up_to_40, control=True),
    Case("F18", "an older batch at the end, one bit from the right offset", older_batch_one_bit_away),
    Case("F03", "a high watermark beyond speaks for the batch", watermark_beyond),
)

# Records and what is compressed.


def members(root: Path, data: bytes, count: int) -> Brokers:
    return with_payload(root, data, codec="gzip", count=count)[0]


PAST_ITS_BATCH: Final = {
    "value": record_of(b"\0\0\0" + encode_zigzag(3) + b"key" + encode_zigzag(2**31 - 1) + b"v" + b"\0"),
    "headers": record_of(b"\0\0\0" + encode_zigzag(-1) + encode_zigzag(-1) + encode_zigzag(2**31 - 1) + b"ab"),
    "record": encode_zigzag(2**31 - 1) + b"\0" * 50,
}
MORE: Final = gzip.compress(write_record(RecordToWrite(b"key", b"more", offset_delta=1), 0, 1), mtime=0)
GZIP: Final = gzip.compress(record(), mtime=0)
RECORDS: Final = (
    *trees(
        "F12",
        "a length past what holds it, in",
        lambda root, what, codec: payload(root, compress(codec, PAST_ITS_BATCH[what]), codec),
        [("headers", "none"), ("record", "gzip"), ("value", "zstd")],
    ),
    *trees("F23", "sound batches of", compressed_by, product(CODECS), control=True),
    Case("F23", "a gzip member with a record beyond the count", lambda root: members(root, GZIP + MORE, 1)),
    Case("F23", "a gzip member in which the records go on", lambda root: members(root, GZIP + MORE, 2), control=True),
    Case("F23", "an empty gzip member", lambda root: members(root, GZIP + gzip.compress(b"", mtime=0), 1), control=True),
)

# Batches that stand in a log twice.


def copied(brokers: Brokers, first: int, last: int, behind: int = 74) -> None:
    """The batches of offsets `first` to `last` a second time on broker 2, right behind the batch of another offset."""
    data = b"".join(batch.data for batch in HEALTHY.batches if first <= batch.base_offset <= last)
    place = HEALTHY.at(behind)
    path = brokers.file(2, place.segment)
    log = path.read_bytes()
    path.write_bytes(log[: place.end] + data + log[place.end :])
    for segment in HEALTHY.segments:
        for suffix in ("index", "timeindex"):
            brokers.file(2, segment, suffix).write_bytes(b"")


def lie_within_a_copy(brokers: Brokers) -> None:
    size = brokers.file(2, 55).stat().st_size
    copied(brokers, 39, 54)
    change(brokers.file(2, 55), size + HEALTHY.at(46).position - HEALTHY.at(39).position + EPOCH + 3, 8)


COPIES: Final = ((0, 3, 74), (26, 34, 74), (29, 31, 48), (29, 34, 54), (43, 46, 68))
TWICE: Final = (
    *each("F18", "a copy at the end of the batch of", lambda it, at: append(it, 55, HEALTHY.at(at).data), [(0,), (70,)]),
    *each("F18", "batches copied: first, last, behind", copied, COPIES),
    done(
        "F18", "an epoch field that lies beside copied batches", lambda it: it.flip(2, TARGET, 15, 3), lambda it: copied(it, 0, 3)
    ),
    done("F18", "an epoch field that lies within copied batches", lie_within_a_copy),
)
VARIANTS: Final[tuple[Case, ...]] = (*BATCHES, *BASE_OFFSETS, *RECORDS, *TWICE)
