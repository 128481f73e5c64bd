"""Copies without any `.log` file: one finding per log directory, no findings about their logs, other copies judged as usual."""

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kafka_forensics.cli.outputs.plan_steps import steps_of
from kafka_forensics.cli.outputs.words import headline
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import ReadExtent, ScanResult
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.scanning.engine.local import scan
from tests.scanning.engine import task_engine
from tests.support.brokers import healthy, put_copies, put_differently_cleaned, put_log_dir, put_meta_properties, put_partition
from tests.support.bundles import make_bundle
from tests.support.logs import HEALTHY, Log, keyed_history
from tests.support.places import SAMPLES
from tests.support.unread import check_unknown, check_unread


def sample(root: Path, *without_logs: int) -> list[Path]:
    """Log directories of three brokers with thirteen partitions each, some without any `.log` file."""
    copy = shutil.copytree(SAMPLES / "healthy", root / "copy")
    log_dirs = [copy / f"broker-{broker}" for broker in (1, 2, 3)]
    for broker in without_logs:
        drop_logs(log_dirs[broker - 1])
    return log_dirs


def drop_logs(log_dir: Path) -> None:
    for path in log_dir.rglob("*.log"):
        path.unlink()


def scanned(paths: Iterable[Path], copied: CopyExtent | None = None) -> ScanResult:
    return scan([str(path) for path in paths], ScanOptions(jobs=1, copied=copied))


def problems(result: ScanResult) -> list[Finding]:
    return [finding for finding in result.findings if finding.severity is not Severity.INFO]


def kinds(result: ScanResult) -> set[str]:
    return {finding.kind for finding in result.findings}


def test_one_broker_without_logs_is_one_finding(tmp_path: Path) -> None:
    whole = {(summary.topic, summary.partition): summary.verdict for summary in scanned(sample(tmp_path / "whole")).partitions}
    paths = sample(tmp_path, 2)
    result = scanned(paths)
    [finding] = problems(result)
    assert (finding.kind, finding.severity, finding.place.broker, finding.place.log_dir) == (
        "PARTIAL_COPY",
        Severity.WARNING,
        2,
        str(paths[1]),
    )
    assert (finding.evidence["without_logs"], finding.evidence["partitions"]) == (True, 13)
    [gap] = result.incomplete
    assert (gap.path, gap.broker, gap.topic) == (str(paths[1]), 2, None)
    assert {(summary.topic, summary.partition): summary.verdict for summary in result.partitions} == whole
    for partition in result.partitions:
        assert (partition.not_read, partition.read, partition.agreement.kind) == ([2], ReadExtent.PART, "not_compared")
        [unread] = [replica for replica in partition.replicas if replica.broker == 2]
        check_unread(unread)


def test_without_any_logs_everything_is_unknown(tmp_path: Path) -> None:
    result = scanned(sample(tmp_path, 1, 2, 3))
    assert [(finding.kind, finding.place.broker) for finding in problems(result)] == [
        ("PARTIAL_COPY", broker) for broker in (1, 2, 3)
    ]
    assert len(result.partitions) == 13
    for partition in result.partitions:
        check_unknown(partition)


def test_logs_absent_from_a_whole_copy_are_missing(tmp_path: Path) -> None:
    result = scanned(sample(tmp_path, 2), CopyExtent.WHOLE)
    assert {"HW_BEYOND_LEO", "SEGMENT_MISSING"} <= kinds(result)
    assert "PARTIAL_COPY" not in kinds(result)


def test_one_partition_without_its_log_is_not_a_copy_without_logs(tmp_path: Path) -> None:
    paths = sample(tmp_path)
    drop_logs(paths[1] / "orders-0")
    result = scanned(paths)
    assert "PARTIAL_COPY" not in kinds(result)
    assert {(finding.place.topic, finding.place.partition, finding.place.broker) for finding in problems(result)} == {
        ("orders", 0, 2)
    }


def test_a_fresh_broker_has_empty_logs(tmp_path: Path) -> None:
    for broker in (1, 2):
        put_log_dir(tmp_path / f"b{broker}", broker, {"t-0": Log(), "__consumer_offsets-3": Log()})
    result = scanned([tmp_path])
    assert (result.verdict, result.findings, result.incomplete) == ("clean", [], [])
    assert [headline(partition) for partition in result.partitions] == ["the replicas are identical"] * 2


