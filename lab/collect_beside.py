"""Measures how `collect` slows down a broker: a producer's latencies without `collect` and while it runs.

`python -m lab.collect_beside` prints a table. The broker, the producer and `collect` share the cores and the disk of this machine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from lab.cluster import Cluster
from lab.errors import LabError

ALONE: Final = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
OLDER: Final = "older"
STEADY: Final = "steady"
PARTITIONS: Final = 4
SEGMENT_BYTES: Final = 256 << 20
VALUE_BYTES: Final = 1000
FLUSH_TIMEOUT_SECONDS: Final = 120
WARM_UP_SECONDS: Final = 30
_MEGA: Final = 1_000_000


@dataclass(slots=True)
class Latencies:
    """For each record, the seconds from `Producer.produce` to the broker's answer."""

    seconds: list[float] = field(default_factory=list)

    def note(self, error: KafkaError | None, message: Message) -> None:
        """Record the latency of a delivered message. Raises LabError for a record that was not written."""
        if error is not None:
            raise LabError(f"not written: {error}")
        self.seconds.append(message.latency() or 0.0)

    def at(self, share: float) -> float:
        """The latency in milliseconds that this share of the records does not exceed."""
        ranked = sorted(self.seconds)
        return 1000 * ranked[min(int(share * len(ranked)), len(ranked) - 1)]


@dataclass(frozen=True, slots=True)
class Beside:
    """A load beside the producer: its title in the table and the options of `collect`; None = `collect` does not run."""

    title: str
    options: tuple[str, ...] | None


def rows_of(max_rate: float) -> list[Beside]:
    """The loads in order; "nothing" is measured twice, to show the variation between runs."""
    limit = f"{max_rate:g}"
    return [
        Beside("nothing", None),
        Beside("collect --live", ()),
        Beside(f"collect --live --max-rate {limit}", ("--max-rate", limit)),
        Beside("nothing, again", None),
    ]


class Collecting:
    """Runs `collect --live` on a log directory repeatedly until it is stopped."""

    def __init__(self, log_dir: Path, folder: Path, options: tuple[str, ...]) -> None:
        self._command = [sys.executable, "-m", "kafka_forensics", "collect", str(log_dir), "--live", "-q", *options]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.runs = 0

    def ensure_running(self) -> None:
        """Start `collect` unless it runs. Raises LabError if the last run failed."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None and self._process.returncode:
            raise LabError(f"collect ended with status {self._process.returncode}")
        self.runs += 1
        output = self._folder / f"{self.runs}.kfb"
        self._process = subprocess.Popen([*self._command, "--output", str(output)], stdin=subprocess.DEVNULL)

    def stop(self) -> None:
        """End the running `collect`."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def produce_steadily(producer: Producer, seconds: float, rate: int, meanwhile: Callable[[], None]) -> Latencies:
    """Produce `rate` records a second at even intervals; call `meanwhile` about ten times a second."""
    latencies = Latencies()
    value = os.urandom(VALUE_BYTES)
    begin = time.monotonic()
    for number in range(int(seconds * rate)):
        while (wait := begin + number / rate - time.monotonic()) > 0:
            producer.poll(wait)
        producer.produce(STEADY, value, on_delivery=latencies.note)
        producer.poll(0)
        if number % max(rate // 10, 1) == 0:
            meanwhile()
    if producer.flush(FLUSH_TIMEOUT_SECONDS):
        raise LabError("the broker does not answer")
    return latencies


def write_older(cluster: Cluster, size_in_bytes: int) -> None:
    """Write logs of another topic to disk and drop them from the page cache, like old logs that nobody read for a long time."""
    cluster.create_topic(OLDER, assignment=[[1]] * PARTITIONS, settings={"segment.bytes": str(SEGMENT_BYTES)})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, "batch.size": 65_536, "log_level": 0})
    values = [os.urandom(VALUE_BYTES // 2).hex().encode() for _ in range(1000)]
    for number in range(size_in_bytes // VALUE_BYTES):
        while True:
            try:
                producer.produce(OLDER, values[number % len(values)], partition=number // 64 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(FLUSH_TIMEOUT_SECONDS):
        raise LabError("the older logs could not be written")
    for log in cluster.log_dir(1).glob(f"{OLDER}-*/*.log"):
        with log.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def collecting(log_dir: Path, folder: Path, beside: Beside) -> Iterator[Collecting | None]:
    """Run `collect` beside the producer for the length of the block, if the load has it."""
    if beside.options is None:
        yield None
        return
    folder.mkdir()
    running = Collecting(log_dir, folder, beside.options)
    try:
        yield running
    finally:
        running.stop()


def measure(root: Path, *, seconds: float, rate: int, older_bytes: int, max_rate: float) -> Iterator[list[str]]:
    """Rows of the table: load, records, latencies in ms at 50 %, 99 % and 99.9 %, runs of `collect`."""
    with Cluster(root / "nodes", brokers=1, broker_settings=ALONE) as cluster:
        write_older(cluster, older_bytes)
        cluster.create_topic(STEADY, assignment=[[1]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
        produce_steadily(producer, WARM_UP_SECONDS, rate, lambda: None)
        for number, beside in enumerate(rows_of(max_rate)):
            with collecting(cluster.log_dir(1), root / f"bundles-{number}", beside) as running:
                latencies = produce_steadily(producer, seconds, rate, lambda: None if running is None else running.ensure_running())
                runs = "-" if running is None else str(running.runs)
            shares = [f"{latencies.at(share):.1f}" for share in (0.5, 0.99, 0.999)]
            yield [beside.title, str(len(latencies.seconds)), *shares, runs]


def main() -> None:
    """Measure as the options say, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m lab.collect_beside", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each row")
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--older", type=float, default=1000.0, metavar="MB", help="of older logs that are collected")
    parser.add_argument("--max-rate", type=float, default=50.0, metavar="MB/S")
    arguments = parser.parse_args()
    print("| beside the producer | records | p50 ms | p99 ms | p99.9 ms | collections begun |\n|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for row in measure(
            Path(folder),
            seconds=arguments.seconds,
            rate=arguments.rate,
            older_bytes=int(arguments.older * _MEGA),
            max_rate=arguments.max_rate,
        ):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
