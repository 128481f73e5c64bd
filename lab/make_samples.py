"""Makes `sample_logs/` with real brokers: `python -m lab.make_samples [SAMPLE...]`, three and a half minutes.

Every run gives the same topics, records, batches, leaders and lost records; ids, times and ports differ. Old trees, and their
archive in the package (`lab/sample_archive.py`), are replaced after scans of the new trees have the expected findings. `--list`
only lists the samples; `--into DIR` writes elsewhere.
"""

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.json_objects import Json
from kafka_forensics.scanning.engine import local
from lab.errors import LabError
from lab.files import trim_indexes
from lab.kafka_jars import KAFKA_VERSION, LAB, WORK
from lab.processes import mentioning
from lab.sample_archive import write_archive
from lab.silent_divergence import AFTERWARDS, OLD_VERSION, make_silent_divergence
from lab.tiered import VERSION as TIERED_VERSION
from lab.tiered_sample import TOPIC as TIERED_TOPIC, make_tiered
from lab.unclean_election import OLD_LEADER, STALE, STOPPED, make_unclean_election

SAMPLE_LOGS: Final = LAB.parent / "sample_logs"
HEALTHY, DIVERGENCE, UNCLEAN, TIERED = "healthy", "silent-divergence", "unclean-election", "tiered"
INDEX_BYTES: Final = 4096
"""Larger indexes are preallocated regardless of settings, with 10 MiB of zeros: those of `__cluster_metadata` and of 0.10.2.2."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A tree of `sample_logs/`: the module that makes it, the version of Kafka that writes it, and its history."""

    maker: str
    kafka: str
    history: str


SAMPLES: Final = {
    HEALTHY: Sample("lab/unclean_election.py", KAFKA_VERSION, "stopped cleanly before anything went wrong"),
    DIVERGENCE: Sample("lab/silent_divergence.py", OLD_VERSION, "high-watermark truncation: in sync, and different for good"),
    UNCLEAN: Sample("lab/unclean_election.py", KAFKA_VERSION, "an unclean election, copied in the middle of it"),
    TIERED: Sample("lab/tiered_sample.py", TIERED_VERSION, "an object of the remote store was deleted"),
}


def expected(exit_code: int, *findings: Json) -> Json:
    """The expected result of a scan: these findings, and no others above `info`."""
    return {"exit_code": exit_code, "findings": list(findings), "max_severity_elsewhere": "info"}


def expected_loss(ends: dict[str, int]) -> Json:
    """The finding of the committed records that only the old leader has."""
    place = {"kind": "UNCLEAN_LOSS", "topic": "audit", "partition": 0}
    return place | {"offset_start": ends["common_end"], "offset_end": ends["old_end"], "held_by": [OLD_LEADER]}


def expected_fork() -> Json:
    """The finding of two versions of the first records."""
    place = {"kind": "FORK_BELOW_HW", "topic": "ledger", "partition": 0}
    return place | {"offset_start": 0, "offset_end": AFTERWARDS, "held_by": [], "versions": [[1], [2, 3]]}


def expected_missing_object(start: int, end: int) -> Json:
    """The finding of a segment whose log is missing in the remote store."""
    place = {"kind": "REMOTE_SEGMENT_UNREADABLE", "topic": TIERED_TOPIC, "partition": 0}
    return place | {"offset_start": start, "offset_end": end, "held_by": []}


def make(work: Path, names: set[str]) -> Json:
    """Make the trees below `work`; return sample → expected result of its scan."""
    samples = {}
    if names & {HEALTHY, UNCLEAN}:
        ends = make_unclean_election(work)
        log_ends = {str(STALE): ends["new_end"], str(OLD_LEADER): ends["old_end"], str(STOPPED): ends["common_end"]}
        samples[HEALTHY] = expected(0)
        samples[UNCLEAN] = expected(1, expected_loss(ends)) | {"audit_log_end_offsets": log_ends}
    if DIVERGENCE in names:
        make_silent_divergence(work)
        samples[DIVERGENCE] = expected(1, expected_fork())
    if TIERED in names:
        samples[TIERED] = expected(1, expected_missing_object(*make_tiered(work)))
    return samples