def test_only_compacted_logs_that_differ_are_called_compacted_differently(tmp_path: Path) -> None:
    put_copies(tmp_path / "equal", (1, 2), [batch.data for batch in HEALTHY.batches[:2]], cleaned=3)
    [equal] = scanned([tmp_path / "equal"]).partitions
    brokers = put_differently_cleaned(tmp_path / "different", keyed_history(), {2: {0, 3, 4}})
    [different] = [partition for partition in scanned(brokers.log_dirs).partitions if partition.topic == "t"]
    assert headline(equal) == "the replicas are identical"
    assert headline(different).startswith("the replicas were compacted differently and hold the same values")


def put_formatted(root: Path) -> None:
    """Write a controller that was formatted and never started."""
    put_meta_properties(root / "b1", 1)
    directory = root / "b1" / "__cluster_metadata-0"
    directory.mkdir()
    (directory / "00000000000000000000-0000000000.checkpoint").touch()


def put_cleaning(root: Path) -> None:
    """Write a log whose segments the cleaner is replacing: all files have other suffixes for a moment."""
    put_partition(root / "b1" / "t-0", HEALTHY)
    put_meta_properties(root / "b1", 1)
    for path in (root / "b1" / "t-0").glob("*.log"):
        path.rename(path.with_suffix(".log.swap" if path.name.startswith("0" * 20) else ".log.deleted"))


@pytest.mark.parametrize("make", [put_formatted, put_cleaning])
def test_log_files_with_other_suffixes_count_as_logs(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    assert "PARTIAL_COPY" not in kinds(scanned([tmp_path]))


def test_emptied_partition_directories_are_not_a_copy_without_logs(tmp_path: Path) -> None:
    """A copy that excludes `.log` files still has their indexes."""
    brokers = healthy(tmp_path)
    for path in (brokers.log_dir(2) / "t-0").iterdir():
        path.unlink()
    found_kinds = kinds(scanned(brokers.log_dirs))
    assert "HW_BEYOND_LEO" in found_kinds
    assert "PARTIAL_COPY" not in found_kinds


def packed(log_dir: Path, suffix: str) -> Path:
    target = log_dir.with_name(f"{log_dir.name}.{suffix}")
    if suffix == "kfb":
        return make_bundle(log_dir, target)
    if suffix == "zip":
        with zipfile.ZipFile(target, "w") as archive:
            for path in sorted(log_dir.rglob("*")):
                archive.write(path, path.relative_to(log_dir.parent))
        return target
    with tarfile.open(target, "w:gz" if suffix.endswith("gz") else "w") as tar:
        tar.add(log_dir, log_dir.name)
    return target


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "zip", "kfb"])
def test_archives_and_bundles_give_equal_findings(tmp_path: Path, suffix: str) -> None:
    first, second, third = sample(tmp_path, 2)
    directories, mixed = scanned([first, second, third]), scanned([first, packed(second, suffix), third])
    assert [(finding.kind, finding.severity, finding.place.topic, finding.place.broker) for finding in mixed.findings] == [
        (finding.kind, finding.severity, finding.place.topic, finding.place.broker) for finding in directories.findings
    ]
    assert [(gap.broker, gap.reason) for gap in mixed.incomplete] == [(gap.broker, gap.reason) for gap in directories.incomplete]


def test_tasks_give_equal_findings(tmp_path: Path) -> None:
    paths = [str(path) for path in sample(tmp_path, 2)]
    by_tasks, local = task_engine.scan(paths, ScanOptions(), work_bytes=1000), scan(paths, ScanOptions(jobs=1))
    by_tasks.engine = local.engine
    assert list(document(by_tasks)) == list(document(local))


def test_no_step_of_a_plan_uses_a_copy_without_logs(tmp_path: Path) -> None:
    paths = [str(path) for path in sample(tmp_path, 2)]
    plans = make_plans(paths, ScanOptions("orders", 0, jobs=1), PlanOptions())
    [planned] = plans.planned
    assert {candidate.broker for candidate in planned.plan.candidates} == {1, 3}
    last_step = steps_of(plans)[-1]
    assert last_step.text == "Copy the log directories of broker 2 again, with their .log files, and plan again."
