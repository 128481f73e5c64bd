"""Produce the records of records.jsonl again, in order, each with its key, value, headers and timestamp.

    python3 produce_back.py                                          # a dry run: what would be produced, and where to
    python3 produce_back.py --bootstrap-servers HOST:9092 --send

`kafka-forensics recover` writes this script next to records.jsonl. It needs Python 3.9 or newer, and for --send confluent-kafka.

Each record goes to the partition where it was lost, with its old offset in the header `kafka-forensics-original-offset`. The
producer is idempotent, and waits for all in-sync replicas. Acknowledged records are listed in produced.txt (with --to-topic in
another file), and are left out when the script runs again. If a run was killed or timed out, the last few records may be in the
topic but not in the list: check with `kafka-forensics verify`. Exit status: 0 if all was acknowledged, 1 if something was not, 2
for a wrong command line or file, or if no broker answers.

Records of internal topics are left out, because only brokers write those.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    from confluent_kafka import KafkaException, Producer
except ImportError:
    Producer, KafkaException = None, OSError  # type: ignore[assignment, misc]

OFFSET_HEADER = "kafka-forensics-original-offset"
SETTINGS = {"enable.idempotence": True, "acks": "all", "linger.ms": 20, "message.max.bytes": 1_000_000_000}
DEFAULTS = {"message.timeout.ms": 60_000, "log_level": 0}
"""Settings that --setting may change; the client's log is off, because errors are printed in one line at the end."""
FIRST_ANSWER_SECONDS = 10
FLUSH_SECONDS = 120
WAIT_SECONDS = 1
DIRECTORY = Path(__file__).parent
RECORDS = DIRECTORY / "records.jsonl"
INTERNAL_TOPICS = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"}

Place = tuple[str, int, int]
"""(topic, partition, offset) of a lost record."""


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Produce the records of records.jsonl again.")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="needed with --send")
    parser.add_argument("--send", action="store_true", help="produce; without it nothing is sent")
    parser.add_argument("--committed-only", action="store_true", help="only records that are proven committed")
    parser.add_argument("--to-topic", metavar="TOPIC", help="another topic, with as many partitions [default: the same topics]")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="of the producer, such as security.protocol=SSL"
    )
    arguments = parser.parse_args(command_line)
    if not all("=" in setting for setting in arguments.setting):
        parser.error("--setting takes NAME=VALUE")
    if arguments.send and not arguments.bootstrap_servers:
        parser.error("--send needs --bootstrap-servers HOST:PORT")
    return arguments


def bytes_of(content: Any) -> bytes | None:
    """The bytes of a value in the file: text, {"base64": ...} or null."""
    if isinstance(content, dict):
        return base64.b64decode(content["base64"], validate=True)
    return None if content is None else str(content).encode()


def headers_of(record: dict[str, Any]) -> list[tuple[str, str | bytes | None]]:
    """The record's headers, and one with its old offset. Raises ValueError for a header name that is not text."""
    names = [name for name, _ in record["headers"]]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"offset {record['offset']}: the name of a header is not text, and this client takes no other")
    headers = [(name, bytes_of(value)) for name, value in record["headers"]]
    return [*headers, (OFFSET_HEADER, str(record["offset"]).encode())]


def place_of(record: dict[str, Any]) -> Place:
    return record["topic"], record["partition"], record["offset"]


