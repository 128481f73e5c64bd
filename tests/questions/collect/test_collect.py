"""Bundles of real brokers' log directories: judged like the directories themselves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.model.json_objects import Json
from kafka_forensics.questions.collect import CollectOptions, collect

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "sample_logs"
PLACE = ("kind", "severity", "confidence", "topic", "partition", "broker", "file")
OFFSETS = ("byte_start", "byte_end", "offset_start", "offset_end")


def bundled(folder: Path, tmp_path: Path) -> list[str]:
    """A bundle of every log directory in `folder`."""
    paths = []
    for number, log_dir in enumerate(log_dirs(folder)):
        path = tmp_path / str(number) / f"{log_dir.name}.kfb"
        path.parent.mkdir()
        with path.open("w+b") as file:
            assert collect([str(log_dir)], CollectOptions(), file).incomplete == []
        paths.append(str(path))
    return paths


def log_dirs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("meta.properties")) or sorted(folder.iterdir())


def told(scanned: Json) -> list[tuple[object, ...]]:
    """Findings by what must be equal; how keys are placed is told by keys alone."""
    findings = [finding for finding in scanned["findings"] if finding["kind"] != "KEY_PLACEMENT"]
    return [(*(finding[name] for name in PLACE + OFFSETS), finding["evidence"].get("held_by")) for finding in findings]


def summaries(scanned: Json) -> Iterator[Json]:
    for partition in scanned["partitions"]:
        replicas = [{**replica, "log_dir": None} for replica in partition["replicas"]]
        yield {**partition, "replicas": replicas, "key_placement": None}


@pytest.mark.parametrize("sample", ["healthy", "silent-divergence", "unclean-election"])
def test_bundles_are_judged_like_the_directories(sample: str, tmp_path: Path) -> None:
    directories = [str(path) for path in log_dirs(SAMPLES / sample)]
    expected: Json = json.loads(kf.scan(directories).to_json())
    scanned: Json = json.loads(kf.scan(bundled(SAMPLES / sample, tmp_path)).to_json())
    assert told(scanned) == told(expected)
    assert list(summaries(scanned)) == list(summaries(expected))
    assert scanned["summary"]["verdict"] == expected["summary"]["verdict"]
    assert scanned["incomplete"] == []
