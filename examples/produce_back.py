"""Produce again what `kafka-forensics recover` wrote, in its order, each record with its key, value, headers and timestamp.

    python produce_back.py DIR                                          # a dry run: what would be produced, and where to
    python produce_back.py DIR --bootstrap-servers HOST:9092 --send

Each record goes to the partition that it was lost from, with its old offset in the header `kafka-forensics-original-offset`. The
producer is idempotent, and waits for all in-sync replicas. What was acknowledged stands in DIR/produced.txt, of --to-topic in a
file of its own, and is left out when the script runs again; where a run was killed, or was not answered in time, the last few may
be in the topic and not stand there: `kafka-forensics verify` tells. Ends with 0 if all was acknowledged, 1 if something was not, 2
for a wrong command line or file, or where no broker answers. Needs confluent-kafka.
"""

import argparse
import base64
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

OFFSET_HEADER = "kafka-forensics-original-offset"
SETTINGS = {"enable.idempotence": True, "acks": "all", "linger.ms": 20, "message.max.bytes": 1_000_000_000}
DEFAULTS = {"message.timeout.ms": 60_000, "log_level": 0}
"""Settings that --setting may change; what goes wrong is said in one line at the end, so that the client's log is off."""
FIRST_ANSWER_SECONDS = 10
FLUSH_SECONDS = 120
WAIT_SECONDS = 1
RECORDS = "records.jsonl"

Place = tuple[str, int, int]
"""Topic, partition and offset of a lost record."""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Produce again what `kafka-forensics recover` wrote.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="the directory that `kafka-forensics recover` wrote")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="needed with --send")
    parser.add_argument("--send", action="store_true", help="produce; without it nothing is sent")
    parser.add_argument("--committed-only", action="store_true", help="only records that are proven committed")
    parser.add_argument("--to-topic", metavar="TOPIC", help="another topic, with as many partitions [default: their own]")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="of the producer, such as security.protocol=SSL"
    )
    asked = parser.parse_args(given)
    if not all("=" in setting for setting in asked.setting):
        parser.error("--setting takes NAME=VALUE")
    if asked.send and not asked.bootstrap_servers:
        parser.error("--send needs --bootstrap-servers HOST:PORT")
    return asked


def bytes_of(content: Any) -> bytes | None:
    """What the file has as text, as {"base64": ...} or as null."""
    if isinstance(content, dict):
        return base64.b64decode(content["base64"], validate=True)
    return None if content is None else str(content).encode()


def headers_of(record: dict[str, Any]) -> list[tuple[str, str | bytes | None]]:
    """The record's own headers, and where it was. Raises ValueError for a name that is no text."""
    names = [name for name, _ in record["headers"]]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"offset {record['offset']}: the name of a header is no text, and this client takes no other")
    own = [(name, bytes_of(value)) for name, value in record["headers"]]
    return [*own, (OFFSET_HEADER, str(record["offset"]).encode())]


def place_of(record: dict[str, Any]) -> Place:
    return record["topic"], record["partition"], record["offset"]


def wanted(asked: argparse.Namespace, produced: Counter[Place]) -> Iterator[dict[str, Any]]:
    """The records to be produced, in their order; one place may have two, of two losing versions."""
    left = produced.copy()
    with (asked.directory / RECORDS).open(encoding="ascii") as lines:
        for record in map(json.loads, lines):
            if asked.committed_only and record["proof"] != "committed":
                continue
            if record["topic"].startswith("__") and asked.to_topic is None:
                raise ValueError(f"{record['topic']}: only brokers write internal topics; recover with --topic, or give --to-topic")
            if left[place_of(record)] > 0:
                left[place_of(record)] -= 1
            else:
                yield record


def already(path: Path) -> Counter[Place]:
    """What an earlier run has produced; a last line that was not written whole is none."""
    if not path.exists():
        return Counter()
    rows = (line.split("\t") for line in path.read_text(encoding="ascii").rpartition("\n")[0].splitlines())
    return Counter((topic, int(partition), int(offset)) for topic, partition, offset in rows)


class Sending:
    """A producer that writes down what was acknowledged, and stops at the first record that was not."""

    def __init__(self, asked: argparse.Namespace, done: Any) -> None:
        given = dict(setting.split("=", 1) for setting in asked.setting)
        said: list[str] = []
        on_error = {"error_cb": lambda error: said.append(error.str())}
        self.producer = Producer({**DEFAULTS, **given, **SETTINGS, **on_error, "bootstrap.servers": asked.bootstrap_servers})
        try:
            self.producer.list_topics(timeout=FIRST_ANSWER_SECONDS)
        except KafkaException:
            self.producer.poll(0)  # hands over what the client has to say
            why = f": {said[0]}" if said else ""
            raise OSError(f"no broker answered at {asked.bootstrap_servers} in {FIRST_ANSWER_SECONDS} seconds{why}") from None
        self.topic, self.done = asked.to_topic, done
        self.acknowledged = 0
        self.problem: str | None = None

    def send(self, record: dict[str, Any]) -> None:
        """Hand a record to the producer; waits while its queue is full."""
        place = place_of(record)

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                self.problem = self.problem or f"{place[0]}-{place[1]} offset {place[2]}: {error.str()}"
                return
            self.acknowledged += 1
            self.done.write("\t".join(map(str, place)) + "\n")
            self.done.flush()

        content = bytes_of(record["value"]), bytes_of(record["key"])
        stamp = max(record["timestamp_ms"], 0)  # 0 is the client's word for none
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
        """Wait for the last answers."""
        left = self.producer.flush(FLUSH_SECONDS)
        if left and self.problem is None:
            self.problem = f"{left} records were not acknowledged in {FLUSH_SECONDS} seconds"


def dry_run(asked: argparse.Namespace, produced: Counter[Place]) -> int:
    """Say what would be produced."""
    counts: Counter[tuple[str, int, str]] = Counter()
    for record in wanted(asked, produced):
        headers_of(record)
        counts[asked.to_topic or record["topic"], record["partition"], record["proof"]] += 1
    for (topic, partition, proof), count in sorted(counts.items()):
        print(f"{count} records to {topic}-{partition}, {'proven committed' if proof == 'committed' else 'maybe committed'}")
    print(f"{sum(counts.values())} records in all, {produced.total()} were produced before; nothing was sent: add --send")
    return 0


def send(asked: argparse.Namespace, produced: Counter[Place], path: Path) -> int:
    """Produce all of it."""
    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        os.truncate(path, len(whole[0]) + len(whole[1]))
    with path.open("a", encoding="ascii") as done:
        sending = Sending(asked, done)
        try:
            for record in wanted(asked, produced):
                if sending.problem is not None:
                    break
                sending.send(record)
        finally:
            sending.finish()
    print(f"{sending.acknowledged} records acknowledged")
    if sending.problem is not None:
        print(f"stopped: {sending.problem}; what was acknowledged is left out when this runs again", file=sys.stderr)
        return 1
    return 0


def main(given: list[str] | None = None) -> int:
    """The exit status."""
    asked = arguments(given)
    path = asked.directory / ("produced.txt" if asked.to_topic is None else f"produced-to-{asked.to_topic}.txt")
    if not (asked.directory / RECORDS).is_file():
        print(f"error: no {RECORDS} in {asked.directory}: give a directory that `recover` wrote", file=sys.stderr)
        return 2
    try:
        produced = already(path)
        return send(asked, produced, path) if asked.send else dry_run(asked, produced)
    except (OSError, ValueError, KeyError, KafkaException) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