def records_to_produce(arguments: argparse.Namespace, produced: Counter[Place], left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """The records to produce, in order; an offset may occur twice, with the records of two losing versions.

    `left_out` counts the records of internal topics.
    """
    left = produced.copy()
    with RECORDS.open(encoding="ascii") as lines:
        for record in map(json.loads, lines):
            if arguments.committed_only and record["proof"] != "committed":
                continue
            if record["topic"] in INTERNAL_TOPICS and arguments.to_topic is None:
                left_out[record["topic"]] += 1
            elif left[place_of(record)] > 0:
                left[place_of(record)] -= 1
            else:
                yield record


def print_left_out(left_out: Counter[str]) -> None:
    for topic, count in sorted(left_out.items()):
        print(f"{count} records of {topic} left out: only brokers write internal topics")


def already(path: Path) -> Counter[Place]:
    """Records that earlier runs produced; a last line that was not written completely does not count."""
    if not path.exists():
        return Counter()
    rows = (line.split("\t") for line in path.read_text(encoding="ascii").rpartition("\n")[0].splitlines())
    return Counter((topic, int(partition), int(offset)) for topic, partition, offset in rows)


class RecordSender:
    """A producer that lists acknowledged records in a file, and stops at the first one that was not acknowledged."""

    def __init__(self, arguments: argparse.Namespace, done: Any) -> None:
        settings = dict(setting.split("=", 1) for setting in arguments.setting)
        errors: list[str] = []
        on_error = {"error_cb": lambda error: errors.append(error.str())}
        self.producer = Producer({**DEFAULTS, **settings, **SETTINGS, **on_error, "bootstrap.servers": arguments.bootstrap_servers})
        try:
            self.producer.list_topics(timeout=FIRST_ANSWER_SECONDS)
        except KafkaException:
            self.producer.poll(0)  # calls error_cb
            why = f": {errors[0]}" if errors else ""
            raise OSError(f"no broker answered at {arguments.bootstrap_servers} in {FIRST_ANSWER_SECONDS} seconds{why}") from None
        self.topic, self.done = arguments.to_topic, done
        self.acknowledged = 0
        self.problem: str | None = None

    def send(self, record: dict[str, Any]) -> None:
        """Give a record to the producer; wait while its queue is full."""
        place = place_of(record)

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                self.problem = self.problem or f"{place[0]}-{place[1]} offset {place[2]}: {error.str()}"
                return
            self.acknowledged += 1
            self.done.write("\t".join(map(str, place)) + "\n")
            self.done.flush()

        content = bytes_of(record["value"]), bytes_of(record["key"])
        stamp = max(record["timestamp_ms"], 0)  # 0: the client sets no timestamp
        headers = headers_of(record)
        while True:
            try:
                self.producer.produce(self.topic or place[0], *content, place[1], delivered, timestamp=stamp, headers=headers)
            except BufferError:
                self.producer.poll(WAIT_SECONDS)
            else:
                self.producer.poll(0)
                return

    def finish(self) -> None:
        """Wait for the last acknowledgements."""
        left = self.producer.flush(FLUSH_SECONDS)
        if left and self.problem is None:
            self.problem = f"{left} records were not acknowledged in {FLUSH_SECONDS} seconds"


def dry_run(arguments: argparse.Namespace, produced: Counter[Place]) -> int:
    """Print what would be produced."""
    counts: Counter[tuple[str, int, str]] = Counter()
    left_out: Counter[str] = Counter()
    for record in records_to_produce(arguments, produced, left_out):
        headers_of(record)
        counts[arguments.to_topic or record["topic"], record["partition"], record["proof"]] += 1
    for (topic, partition, proof), count in sorted(counts.items()):
        print(f"{count} records to {topic}-{partition}, {'proven committed' if proof == 'committed' else 'maybe committed'}")
    print_left_out(left_out)
    print(f"{sum(counts.values())} records in all, {sum(produced.values())} were produced before; nothing was sent: add --send")
    return 0


def send(arguments: argparse.Namespace, produced: Counter[Place], path: Path) -> int:
    """Produce all records."""
    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        os.truncate(path, len(whole[0]) + len(whole[1]))
    with path.open("a", encoding="ascii") as done:
        sender = RecordSender(arguments, done)
        left_out: Counter[str] = Counter()
        try:
            for record in records_to_produce(arguments, produced, left_out):
                if sender.problem is not None:
                    break
                sender.send(record)
        finally:
            sender.finish()
    print_left_out(left_out)
    print(f"{sender.acknowledged} records acknowledged")
    if sender.problem is not None:
        print(f"stopped: {sender.problem}; what was acknowledged is left out when this runs again", file=sys.stderr)
        return 1
    return 0


def main(command_line: list[str] | None = None) -> int:
    """Return the exit status."""
    arguments = parse_arguments(command_line)
    path = DIRECTORY / ("produced.txt" if arguments.to_topic is None else f"produced-to-{arguments.to_topic}.txt")
    if not RECORDS.is_file():
        print(f"error: no {RECORDS}: copy it to the directory of this script", file=sys.stderr)
        return 2
    if arguments.send and Producer is None:
        print("error: --send needs confluent-kafka, which is not installed: pip install confluent-kafka", file=sys.stderr)
        return 2
    try:
        produced = already(path)
        return send(arguments, produced, path) if arguments.send else dry_run(arguments, produced)
    except (OSError, ValueError, KeyError, KafkaException) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
