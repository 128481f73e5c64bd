"""Bundles of real brokers' log directories: judged like the directories themselves."""

import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.json_objects import Json
from kafka_forensics.questions.collect import CollectOptions, collect
from tests.support import task_engine
from tests.support.archives import EVERY, SHIPPED, of_brokers

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "sample_logs"
CORPORA = ROOT.parent / "shared" / "corpora"
PLACE = ("kind", "severity", "confidence", "topic", "partition", "broker", "file")
OFFSETS = ("byte_start", "byte_end", "offset_start", "offset_end")


def bundled(folder: Path, tmp_path: Path) -> list[str]:
    """A bundle of every log directory in `folder`."""
    paths = []
    for number, log_dir in enumerate(log_dirs(folder)):
        path = tmp_path / str(number) / f"{log_dir.name}.kfb"
        path.parent.mkdir(parents=True)
        with path.open("w+b") as file:
            assert collect([str(log_dir)], CollectOptions(), file).incomplete == []
        paths.append(str(path))
    return paths


def extracted(archive: str, folder: Path) -> Path:
    """An archive of real brokers, unpacked."""
    shipped = SHIPPED / f"{archive}.tar.xz"
    with tarfile.open(shipped if shipped.exists() else CORPORA / shipped.name) as packed:
        packed.extractall(folder, filter="data")
    return folder


def log_dirs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("meta.properties")) or [folder]


def told(scanned: Json) -> list[tuple[object, ...]]:
    """Findings by what must be equal; how keys are placed is told by keys alone."""
    findings = [finding for finding in scanned["findings"] if finding["kind"] != "KEY_PLACEMENT"]
    return [(*(finding[name] for name in PLACE + OFFSETS), finding["evidence"].get("held_by")) for finding in findings]


def summaries(scanned: Json) -> Iterator[Json]:
    for partition in scanned["partitions"]:
        replicas = [{**replica, "log_dir": None} for replica in partition["replicas"]]
        yield {**partition, "replicas": replicas, "key_placement": None}


@pytest.mark.parametrize("archive", of_brokers(*EVERY, nightly=EVERY[1:]))
def test_bundles_of_real_brokers_are_judged_like_the_directories(archive: str, tmp_path: Path) -> None:
    folder = extracted(archive, tmp_path / "unpacked")
    directories = [str(path) for path in log_dirs(folder)]
    expected: Json = json.loads(kf.scan(directories).to_json())
    scanned: Json = json.loads(kf.scan(bundled(folder, tmp_path)).to_json())
    assert told(scanned) == told(expected)
    assert list(summaries(scanned)) == list(summaries(expected))
    assert scanned["incomplete"] == expected["incomplete"] == []


@pytest.mark.parametrize("sample", ["silent-divergence", "unclean-election"])
def test_bundles_compare_also_with_directories(sample: str, tmp_path: Path) -> None:
    directories = [str(path) for path in log_dirs(SAMPLES / sample)]
    paths = bundled(SAMPLES / sample, tmp_path)
    paths[1:2] = directories[1:2]
    expected, scanned = (json.loads(kf.scan(given).to_json()) for given in (directories, paths))
    assert told(scanned) == told(expected)
    assert scanned["incomplete"] == []


def test_tasks_judge_bundles_like_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where paths are relative: tasks open them by absolute ones, and call them as they were given."""
    monkeypatch.chdir(tmp_path)
    paths = [os.path.relpath(path) for path in bundled(SAMPLES / "unclean-election", tmp_path)]
    of_tasks = task_engine.scan(paths, ScanOptions())
    here = local.scan(paths, ScanOptions())
    assert "".join(json_document.document(of_tasks)) == "".join(json_document.document(here))


def test_what_has_two_names_is_taken_once(tmp_path: Path) -> None:
    """A log directory and a partition's that links lead to, as disks are mounted elsewhere; and a path within another one."""
    folder = tmp_path / "brokers"
    shutil.copytree(SAMPLES / "unclean-election", folder)
    (folder / "disks").mkdir()
    for name, linked in (("disk-0", folder / "broker-1"), ("disk-1", folder / "broker-2" / "audit-0")):
        linked.rename(folder / "disks" / name)
        linked.symlink_to(os.path.relpath(folder / "disks" / name, linked.parent))
    expected: Json = json.loads(kf.scan([str(folder)]).to_json())
    for number, paths in enumerate(([folder], [folder, folder / "broker-3"], [folder / "broker-3", folder])):
        with (tmp_path / f"{number}.kfb").open("w+b") as file:
            collect([str(path) for path in paths], CollectOptions(), file)
        scanned: Json = json.loads(kf.scan([file.name]).to_json())
        assert told(scanned) == told(expected)
        assert scanned["summary"]["replicas"] == expected["summary"]["replicas"]
