"""`python -m bench.remote_listing`: lists remote stores of 1,000,000 objects from a service that takes 20 ms a request.

The objects are LocalTieredStorage's, five a segment, of 10, 10,000 and 100,000 partitions. Prints a Markdown table: seconds and
peak memory of the process that lists, start-up and discovery included, and its requests. `--local COUNT` adds a directory.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from bench.running import run
from bench.store import BUCKET, Store, serve, served_by

SUFFIXES: Final = ("index", "leader_epoch_checkpoint", "log", "snapshot", "timeindex")
PARTITIONS: Final = (10, 10_000, 100_000)
_STORE: Final = "remote/kafka-tiered-storage"


def object_names(partitions: int, objects: int) -> Iterator[str]:
    """Keys of a store: of each partition equally many segments, of each segment five objects."""
    segments = objects // partitions // len(SUFFIXES)
    for partition in range(partitions):
        directory = f"{_STORE}/topic-{partition}-{_uuid(partition)}"
        for segment in range(segments):
            stem = f"{directory}/{segment * 1000:020d}-{_uuid(partition, segment)}"
            yield from (f"{stem}.{suffix}" for suffix in SUFFIXES)


def _uuid(*numbers: int) -> str:
    return urlsafe_b64encode(blake2b(repr(numbers).encode(), digest_size=16).digest()).decode().rstrip("=")


class ListedStore(Store):
    """A bucket of objects that have names and sizes, and no bytes."""

    def __init__(self, partitions: int, objects: int, seconds: float) -> None:
        super().__init__(Path(os.devnull), seconds)
        self.keys = sorted(object_names(partitions, objects))
        self.files = dict.fromkeys(self.keys, os.stat(__file__))


def _list(place: str) -> None:
    """Discover and list the store at a place, as a scan does."""
    from kafka_forensics.parsers.log_dir import discover
    from kafka_forensics.storage.open import open_source
    from kafka_forensics.storage.tiered import list_store

    begin = time.perf_counter()
    source = open_source(place)
    (directory,) = discover(source).remote_stores
    found = time.perf_counter()
    store = list_store(source, directory.path)
    objects = sum(len(segment.objects) for log in store.logs.values() for segment in log.segments.values())
    sys.stderr.write(
        f"{len(store.logs):,} partitions, {objects:,} objects: discovery {found - begin:.1f} s, "
        f"listing {time.perf_counter() - found:.1f} s\n"
    )


def _row(name: str, place: str) -> str:
    measured = run([sys.executable, "-m", "bench.remote_listing", "--list", place])
    return f"{name} | {measured.seconds:.1f} | {measured.cpu_seconds:.1f} | {measured.peak_mib:.0f}"


def _remote_row(partitions: int, objects: int, milliseconds: int) -> str:
    command = [sys.executable, "-m", "bench.remote_listing", "--serve", str(partitions), str(objects), str(milliseconds)]
    with served_by(command) as service:
        os.environ.update(service.environment | {"AWS_ENDPOINT_URL": service.endpoint})
        row = _row(f"{partitions:,}", f"s3://{BUCKET}/remote")
        return f"| {row} | {service.requests().get('LIST', 0):,} |"


def _local_row(objects: int) -> str:
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        for name in object_names(10, objects):
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        return f"| {_row(f'local, {objects:,} files', folder)} | - |"


def main() -> None:
    """Measure, or be one of the two processes of a measurement."""
    parser = argparse.ArgumentParser(prog="python -m bench.remote_listing", description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, action="append")
    parser.add_argument("--milliseconds", type=int, default=20, help="of a request")
    parser.add_argument("--local", type=int, default=0, metavar="COUNT", help="also list a directory of so many files")
    parser.add_argument("--list", metavar="PLACE", help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        _list(arguments.list)
    elif arguments.serve:
        partitions, objects, milliseconds = arguments.serve
        asyncio.run(serve(ListedStore(partitions, objects, milliseconds / 1000)))
    else:
        print("| partitions | s | CPU s | peak MiB | requests |\n|---|---:|---:|---:|---:|", flush=True)
        for partitions in arguments.partitions or PARTITIONS:
            print(_remote_row(partitions, arguments.objects, arguments.milliseconds), flush=True)
        if arguments.local:
            print(_local_row(arguments.local), flush=True)


if __name__ == "__main__":
    main()
