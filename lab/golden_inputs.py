"""Makes the input files of golden dumps: copies from `sample_logs/`, some of them broken on purpose."""

import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lab.group_kinds import make_groups
from lab.group_records import group_records, remote_log_records, share_records, write_records
from lab.make_samples import SAMPLE_LOGS
from lab.mutations import batch_ranges, in_batch, legacy_log, patched

FIRST: Final = f"{0:020}"
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
TAKEN: Final[Mapping[str, tuple[str, str]]] = {
    "idempotent": ("healthy/broker-1/orders-0", f"{160:020}"),
    "odd-records": ("healthy/broker-1/orders-1", FIRST),
    "transactions": ("healthy/broker-1/payments-0", FIRST),
    "compacted": ("healthy/broker-1/profiles-0", FIRST),
    "append-time": ("healthy/broker-1/append-time-0", FIRST),
    "codec-gzip": ("healthy/broker-1/codec-gzip-0", FIRST),
    "codec-snappy": ("healthy/broker-1/codec-snappy-0", FIRST),
    "codec-lz4": ("healthy/broker-1/codec-lz4-0", FIRST),
    "codec-zstd": ("healthy/broker-1/codec-zstd-0", FIRST),
    "preallocated": ("unclean-election/broker-1/payments-1", FIRST),
    "format-1": ("silent-divergence/broker-1/ledger-0", FIRST),
    "cluster-metadata": ("healthy/broker-1/__cluster_metadata-0", FIRST),
    "consumer-offsets": ("healthy/broker-1/__consumer_offsets-0", FIRST),
    "transaction-state": ("healthy/broker-1/__transaction_state-0", FIRST),
}
"""Name → partition directory below `sample_logs/`, base offset of the segment."""
SNAPSHOTS: Final = {"snapshot-idempotent": "orders-0", "snapshot-transactions": "payments-0", "snapshot-empty": "profiles-0"}
BY_GROUPS: Final = {"group-kinds": "__consumer_offsets-0", "share-state": "__share_group_state-0"}
"""Input name → partition of a broker with groups of every kind."""
HUGE_VARINT: Final = struct.pack(">i", 2**31 - 1)
UNKNOWN_VERSION: Final = b"\x00\x09"