def shortfalls(tree: Path, wanted: Json) -> list[str]:
    """Differences between a scan of a tree or archive and the expected result: missing findings, and others above `info`."""
    brokers = [str(tree)] if tree.is_file() else sorted(str(path) for path in tree.iterdir() if path.is_dir())
    names = ("kind", "topic", "partition", "offset_start", "offset_end", "held_by")
    listed = [
        str((finding.kind, *(getattr(finding.place, name) for name in names[1:5]), finding.evidence.get("held_by")))
        for finding in local.scan(brokers, ScanOptions()).findings
        if finding.severity.value != wanted["max_severity_elsewhere"]
    ]
    required = [str(tuple(finding[name] for name in names)) for finding in wanted["findings"]]
    return [f"missing: {finding}" for finding in required if finding not in listed] + [
        f"besides: {finding}" for finding in listed if finding not in required
    ]


def listing(directory: Path) -> Iterator[str]:
    """A line per sample: name, version of Kafka, files and bytes on disk, maker, history."""
    for name, sample in SAMPLES.items():
        sizes = [path.stat().st_size for path in (directory / name).rglob("*") if path.is_file()]
        size = f"{len(sizes):>4} files {sum(sizes):>9,} bytes" if sizes else "not made"
        yield f"{name:<18} Kafka {sample.kafka:<9} {size:<26} {sample.maker:<26} {sample.history}"


def put(work: Path, samples: Json, into: Path) -> None:
    """Replace the trees in `into`, and write their expected results into `expected.json`.

    Raises LabError, and changes nothing, if a scan of a new tree differs from the expected result.
    """
    for name in samples:
        cut = trim_indexes(work / name, larger_than=INDEX_BYTES)
        print(f"{name}: preallocated zeros cut from {len(cut)} index files")
        if wrong := shortfalls(work / name, samples[name]):
            raise LabError(f"{name} was made and is left in {work}, but a scan of it is not as it must be: {'; '.join(wrong)}")
    into.mkdir(parents=True, exist_ok=True)
    for name in samples:
        shutil.rmtree(into / name, ignore_errors=True)
        shutil.copytree(work / name, into / name)
    expected_file = into / "expected.json"
    before = json.loads(expected_file.read_text()) if expected_file.exists() else {}
    expected_file.write_text(json.dumps(dict(sorted((before | samples).items())), indent=2) + "\n")


def main() -> None:
    """Make and replace the samples on the command line (default: all), and list all samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sample", nargs="*", help=f"{', '.join(SAMPLES)} (default: all; {HEALTHY} and {UNCLEAN} are of one cluster)"
    )
    parser.add_argument("--list", action="store_true", help="only say what there is, who makes it, and with which Kafka")
    parser.add_argument("--into", type=Path, default=SAMPLE_LOGS, metavar="DIR", help="where to put them (default: sample_logs)")
    arguments = parser.parse_args()
    if unknown := set(arguments.sample) - set(SAMPLES):
        parser.error(f"no such sample: {', '.join(sorted(unknown))}")
    if not arguments.list:
        signal.signal(signal.SIGTERM, on_terminate)
        work = WORK / "samples"
        shutil.rmtree(work, ignore_errors=True)
        put(work, make(work, set(arguments.sample) or set(SAMPLES)), arguments.into)
        if left := mentioning(str(work)):
            raise LabError(f"processes are left: {left}")
        shutil.rmtree(work)
        if arguments.into == SAMPLE_LOGS:
            write_archive()
    print("\n".join(listing(arguments.into)))


def on_terminate(number: int, _frame: FrameType | None) -> None:
    """Raise SystemExit on SIGTERM, so that every process that the lab started is ended."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
