"""Bundles next to directories and in tasks, and directories with two names."""

import json
import os
import shutil
from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.json_objects import Json
from kafka_forensics.questions.collect import CollectOptions, collect
from kafka_forensics.scanning.engine import local
from tests.scanning.engine import task_engine
from tests.support.bundles import make_bundle
from tests.support.places import SAMPLES

SAMPLE = SAMPLES / "unclean-election"
PLACE = ("kind", "severity", "confidence", "topic", "partition", "broker", "file")
OFFSETS = ("byte_start", "byte_end", "offset_start", "offset_end")


def comparable_findings(scanned: Json) -> list[tuple[object, ...]]:
    """The fields of findings that must be equal, except of KEY_PLACEMENT, which needs keys."""
    findings = [finding for finding in scanned["findings"] if finding["kind"] != "KEY_PLACEMENT"]
    return [(*(finding[name] for name in PLACE + OFFSETS), finding["evidence"].get("held_by")) for finding in findings]


def test_bundles_beside_a_directory_are_judged_like_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in tasks, and with relative paths: tasks open absolute paths, and answers name the relative ones."""
    monkeypatch.chdir(tmp_path)
    directories = sorted(map(str, SAMPLE.iterdir()))
    bundles = [make_bundle(Path(directory), tmp_path / f"{number}.kfb").name for number, directory in enumerate(directories)]
    paths = [bundles[0], directories[1], bundles[2]]
    scanned, expected = (json.loads(kf.scan(inputs).to_json()) for inputs in (paths, directories))
    assert comparable_findings(scanned) == comparable_findings(expected)
    assert scanned["incomplete"] == []
    task_result, local_result = task_engine.scan(paths, ScanOptions()), local.scan(paths, ScanOptions())
    assert "".join(json_document.document(task_result)) == "".join(json_document.document(local_result))


def test_directories_with_two_names_are_collected_once(tmp_path: Path) -> None:
    """Links to a log directory and to a partition directory, as for mounted disks; and a path inside another one."""
    folder = shutil.copytree(SAMPLE, tmp_path / "brokers")
    (folder / "disks").mkdir()
    for name, linked in (("disk-0", folder / "broker-1"), ("disk-1", folder / "broker-2" / "audit-0")):
        linked.rename(folder / "disks" / name)
        linked.symlink_to(os.path.relpath(folder / "disks" / name, linked.parent))
    expected: Json = json.loads(kf.scan([str(folder)]).to_json())
    for number, paths in enumerate(([folder], [folder, folder / "broker-3"], [folder / "broker-3", folder])):
        with (tmp_path / f"{number}.kfb").open("w+b") as file:
            collect([str(path) for path in paths], CollectOptions(), file)
        scanned: Json = json.loads(kf.scan([file.name]).to_json())
        assert comparable_findings(scanned) == comparable_findings(expected)
        assert scanned["summary"]["replicas"] == expected["summary"]["replicas"]