BROKEN_LOGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "empty": lambda _: b"",
    "torn-tail": lambda data: data[:-40],
    "torn-header": lambda data: data[: batch_ranges(data)[-1][0] + 15],
    "zero-tail": lambda data: data + bytes(4096),
    "zero-page": lambda data: patched(data, batch_ranges(data)[3][0], bytes(1024)),
    "length-huge": lambda data: in_batch(data, 3, 8, HUGE_VARINT),
    "length-small": lambda data: in_batch(data, 3, 8, struct.pack(">i", 5)),
    "length-off-by-one": lambda data: in_batch(data, 3, 8, struct.pack(">i", batch_length(data, 3) + 1)),
    "crc-mismatch": lambda data: in_batch(data, 3, 100, b"\xff\xff"),
    "magic-3": lambda data: in_batch(data, 3, 16, b"\x03"),
    "epoch-77": lambda data: in_batch(data, 3, 12, struct.pack(">i", 77)),
    "offset-jump": lambda data: in_batch(data, 3, 0, struct.pack(">q", 2**40)),
    "count-huge": lambda data: in_batch(data, 3, 57, HUGE_VARINT, sealed=True),
    "count-short": lambda data: in_batch(data, 3, 57, struct.pack(">i", 2), sealed=True),
    "codec-unknown": lambda data: in_batch(data, 3, 22, b"\x07", sealed=True),
    "batch-twice": lambda data: data[: batch_ranges(data)[3][1]] + data[slice(*batch_ranges(data)[3])],
}
"""Name → function that breaks the `.log` of `idempotent`."""
BROKEN_INDEXES: Final[Mapping[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "index-wrong-position": (".index", lambda data: patched(data, 12, struct.pack(">i", 17))),
    "index-wrong-offset": (".index", lambda data: patched(data, 8, struct.pack(">i", 1))),
    "index-odd-length": (".index", lambda data: data[:-3]),
    "index-beyond-log": (".index", lambda data: patched(data, len(data) - 4, HUGE_VARINT)),
    "index-empty": (".index", lambda _: b""),
    "time-index-odd-length": (".timeindex", lambda data: data[:-5]),
    "time-index-out-of-order": (".timeindex", lambda data: data[12:24] + data[:12] + data[24:]),
    "time-index-wrong-offset": (".timeindex", lambda data: patched(data, 20, struct.pack(">i", 3))),
    "time-index-too-late": (".timeindex", lambda data: patched(data, 12, struct.pack(">q", 2**60))),
    "time-index-empty": (".timeindex", lambda _: b""),
}
"""Name → suffix of an index of `idempotent`, and the function that breaks it."""


def batch_length(data: bytes, number: int) -> int:
    """The length field of batch `number`."""
    start, end = batch_ranges(data)[number]
    return end - start - 12


def write(directory: Path, name: str, data: bytes) -> None:
    """Write one input file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)


def take_segments(inputs: Path) -> None:
    """Copy whole segments with their indexes, and snapshots."""
    for name, (partition, base) in TAKEN.items():
        for suffix in SUFFIXES:
            source = SAMPLE_LOGS / partition / f"{base}{suffix}"
            if source.is_file():
                write(inputs / name, source.name, source.read_bytes())
    for name, partition in SNAPSHOTS.items():
        source = max((SAMPLE_LOGS / "healthy" / "broker-1" / partition).glob("*.snapshot"))
        write(inputs / name, source.name, source.read_bytes())
    bootstrap = SAMPLE_LOGS / "healthy" / "broker-1" / "bootstrap.checkpoint"
    write(inputs / "bootstrap", f"{FIRST}-0000000000.checkpoint", bootstrap.read_bytes())


def break_logs(inputs: Path) -> None:
    """Break the log of `idempotent` in every way, and write logs of the old formats."""
    name = f"{TAKEN['idempotent'][1]}.log"
    healthy = (inputs / "idempotent" / name).read_bytes()
    for case, mutate in BROKEN_LOGS.items():
        write(inputs / case, name, mutate(healthy))
    for magic in (0, 1):
        write(inputs / f"crafted-format-{magic}", f"{FIRST}.log", legacy_log(magic))


def break_indexes(inputs: Path) -> None:
    """Break indexes, a transaction index and a producer snapshot; the log stays sound."""
    base = TAKEN["idempotent"][1]
    healthy = {suffix: (inputs / "idempotent" / f"{base}{suffix}").read_bytes() for suffix in SUFFIXES[:3]}
    for case, (suffix, mutate) in BROKEN_INDEXES.items():
        for other, data in healthy.items():
            if other in {".log", ".index", suffix}:
                write(inputs / case, f"{base}{other}", mutate(data) if other == suffix else data)
    aborted = (inputs / "transactions" / f"{FIRST}.txnindex").read_bytes()
    write(inputs / "aborted-torn", f"{FIRST}.txnindex", aborted[:-7])
    write(inputs / "aborted-version", f"{FIRST}.txnindex", patched(aborted, 0, UNKNOWN_VERSION))
    snapshot = next((inputs / "snapshot-transactions").iterdir())
    write(inputs / "snapshot-crc", snapshot.name, patched(snapshot.read_bytes(), 3, b"\x00"))
    write(inputs / "snapshot-torn", snapshot.name, snapshot.read_bytes()[:-5])
    write(inputs / "snapshot-version", snapshot.name, patched(snapshot.read_bytes(), 0, UNKNOWN_VERSION))


def make_group_inputs(inputs: Path) -> None:
    """Copy the logs of a broker with groups of every kind, and write every kind of record with Kafka's serializers."""
    with tempfile.TemporaryDirectory(prefix="groups-") as scratch:
        make_groups(Path(scratch))
        for name, partition in BY_GROUPS.items():
            log = Path(scratch) / "broker-1" / partition / f"{FIRST}.log"
            write(inputs / name, log.name, log.read_bytes())
    write_records("group", group_records(), inputs / "group-records" / f"{FIRST}.log")
    write_records("share", share_records(), inputs / "share-records" / f"{FIRST}.log")
    write_records("remote", remote_log_records(), inputs / "remote-log-records" / f"{FIRST}.log")


def make_inputs(inputs: Path) -> None:
    """Recreate all inputs, each case in a separate directory below `inputs`."""
    shutil.rmtree(inputs, ignore_errors=True)
    take_segments(inputs)
    break_logs(inputs)
    break_indexes(inputs)
    make_group_inputs(inputs)
