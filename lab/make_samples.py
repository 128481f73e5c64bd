"""Makes `sample_logs/` with real brokers: `python -m lab.make_samples`, two and a half minutes; names of samples make only those.

The structure is the same on every run: topics, records, batches, who leads, who is lost. Ids, times and ports are new.
"""

import argparse
import json
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from lab.files import trim_indexes
from lab.kafka_jars import LAB, WORK
from lab.silent_divergence import AFTERWARDS, make_silent_divergence
from lab.unclean_election import OLD_LEADER, STALE, STOPPED, make_unclean_election

SAMPLE_LOGS: Final = LAB.parent / "sample_logs"
HEALTHY, DIVERGENCE, UNCLEAN = "healthy", "silent-divergence", "unclean-election"
INDEX_BYTES: Final = 4096
"""Larger indexes are those that know no setting, of `__cluster_metadata` and of 0.10.2.2: 10 MiB of zeros each."""


def expected(exit_code: int, *findings: dict[str, Any]) -> dict[str, Any]:
    """What a scan of one sample must find: these findings, and nothing above `info` besides."""
    return {"exit_code": exit_code, "findings": list(findings), "max_severity_elsewhere": "info"}


def expected_loss(ends: dict[str, int]) -> dict[str, Any]:
    """What the old leader held alone and committed."""
    place = {"kind": "UNCLEAN_LOSS", "topic": "audit", "partition": 0}
    return place | {"offset_start": ends["common_end"], "offset_end": ends["old_end"], "held_by": [OLD_LEADER]}


def expected_fork() -> dict[str, Any]:
    """Two versions of the first records; nobody can tell which was right."""
    place = {"kind": "FORK_BELOW_HW", "topic": "ledger", "partition": 0}
    return place | {"offset_start": 0, "offset_end": AFTERWARDS, "held_by": [], "versions": [[1], [2, 3]]}


def make(work: Path, names: set[str]) -> dict[str, Any]:
    """Make the trees below `work`, and say what must be found in each."""
    found = {}
    if names & {HEALTHY, UNCLEAN}:
        ends = make_unclean_election(work)
        log_ends = {str(STALE): ends["new_end"], str(OLD_LEADER): ends["old_end"], str(STOPPED): ends["common_end"]}
        found[HEALTHY] = expected(0)
        found[UNCLEAN] = expected(1, expected_loss(ends)) | {"audit_log_end_offsets": log_ends}
    if DIVERGENCE in names:
        make_silent_divergence(work)
        found[DIVERGENCE] = expected(1, expected_fork())
    return found


def main() -> None:
    """Make the trees, then put them in place of the old ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = (HEALTHY, DIVERGENCE, UNCLEAN)
    parser.add_argument("sample", nargs="*", help=f"{', '.join(names)} (default: all; {HEALTHY} and {UNCLEAN} are of one cluster)")
    chosen = set(parser.parse_args().sample) or set(names)
    if unknown := chosen - set(names):
        parser.error(f"no such sample: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, on_terminate)
    work = WORK / "samples"
    shutil.rmtree(work, ignore_errors=True)
    found = make(work, chosen)
    for name in found:
        cut = trim_indexes(work / name, larger_than=INDEX_BYTES)
        print(f"{name}: preallocated zeros cut from {len(cut)} index files")
        shutil.rmtree(SAMPLE_LOGS / name, ignore_errors=True)
        shutil.copytree(work / name, SAMPLE_LOGS / name)
    account = SAMPLE_LOGS / "expected.json"
    before = json.loads(account.read_text()) if account.exists() else {}
    account.write_text(json.dumps(dict(sorted((before | found).items())), indent=2) + "\n")
    shutil.rmtree(work)


def on_terminate(number: int, _frame: FrameType | None) -> None:
    """Leave by an exception, so that every process the lab started is ended."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
