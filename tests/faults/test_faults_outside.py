"""Fault F47 whole: a log directory full of names and entries that want a scan to read, write or print where it must not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from tests.support.faults import healthy
from tests.support.faults_verdict import kinds, offsets, said
from tests.support.gallery_leftovers import NAMES, REFUSED, SECRET, all_at_once

pytestmark = pytest.mark.faults

WATCHED = """
import json, sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
result = local.scan(sys.argv[1:], ScanOptions(jobs=1))
print(json.dumps([len(result.findings), opened]))
"""


def listing(root: Path) -> list[tuple[str, int, int, int]]:
    found = [(str(path), path.lstat()) for path in sorted(root.rglob("*"))]
    return [(path, stat_result.st_mode, stat_result.st_size, stat_result.st_mtime_ns) for path, stat_result in found]


def test_f47_all_at_once_is_named_and_nothing_else_is_said(tmp_path: Path) -> None:
    brokers = all_at_once(tmp_path)
    before = listing(tmp_path)
    result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
    assert listing(tmp_path) == before
    assert kinds(result) == {
        ("DIR_NAME_ILLEGAL", "warning"): len(NAMES),
        ("FILE_UNKNOWN", "info"): len(NAMES) + 1,
        ("LEFTOVER_HOLDS_DATA", "info"): 3,
        ("NON_REGULAR_SKIPPED", "info"): 5,
        ("SEG_ZERO_TAIL", "info"): 1,
        ("SPARSE_FILE", "info"): 1,
    }
    assert {broker for _, _, broker in said(result)} == {2}
    not_read = [f"t-0/{97:020d}.log", f"t-0/{98:020d}.index", f"t-0/{99:020d}.log", "u-0", "v-0"]
    assert [incomplete.path for incomplete in result.incomplete] == [f"{brokers.log_dir(2)}/{name}" for name in not_read]
    assert {
        finding.evidence["name"]: finding.evidence["refused"] for finding in result.findings if finding.kind == "DIR_NAME_ILLEGAL"
    } == dict.fromkeys(NAMES, False)
    skipped = {
        Path(str(finding.place.file)).name: finding.evidence["entry_kind"]
        for finding in result.findings
        if "entry_kind" in finding.evidence
    }
    links = {f"{99:020d}.log", f"{98:020d}.index", "v-0"}
    assert skipped == {name: "symlink" if name in links else "other" for name in [*links, "u-0", f"{97:020d}.log"]}
    held = [finding for finding in result.findings if finding.kind == "LEFTOVER_HOLDS_DATA"]
    assert {(finding.place.topic, offsets(finding), finding.evidence["suffix"]) for finding in held} == {
        ("w", (0, 29), suffix) for suffix in ("delete", "future", "stray")
    }
    replica = next(one for one in result.partitions[0].replicas if one.broker == 2)
    assert (replica.log_end_offset, replica.read.value, replica.recovery) == (None, "part", None)
    for name in not_read:
        (brokers.log_dir(2) / name).unlink()
    result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
    assert result.incomplete == []
    assert kinds(result)["INTERRUPTED_SWAP", "info"] == 1
    replica = next(one for one in result.partitions[0].replicas if one.broker == 2)
    assert replica.recovery is not None
    assert (replica.recovery.starts, replica.recovery.steps[-1]) == (False, f"refuse {55:020d}.log")


@pytest.mark.parametrize("name", REFUSED)
def test_f47_name_at_which_a_broker_refuses_to_start(tmp_path: Path, name: str) -> None:
    brokers = healthy(tmp_path)
    (brokers.log_dir(2) / name).mkdir()
    result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
    assert said(result) == [("DIR_NAME_ILLEGAL", "warning", 2)]
    assert result.findings[0].evidence == {"name": name, "refused": True}


def test_f47_nothing_outside_is_opened(tmp_path: Path) -> None:
    brokers = all_at_once(tmp_path)
    command = [sys.executable, "-c", WATCHED, *map(str, brokers.log_dirs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    findings, opened = json.loads(done.stdout)
    assert findings == 23
    names = {Path(name).name for name in opened}
    assert f"{55:020d}.log" in names
    assert not names & {"secret", "passwd", "loop", "v-0", "u-0", f"{97:020d}.log", f"{98:020d}.index", f"{99:020d}.log"}


@pytest.mark.parametrize("format_name", ["table", "tsv", "json", "jsonl", "markdown"])
def test_f47_names_are_escaped_in_every_format(tmp_path: Path, format_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    brokers = all_at_once(tmp_path)
    paths = [str(path) for path in brokers.log_dirs]
    assert outcome(["scan", *paths, "--format", format_name, "--color", "never", "-q"]) == 3
    captured = capsys.readouterr()
    raw = {character for character in captured.out + captured.err if not character.isprintable()} - {"\n", "\t"}
    assert not raw
    assert SECRET.decode() not in captured.out
