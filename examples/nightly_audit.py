"""A nightly audit: scan a snapshot of a cluster's log directories on Spark, and store the facts and findings as Parquet.

    spark-submit nightly_audit.py /snapshots/2026-11-25/* --output /lake/kafka --snapshot 2026-11-25
    spark-submit nightly_audit.py ... --since 2026-11-24=/snapshots/2026-11-24

Each night is one more snapshot of the dataset OUTPUT, which every worker must see; a night that is audited again replaces what it
wrote before (on object storage it is refused). With --since the changes go to OUTPUT-changes/SNAPSHOT. Exit status, as of `scan`:
0; 1 if there are findings from --fail-on upwards; 2 for a wrong request, such as a missing path; 3 if some input could not be read,
or Spark did not finish.
"""

import argparse
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_forensics import spark as kf_spark
from kafka_forensics.errors import ForensicsError, UsageError

SEVERITIES = ("info", "warning", "error", "critical")
FACTS = ("replicas", "transactions", "findings", "incomplete")
"""Facts written by default; findings are always written."""
LINES = 20
"""Number of findings printed, most severe first."""


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Audit a snapshot of Kafka log directories on Spark.")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what `kafka-forensics scan` takes: all brokers at once")
    parser.add_argument("--output", required=True, help="the dataset of all snapshots: a directory or URI")
    parser.add_argument("--cluster", help="name of the cluster [default: its id]")
    parser.add_argument("--snapshot", default=f"{datetime.now(UTC):%Y-%m-%d}", help="name of this one [default: today, in UTC]")
    parser.add_argument(
        "--since", action="append", default=[], metavar="NAME=PATH", help="an older one; again for more paths of it"
    )
    parser.add_argument("--fact", action="append", metavar="NAME", help=f"again for more [default: {', '.join(FACTS)}]")
    parser.add_argument("--whole", action="store_true", help="whole log directories were copied: missing partitions are lost")
    parser.add_argument("--fail-on", choices=SEVERITIES, default="error")
    arguments = parser.parse_args(command_line)
    if re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:_-]*", arguments.snapshot) is None:
        parser.error(f"{arguments.snapshot!r} cannot name a snapshot")
    arguments.since = [since for since in arguments.since if since]  # a scheduler's template may expand to nothing
    older = {name for name, _, path in (since.partition("=") for since in arguments.since) if name and path}
    if arguments.since and (len(older) != 1 or arguments.snapshot in older or not all("=" in since for since in arguments.since)):
        parser.error("--since takes NAME=PATH, with one NAME that is not this snapshot's")
    return arguments


def audit(arguments: argparse.Namespace) -> int:
    """Audit the snapshot; return the exit status."""
    spark = SparkSession.builder.appName(f"kafka-forensics {arguments.snapshot}").getOrCreate()
    output = arguments.output if "://" in arguments.output else str(Path(arguments.output).absolute())
    target, whole = output.rstrip("/"), arguments.whole or None
    # First, so that nothing is written if a path does not exist.
    changed = changes_since(spark, arguments, whole) if arguments.since else None
    if changed is not None:
        write_changes(changed, f"{target}-changes/{arguments.snapshot}")
    named = {"cluster": arguments.cluster, "snapshot": arguments.snapshot}
    facts = sorted({*(arguments.fact or FACTS), "findings"})
    done = kf_spark.export(spark, arguments.paths, target, facts, append=True, whole=whole, **named)
    result = done.result
    findings, missing = list(result.findings), list(result.incomplete)
    print(f"{arguments.snapshot}: {result.verdict}; {result.totals.partitions:,} partitions, {result.totals.bytes_total:,} bytes")
    if changed is not None:
        print(counted("changed", (change.kind.value for change in changed.changes)))
        findings += changed.findings
        missing += [*(gap for scan in changed.snapshots.values() for gap in scan.incomplete), *changed.incomplete]
    print(counted("findings", (finding.severity.value for finding in findings)))
    for finding in sorted(findings, key=lambda finding: -finding.severity.rank)[:LINES]:
        print(f"  {finding.severity.value:8}  {finding.kind}  {where(finding.place)}")
    for gap in dict.fromkeys(missing):
        print(f"incomplete: {printable(gap.path)}: {printable(gap.reason)}")
    print(f"written to {target}:", ", ".join(f"{dataset.fact} {dataset.rows:,}" for dataset in done.datasets))
    bad = SEVERITIES[SEVERITIES.index(arguments.fail_on) :]
    return 3 if missing else int(any(finding.severity.value in bad for finding in findings))


def changes_since(spark: SparkSession, arguments: argparse.Namespace, whole: bool | None) -> Any:
    """Changes of every replica since the older snapshot; this reads both snapshots in addition to the audit."""
    name = arguments.since[0].partition("=")[0]
    older = [since.partition("=")[2] for since in arguments.since]
    return kf_spark.scan_snapshots(spark, {name: older, arguments.snapshot: arguments.paths}, whole=whole)


def write_changes(changed: Any, folder: str) -> None:
    """Write the changes; they are a few rows per replica, so the driver writes them."""
    filesystem, path = FileSystem.from_uri(folder)
    filesystem.create_dir(path)
    for fact in ("changes", "findings"):
        pq.write_table(changed.facts(fact), f"{path}/{fact}.parquet", filesystem=filesystem)


def counted(what: str, kinds: Iterable[str]) -> str:
    return f"{what}: " + (", ".join(f"{count:,} {kind}" for kind, count in Counter(kinds).most_common()) or "none")


def where(place: Any) -> str:
    """The partition of a finding, or the broker or cluster if it is about no partition."""
    topic = "" if place.topic is None else f"{place.topic}-{place.partition}" if place.partition is not None else place.topic
    return printable(topic) if topic else f"broker {printable(str(place.broker))}" if place.broker is not None else "the cluster"


def printable(text: str) -> str:
    """Escape control characters: names and paths come from evidence, and a terminal would obey them."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def main() -> int:
    try:
        return audit(parse_arguments())
    except ForensicsError as error:
        print(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 3
    except PySparkException as error:
        print(f"error: Spark did not finish: {error}", file=sys.stderr)
        return 3
    except (OSError, pa.ArrowException) as error:
        print(f"error: cannot write: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    logging.getLogger("kafka_forensics.spark").setLevel(logging.INFO)  # a line when a job ends
    if status := main():
        sys.exit(status)
